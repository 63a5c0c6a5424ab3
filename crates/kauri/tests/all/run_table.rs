//! The ledger's table `runs` beside the store it is made of: after any crash, and whatever was lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kauri::ledger::Ledger;
use kauri::runtime::run::{Class, Ending, Halt, Keep, LiveRun, Retry, RunFault, State, Submission};
use kauri::runtime::substrate::{Signal, TreeSubstrate};
use kauri::runtime::{Error, Policy, Runtime};
use kauri::tree::Store;
use kauri::wire::pack::Map;
use kauri::wire::{RunId, WorkerId};
use kauri::{RunTable, SystemClock};

use crate::homes::Scratch;

const CREW: WorkerId = WorkerId(3);
const PINS: [&str; 2] = ["kauri:runs table:a", "kauri:runs table:b"];

struct Life {
    ledger: Arc<Ledger>,
    substrate: Arc<TreeSubstrate>,
    runtime: Runtime,
    table: RunTable,
}

impl Life {
    fn new(scratch: &Scratch) -> Self {
        let ledger = Arc::new(scratch.ledger());
        let substrate = Arc::new(TreeSubstrate::new(Store::open(scratch.file("runs.kauri")).expect("a store")));
        let runtime =
            Runtime::builder(Arc::clone(&substrate) as _, Arc::new(SystemClock::new())).start().expect("started");
        let keep = Keep { runs: Some(3), ..Keep::default() };
        let class = Class { keep, retry: Retry::never(), ..Class::new(CREW) };
        runtime.runs().define("sale", &class).expect("defined");
        let table = RunTable::new(runtime.clone(), Arc::clone(&substrate), Arc::clone(&ledger));
        Self { ledger, substrate, runtime, table }
    }

    fn submit(&self) -> RunId {
        self.runtime.runs().submit(&Submission::new("sale", "12 apples")).expect("submitted").run
    }

    fn work(&self) {
        let sell = |live: &mut LiveRun| {
            live.step("price", |_| Ok(Vec::new()))?;
            Ok::<_, Halt>(Ending::success(live.now().wall, Map::EMPTY))
        };
        self.runtime.run_worker(CREW, Policy::default(), sell).drain().expect("driven");
    }

    /// What the table should hold: status and steps by run.
    fn expected(&self) -> BTreeMap<String, (String, i64, bool)> {
        let runs = self.runtime.runs().list(None, 10_000).expect("read");
        let status = |state: State| match state {
            State::Pending => "pending",
            State::Running => "running",
            State::Parked => "parked",
            State::Sealed(outcome) => outcome.as_str(),
        };
        let row =
            |run: &kauri::runtime::run::Run| (status(run.state).to_owned(), i64::from(run.steps), run.ended.is_some());
        runs.iter().map(|run| (run.id.to_string(), row(run))).collect()
    }

    fn found(&self) -> BTreeMap<String, (String, i64, bool)> {
        let rows = self.ledger.database().list_runs(10_000).expect("read");
        rows.into_iter().map(|row| (row.id, (row.status, row.task_count, row.ended_at.is_some()))).collect()
    }

    fn check(&self) {
        assert_eq!(self.found(), self.expected());
    }
}

#[test]
fn table_of_runs_holds_what_the_store_holds_whatever_was_cut_off() {
    let scratch = Scratch::new("run-table");
    let mut life = Life::new(&scratch);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..60 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match random % 8 {
            0 | 1 => {
                life.submit();
            }
            2 => life.work(),
            3 => drop(life.runtime.runs().sweep(1000).expect("swept")),
            4 => {
                let id = life.submit();
                life.runtime.runs().cancel(id).expect("cancelled");
            }
            // Cut off after the newer pin was made, and after the table had come to it.
            5 => drop(life.substrate.store().pin(PINS[(round / 7) % 2], 1)),
            6 => {
                drop(life);
                life = Life::new(&scratch);
            }
            _ => {
                life.table.catch_up().expect("written");
                life.check();
            }
        }
    }
    life.work();
    let update = life.table.catch_up().expect("written");
    life.check();
    assert!(!update.is_rebuilt);
    assert_eq!(life.table.catch_up().expect("written"), kauri::TableUpdate::default(), "nothing is left to do");
}

#[test]
fn table_that_lost_its_place_or_its_rows_is_built_anew() {
    let scratch = Scratch::new("run-table-lost");
    let life = Life::new(&scratch);
    assert!(life.table.catch_up().expect("written").is_rebuilt, "the first time");
    for _ in 0..250 {
        life.submit();
    }
    let update = life.table.catch_up().expect("written");
    assert_eq!((update.put, update.is_rebuilt), (250, false));
    life.check();
    // The database was lost.
    life.ledger.database().queue().submit("DELETE FROM runs", []).expect("done");
    life.ledger.database().remove_state("runs_position").expect("done");
    assert!(life.table.catch_up().expect("written").is_rebuilt);
    life.check();
    // The store has no such pin any more.
    PINS.iter().for_each(|pin| drop(life.substrate.store().unpin(pin)));
    assert!(life.table.catch_up().expect("written").is_rebuilt);
    life.check();
    assert!(life.substrate.store().pins().len() == 1, "one pin is enough");
}

#[test]
fn table_follows_while_runs_go_on_and_is_whole_when_it_is_over() {
    let scratch = Scratch::new("run-table-follow");
    let life = Life::new(&scratch);
    let (signal, is_over) = (Arc::new(Signal::default()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let follows =
            scope.spawn(|| life.table.follow(&signal, Duration::from_millis(1), || is_over.load(Ordering::Acquire)));
        for _ in 0..20 {
            life.submit();
            life.work();
        }
        is_over.store(true, Ordering::Release);
        signal.raise();
        follows.join().expect("no panic").expect("written");
    });
    life.check();
    let none = RunId::from_parts(kauri::wire::Timestamp(1), [7; 10]);
    assert!(matches!(life.runtime.runs().run(none), Err(Error::Run(RunFault::NoRun(_)))));
}

#[test]
fn what_is_swept_stands_in_the_audit_and_is_gone_from_the_table() {
    let scratch = Scratch::new("run-table-sweep");
    let life = Life::new(&scratch);
    for _ in 0..5 {
        life.submit();
        life.work();
    }
    life.table.catch_up().expect("written");
    let (swept, collected) = kauri::sweep(&life.runtime.runs(), &life.ledger, None, 1000).expect("swept");
    assert_eq!((swept.jobs, swept.runs, collected.artifacts), (2, 2, 0));
    assert_eq!(life.table.catch_up().expect("written").removed, 2);
    life.check();
    drop(life);
    let mut noted = Vec::new();
    for entry in std::fs::read_dir(scratch.file("audit")).expect("a folder") {
        let lines = std::fs::read_to_string(entry.expect("a file").path()).expect("text");
        noted.extend(lines.lines().filter(|line| line.contains("JOB_SWEPT")).map(str::to_owned));
    }
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert!(noted.iter().all(|line| line.contains("too many") && line.contains("\"sale\"")), "{noted:?}");
}
