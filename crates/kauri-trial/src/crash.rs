//! Actions on a simulated disk, one after the other, with a world in which their effects happen.
//!
//! The world is a file on the same disk: a slot for each piece of work, set when its effect happens. So a crash can come between
//! the effect and everything that is written down about it, and afterwards it is known which effects happened.
//!
//! Commit `2n - 1` is that action `n` was begun, commit `2n` that it ended or was decided about. Work whose action was
//! decided to be retriable is taken up by the next action.

use std::collections::BTreeSet;
use std::sync::Arc;

use kauri_disk::{Disk, File, Open};
use kauri_ledger::{
    ActionRow, Actions, Artifact, Audit, Begin, Clock, Decision, Finding, Ground, Invariant, ManualClock,
    Reconciliation, Redactor, Rows, Status, Timestamp, check_actions, verify_audit,
};
use kauri_sim::{Acks, Engine, Forgets, Progress, Rng, SimDisk};

use crate::rows::LogRows;

const WORLD: &str = "world";
const SLOT_BYTES: usize = 16;
/// How much of an artifact comes at once.
const PIECE_BYTES: usize = 400;
/// A slot whose effect happened.
const DONE: [u8; SLOT_BYTES] = *b"the effect of it";
/// Ten in the morning of some day.
const BEGINNING: i64 = 1_771_668_000_000;
const HOUR_MS: i64 = 3_600_000;

/// Random work on a ledger, drawn from a seed.
#[derive(Clone, Copy, Debug)]
pub struct LedgerTrial {
    seed: u64,
    actions: u64,
    forgets: Forgets,
}

/// How an action is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    CompleteWith,
    Complete,
    Fail,
}

/// A ledger on a simulated disk.
struct Opened {
    actions: Actions,
    rows: Arc<LogRows>,
    audit: Arc<Audit>,
    clock: Arc<ManualClock>,
    disk: Arc<dyn Disk>,
    found: Reconciliation,
}

impl LedgerTrial {
    /// A trial with so many actions in each life.
    #[must_use]
    pub const fn new(seed: u64, actions: u64) -> Self {
        Self { seed, actions, forgets: Forgets::Nothing }
    }

    /// The same on a disk that forgets something: a bug that must be found.
    #[must_use]
    pub const fn forgetting(self, forgets: Forgets) -> Self {
        Self { forgets, ..self }
    }

    fn rng(&self, action: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(action))
    }

    fn plan(&self, action: u64) -> Plan {
        match self.rng(action).below(8) {
            0..5 => Plan::CompleteWith,
            5..7 => Plan::Complete,
            _ => Plan::Fail,
        }
    }

    /// The artifact of an action: some are short, some longer than a piece that a crash may tear, some the same as others.
    fn artifact(&self, action: u64) -> Vec<u8> {
        let mut rng = self.rng(action ^ 0xa57);
        let len = if rng.below(4) == 0 { rng.index(1_500) } else { rng.index(40) };
        let mut bytes = vec![0; len];
        if !rng.chance(1, 3) {
            rng.fill(&mut bytes);
        }
        bytes
    }

    fn open(&self, disk: &SimDisk) -> Result<Opened, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.forgets.of(disk));
        let rows = Arc::new(LogRows::open(&disk).map_err(words)?);
        // Time goes on with the actions, some hours each: days end during a life and between lives.
        let clock = Arc::new(ManualClock::new(Timestamp(BEGINNING + 5 * HOUR_MS * held(&rows.all()).cast_signed())));
        let told: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let redactor = Redactor::new();
        let audit = Arc::new(Audit::open(Arc::clone(&disk), Arc::clone(&told), redactor.clone()).map_err(words)?);
        let ground = Ground {
            journal: Arc::clone(&disk),
            artifacts: Arc::clone(&disk),
            rows: Arc::clone(&rows) as _,
            audit: Some(Arc::clone(&audit)),
            clock: told,
            redactor,
        };
        let (actions, found) = Actions::open(ground).map_err(words)?;
        Ok(Opened { actions, rows, audit, clock, disk, found })
    }

    /// One action from its beginning to its end.
    fn act(&self, opened: &Opened, world: &World, number: u64, acks: &Acks) -> Result<(), String> {
        let rows = opened.rows.all();
        let last = rows.last();
        // What could be done again is done first.
        let retried = last.filter(|row| row.status == Status::Retriable);
        let work = retried.map_or(number, work_of);
        let mut begin = Begin::new(id(number), trace(work), format!("work {work}"));
        if let Some(row) = retried {
            begin = begin.retry_of(&row.action_id);
        }
        if let Some(row) = rows.iter().rev().find(|row| row.status == Status::Completed)
            && self.rng(number ^ 0x4eed).chance(1, 3)
        {
            begin = begin.needs(&row.action_id);
        }
        acks.started(2 * number - 1);
        let mut action = twice(|| opened.actions.begin(begin.clone()))?;
        acks.acked(2 * number - 1);
        twice(|| action.record_started())?;
        acks.started(2 * number);
        let plan = self.plan(number);
        if plan != Plan::Fail {
            world.happen(work)?;
        }
        match plan {
            Plan::CompleteWith => {
                let bytes = self.artifact(number);
                drop(twice(|| action.complete_with(Artifact::reader(Pieces(&bytes))))?);
            }
            Plan::Complete => twice(|| action.complete(Some("elsewhere")))?,
            Plan::Fail => twice(|| action.fail("it did not work, token=abcdefgh"))?,
        }
        acks.acked(2 * number);
        opened.clock.advance(std::time::Duration::from_millis(5 * HOUR_MS.unsigned_abs()));
        match self.rng(number ^ 0xc0).below(12) {
            0 => twice(|| opened.actions.compact()),
            1 => twice(|| opened.audit.anchor()).map(drop),
            2 => check_quiet(&opened.actions.reconcile().map_err(words)?),
            _ => Ok(()),
        }
    }

    /// Whatever the ledger says happened, happened, and the other way round.
    fn compare(&self, opened: &Opened, world: &World) -> Result<(), String> {
        let rows = opened.rows.all();
        let mut begun = BTreeSet::new();
        for row in &rows {
            begun.insert(work_of(row));
            let happened = world.happened(work_of(row))?;
            match row.status {
                Status::Completed if !happened => {
                    return Err(format!("{}: completed, and nothing happened", row.action_id));
                }
                Status::Retriable | Status::Failed if happened && !is_retried(&rows, row) => {
                    return Err(format!("{}: {}, and it happened", row.action_id, row.status));
                }
                Status::Missing | Status::Invalidated => return Err(format!("{}: lost its artifact", row.action_id)),
                _ => {}
            }
            self.compare_artifact(opened, row)?;
        }
        match world.works()?.into_iter().find(|work| !begun.contains(work)) {
            Some(work) => Err(format!("work {work} happened, and no action was begun")),
            None => Ok(()),
        }
    }

    fn compare_artifact(&self, opened: &Opened, row: &ActionRow) -> Result<(), String> {
        let number = number_of(&row.action_id);
        let Some(result) = row.result_ref.as_deref().filter(|result| result.starts_with("artifacts/")) else {
            return Ok(());
        };
        let mut found = Vec::new();
        let reader = opened.actions.artifact(result).map_err(words)?;
        std::io::Read::read_to_end(&mut reader.ok_or("an artifact is missing")?, &mut found).map_err(words)?;
        if found == self.artifact(number) { Ok(()) } else { Err(format!("{}: another artifact", row.action_id)) }
    }
}

impl Engine for LedgerTrial {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let opened = self.open(disk)?;
        let world = World::open(disk)?;
        for orphan in opened.actions.orphans() {
            let number = number_of(&orphan.action_id);
            acks.started(2 * number);
            let decision = match world.happened(work_of(&orphan))? {
                true => Decision::Completed(None),
                false if self.rng(number ^ 0xdec).chance(1, 4) => Decision::Failed("it never happened".to_owned()),
                false => Decision::Retry,
            };
            // Sometimes somebody looks first.
            if self.rng(number ^ 0x1009).chance(1, 2) && orphan.status == Status::Started {
                twice(|| opened.actions.resolve(&orphan.action_id, &Decision::NeedsHuman))?;
            }
            twice(|| opened.actions.resolve(&orphan.action_id, &decision))?;
            acks.acked(2 * number);
        }
        let held = held(&opened.rows.all()) / 2;
        for number in held + 1..=held + self.actions {
            self.act(&opened, &world, number, acks)?;
        }
        self.compare(&opened, &world)
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        let opened = self.open(disk)?;
        if let Some(what) = opened.found.findings.first() {
            return Err(format!("no crash leaves this: {what}"));
        }
        let findings = check_actions(&opened.actions).map_err(words)?;
        let orphans = opened.actions.orphans();
        let is_expected = |finding: &&Finding| {
            // An orphan is begun and not ended, and waits for a decision: that is what it is.
            let is_orphan = |orphan: &ActionRow| finding.what.starts_with(&format!("{}:", orphan.action_id));
            finding.invariant == Invariant::I3 && orphans.iter().any(is_orphan)
        };
        if let Some(finding) = findings.iter().find(|finding| !is_expected(finding)) {
            return Err(finding.to_string());
        }
        let audit = verify_audit(&*opened.disk, &opened.rows.anchors().map_err(words)?).map_err(words)?;
        if let Some(what) = audit.broken.iter().chain(&audit.unanchored).next() {
            return Err(format!("the audit: {what}"));
        }
        self.compare(&opened, &World::open(disk)?)?;
        check_quiet(&opened.actions.reconcile().map_err(words)?)?;
        Ok(held(&opened.rows.all()))
    }
}

/// A second reconciliation finds nothing to do.
fn check_quiet(found: &Reconciliation) -> Result<(), String> {
    match (found.repairs.first(), found.findings.first()) {
        (None, None) => Ok(()),
        (repair, finding) => Err(format!("reconciled twice, and found {repair:?} {finding:?}")),
    }
}

/// Whatever failed can be tried again, and does what it was to do, once.
fn twice<T>(mut act: impl FnMut() -> kauri_ledger::Result<T>) -> Result<T, String> {
    match act() {
        Ok(done) => Ok(done),
        Err(_) => act().map_err(words),
    }
}

/// Bytes that come a few at a time: an artifact is written with several calls before its sync, and a crash may keep any of them.
struct Pieces<'a>(&'a [u8]);

impl std::io::Read for Pieces<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let (piece, rest) = self.0.split_at(self.0.len().min(PIECE_BYTES).min(bytes.len()));
        bytes[..piece.len()].copy_from_slice(piece);
        self.0 = rest;
        Ok(piece.len())
    }
}

/// The file in which effects happen.
struct World(Box<dyn File>);

impl World {
    fn open(disk: &SimDisk) -> Result<Self, String> {
        let file = disk.open(WORLD, Open::Create).map_err(words)?;
        disk.sync_dir().map_err(words)?;
        Ok(Self(file))
    }

    fn slot(&self, work: u64) -> Result<[u8; SLOT_BYTES], String> {
        let mut slot = [0; SLOT_BYTES];
        let at = work * SLOT_BYTES as u64;
        if self.0.len().map_err(words)? >= at + SLOT_BYTES as u64 {
            self.0.read_at(at, &mut slot).map_err(words)?;
        }
        Ok(slot)
    }

    fn happened(&self, work: u64) -> Result<bool, String> {
        Ok(self.slot(work)? != [0; SLOT_BYTES])
    }

    fn happen(&self, work: u64) -> Result<(), String> {
        if self.happened(work)? {
            return Err(format!("work {work} would happen twice"));
        }
        self.0.write_durable_at(work * SLOT_BYTES as u64, &DONE).map_err(words)
    }

    fn works(&self) -> Result<Vec<u64>, String> {
        let count = self.0.len().map_err(words)? / SLOT_BYTES as u64;
        let happened = (0..count).map(|work| Ok((work, self.happened(work)?))).collect::<Result<Vec<_>, String>>()?;
        Ok(happened.into_iter().filter(|(_, happened)| *happened).map(|(work, _)| work).collect())
    }
}

/// How many commits these rows stand for.
fn held(rows: &[ActionRow]) -> u64 {
    let count = rows.len() as u64 * 2;
    count - u64::from(rows.last().is_some_and(|row| row.status.is_open()))
}

fn is_retried(rows: &[ActionRow], row: &ActionRow) -> bool {
    rows.iter().any(|other| other.retry_of.as_ref() == Some(&row.action_id))
}

/// Ids sort like their numbers.
fn id(number: u64) -> String {
    format!("a-{number:05}")
}

fn number_of(id: &str) -> u64 {
    id.trim_start_matches("a-").parse().unwrap_or(0)
}

fn trace(work: u64) -> String {
    format!("t-{work}")
}

fn work_of(row: &ActionRow) -> u64 {
    row.trace_id.trim_start_matches("t-").parse().unwrap_or(0)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
