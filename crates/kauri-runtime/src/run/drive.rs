//! Driving runs: a worker claims the message of a run, marks the run as running in the same commit, lets its code go on, and commits how
//! that came out with the end of the message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kauri_tree::Durability;
use kauri_wire::{Flags, InboxKey, WorkerId};

use super::begin::{Next, begin, end_refused};
use super::commit::LastWord;
use super::live::{Driver, Halt, LiveRun, Loaded};
use super::outcome::Outcome;
use super::seal::Ending;
use crate::atomic::Atomic;
use crate::claim::{Claimed, Found, Held};
use crate::dead_letter::DeadLetter;
use crate::error::Result;
use crate::lease::{Lease, row_key};
use crate::metrics::Counter;
use crate::policy::Policy;
use crate::runtime::{Runtime, Shared};
use crate::schema::{DEAD_LETTER, DEADLINES, INBOX, LEASES, URGENT};
use crate::substrate::{Change, Posted, Rows, Seen, Verdict};
use crate::time::Mono;
use crate::worker::{Pace, Rest, Tick, Work, Worker};

/// What runs a run's script, seen from the store: it is given the run, and answers how it ended.
///
/// Any `FnMut(&mut LiveRun) -> Result<Ending, Halt> + Send` is one. A [`Halt`] that it was given it hands on.
pub trait Drive: Send {
    /// Goes on with a run, until it ends or does not go on here.
    ///
    /// # Errors
    /// Why it does not go on.
    fn drive(&mut self, run: &mut LiveRun) -> Result<Ending, Halt>;
}

impl<F: FnMut(&mut LiveRun) -> Result<Ending, Halt> + Send> Drive for F {
    fn drive(&mut self, run: &mut LiveRun) -> Result<Ending, Halt> {
        self(run)
    }
}

impl Runtime {
    /// A worker that drives the runs of all classes that name it, one at a time. Its lease should outlast the longest silence of a run:
    /// every commit of the run renews it, and [`LiveRun::renew`] does.
    ///
    /// The end of a run and the begin of the next are one commit; after [`batch_messages_max`](Policy::batch_messages_max) runs, or
    /// [`batch_time_max`](Policy::batch_time_max), the worker looks after other things first. Where a thread has several workers
    /// ([`Pool::start_on`](crate::Pool::start_on)), each drives one run and then lets the others have their turn while that commit is on its way to the
    /// disk: so as many runs are in flight as there are workers, and the time of the others is silence too.
    pub fn run_worker(&self, id: WorkerId, policy: Policy, drive: impl Drive + 'static) -> Worker {
        self.worker_doing(id, policy, Work::Drive(Box::new(drive)))
    }
}

/// A run to be driven, and the message that asked for it.
type Going = (Box<LiveRun>, Claimed);

/// A change that was handed in.
type Landing = (Posted, Arc<Change>);

/// What a worker has handed in and not waited for, so that the others of its thread have their turn meanwhile.
pub(crate) struct Underway {
    landing: Landing,
    /// The run that is done with, if one is.
    last: Option<Last>,
    /// What it goes on with: a run that has begun when this is durable, and not before.
    next: Option<Going>,
    /// Whether that was begun before, by somebody who is gone.
    is_takeover: bool,
}

/// What became of what was on its way.
#[derive(Default)]
struct Arrival {
    /// How many messages were done with by it.
    handled: usize,
    /// What goes on.
    next: Option<Going>,
    /// Others were quicker.
    is_contended: bool,
}

/// A run that is done with, as far as is known: its last word is on its way, and is said again if it meets a conflict.
struct Last {
    live: Box<LiveRun>,
    claimed: Claimed,
    word: LastWord,
}

/// The run that a worker goes on with: claimed in the commit that ends the one before, so that a worker that keeps up pays one commit
/// for a run and not two.
pub(super) struct Ahead<'a> {
    /// Who goes on; nobody, if the run before is the last for now.
    worker: Option<&'a Worker>,
    /// The message of the run before.
    done: &'a Claimed,
    taken: Option<Taken>,
    /// Whether the commit is waited for.
    pace: Pace,
    /// The change, if it was handed in.
    landing: Option<Landing>,
}

struct Taken {
    found: Found,
    lease: Lease,
    claimed: Claimed,
    loaded: Box<Loaded>,
    /// The lease, once it is staged.
    held: Option<Held>,
}

impl Ahead<'_> {
    /// Stages in a block that the next run begins, if there is one that does. What is not simply to be driven is left alone, trouble
    /// included: whoever looks at the inbox next meets it.
    pub(super) fn stage(&mut self, rows: &dyn Rows, block: &mut Atomic<'_>) {
        let Some(worker) = self.worker else { return };
        let Ok((found, lease)) = worker.search_beside(rows, std::slice::from_ref(self.done)) else { return };
        let Some(claimed) = found.claims.first().cloned() else { return };
        let depth = block.depth();
        block.enter();
        let next = match found.is_takeover() || claimed.doom.is_some() {
            true => Ok(Next::Drop(None)),
            false => begin(block, &worker.runtime.shared, &claimed),
        };
        if let Ok(Next::Drive(loaded)) = next {
            block.merge_to(depth);
            self.taken = Some(Taken { found, lease, claimed, loaded, held: None });
        } else {
            block.vanish_to(depth);
            worker.leave(&claimed);
        }
    }

    /// Stages the lease on what was taken, in place of the one that ends. Tells whether there is one.
    pub(super) fn stage_lease(&mut self, change: &mut Change) -> bool {
        let (Some(worker), Some(taken)) = (self.worker, &mut self.taken) else { return false };
        change.expect(INBOX, taken.claimed.key_bytes(), Seen::Present);
        taken.held = taken.found.stage(change, worker.id, &taken.lease);
        taken.held.is_some()
    }

    /// Hands in what is staged, if others are to have their turn meanwhile; else it is given back.
    pub(super) fn post(&mut self, shared: &Shared, change: Change) -> Result<Option<Change>> {
        if !is_posted(self.pace, &change) {
            return Ok(Some(change));
        }
        self.landing = Some(post(shared, change)?);
        Ok(None)
    }

    /// After a conflict, which may be about the next run: this one ends alone.
    pub(super) fn give_up(&mut self) {
        if let (Some(worker), Some(taken)) = (self.worker.take(), self.taken.take()) {
            worker.leave(&taken.claimed);
        }
    }
}

/// Whether a change is handed in and not waited for.
fn is_posted(pace: Pace, change: &Change) -> bool {
    pace == Pace::InTurns && change.durability == Durability::Sync
}

fn post(shared: &Shared, change: Change) -> Result<Landing> {
    let change = Arc::new(change);
    Ok((shared.post(&change)?, change))
}

/// What the claim of a run's message came to.
enum Begun {
    /// There is none to claim.
    Idle,
    /// Others were quicker.
    Busy,
    /// There was nothing to drive, and the message is done with.
    Done,
    /// A run to be driven.
    Live(Box<LiveRun>, Claimed),
    /// It is on its way to the disk.
    Underway,
}

impl Worker {
    /// Drives runs as far as they go, one after the other, until there is none or it has been long enough. In turns with others it drives one,
    /// and does not wait for the commit of its end.
    pub(crate) fn drive_inbox(&mut self, pace: Pace) -> Result<Tick> {
        let Arrival { handled: before, mut next, is_contended } = self.arrive()?;
        if is_contended {
            return Ok(Tick { rest: Rest::Busy, handled: before, fired: 0 });
        }
        let until = self.runtime.shared.mono() + self.policy.batch_time_max;
        let mut handled = 0;
        if next.is_none() {
            let rest = |rest| Ok(Tick { rest, handled: before, fired: 0 });
            next = match self.begin_run(pace)? {
                Begun::Idle => return rest(Rest::Idle),
                Begun::Busy => return rest(Rest::Busy),
                Begun::Underway => return rest(Rest::More),
                Begun::Done => {
                    handled = 1;
                    None
                }
                Begun::Live(live, claimed) => Some((live, claimed)),
            };
        }
        while let Some(going) = next.take() {
            let until = (handled + 1 < self.policy.batch_messages_max).then_some(until);
            next = self.drive_run(going, until, pace)?;
            if self.underway.is_some() {
                break;
            }
            handled += 1;
        }
        Ok(Tick { handled: before + handled, fired: 0, rest: Rest::More })
    }

    /// Waits for what was left on its way, if anything was.
    fn arrive(&mut self) -> Result<Arrival> {
        let Some(Underway { landing: (posted, change), last, next, is_takeover }) = self.underway.take() else {
            return Ok(Arrival::default());
        };
        let shared = Arc::clone(&self.runtime.shared);
        let settled = shared.settle(posted, &change);
        let handled = usize::from(last.is_some());
        if let Ok(Verdict::Committed(_)) = settled {
            last.iter().for_each(|last| self.leave(&last.claimed));
            shared.metrics.add(Counter::Commits, 1);
            shared.metrics.add(Counter::Takeovers, is_takeover.into());
            return Ok(Arrival { handled, next, is_contended: false });
        }
        if let Ok(Verdict::Conflict(conflict)) = &settled {
            shared.meet(conflict, 1, Some(self.id));
        }
        let begun = next.map(|(_, claimed)| self.give_back(&claimed));
        let is_contended = match last {
            Some(last) => self.say_again(last, settled).map(|()| false),
            None => self.note_refusal(begun, settled),
        };
        Ok(Arrival { handled, next: None, is_contended: is_contended? })
    }

    /// Gives a message back whose run did not begin after all: where it is.
    fn give_back(&mut self, claimed: &Claimed) -> InboxKey {
        if let Some(rate) = self.policy.rate {
            self.runtime.shared.flow().unspend(self.id, rate);
        }
        self.leave(claimed);
        claimed.key
    }

    /// After a run's last word was not committed.
    fn say_again(&mut self, Last { mut live, claimed, word }: Last, settled: Result<Verdict>) -> Result<()> {
        let concluded = match settled {
            Ok(_) => live.conclude_again(&word),
            Err(error) => Err(error.into()),
        };
        let concluded = match concluded {
            Err(Halt::Failed(why)) => live.conclude(&live.failure(&why), None),
            concluded => concluded,
        };
        self.leave(&claimed);
        let is_ended = concluded.map_err(Halt::into_error)?;
        self.runtime.shared.metrics.add(Counter::Commits, u64::from(is_ended));
        Ok(())
    }

    /// After the begin of a run was not committed: tells whether others were quicker. If it can never be written, its run ends when it is
    /// claimed next.
    fn note_refusal(&mut self, begun: Option<InboxKey>, settled: Result<Verdict>) -> Result<bool> {
        match (settled, begun) {
            (Ok(_), _) => {
                self.runtime.shared.metrics.add(Counter::Contended, 1);
                Ok(true)
            }
            (Err(error), Some(key)) if error.is_refusal() => {
                self.refused = Some((key, error.to_string()));
                Ok(false)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Drives what has begun to its end, and claims no more. If the runtime has stopped, it is left as a crash would leave it.
    pub(crate) fn end_turn(&mut self) -> Result<()> {
        match self.arrive()?.next {
            Some(going) if self.runtime.shared.check_running().is_ok() => {
                self.drive_run(going, None, Pace::Settled).map(drop)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Drives a run, and commits how that came out with the claim of the next, if that is wanted and not too late by then. Answers the next, if
    /// there is one and nothing is to be waited for.
    fn drive_run(&mut self, (mut live, claimed): Going, until: Option<Mono>, pace: Pace) -> Result<Option<Going>> {
        let driven = self.drive_to_end(&mut live, &claimed, until, pace);
        if let Ok(Driven { landing: Some((landing, word)), next, .. }) = driven {
            // What is taken over is begun by itself, and not beside the end of another.
            let last = Some(Last { live, claimed, word });
            self.underway = Some(Underway { landing, last, next, is_takeover: false });
            return Ok(None);
        }
        self.leave(&claimed);
        let Driven { is_ended, next, .. } = driven?;
        self.runtime.shared.metrics.add(Counter::Commits, u64::from(is_ended));
        Ok(next)
    }

    fn drive_to_end(
        &mut self,
        live: &mut LiveRun,
        claimed: &Claimed,
        until: Option<Mono>,
        pace: Pace,
    ) -> Result<Driven> {
        let Work::Drive(drive) = &mut self.work else { unreachable!("whoever drives runs has what drives them") };
        let result = match live.keep() {
            Ok(()) => catch_unwind(AssertUnwindSafe(|| drive.drive(live))),
            Err(halt) => Ok(Err(halt)),
        };
        if let Some(concluded) = live.take_concluded() {
            return Ok(Driven { is_ended: concluded?, next: None, landing: None });
        }
        let result = match result {
            Ok(result) => result.and_then(|ending| live.check_recalled().map(|()| ending)),
            Err(panic) => {
                let words = crate::step::panic_words("what drove it", &*panic);
                Ok(Ending::failure(live.now().wall, Outcome::ExecutorCrash, &words))
            }
        };
        let is_enough = until.is_none_or(|until| self.runtime.shared.mono() >= until);
        let is_last = is_enough || self.is_stopping() || self.policy.concurrency.is_some();
        let worker = (!is_last).then_some(&*self);
        let mut ahead = Ahead { worker, done: claimed, taken: None, pace, landing: None };
        let Some(mut word) = live.last_word(result)? else {
            return Ok(Driven { is_ended: false, next: None, landing: None });
        };
        let mut concluded = live.conclude(&word, Some(&mut ahead));
        if let Err(Halt::Failed(why)) = &concluded {
            // What it wanted with its end, or to wait for, can never be written: so it ends without.
            word = live.failure(why);
            concluded = live.conclude(&word, Some(&mut ahead));
        }
        let (taken, landing) = (ahead.taken, ahead.landing);
        let is_ended = concluded.map_err(Halt::into_error)?;
        let landing = landing.map(|landing| (landing, word));
        Ok(Driven { is_ended, next: taken.and_then(|taken| self.go_on_with(taken)), landing })
    }

    /// Goes on with what was claimed in the commit that ended the run before.
    fn go_on_with(&mut self, taken: Taken) -> Option<Going> {
        let held = taken.held?;
        match self.go_on(taken.claimed, held, Next::Drive(taken.loaded)) {
            Begun::Live(live, claimed) => Some((live, claimed)),
            Begun::Idle | Begun::Busy | Begun::Done | Begun::Underway => None,
        }
    }

    /// Claims a message, and commits with the claim what it means for its run. If that can never be written, the run ends, or the message
    /// is buried if it is none of a run: it is not tried again for ever.
    fn begin_run(&mut self, pace: Pace) -> Result<Begun> {
        let (mut claims, refused) = (None, self.refused.take());
        match self.try_begin_run(pace, &mut claims, refused.as_ref()) {
            Err(error) if error.is_refusal() && claims.is_some() => {
                let refused = claims.take().map(|key| (key, error.to_string()));
                self.try_begin_run(pace, &mut claims, refused.as_ref())
            }
            begun => begun,
        }
    }

    fn try_begin_run(
        &mut self,
        pace: Pace,
        claims: &mut Option<InboxKey>,
        refused: Option<&(InboxKey, String)>,
    ) -> Result<Begun> {
        let shared = Arc::clone(&self.runtime.shared);
        let rows = shared.substrate.snapshot()?;
        let (found, lease) = self.search(&*rows)?;
        self.wake_at = found.wake_at;
        let mut block = Atomic::new(&*rows, shared.setting(Some(self.id)));
        let Some(claimed) = found.claims.first().cloned() else { return Ok(Begun::Idle) };
        *claims = Some(claimed.key);
        let begun = match refused.filter(|(key, _)| *key == claimed.key) {
            None => begin(&mut block, &shared, &claimed),
            Some((_, why)) => end_refused(&mut block, &shared, &claimed, why),
        };
        let begun = begun.inspect_err(|_| self.leave(&claimed))?;
        let (mut change, wishes) = block.into_change();
        let _ = shared.stage_wishes(&mut change, wishes);
        drop(rows);
        change.expect(INBOX, claimed.key_bytes(), Seen::Present);
        let held = found.stage(&mut change, self.id, &lease).expect("something was found");
        if let Next::Drop(burial) = &begun {
            self.stage_drop(&mut change, &claimed, burial.as_ref());
        }
        change.durability = self.policy.durability(Flags::DURABLE);
        if is_posted(pace, &change) && matches!(begun, Next::Drive(_)) {
            let landing = post(&shared, change).inspect_err(|_| self.leave(&claimed))?;
            let is_takeover = found.is_takeover();
            if let Begun::Live(live, claimed) = self.go_on(claimed, held, begun) {
                self.underway = Some(Underway { landing, last: None, next: Some((live, claimed)), is_takeover });
            }
            return Ok(Begun::Underway);
        }
        match shared.commit(&change.into()).inspect_err(|_| self.leave(&claimed))? {
            Verdict::Committed(_) => {
                shared.metrics.add(Counter::Commits, 1);
                shared.metrics.add(Counter::Takeovers, found.is_takeover().into());
                Ok(self.go_on(claimed, held, begun))
            }
            Verdict::Conflict(conflict) => {
                shared.meet(&conflict, 1, Some(self.id));
                shared.metrics.add(Counter::Contended, 1);
                self.leave(&claimed);
                Ok(Begun::Busy)
            }
        }
    }

    /// Stages that a message is done with, and where it is buried if it is.
    fn stage_drop(&self, change: &mut Change, claimed: &Claimed, burial: Option<&DeadLetter>) {
        change.remove(LEASES, row_key(self.id, self.owner));
        for table in [INBOX, URGENT, DEADLINES] {
            change.remove(table, claimed.key_bytes());
        }
        if let Some(letter) = burial {
            change.put(DEAD_LETTER, claimed.key_bytes(), letter.encode());
        }
    }

    fn go_on(&mut self, claimed: Claimed, held: Held, begun: Next) -> Begun {
        let shared = Arc::clone(&self.runtime.shared);
        if let Some(rate) = self.policy.rate {
            shared.flow().spend(self.id, rate, 1);
        }
        match begun {
            Next::Drop(_) => {
                self.leave(&claimed);
                Begun::Done
            }
            Next::Drive(loaded) => {
                let is_urgent = claimed.is_urgent || crate::step::is_urgent(&claimed.frame);
                let (worker, key, policy) = (self.id, claimed.key, self.policy.clone());
                let has_deadline = claimed.deadline.is_some();
                let driver = Driver { worker, key, is_urgent, has_deadline, policy, held };
                Begun::Live(Box::new(LiveRun::new(shared, driver, *loaded)), claimed)
            }
        }
    }
}

/// What driving a run came to.
struct Driven {
    is_ended: bool,
    next: Option<Going>,
    /// Its last word, if that was handed in and not waited for.
    landing: Option<(Landing, LastWord)>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kauri_tree::Options;
    use kauri_tree::disk::MemoryDisk;
    use kauri_wire::pack::Map;

    use super::*;
    use crate::run::{Class, State, Submission};
    use crate::substrate::TreeSubstrate;
    use crate::testing::VirtualClock;

    #[test]
    fn what_began_in_turns_is_driven_to_its_end_unless_the_runtime_has_stopped() {
        for is_stopped in [false, true] {
            let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store").unwrap();
            let clock = Arc::new(VirtualClock::default());
            let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), clock).start().unwrap();
            let runs = runtime.runs();
            runs.define("class", &Class::new(WorkerId(1))).unwrap();
            let submitted = runs.submit_all(&["a", "b"].map(|input| Submission::new("class", input))).unwrap();
            let driven = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&driven);
            let mut worker = runtime.run_worker(WorkerId(1), Policy::default(), move |live: &mut LiveRun| {
                told.lock().unwrap().push(live.id());
                Ok(Ending::success(live.now().wall, Map::EMPTY))
            });
            let states = || [0, 1].map(|at| runs.run(submitted[at].run).unwrap().state);
            assert_eq!(worker.tick_in_turns().unwrap(), Tick { handled: 0, fired: 0, rest: Rest::More });
            assert_eq!(
                (driven.lock().unwrap().len(), states()),
                (0, [State::Pending; 2]),
                "nobody sees that it begins"
            );
            // The first is driven, and with its end the second begins.
            worker.tick_in_turns().unwrap();
            assert_eq!((driven.lock().unwrap().len(), states()), (1, [State::Running, State::Pending]));
            if is_stopped {
                runtime.stop();
            }
            worker.end_turn().unwrap();
            let success = State::Sealed(Outcome::Success { skipped: false });
            let second = if is_stopped { State::Running } else { success };
            assert_eq!((driven.lock().unwrap().len(), states()), (2 - usize::from(is_stopped), [success, second]));
        }
    }
}
