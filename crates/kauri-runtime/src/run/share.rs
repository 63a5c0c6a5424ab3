//! Shares of a run that may go before it does: its events, its artifacts.
//!
//! The run stays, with its row: how many events it had and the hash over them, its steps, its outcome. A mark says what is gone, from the
//! first commit that removes some of it on: so nobody takes what is left for all, or what is missing for damage.
//!
//! Jobs are looked at in the order of their ends, each once: the index has the place up to which it was done, and which runs are half done. If
//! the clock was set back, so that others end before that place, a sweep begins with the first again.

use kauri_wire::RunId;

use super::class::{Keep, Limits};
use super::fault::RunFault;
use super::index::{self, Weight};
use super::keep::{COMMIT_LETTERS_MAX, CUT_ROWS_MAX, Passed, Removal, Sweep, SweptRuns, Tell, passed, weight};
use super::make;
use super::row::Run;
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::read::{Read, View};
use crate::schema::{EVENTS, RUN_INDEX};
use crate::substrate::{Bytes, Change, KeyRange, Rows, Seen, prefix_end};

/// What of a run that is kept itself is kept no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Removed {
    /// Its events: how many they were and the hash over them, its row says.
    pub events: bool,
    /// Its artifacts, and the files beside it.
    pub artifacts: bool,
}

/// What may go before its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    Events,
    Artifacts,
}

impl Share {
    /// Its bit in the mark of what is gone.
    pub(super) const fn bit(self) -> u8 {
        match self {
            Self::Events => 1,
            Self::Artifacts => 2,
        }
    }

    const fn limits(self, keep: &Keep) -> &Limits {
        match self {
            Self::Events => &keep.events,
            Self::Artifacts => &keep.artifacts,
        }
    }

    /// Its bytes, of a run that weighs so much and has so many bytes in files.
    const fn bytes(self, weight: Weight, beside: u64) -> u64 {
        match self {
            Self::Events => weight.bytes.saturating_sub(weight.artifacts),
            Self::Artifacts => weight.artifacts.saturating_add(beside),
        }
    }
}

impl Runs {
    /// What of a run is kept no longer.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn removed(&self, run: RunId) -> Result<Removed> {
        self.read(|view| {
            make::run(view, run)?;
            removed(view, run)
        })
    }
}

pub(super) fn removed(rows: &impl Read, run: RunId) -> Result<Removed> {
    let bits = bits_of(rows.row(&RUN_INDEX, &index::removed(run))?.as_deref())?;
    let has = |share: Share| bits & share.bit() != 0;
    Ok(Removed { events: has(Share::Events), artifacts: has(Share::Artifacts) })
}

fn bits_of(row: Option<&[u8]>) -> Result<u8> {
    match row {
        None => Ok(0),
        Some([bits]) => Ok(*bits),
        Some(_) => Err(Error::damaged("run_index", "one byte that says what is gone of a run")),
    }
}

/// That the events of a run were not removed.
pub(super) fn check_events(rows: &impl Read, run: RunId) -> Result<()> {
    if removed(rows, run)?.events { Err(RunFault::EventsRemoved(run).into()) } else { Ok(()) }
}

/// What runs of a class have that were not looked at yet.
#[derive(Default)]
struct Heap {
    runs: u64,
    bytes: u64,
}

/// A run whose share is kept no longer.
struct Due {
    /// Where it is in the index.
    key: Bytes,
    /// All runs of its job, and what they are on the heap; none if it goes with a later run of that.
    runs: Vec<Run>,
    heap: Heap,
    why: Passed,
}

/// What one commit removes.
struct Part {
    from: Bytes,
    until: Option<Bytes>,
    /// Marks to remove one by one.
    marks: Vec<Bytes>,
    rows: u64,
    bytes: u64,
    is_last: bool,
}

impl Sweep<'_> {
    /// Removes shares that are kept less long than their runs.
    pub(super) fn shares(&self, share: Share, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        self.halves(share, swept)?;
        if *share.limits(&self.class.keep) == Limits::default() {
            return Ok(());
        }
        let (place, prefix) = (index::share_place(self.name, share.bit()), index::ended_of(self.name));
        let (before, mut from, mut heap) = self.runs.read(|view| {
            let before = [&prefix[..], &view.row(&RUN_INDEX, &place)?.unwrap_or_default()].concat();
            let from = if self.is_ahead(&before[prefix.len()..]) { prefix.to_vec() } else { before.clone() };
            let heap = self.heap(view, share, &from)?;
            Ok((before, from, heap))
        })?;
        let done = self.shares_from(share, &mut from, &mut heap, tell, swept);
        if from != before {
            self.runs.shared().commit_until(|_| {
                let mut change = Change::default();
                change.put(RUN_INDEX, place.clone(), &from[prefix.len()..]);
                Ok(Some((change, ())))
            })?;
        }
        done
    }

    /// Whether runs may end before such a place, after the prefix of its class: the clock was set back since. Then all are looked at again.
    fn is_ahead(&self, place: &[u8]) -> bool {
        place.first_chunk().is_some_and(|ended| i64::from_be_bytes(*ended) > self.now.0)
    }

    /// Removes what an earlier sweep has left of shares, whatever is kept by now.
    fn halves(&self, share: Share, swept: &mut SweptRuns) -> Result<()> {
        let prefix = index::shares_underway(self.name, share.bit());
        let most = usize::try_from(self.rows_max).unwrap_or(usize::MAX).min(COMMIT_LETTERS_MAX);
        for key in self.runs.read(|view| make::marked(view, &prefix, most))? {
            if let Some(run) = self.runs.read(|view| make::find_run(view, index::last_run(&key)?))? {
                self.share_parts(share, &run, swept)?;
            }
        }
        Ok(())
    }

    /// What there is from this key on, if there is a limit for it. Looks at one short row for each run.
    fn heap(&self, view: &View<'_>, share: Share, from: &[u8]) -> Result<Heap> {
        let (limits, mut heap) = (share.limits(&self.class.keep), Heap::default());
        if limits.count.is_none() && limits.bytes.is_none() {
            return Ok(heap);
        }
        let until = prefix_end(&index::ended_of(self.name));
        let mut scan = view.rows(&RUN_INDEX, KeyRange { from, until: until.as_deref() })?;
        while let Some((key, value)) = scan.next()? {
            self.add(share, index::last_run(key)?, Weight::decode(&value)?, &mut heap);
        }
        Ok(heap)
    }

    fn add(&self, share: Share, run: RunId, weight: Weight, heap: &mut Heap) {
        let bytes = share.bytes(weight, self.bytes_beside(run));
        // Every run has events: its end is one.
        heap.runs += u64::from(share == Share::Events || bytes > 0);
        heap.bytes = heap.bytes.saturating_add(bytes);
    }

    fn shares_from(
        &self,
        share: Share,
        from: &mut Vec<u8>,
        heap: &mut Heap,
        tell: &mut Tell<'_>,
        swept: &mut SweptRuns,
    ) -> Result<()> {
        while swept.rows < self.rows_max {
            let Some(due) = self.runs.read(|view| self.due(view, share, from, heap))? else { return Ok(()) };
            for run in &due.runs {
                if !self.share(share, run, due.why, tell, swept)? {
                    return Ok(());
                }
            }
            heap.runs = heap.runs.saturating_sub(due.heap.runs);
            heap.bytes = heap.bytes.saturating_sub(due.heap.bytes);
            *from = [&due.key[..], &[0]].concat();
        }
        Ok(())
    }

    /// The first run from this key on, if its share is not kept.
    fn due(&self, view: &View<'_>, share: Share, from: &[u8], heap: &Heap) -> Result<Option<Due>> {
        let until = prefix_end(&index::ended_of(self.name));
        let mut scan = view.rows(&RUN_INDEX, KeyRange { from, until: until.as_deref() })?;
        let Some((key, _)) = scan.next()? else { return Ok(None) };
        let run = make::run(view, index::last_run(key)?)?;
        let limits = share.limits(&self.class.keep);
        let over = limits.bytes.map_or(0, |most| heap.bytes.saturating_sub(most));
        let ended = run.ended.unwrap_or(self.now);
        let Some(why) = passed(limits, self.now, ended, heap.runs, over) else { return Ok(None) };
        let job = make::find_job(view, &run.job)?.filter(|job| job.outcome.is_some() && job.latest == run.id);
        let runs = job.map(|job| make::attempts(view, &job)).transpose()?.unwrap_or_default();
        let mut heap = Heap::default();
        for run in &runs {
            self.add(share, run.id, weight(view, run)?, &mut heap);
        }
        Ok(Some(Due { key: key.into(), runs, heap, why }))
    }

    /// Removes a run's share, part by part. Tells whether all of it is gone.
    fn share(&self, share: Share, run: &Run, why: Passed, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<bool> {
        let (gone, has_some) =
            self.runs.read(|view| Ok((removed(view, run.id)?, part_of(view, share, run.id, 1)?.rows > 0)))?;
        let has_some = has_some || share == Share::Artifacts && self.bytes_beside(run.id) > 0;
        let is_told = if share == Share::Events { gone.events } else { gone.artifacts };
        match (has_some, is_told) {
            (false, _) => return Ok(true),
            (true, true) => {}
            (true, false) => tell(&match share {
                Share::Events => Removal::Events { class: self.name, run, why },
                Share::Artifacts => Removal::Artifacts { class: self.name, run, why },
            })?,
        }
        self.share_parts(share, run, swept)
    }

    fn share_parts(&self, share: Share, run: &Run, swept: &mut SweptRuns) -> Result<bool> {
        while swept.rows < self.rows_max {
            let most = (self.rows_max - swept.rows).min(CUT_ROWS_MAX);
            let part = self.runs.read(|view| part_of(view, share, run.id, most))?;
            let removed = self.runs.shared().commit_until(|rows| without(rows, share, run, &part))?;
            // Nothing if the run was swept meanwhile.
            let Some((_, bytes)) = removed else { return Ok(true) };
            swept.rows += part.rows;
            swept.bytes += bytes;
            match share {
                Share::Events => swept.events += part.rows,
                Share::Artifacts => swept.artifacts += part.marks.len() as u64,
            }
            if part.is_last {
                if let (Share::Artifacts, Some(files)) = (share, self.files) {
                    files.disregard(run.id);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What the next commit removes of a share: so many rows at most.
fn part_of(view: &View<'_>, share: Share, run: RunId, most: u64) -> Result<Part> {
    match share {
        Share::Events => events_part(view, run, most),
        Share::Artifacts => artifacts_part(view, run, most),
    }
}

fn events_part(view: &View<'_>, run: RunId, most: u64) -> Result<Part> {
    let end = prefix_end(run.as_bytes());
    let mut scan = view.rows(&EVENTS, KeyRange { from: run.as_bytes(), until: end.as_deref() })?;
    let (mut rows, mut bytes, mut last) = (0, 0, None);
    while rows < most {
        let Some((key, row)) = scan.next()? else { break };
        (rows, bytes) = (rows + 1, bytes + row.len() as u64);
        last = Some([key, &[0]].concat());
    }
    let is_last = scan.next()?.is_none();
    let until = if is_last { end } else { last };
    Ok(Part { from: run.as_bytes().into(), until: until.map(Bytes::from), marks: Vec::new(), rows, bytes, is_last })
}

fn artifacts_part(view: &View<'_>, run: RunId, most: u64) -> Result<Part> {
    let from = index::artifacts_of(run);
    // Of each artifact two rows go.
    let most = usize::try_from(most.div_ceil(2)).unwrap_or(usize::MAX).min(COMMIT_LETTERS_MAX);
    let keys = make::marked(view, &from, most)?;
    let until = keys.last().map_or_else(|| from.clone(), |last| [&last[..], &[0]].concat().into());
    let marks = keys.iter().map(|key| index::artifact_in(key, run)).collect::<Result<Vec<_>>>()?;
    let is_last = keys.len() < most;
    Ok(Part { from, until: Some(until), rows: 2 * marks.len() as u64, marks, bytes: 0, is_last })
}

/// The change that removes a part of a run's share, and how many bytes go with it; nothing if the run is gone.
fn without(rows: &dyn Rows, share: Share, run: &Run, part: &Part) -> Result<Option<(Change, u64)>> {
    let Some(at) = run.ended else { return Ok(None) };
    let (ended, gone) = (index::ended(&run.class, at, run.id), index::removed(run.id));
    let Some(found) = rows.get(&RUN_INDEX, &ended)? else { return Ok(None) };
    let mut weight = Weight::decode(&found)?;
    let bytes = match share {
        Share::Events => part.bytes,
        Share::Artifacts if part.is_last => std::mem::take(&mut weight.artifacts),
        Share::Artifacts => 0,
    };
    weight.bytes = weight.bytes.saturating_sub(bytes);
    let bits = bits_of(rows.get(&RUN_INDEX, &gone)?.as_deref())? | share.bit();
    let mut change = Change::default();
    change.expect(RUN_INDEX, ended.clone(), Seen::of(Some(&found)));
    change.put(RUN_INDEX, ended, weight.encode());
    change.put(RUN_INDEX, gone, [bits]);
    let range = KeyRange { from: &part.from, until: part.until.as_deref() };
    change.cut(if share == Share::Events { EVENTS } else { RUN_INDEX }, range);
    part.marks.iter().for_each(|mark| change.remove(RUN_INDEX, mark.clone()));
    let underway = index::share_underway(&run.class, share.bit(), run.id);
    match part.is_last {
        false => change.put(RUN_INDEX, underway, Bytes::default()),
        true => change.remove(RUN_INDEX, underway),
    }
    Ok(Some((change, bytes)))
}
