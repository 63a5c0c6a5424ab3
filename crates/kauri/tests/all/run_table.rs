//! The ledger's table `runs` beside the store it is made of: after any crash, and whatever was lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kauri::ledger::Ledger;
use kauri::runtime::run::script::{Context, Rust, Script, ScriptError};
use kauri::runtime::run::{
    Class, Ending, FanOut, Halt, Keep, LiveRun, Outcome, Retry, Run, RunFault, RunReport, Scripted, Submission,
};
use kauri::runtime::substrate::{Signal, TreeSubstrate};
use kauri::runtime::{Error, Policy, Runtime};
use kauri::tree::Store;
use kauri::wire::pack::{Map, MapBuf};
use kauri::wire::{RunId, Timestamp, WorkerId};
use kauri::{RunTable, SystemClock};

use crate::homes::Scratch;

const CREW: WorkerId = WorkerId(3);
const SCRIPTS: WorkerId = WorkerId(4);
const PINS: [&str; 2] = ["kauri:runs table:a", "kauri:runs table:b"];

/// A row by the names of its columns; what is not there is left out.
type Row = BTreeMap<String, String>;

/// A script that waits for the end of a run's row, and brings the table up to date when that is sealed and its report is not yet written.
struct Hasty(RunTable);

impl Script for Hasty {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        Ok(cx.emit().log_info("12 apples")?)
    }

    fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
        self.0.catch_up().map(drop).map_err(|error| error.to_string().as_str().into())
    }
}

struct Life {
    path: PathBuf,
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
        let retry = Retry { attempts_max: 2, pause: Duration::ZERO, pause_max: Duration::ZERO, ..Retry::default() };
        let fan_out = FanOut { depth_max: 2, ..FanOut::default() };
        let class = Class { keep: keep.clone(), retry, fan_out, ..Class::new(CREW) };
        runtime.runs().define("sale", &class).expect("defined");
        runtime.runs().define("script", &Class { keep, ..Class::new(SCRIPTS) }).expect("defined");
        let table = RunTable::new(runtime.clone(), Arc::clone(&substrate), Arc::clone(&ledger));
        Self { path: scratch.file("runtime/runtime.db"), ledger, substrate, runtime, table }
    }

    fn submit(&self) -> RunId {
        self.submit_with("12 apples")
    }

    /// One that fails at first, and asks for other work that asks for other work.
    fn submit_tree(&self) -> RunId {
        self.submit_with("a tree")
    }

    /// One whose script has phases.
    fn submit_script(&self) -> RunId {
        self.runtime.runs().submit(&Submission::new("script", "")).expect("submitted").run
    }

    fn submit_with(&self, input: &str) -> RunId {
        self.runtime.runs().submit(&Submission::new("sale", input)).expect("submitted").run
    }

    fn work(&self) {
        let sell = |live: &mut LiveRun| {
            live.step("price", |_| Ok(Vec::new()))?;
            if live.input() != b"12 apples" {
                let mut params = MapBuf::new();
                params.put("depth", live.run().depth);
                live.step("ask", |step| Ok(step.enqueue("sale", params.view()).map(|_| Vec::new())?))?;
            }
            let now = live.now().wall;
            let is_failure = live.input() == b"a tree" && live.run().attempt() == 1;
            Ok::<_, Halt>(match is_failure {
                true => Ending::failure(now, Outcome::ScriptError, "no apples"),
                false => Ending::success(now, Map::EMPTY),
            })
        };
        self.runtime.run_worker(CREW, Policy::default(), sell).drain().expect("driven");
        let of = (self.runtime.clone(), Arc::clone(&self.substrate), Arc::clone(&self.ledger));
        let scripts = Scripted::new(move |_| {
            let (runtime, substrate, ledger) = of.clone();
            Box::new(Rust::inline(Hasty(RunTable::new(runtime, substrate, ledger))))
        });
        self.runtime.run_worker(SCRIPTS, Policy::default(), scripts).drain().expect("driven");
    }

    /// What the table should hold.
    fn expected(&self) -> BTreeMap<String, Row> {
        let runs = self.runtime.runs();
        let row = |run: &Run| {
            let report = runs.report_of(run.id).expect("read");
            (run.id.to_string(), expected(run, report.as_ref()))
        };
        runs.list(None, 10_000).expect("read").iter().map(row).collect()
    }

    /// What any SQLite tool finds, whatever the columns are.
    fn found(&self) -> BTreeMap<String, Row> {
        let connection = rusqlite::Connection::open(&self.path).expect("a database");
        let mut all = connection.prepare("SELECT * FROM runs").expect("a table");
        let names: Vec<String> = all.column_names().map(str::to_owned).collect();
        let row = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| match row.get_unwrap(at) {
                rusqlite::types::Value::Null => None,
                rusqlite::types::Value::Integer(number) => Some(number.to_string()),
                rusqlite::types::Value::Text(text) => Some(text),
                other => panic!("expected numbers and texts, found {other:?}"),
            };
            Ok(names.iter().enumerate().filter_map(|(at, name)| Some((name.clone(), text(at)?))).collect::<Row>())
        };
        let rows = all.query_map([], row).expect("rows").map(|row| row.expect("a row"));
        rows.map(|row| (row["id"].clone(), row)).collect()
    }

    fn check(&self) {
        assert_eq!(self.found(), self.expected());
    }
}

/// The row of a run, column by column.
fn expected(run: &Run, report: Option<&RunReport>) -> Row {
    let stamp = |at: Timestamp| kauri::ledger::Timestamp(at.0).to_string();
    let since = |from: Timestamp, to: Timestamp| (to.0 - from.0).to_string();
    let begun = run.started.unwrap_or(run.created);
    let columns = [
        ("id", Some(run.id.to_string())),
        ("status", Some(run.state.to_string())),
        ("task_count", Some(run.steps.to_string())),
        ("started_at", Some(stamp(begun))),
        ("ended_at", run.ended.map(stamp)),
        ("run_id", Some(run.id.to_string())),
        ("job_id", Some(run.job.to_string())),
        ("parent_run_id", run.parent().map(|parent| parent.to_string())),
        ("root_run_id", Some(run.root.to_string())),
        ("depth", Some(run.depth.to_string())),
        ("attempt", Some(run.attempt().to_string())),
        ("class", Some(run.class.to_string())),
        ("outcome", run.outcome().map(|outcome| outcome.to_string())),
        ("event_count", Some(run.events.to_string())),
        ("created_at", Some(stamp(run.created))),
        ("queued_ms", run.started.or(run.ended).map(|until| since(run.created, until))),
        ("ran_ms", run.started.zip(run.ended).map(|(from, until)| since(from, until))),
        ("phases_ms", report.map(phases)),
    ];
    columns.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn phases(report: &RunReport) -> String {
    let phases = report.phases.iter().map(|(phase, took)| {
        let micros = (took.as_nanos() + 500) / 1000;
        format!("\"{phase}\":{:?}", micros as f64 / 1000.0)
    });
    format!("{{{}}}", phases.collect::<Vec<_>>().join(","))
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
        match random % 10 {
            0 => {
                life.submit();
            }
            1 => {
                life.submit_script();
            }
            2 | 8 => life.work(),
            9 => {
                life.submit_tree();
            }
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
    life.submit_tree();
    life.submit_script();
    life.work();
    let update = life.table.catch_up().expect("written");
    life.check();
    assert!(!update.is_rebuilt);
    let rows: Vec<Row> = life.found().into_values().collect();
    let has = |name: &str, value: &str| rows.iter().any(|row| row.get(name).is_some_and(|found| found == value));
    assert!(has("depth", "2") && has("attempt", "2") && has("outcome", "script_error"), "{rows:?}");
    assert_eq!(life.table.catch_up().expect("written"), kauri::TableUpdate::default(), "nothing is left to do");
}

#[test]
fn durations_of_phases_come_into_the_table_though_it_had_come_past_the_end_of_their_run() {
    let scratch = Scratch::new("run-table-phases");
    let life = Life::new(&scratch);
    let id = life.submit_script().to_string();
    life.work();
    let row = |life: &Life| life.found().remove(&id).expect("a row");
    assert_eq!(row(&life).get("status").map(String::as_str), Some("success"), "its own cleanup saw to that");
    assert!(!row(&life).contains_key("phases_ms"), "nobody knew yet how long the cleanup takes");
    let expected = kauri::TableUpdate { put: 1, ..kauri::TableUpdate::default() };
    assert_eq!(life.table.catch_up().expect("written"), expected);
    life.check();
    let sql = rusqlite::Connection::open(&life.path).expect("a database");
    let query = "SELECT key FROM runs, json_each(phases_ms) WHERE run_id = ?1 AND value >= 0";
    let mut found = sql.prepare(query).expect("SQL");
    let found = found.query_map([&id], |row| row.get(0)).expect("rows").map(|row| row.expect("a name"));
    let names: Vec<String> = found.collect();
    let before = ["load", "prepare", "acquire", "before_run", "run", "after_run", "before_terminal"];
    assert_eq!(names, [&before[..], &["seal", "cleanup", "release"]].concat(), "in the order of a run, none of errors");
    assert_eq!(life.table.catch_up().expect("written"), kauri::TableUpdate::default());
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
fn table_that_was_cut_off_between_two_batches_is_brought_up_to_date() {
    let scratch = Scratch::new("run-table-half");
    let mut life = Life::new(&scratch);
    for is_rebuilt in [true, false] {
        for _ in 0..180 {
            life.submit();
        }
        life.submit_tree();
        let last = life.submit().to_string();
        life.work();
        let sql = rusqlite::Connection::open(&life.path).expect("a database");
        let ends = format!("BEFORE INSERT ON runs WHEN NEW.id = '{last}' BEGIN SELECT RAISE(ABORT, 'cut off'); END");
        sql.execute_batch(&format!("CREATE TRIGGER cut_off {ends}")).expect("made");
        let before = life.found().len();
        let error = life.table.catch_up().expect_err("cut off");
        assert!(error.to_string().contains("cut off"), "{error}");
        assert_eq!(life.found().len(), before + 100, "one batch is there");
        sql.execute_batch("DROP TRIGGER cut_off").expect("dropped");
        drop((sql, life));
        life = Life::new(&scratch);
        assert_eq!(life.table.catch_up().expect("written").is_rebuilt, is_rebuilt);
        life.check();
    }
}

#[test]
fn table_of_an_older_ledger_is_built_anew_with_all_its_columns() {
    let scratch = Scratch::new("run-table-older");
    let life = Life::new(&scratch);
    life.submit_tree();
    life.submit_script();
    life.work();
    life.table.catch_up().expect("written");
    let path = life.path.clone();
    let new: Vec<String> = life.found().into_values().flat_map(Row::into_keys).collect();
    drop(life);
    let sql = rusqlite::Connection::open(&path).expect("a database");
    sql.execute_batch("DROP INDEX idx_runs_job; DROP INDEX idx_runs_root").expect("dropped");
    let old = ["id", "status", "task_count", "started_at", "ended_at"];
    let new: std::collections::BTreeSet<String> = new.into_iter().filter(|name| !old.contains(&&**name)).collect();
    new.iter().for_each(|name| sql.execute_batch(&format!("ALTER TABLE runs DROP COLUMN {name}")).expect("dropped"));
    sql.pragma_update(None, "user_version", 2).expect("written");
    drop(sql);
    let life = Life::new(&scratch);
    assert!(life.found().values().all(|row| !row.contains_key("job_id")), "nobody has written them yet");
    assert!(life.table.catch_up().expect("written").is_rebuilt);
    life.check();
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
    let none = RunId::from_parts(Timestamp(1), [7; 10]);
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
