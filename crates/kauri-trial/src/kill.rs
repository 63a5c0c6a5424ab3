//! A real process that works on a ledger and is killed: at each of the seven steps, and at any moment in between.
//!
//! The child does actions until it kills itself with SIGKILL, as told. The parent then opens the ledger, reconciles, decides about
//! the orphan by looking at the world, and asks the invariants. The home stays the same from kill to kill.
//!
//! A kill keeps what the system has cached, so this shows that every order of events is survived, and nothing about syncs; the
//! simulated disk shows that.

#![expect(clippy::disallowed_methods, reason = "a trial at the edge: processes, files and the clock are what it tries")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kauri_disk::OsDisk;
use kauri_disk::testing::{Call, TwistedDisk};
use kauri_ledger::{
    ActionRow, Actions, Anchor, Artifact, Begin, Database, Decision, Ground, Home, Ledger, Mark, Redactor, Rows,
    Settled, Standing, Status, SystemClock,
};
use kauri_sim::Rng;

/// How many actions a child begins before the one at which it is killed, at most.
const BEFORE_MAX: u64 = 3;
/// After so many steps the process is killed at the latest.
const STEPS: u64 = 7;

/// What a campaign of kills did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kills {
    /// Processes killed.
    pub kills: u64,
    /// Actions begun in all.
    pub actions: u64,
    /// Orphans found and decided about.
    pub orphans: u64,
    /// Repairs that reconciliation made.
    pub repairs: u64,
    /// By step: after which of the seven the process was killed. The first counts kills at any moment.
    pub steps: [u64; 8],
}

/// Kills so many children of this program, one after the other, on one home in this directory.
///
/// # Errors
/// Says what did not hold, and after which kill.
pub fn kills(program: &Path, directory: &Path, seed: u64, count: u64) -> Result<Kills, String> {
    let mut done = Kills::default();
    for number in 0..count {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        // Each step in turn, and as often a moment that nobody chose.
        let step = if number % 2 == 0 { number / 2 % STEPS + 1 } else { 0 };
        let before = rng.below(BEFORE_MAX + 1);
        let micros = rng.below(60_000);
        let arguments = [step, before, micros, number].map(|number| number.to_string());
        let child = Command::new(program).arg("kill-child").arg(directory).args(arguments).output();
        let child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        if !was_killed(&child.status) {
            return Err(format!("kill {number}: the child was not killed: {}", String::from_utf8_lossy(&child.stderr)));
        }
        done.kills += 1;
        done.steps[usize::try_from(step).expect("seven at most")] += 1;
        look(directory, &mut done).map_err(|what| format!("after kill {number} (step {step}, seed {seed}): {what}"))?;
    }
    Ok(done)
}

fn was_killed(status: &std::process::ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(status) == Some(9)
}

/// Opens the ledger that a killed process left, settles what it left, and asks the invariants.
fn look(directory: &Path, done: &mut Kills) -> Result<(), String> {
    let (ledger, found) = Ledger::open(Home::lock(directory).map_err(words)?).map_err(words)?;
    if let Some(what) = found.findings.first() {
        return Err(format!("no crash leaves this: {what}"));
    }
    done.repairs += found.repairs.len() as u64;
    for orphan in &found.orphans {
        done.orphans += 1;
        let decision = match happened(directory, &orphan.trace_id) {
            true => Decision::Completed(None),
            false => Decision::Retry,
        };
        ledger.resolve(&orphan.action_id, &decision).map_err(words)?;
    }
    if let Some(finding) = ledger.check().map_err(words)?.first() {
        return Err(finding.to_string());
    }
    done.actions = compare(directory, &ledger)?;
    Ok(())
}

/// Whatever the ledger says happened, happened, and the other way round. Answers how many actions there are.
fn compare(directory: &Path, ledger: &Ledger) -> Result<u64, String> {
    let mut count = 0;
    while let Some(row) = ledger.action(&id(count)).map_err(words)? {
        let (id, happened) = (&row.action_id, happened(directory, &row.trace_id));
        match row.status {
            Status::Completed if !happened => return Err(format!("{id}: completed, and nothing happened")),
            // It may have happened later, in the action that tried again.
            Status::Retriable if happened && !is_retried(ledger, id)? => {
                return Err(format!("{id}: retriable, and it happened"));
            }
            Status::Started | Status::NeedsHuman | Status::Missing | Status::Invalidated => {
                return Err(format!("{id}: {}", row.status));
            }
            _ => {}
        }
        count += 1;
    }
    // A child that was killed before it came so far has made no world yet.
    let world = fs::read_dir(directory.join("world")).map_or(0, |all| all.count() as u64);
    if world > count { Err(format!("{world} things happened in {count} actions")) } else { Ok(count) }
}

fn is_retried(ledger: &Ledger, id: &str) -> Result<bool, String> {
    ledger.database().retry_of(id).map(|by| by.is_some()).map_err(words)
}

/// Ids sort like their numbers.
fn id(number: u64) -> String {
    format!("a-{number:06}")
}

fn effect(directory: &Path, work: &str) -> PathBuf {
    directory.join("world").join(work)
}

fn happened(directory: &Path, work: &str) -> bool {
    effect(directory, work).exists()
}

/// The child: does `before` actions, then one more, and kills itself after the given step of it. With step 0 a thread kills it after
/// so many microseconds instead.
///
/// # Errors
/// Says what went wrong. If all goes well it never returns.
pub fn child(directory: &Path, step: u64, before: u64, micros: u64, salt: u64) -> Result<(), String> {
    fs::create_dir_all(directory.join("world")).map_err(words)?;
    if step == 0 {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            die();
        });
    }
    let home = Home::lock(directory).map_err(words)?;
    let (actions, rows) = open(&home)?;
    let mut number = 0;
    while rows.find(&id(number)).map_err(words)?.is_some() {
        number += 1;
    }
    for done in 0.. {
        if step > 0 && done == before {
            DIE_AFTER.store(step, Ordering::SeqCst);
        }
        act(&actions, &*rows, directory, number + done, salt)?;
    }
    unreachable!("it is killed before it is done")
}

/// What `Ledger::open` does, with steps after which one can die.
fn open(home: &Home) -> Result<(Actions, Arc<dyn Rows>), String> {
    let clock = Arc::new(SystemClock);
    let runtime = home.directory().join("runtime");
    let artifacts = home.directory().join("artifacts");
    fs::create_dir_all(&artifacts).map_err(words)?;
    let audit = home.audit().map_err(words)?;
    let database = Database::open(&runtime, clock.clone(), |_| {}).map_err(words)?;
    let rows: Arc<dyn Rows> = Arc::new(DyingRows(database));
    let ground = Ground {
        journal: Arc::new(dying(OsDisk::new(runtime).map_err(words)?)),
        artifacts: Arc::new(dying(OsDisk::new(artifacts).map_err(words)?)),
        rows: Arc::clone(&rows),
        audit: Some(audit),
        clock,
        redactor: Redactor::new(),
    };
    Ok((Actions::open(ground).map_err(words)?.0, rows))
}

/// One action. Dies after the step that was ordered.
fn act(actions: &Actions, rows: &dyn Rows, directory: &Path, number: u64, salt: u64) -> Result<(), String> {
    let last = number.checked_sub(1).map(|last| rows.find(&id(last))).transpose().map_err(words)?.flatten();
    let retried = last.filter(|row| row.status == Status::Retriable);
    let work = retried.as_ref().map_or_else(|| format!("w-{number:06}"), |row| row.trace_id.clone());
    let mut begin = Begin::new(id(number), &work, "make a file");
    if let Some(row) = &retried {
        begin = begin.retry_of(&row.action_id);
    }
    let mut action = actions.begin(begin).map_err(words)?;
    after(1);
    action.record_started().map_err(words)?;
    after(2);
    // The effect, which may happen once: the file must not be there.
    fs::OpenOptions::new().write(true).create_new(true).open(effect(directory, &work)).map_err(words)?;
    after(3);
    // Every artifact is another, so that the directory changes with each; where an order waits for step 4 there is one.
    let bytes = format!("{number} {salt}").repeat(500);
    match DIE_AFTER.load(Ordering::SeqCst) == 4 || !number.is_multiple_of(3) {
        true => drop(action.complete_with(Artifact::bytes(bytes.as_bytes())).map_err(words)?),
        false => action.complete(Some("a file")).map_err(words)?,
    }
    after(7);
    Ok(())
}

/// The step after which this process kills itself; 0 for none.
static DIE_AFTER: AtomicU64 = AtomicU64::new(0);

fn after(step: u64) {
    if DIE_AFTER.load(Ordering::SeqCst) == step {
        die();
    }
}

fn die() -> ! {
    let this = rustix::process::getpid();
    let killed = rustix::process::kill_process(this, rustix::process::Signal::KILL);
    panic!("SIGKILL returned: {killed:?}");
}

/// Files of the system; step 4 ends when the directory of an artifact is synced, step 6 when the journal's line of an end is.
fn dying(disk: OsDisk) -> TwistedDisk<OsDisk> {
    TwistedDisk::new(disk, |call, go| {
        go()?;
        match call {
            Call::SyncDir => after(4),
            Call::WriteDurableAt(_, _, bytes) if String::from_utf8_lossy(bytes).contains(r#""status":"COMPLETED""#) => {
                after(6);
            }
            _ => {}
        }
        Ok(())
    })
}

/// The database; step 5 ends when it says that the action is completed.
struct DyingRows(Database);

impl Rows for DyingRows {
    fn insert(&self, row: &ActionRow) -> kauri_ledger::Result<()> {
        self.0.insert(row)
    }

    fn settle(
        &self,
        id: &str,
        from: &[Status],
        settled: &Settled<'_>,
        anchor: Option<&Anchor>,
    ) -> kauri_ledger::Result<()> {
        self.0.settle(id, from, settled, anchor)?;
        after(5);
        Ok(())
    }

    fn find(&self, id: &str) -> kauri_ledger::Result<Option<ActionRow>> {
        self.0.find(id)
    }

    fn statuses(&self, ids: &[&str]) -> kauri_ledger::Result<Vec<Option<Standing>>> {
        self.0.statuses(ids)
    }

    fn each_with(&self, statuses: &[Status], after: &str, most: u32) -> kauri_ledger::Result<Vec<ActionRow>> {
        self.0.each_with(statuses, after, most)
    }

    fn dependents(&self, id: &str) -> kauri_ledger::Result<Vec<String>> {
        self.0.dependents(id)
    }

    fn retry_of(&self, id: &str) -> kauri_ledger::Result<Option<String>> {
        self.0.retry_of(id)
    }

    fn mark(&self) -> kauri_ledger::Result<Option<Mark>> {
        self.0.mark()
    }

    fn set_mark(&self, mark: &Mark) -> kauri_ledger::Result<()> {
        self.0.set_mark(mark)
    }

    fn set_anchor(&self, anchor: &Anchor) -> kauri_ledger::Result<()> {
        self.0.set_anchor(anchor)
    }

    fn anchors(&self) -> kauri_ledger::Result<Vec<Anchor>> {
        self.0.anchors()
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
