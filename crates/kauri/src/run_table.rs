//! The ledger's table `runs`: what the runtime's store knows of runs, for any SQLite tool.
//!
//! ```text
//! the store    ──── pin A ─────────────────────── pin B ───── newest
//!                     └── what differs of the runs ──┘
//!                                  │  rows put and removed, a hundred at a time; with the last: "B is in the table"
//! runtime.db                       ▼
//! ```
//!
//! The position is a pin of the store, and a row of the table `state` says which pin the table has come to. Rows are put and removed by
//! their id, so that to do it again after a crash changes nothing; the older pin goes once the newer is in the table. A table that has
//! no position, or one that the store does not know (it was restored, or the database was), is built anew.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kauri_ledger::{Ledger, Op, Timestamp};
use kauri_runtime::run::{RUN_ROWS, Run, RunFault, RunReport, RunRows, Runs};
use kauri_runtime::substrate::{Signal, TreeSubstrate};
use kauri_runtime::{Error as RuntimeError, Runtime};
use kauri_tree::{Difference, Read as _, Snapshot, Store, Table};
use kauri_wire::RunId;

const PINS: [&str; 2] = ["kauri:runs table:a", "kauri:runs table:b"];
/// Where the position is in the table `state`.
const POSITION: &str = "runs_position";
/// How many runs are written in one transaction.
const BATCH_RUNS: usize = 100;

const PUT: &str = "INSERT INTO runs (id, status, task_count, started_at, ended_at, job_id, parent_run_id, root_run_id,
                       depth, attempt, class, outcome, event_count, created_at, queued_ms, ran_ms, phases_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
                   ON CONFLICT (id) DO UPDATE SET status = excluded.status, task_count = excluded.task_count,
                       started_at = excluded.started_at, ended_at = excluded.ended_at, job_id = excluded.job_id,
                       parent_run_id = excluded.parent_run_id, root_run_id = excluded.root_run_id,
                       depth = excluded.depth, attempt = excluded.attempt, class = excluded.class,
                       outcome = excluded.outcome, event_count = excluded.event_count,
                       created_at = excluded.created_at, queued_ms = excluded.queued_ms, ran_ms = excluded.ran_ms,
                       phases_ms = excluded.phases_ms";
const REMOVE: &str = "DELETE FROM runs WHERE id = ?1";
const CLEAR: &str = "DELETE FROM runs";
const MOVE: &str = "INSERT INTO state (key, value, updated_at) VALUES (?1, ?2, ?3)
                    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at";
const LOSE: &str = "DELETE FROM state WHERE key = ?1";

/// Why the table could not be brought up to date.
pub type TableError = Box<dyn std::error::Error + Send + Sync>;

type Result<T> = std::result::Result<T, TableError>;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableUpdate {
    /// Runs whose rows were put.
    pub put: u64,
    /// Runs whose rows were removed.
    pub removed: u64,
    /// Whether the table was built anew.
    pub is_rebuilt: bool,
}

/// Keeps the table `runs` of a ledger's database as the runtime's store has them.
pub struct RunTable {
    runtime: Runtime,
    substrate: Arc<TreeSubstrate>,
    ledger: Arc<Ledger>,
}

impl RunTable {
    /// The table of this ledger, for the runs of this runtime, which stands on this substrate.
    #[must_use]
    pub fn new(runtime: Runtime, substrate: Arc<TreeSubstrate>, ledger: Arc<Ledger>) -> Self {
        Self { runtime, substrate, ledger }
    }

    /// Brings the table up to what the store has now. What it costs goes by what changed since the last time. When this returns, a
    /// crash takes nothing of it back.
    ///
    /// # Errors
    /// What the store or the database says. It can be tried again.
    pub fn catch_up(&self) -> Result<TableUpdate> {
        let store = self.substrate.store();
        let Some(at) = self.position()? else { return self.rebuild() };
        let (from, to) = (PINS[at], PINS[1 - at]);
        // An earlier try may have been cut off here.
        store.unpin(to)?;
        let pin = store.pin(to, self.now())?;
        let mut update = TableUpdate::default();
        {
            let (before, after) = (as_of(store, from)?, as_of(store, to)?);
            for rows in RUN_ROWS {
                self.write_changed(rows, &before, &after, &mut update)?;
            }
        }
        self.move_to(1 - at, pin.version)?;
        store.unpin(from)?;
        Ok(update)
    }

    /// Builds the table anew from the store.
    ///
    /// # Errors
    /// As for [`catch_up`](Self::catch_up).
    pub fn rebuild(&self) -> Result<TableUpdate> {
        let store = self.substrate.store();
        let clear = [Op::new(LOSE, [POSITION.into()]), Op::new(CLEAR, [])];
        self.ledger.database().queue().submit_batch(clear)?;
        for pin in PINS {
            store.unpin(pin)?;
        }
        let pin = store.pin(PINS[0], self.now())?;
        let mut update = TableUpdate { is_rebuilt: true, ..TableUpdate::default() };
        let mut from = None;
        loop {
            let some = self.runs().list(from, BATCH_RUNS)?;
            let ids: Vec<RunId> = some.iter().map(|run| run.id).filter(|id| Some(*id) != from).collect();
            let Some(last) = ids.last() else { break };
            from = Some(*last);
            self.write(&ids, &mut update)?;
        }
        self.move_to(0, pin.version)?;
        Ok(update)
    }

    /// Keeps the table up to date until `is_over` says so, which is asked whenever a run changed or somebody raised the signal. What
    /// changes within `pause` is written together; what is left is written when it is over.
    ///
    /// # Errors
    /// As for [`catch_up`](Self::catch_up).
    pub fn follow(&self, signal: &Arc<Signal>, pause: Duration, mut is_over: impl FnMut() -> bool) -> Result<()> {
        use kauri_runtime::substrate::Substrate as _;
        RUN_ROWS.iter().for_each(|rows| self.substrate.watch(rows.table, rows.prefix, signal));
        loop {
            let seen = signal.count();
            let is_last = is_over();
            self.catch_up()?;
            if is_last {
                return Ok(());
            }
            signal.wait(seen, None);
            if !is_over() {
                // Nobody raises this one: it is a pause.
                Signal::default().wait(0, Some(pause));
            }
        }
    }

    /// Writes the runs of which such a row differs.
    fn write_changed(
        &self,
        rows: RunRows,
        before: &Snapshot<'_>,
        after: &Snapshot<'_>,
        update: &mut TableUpdate,
    ) -> Result<()> {
        let mut changed = after.diff(before, &bytes_table(rows))?;
        let mut ids = Vec::new();
        while let Some(difference) = changed.next()? {
            let key = match difference {
                Difference::Inserted { key, .. }
                | Difference::Removed { key, .. }
                | Difference::Changed { key, .. } => key,
            };
            let Some(id) = rows.run_of(key)? else { continue };
            // Where the run itself differs too, it is written with that.
            if rows != RUN_ROWS[0] && is_changed(id, before, after)? {
                continue;
            }
            ids.push(id);
            if ids.len() == BATCH_RUNS {
                self.write(&ids, update)?;
                ids.clear();
            }
        }
        self.write(&ids, update)
    }

    fn runs(&self) -> Runs {
        self.runtime.runs()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.runtime.now().wall.0).unwrap_or(0)
    }

    /// Which of the two pins the table has come to, if the store has that pin as it was.
    fn position(&self) -> Result<Option<usize>> {
        let Some(position) = self.ledger.database().state(POSITION)? else { return Ok(None) };
        let pins = self.substrate.store().pins();
        let is_at = |at: &usize| {
            let pin = pins.iter().find(|pin| pin.name == PINS[*at]);
            pin.is_some_and(|pin| position == format!("{at} {}", pin.version))
        };
        Ok((0..PINS.len()).find(is_at))
    }

    fn move_to(&self, at: usize, version: u64) -> Result<()> {
        let (position, now) = (format!("{at} {version}"), stamp(self.runtime.now().wall));
        let args = [POSITION.into(), position.as_str().into(), now.as_str().into()];
        self.ledger.database().queue().submit_batch([Op::new(MOVE, args)])?;
        Ok(())
    }

    /// Writes these runs as they are now: a later state than the pin's is put again when its turn comes.
    fn write(&self, ids: &[RunId], update: &mut TableUpdate) -> Result<()> {
        let mut ops = Vec::with_capacity(ids.len());
        for id in ids {
            let run = match self.runs().run(*id) {
                Ok(run) => Some(run),
                Err(RuntimeError::Run(RunFault::NoRun(_))) => None,
                Err(error) => return Err(error.into()),
            };
            ops.push(match &run {
                Some(run) => put(run, self.runs().report_of(*id)?.as_ref()),
                None => Op::new(REMOVE, [id.to_string().into()]),
            });
            update.put += u64::from(run.is_some());
            update.removed += u64::from(run.is_none());
        }
        if !ops.is_empty() {
            self.ledger.database().queue().submit_batch(ops)?;
        }
        Ok(())
    }
}

fn put(run: &Run, report: Option<&RunReport>) -> Op {
    let started = stamp(run.started.unwrap_or(run.created));
    let (queued_ms, ran_ms) = run.durations();
    let args = [
        run.id.to_string().into(),
        run.state.to_string().into(),
        i64::from(run.steps).into(),
        started.into(),
        run.ended.map(stamp).into(),
        run.job.as_str().into(),
        run.parent().map(|parent| parent.to_string()).into(),
        run.root.to_string().into(),
        i64::from(run.depth).into(),
        i64::from(run.attempt()).into(),
        (*run.class).into(),
        run.outcome().map(|outcome| outcome.as_str()).into(),
        i64::try_from(run.events).unwrap_or(i64::MAX).into(),
        stamp(run.created).into(),
        queued_ms.into(),
        ran_ms.into(),
        report.map(phases_ms).into(),
    ];
    Op::new(PUT, args)
}

/// How long each phase took, to a microsecond, as JSON: `{"load":0.02,"run":12.5}`.
fn phases_ms(report: &RunReport) -> String {
    let millis = |took: &Duration| (took.as_secs_f64() * 1e6).round() / 1e3;
    let phases = report.phases.iter().map(|(phase, took)| (phase.as_str().to_owned(), millis(took).into()));
    serde_json::Value::Object(phases.collect()).to_string()
}

fn stamp(moment: kauri_wire::Timestamp) -> String {
    Timestamp(moment.0).to_string()
}

fn as_of<'a>(store: &'a Store, pin: &str) -> Result<Snapshot<'a>> {
    store.as_of(pin)?.ok_or_else(|| format!("expected a version pinned as {pin:?}, found none").into())
}

const fn bytes_table(rows: RunRows) -> Table<[u8], [u8]> {
    Table::new(rows.table)
}

/// Whether the row of a run differs.
fn is_changed(run: RunId, before: &Snapshot<'_>, after: &Snapshot<'_>) -> Result<bool> {
    let runs = bytes_table(RUN_ROWS[0]);
    Ok(before.get(&runs, run.as_bytes())? != after.get(&runs, run.as_bytes())?)
}

impl fmt::Debug for RunTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTable").finish_non_exhaustive()
    }
}
