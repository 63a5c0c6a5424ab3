//! Following a run: its events as they come.
//!
//! Those who follow the same run share what they read: an event is decoded by the first of them who gets to it, and the others are given
//! the same. So ten who watch one run cost little more than one, and take little from whoever writes it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kauri_wire::RunId;

use super::event::{Stored, damaged, read};
use super::fault::RunFault;
use super::make;
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::substrate::Signal;

/// After events more come soon: a follower looks again after so long, and only if nothing came asks to be woken. So a stream that flows wakes
/// nobody, and costs whoever writes it nothing, however many follow; and an event after a pause is seen at once.
const SOON: Duration = Duration::from_millis(1);

/// The more follow, the longer each of them rests, up to this: all of them together are to be a thousand looks a second, or few more.
const SOON_MAX: Duration = Duration::from_millis(5);

/// What those who follow a run keep for each other is no more than this.
const SHARED_BYTES_MAX: usize = 1 << 20;

impl Runs {
    /// Follows the events of a run from this number on.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails.
    pub fn tail(&self, run: RunId, from: u64) -> Result<Tail> {
        self.run(run)?;
        let followed = self.shared().followed(run);
        let (next, looked) = (from.max(1), Looked::Nothing);
        Ok(Tail { runs: self.clone(), run, next, followed, seen: 0, looked, is_over: false })
    }
}

/// What all who follow a run have in common.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Raised when the run says something: one for all of them, so that whoever commits pays for one.
    pub(crate) signal: Arc<Signal>,
    shared: Mutex<Stretches>,
}

/// Events that were read together, in order and without a gap.
type Stretch = Arc<Vec<Stored>>;

/// The newest stretches that somebody has read, each beginning where the one before ends.
#[derive(Debug, Default)]
struct Stretches {
    kept: VecDeque<Stretch>,
    bytes: usize,
}

fn bytes_of(events: &[Stored]) -> usize {
    events.iter().map(|event| size_of::<Stored>() + event.payload.len()).sum()
}

impl Stretches {
    /// Gives the events with numbers in this range to `events`, as far as they are here without a gap from its start.
    fn give(&self, mut range: Range<u64>, events: &mut Events) {
        let behind = self.kept.partition_point(|kept| kept.last().is_some_and(|last| last.seq < range.start));
        for kept in self.kept.range(behind..) {
            let Some(first) = kept.first().map(|first| first.seq) else { return };
            let place = |seq: u64| usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX).min(kept.len());
            let part = place(range.start)..place(range.end);
            if first > range.start || part.is_empty() {
                return;
            }
            range.start += part.len() as u64;
            events.add(Arc::clone(kept), part);
        }
    }

    /// Keeps what was read, unless it is behind what others have read.
    fn keep(&mut self, read: &Stretch) {
        let Some(first) = read.first() else { return };
        match self.kept.back().and_then(|kept| kept.last()).map(|last| last.seq + 1) {
            Some(end) if first.seq < end => return,
            Some(end) if first.seq > end => *self = Self::default(),
            Some(_) | None => {}
        }
        self.bytes += bytes_of(read);
        self.kept.push_back(Arc::clone(read));
        while self.bytes > SHARED_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= bytes_of(&oldest);
        }
    }
}

/// Events of one run, in order and without a gap.
#[derive(Clone, Debug, Default)]
pub struct Events {
    parts: Vec<(Stretch, Range<usize>)>,
    count: usize,
}

impl Events {
    fn add(&mut self, stretch: Stretch, part: Range<usize>) {
        self.count += part.len();
        self.parts.push((stretch, part));
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.parts.iter().flat_map(|(stretch, part)| &stretch[part.clone()])
    }
}

/// A run's events as they come: each once, in order, none left out.
///
/// It reads the store, and is only woken by watches: so a hint too few or too many changes nothing.
#[derive(Debug)]
pub struct Tail {
    runs: Runs,
    run: RunId,
    next: u64,
    followed: Arc<Followed>,
    /// How often the signal had been raised when the store was last looked at.
    seen: u64,
    looked: Looked,
    is_over: bool,
}

/// What the last look came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    Nothing,
    /// There were events, and they were all.
    All,
    /// It ended before the events did.
    Some,
}

impl Tail {
    /// Up to `most` events that are there and were not answered before; none if there are none yet, or no more.
    ///
    /// # Errors
    /// `NoRun` if the run was swept, `EventsRemoved` if its events were, or if the substrate fails or a row is damaged.
    pub fn next(&mut self, most: usize) -> Result<Events> {
        // Asked for before the rows are: whatever is committed after this look is waited for.
        self.seen = self.followed.signal.count();
        let mut events = Events::default();
        let last = {
            // While one reads, the others wait for what it finds.
            let is_alone = Arc::strong_count(&self.followed) == 1;
            let shared = &self.followed.shared;
            let mut shared = (!is_alone).then(|| shared.lock().unwrap_or_else(PoisonError::into_inner));
            let (run, next) = (self.run, self.next);
            self.runs.read(|view| {
                let row = make::run(view, run)?;
                let end = next.saturating_add(most as u64).min(row.events.saturating_add(1)).max(next);
                if let Some(shared) = &shared {
                    shared.give(next..end, &mut events);
                }
                let next = next + events.len() as u64;
                if next < end {
                    let stretch = Arc::new(read(view, run, next, most - events.len())?);
                    if !stretch.iter().map(|event| event.seq).eq(next..end) {
                        super::share::check_events(view, run)?;
                        // Of a run that is swept, events go before its row does.
                        let is_swept = row.outcome().is_some();
                        return Err(if is_swept { Error::Run(RunFault::NoRun(run)) } else { damaged() });
                    }
                    if let Some(shared) = &mut shared {
                        shared.keep(&stretch);
                    }
                    let all = 0..stretch.len();
                    events.add(stretch, all);
                }
                Ok::<_, Error>(row.outcome().is_some().then_some(row.events))
            })?
        };
        self.next += events.len() as u64;
        self.looked = match events.len() {
            0 => Looked::Nothing,
            count if count == most => Looked::Some,
            _ => Looked::All,
        };
        self.is_over = last.is_some_and(|last| self.next > last);
        Ok(events)
    }

    /// Whether the run has ended and every event of it was answered.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns when there may be more, or when the time is over; at once if the last look did not see all, or all of the end.
    pub fn wait(&self, most: Option<Duration>) {
        if self.is_over || self.looked == Looked::Some {
            return;
        }
        let mut most = most;
        if self.looked == Looked::All {
            let followers = u32::try_from(Arc::strong_count(&self.followed)).unwrap_or(u32::MAX);
            let soon = SOON.saturating_mul(followers).min(SOON_MAX);
            let soon = most.map_or(soon, |most| most.min(soon));
            Signal::nap(soon);
            most = most.map(|most| most - soon);
        }
        self.followed.signal.wait(self.seen, most);
    }

    /// What is raised when there may be more, for whoever waits for several things.
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.followed.signal
    }
}

#[cfg(test)]
mod tests {
    use kauri_wire::run::EventType;

    use super::*;

    fn stretch(range: Range<u64>, bytes: usize) -> Stretch {
        let event = |seq| Stored { seq, kind: EventType::Log, ts: 0, payload: vec![0; bytes - size_of::<Stored>()] };
        Arc::new(range.map(event).collect())
    }

    #[test]
    fn what_is_kept_for_others_is_the_newest_without_a_gap_and_no_more_than_it_may_be() {
        let mut chance = 7_u64;
        let mut below = move |bound: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % bound
        };
        // Of an event so many that eight fit.
        let bytes = SHARED_BYTES_MAX / 8;
        let (mut shared, mut model) = (Stretches::default(), Vec::<Range<u64>>::new());
        let mut end = 1;
        for _ in 0..20_000 {
            let first = if below(3) == 0 { (end + below(4)).saturating_sub(2).max(1) } else { end };
            let read = first..first + below(4);
            shared.keep(&stretch(read.clone(), bytes));
            if !read.is_empty() && model.last().is_none_or(|last| read.start >= last.end) {
                if model.last().is_some_and(|last| read.start > last.end) {
                    model.clear();
                }
                end = read.end;
                model.push(read);
            }
            while model.last().is_some_and(|last| last.end - model[0].start > 8) {
                model.remove(0);
            }
            assert_eq!(shared.bytes, shared.kept.iter().map(|kept| bytes_of(kept)).sum::<usize>());
            let kept = model.first().map_or(0..0, |first| first.start..end);
            let from = (end + 2).saturating_sub(below(12));
            let asked = from..from + below(6);
            let mut events = Events::default();
            shared.give(asked.clone(), &mut events);
            let found: Vec<u64> = events.iter().map(|event| event.seq).collect();
            let there: Vec<u64> = asked.take_while(|seq| kept.contains(seq)).collect();
            assert_eq!((found, events.len()), (there.clone(), there.len()));
        }
    }
}
