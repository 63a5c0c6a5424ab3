//! What the store keeps of how a run's script went: one row for each run that was executed by a script's executor.
//!
//! ```text
//! | RRP0 | drives u32 | emitted, refused, dropped, left alone, orphans, swallowed: u64 each | disputed u8 |
//! | count u32, of each phase: code u8, nanoseconds u64 | count u32, of each trouble: code of its phase u8, its class, its words |
//! ```
//!
//! It is written after everything, `cleanup` included, in a commit that nobody waits for: a crash of the machine may take it, and the run
//! stays as it ended. A run that waits is driven again, and its row then tells of all its drives together.

use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::RunId;

use super::codec::{Reader, Writer};
use super::index;
use super::live::LiveRun;
use super::runs::Runs;
use super::script::{Phase, Report, ScriptError, Swallowed};
use crate::error::{Error, Result};
use crate::look::Look;
use crate::read::Read;
use crate::schema::{RUN_INDEX, RUNS};
use crate::substrate::{Change, Rows, Seen};

/// Where the store has what a projection of runs is made of: each table, and what the keys in question begin with there.
///
/// ```
/// use kauri_runtime::run::{RUN_ROWS, RunRows};
/// # use kauri_wire::{RunId, Timestamp};
/// # let run = RunId::from_parts(Timestamp(7), [7; 10]);
///
/// let tables = RUN_ROWS.map(|RunRows { table, .. }| table);
/// assert_eq!(tables, ["runs", "run_index"]);
/// assert_eq!(RUN_ROWS[0].run_of(run.as_bytes())?, Some(run));
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
pub const RUN_ROWS: [RunRows; 2] =
    [RunRows { table: "runs", prefix: &[] }, RunRows { table: "run_index", prefix: index::REPORTS }];

/// Rows that tell of runs, one for each: see [`RUN_ROWS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunRows {
    /// In which table they are.
    pub table: &'static str,
    /// What their keys begin with.
    pub prefix: &'static [u8],
}

impl RunRows {
    /// The run that the row with this key tells of; nothing if it is another kind of row.
    ///
    /// # Errors
    /// If the key is damaged.
    pub fn run_of(&self, key: &[u8]) -> Result<Option<RunId>> {
        if !key.starts_with(self.prefix) {
            return Ok(None);
        }
        match key.len() == self.prefix.len() + RunId::BYTES {
            true => index::last_run(key).map(Some),
            false => Err(Error::damaged(self.table, "a key that is a run id")),
        }
    }
}

const MAGIC: [u8; 4] = *b"RRP0";

/// How much is kept of trouble that changed nothing; all of it is counted.
const SWALLOWED_MAX: usize = 8;
const TYPE_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// How a run's script went, beside how the run ended: see [`Runs::report_of`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RunReport {
    /// How often the script was executed: once, and once more after each wait.
    pub drives: u32,
    /// The phases that were taken, in the order of a run, and how long each took in all drives.
    pub phases: Vec<(Phase, Duration)>,
    /// The first of the trouble that did not change how the run ended, in short.
    pub swallowed: Vec<Swallowed>,
    /// How much of it there was.
    pub swallowed_total: u64,
    /// How many events the script and its hooks have said.
    pub emitted: u64,
    /// How many they tried to say when nothing could be said any more.
    pub refused: u64,
    /// How many were dropped because there was no room for them.
    pub dropped: u64,
    /// How many calls did not stop and were left alone.
    pub left_alone: u64,
    /// How many artifacts had bytes and no event.
    pub orphans: u64,
    /// The end that its process said and how that process ended did not agree, or it broke the contract after its end.
    pub is_disputed: bool,
}

impl RunReport {
    fn of(report: &Report) -> Self {
        let short = |swallowed: &Swallowed| {
            let Swallowed { phase, error } = swallowed;
            let error = ScriptError::new(clip(&error.message, MESSAGE_BYTES_MAX));
            Swallowed { phase: *phase, error: error.of_type(clip(&swallowed.error.error_type, TYPE_BYTES_MAX)) }
        };
        let mut kept = Self {
            drives: 1,
            phases: Vec::new(),
            swallowed: report.swallowed.iter().take(SWALLOWED_MAX).map(short).collect(),
            swallowed_total: report.swallowed.len() as u64,
            emitted: report.emitted,
            refused: report.refused,
            dropped: report.tally.dropped_total(),
            left_alone: report.left_alone,
            orphans: report.orphans,
            is_disputed: report.is_disputed,
        };
        kept.add_phases(&report.phases);
        kept
    }

    /// What is told of this drive and those before.
    fn after(mut self, before: Self) -> Self {
        self.add_phases(&before.phases);
        let later = std::mem::replace(&mut self.swallowed, before.swallowed);
        self.swallowed.extend(later);
        self.swallowed.truncate(SWALLOWED_MAX);
        self.drives = self.drives.saturating_add(before.drives);
        self.swallowed_total += before.swallowed_total;
        self.emitted += before.emitted;
        self.refused += before.refused;
        self.dropped += before.dropped;
        self.left_alone += before.left_alone;
        self.orphans += before.orphans;
        self.is_disputed |= before.is_disputed;
        self
    }

    fn add_phases(&mut self, phases: &[(Phase, Duration)]) {
        for (phase, took) in phases {
            match self.phases.binary_search_by_key(phase, |(phase, _)| *phase) {
                Ok(at) => self.phases[at].1 = self.phases[at].1.saturating_add(*took),
                Err(at) => self.phases.insert(at, (*phase, *took)),
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut row = Writer::new(MAGIC);
        row.short(self.drives).long(self.emitted).long(self.refused).long(self.dropped).long(self.left_alone);
        row.long(self.orphans).long(self.swallowed_total).byte(self.is_disputed.into());
        let count = |length: usize| u32::try_from(length).expect("few phases, and few troubles");
        row.short(count(self.phases.len()));
        for (phase, took) in &self.phases {
            row.byte(*phase as u8).long(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        row.short(count(self.swallowed.len()));
        for Swallowed { phase, error } in &self.swallowed {
            row.byte(*phase as u8).bytes(error.error_type.as_bytes()).bytes(error.message.as_bytes());
        }
        row.finish()
    }

    fn decode(row: &[u8]) -> Result<Self> {
        Self::read(row).ok_or(Error::damaged("run_index", "a report of how a script went"))
    }

    fn read(row: &[u8]) -> Option<Self> {
        let mut row = Reader::new(row, MAGIC)?;
        let phase = |row: &mut Reader<'_>| Phase::ALL.get(usize::from(row.byte()?)).copied();
        let mut report = Self {
            drives: row.short()?,
            emitted: row.long()?,
            refused: row.long()?,
            dropped: row.long()?,
            left_alone: row.long()?,
            orphans: row.long()?,
            swallowed_total: row.long()?,
            is_disputed: row.byte()? != 0,
            ..Self::default()
        };
        for _ in 0..row.short()? {
            report.phases.push((phase(&mut row)?, Duration::from_nanos(row.long()?)));
        }
        for _ in 0..row.short()? {
            let (phase, error_type, message) = (phase(&mut row)?, row.text()?, row.text()?);
            report.swallowed.push(Swallowed { phase, error: ScriptError::new(message).of_type(error_type) });
        }
        row.end().map(|()| report)
    }
}

/// The text up to so many bytes, whole characters only.
fn clip(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Keeps what is to be known of how a run's script went, and counts what it said too late. A run that was swept away leaves nothing.
///
/// # Errors
/// If the substrate fails, or what was kept before is damaged.
pub(super) fn keep(live: &LiveRun, report: &Report) -> Result<()> {
    live.shared.check_running()?;
    let id = live.id();
    let (key, late_key) = (index::report(id), index::refused(id));
    let stage = |rows: &dyn Rows| {
        if rows.get(&RUNS, id.as_bytes())?.is_none() {
            return Ok(None);
        }
        let mut change = Change { durability: Durability::None, ..Change::default() };
        change.expect(RUNS, *id.as_bytes(), Seen::Present);
        let before = rows.get(&RUN_INDEX, &key)?;
        let mut kept = RunReport::of(report);
        if let Some(row) = &before {
            kept = kept.after(RunReport::decode(row)?);
        }
        change.expect(RUN_INDEX, key.clone(), Seen::of(before.as_deref()));
        change.put(RUN_INDEX, key.clone(), kept.encode());
        if report.late > 0 {
            let before = rows.get(&RUN_INDEX, &late_key)?;
            let late = index::count_value(before.as_deref())?.saturating_add(report.late);
            change.expect(RUN_INDEX, late_key.clone(), Seen::of(before.as_deref()));
            change.put(RUN_INDEX, late_key.clone(), late.to_le_bytes());
        }
        Ok(Some((change, ())))
    };
    live.shared.commit_until(stage).map(drop)
}

fn find(rows: &impl Read, id: RunId) -> Result<Option<RunReport>> {
    rows.row(&RUN_INDEX, &index::report(id))?.map(|row| RunReport::decode(&row)).transpose()
}

impl Runs {
    /// How a run's script went, once everything of it is over; nothing if no script was executed for it, or a crash took what was told.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn report_of(&self, id: RunId) -> Result<Option<RunReport>> {
        self.read(|view| find(view, id))
    }
}

impl Look<'_> {
    /// How a run's script went: see [`Runs::report_of`].
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn report_of(&self, id: RunId) -> Result<Option<RunReport>> {
        find(&self.view, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(phase: Phase, words: &str) -> Swallowed {
        Swallowed { phase, error: ScriptError::new(words).of_type("odd") }
    }

    fn some() -> RunReport {
        let (ms, phases) = (Duration::from_millis, [(Phase::Load, 1), (Phase::Run, 20), (Phase::Release, 3)]);
        let phases = phases.map(|(phase, took)| (phase, ms(took))).to_vec();
        let swallowed = vec![told(Phase::Cleanup, "the door does not close")];
        let counts =
            RunReport { emitted: 7, refused: 6, dropped: 5, left_alone: 4, orphans: 3, ..RunReport::default() };
        RunReport { drives: 1, phases, swallowed, swallowed_total: 1, is_disputed: true, ..counts }
    }

    #[test]
    fn report_survives_the_trip_and_no_part_of_one_is_taken() {
        let row = some().encode();
        assert_eq!(RunReport::decode(&row).unwrap(), some());
        for length in 0..row.len() {
            assert!(RunReport::decode(&row[..length]).is_err(), "{length} bytes");
        }
        assert!(RunReport::decode(&[&row[..], &[0]].concat()).is_err());
    }

    #[test]
    fn rows_that_tell_of_runs_are_told_from_others() {
        let run = RunId::from_parts(kauri_wire::Timestamp(7), [7; 10]);
        let [rows, reports] = RUN_ROWS;
        assert_eq!(rows.run_of(run.as_bytes()).unwrap(), Some(run));
        assert_eq!(reports.run_of(&index::report(run)).unwrap(), Some(run));
        assert_eq!(reports.run_of(&index::refused(run)).unwrap(), None);
        for damaged in [rows.run_of(&run.as_bytes()[1..]), reports.run_of(b"o"), rows.run_of(&[0; 16])] {
            assert!(damaged.unwrap_err().is_corruption());
        }
    }

    #[test]
    fn drives_of_a_run_are_told_together() {
        let mut first = some();
        first.phases[1].0 = Phase::OnError;
        let both = some().after(first);
        let times: Vec<_> = both.phases.iter().map(|(phase, took)| (*phase, took.as_millis())).collect();
        assert_eq!(times, [(Phase::Load, 2), (Phase::Run, 20), (Phase::OnError, 20), (Phase::Release, 6)]);
        assert_eq!((both.drives, both.swallowed_total, both.swallowed.len(), both.emitted), (2, 2, 2, 14));
        let many = (0..20).fold(some(), |all, _| some().after(all));
        assert_eq!((many.swallowed_total, many.swallowed.len()), (21, SWALLOWED_MAX));
        assert_eq!(RunReport::decode(&many.encode()).unwrap(), many);
    }
}
