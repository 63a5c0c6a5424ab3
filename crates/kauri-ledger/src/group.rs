//! Callers whose wishes are carried out by one write, and how they hear of it.
//!
//! ```text
//! first ── sleeps by itself ──────┐ woken when it is the group's turn: it may have to write
//! second ─ sleeps by itself ──────┤ woken when the first is the one who writes
//! third ──┐                       │
//! fourth ─┼─ sleep together ──────┴ woken once, when all is done, with one call to the system
//! ...    ─┘
//! tasks ──── sleep as their executor has it, and are woken through it by whoever tells
//! ```
//!
//! Each of them first lets others run for a while, if that helps ([`Patience`]): whoever does not sleep is woken by nobody.
//!
//! Waking is what a shared write costs most, once many callers share it. So nobody is woken to find that there is nothing to
//! do, nobody wakes the others one by one, and nobody takes a lock to hear an answer: it is told once, and then only read.
//!
//! Who wakes them is a question of how long a write takes ([`Pace`]). If it is short, whoever writes wakes one of them, who wakes the
//! others while the next write is under way: some callers come back while others are written, and no processor waits. If it is long,
//! whoever writes wakes all of them first: they come back in time for the next write, which is then for all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::clock::Clock;
use crate::patience::Patience;

/// Callers who wait for the same write. `E` is how it ended, for all of them.
pub(crate) struct Group<E> {
    /// Who is called.
    first: Thread,
    /// Whether that is a member, and waits: a thread that only writes for tasks does not.
    first_waits: bool,
    second: OnceLock<Thread>,
    end: OnceLock<E>,
    /// The tasks that wait for it, each at its own number.
    tasks: Mutex<Vec<Option<Waker>>>,
    /// What the others sleep on.
    woken: OnceLock<()>,
    /// It is the group's turn, and the first of it has not seen that yet.
    called: AtomicBool,
}

/// Who wakes those who wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// Whoever tells them.
    All,
    /// One of them, whom whoever tells them wakes.
    One,
}

impl<E> Group<E> {
    /// A group whose first member is the calling thread.
    pub(crate) fn new() -> Self {
        Self::with(std::thread::current(), true)
    }

    /// A group that begins with a task: this thread is called for it, and is no member.
    pub(crate) fn of_tasks(called: Thread) -> Self {
        Self::with(called, false)
    }

    fn with(first: Thread, first_waits: bool) -> Self {
        let (second, end, woken) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (tasks, called) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Self { first, first_waits, second, end, tasks, woken, called }
    }

    /// The calling thread is the second, unless there is one. Said before the group can be told, by one thread at a time.
    pub(crate) fn join_second(&self) -> bool {
        self.second.get().is_none() && self.second.set(std::thread::current()).is_ok()
    }

    /// Says how it ended, and wakes everybody who waits for that, or one who does, and the tasks.
    pub(crate) fn tell(&self, end: E, wake: Wake) {
        let told = self.end.set(end);
        assert!(told.is_ok(), "a group is told once");
        // Whoever writes for its own group is awake, and goes on writing.
        let first = Some(&self.first).filter(|first| self.first_waits && !is_current(first));
        match first.or(self.second.get()) {
            Some(one) if wake == Wake::One => one.unpark(),
            _ => self.wake_all(),
        }
        if !self.first_waits && !is_current(&self.first) {
            // It will not be called for these any more: it may wait for just that.
            self.first.unpark();
        }
        let tasks = std::mem::take(&mut *self.tasks());
        for task in tasks.into_iter().flatten() {
            // An executor that panics is not the writer's trouble.
            let _panicked = catch_unwind(AssertUnwindSafe(|| task.wake()));
        }
    }

    /// How it ended, for the task of this number, which is woken when that is told.
    pub(crate) fn poll(&self, task: usize, cx: &Context<'_>) -> Poll<&E> {
        if let Some(end) = self.end.get() {
            return Poll::Ready(end);
        }
        let mut tasks = self.tasks();
        // Told meanwhile: whoever told has been here, or comes when this is left.
        if let Some(end) = self.end.get() {
            return Poll::Ready(end);
        }
        if tasks.len() <= task {
            tasks.resize(task + 1, None);
        }
        match &mut tasks[task] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this thread is the one that is called.
    pub(crate) fn calls(&self, thread: &Thread) -> bool {
        self.first.id() == thread.id()
    }

    /// Wakes the first of the group: it is its turn.
    pub(crate) fn call(&self) {
        if !is_current(&self.first) {
            self.called.store(true, Ordering::Release);
            self.first.unpark();
        }
    }

    /// How it ended, if that was told. For a member that is awake, the first or one who wrote: the others, if they still sleep, are woken.
    pub(crate) fn end(&self) -> Option<&E> {
        let end = self.end.get()?;
        self.wake_all();
        Some(end)
    }

    /// Waits until the end is told. For the second of the group, who then wakes the others.
    pub(crate) fn wait_second(&self, patience: &Patience) -> &E {
        loop {
            patience.until(|| self.end.get().is_some());
            if let Some(end) = self.end.get() {
                self.wake_all();
                return end;
            }
            std::thread::park();
        }
    }

    /// Waits until the end is told. Neither for the first of the group, who may have to write, nor for the second.
    pub(crate) fn wait(&self, patience: &Patience) -> &E {
        patience.until(|| self.end.get().is_some());
        match self.end.get() {
            Some(end) => end,
            None => {
                self.woken.wait();
                self.end.get().expect("the end is told before anybody is woken")
            }
        }
    }

    /// Waits until the first of the group, who is the caller, is called or told. May return early.
    pub(crate) fn wait_for_call(&self, patience: &Patience) {
        debug_assert!(is_current(&self.first), "the first waits for its call");
        if !patience.until(|| self.end.get().is_some() || self.hears_call()) {
            std::thread::park();
        }
    }

    /// Whether the first was called. A call is heard once: if another caller came first and writes, the next one is waited for.
    fn hears_call(&self) -> bool {
        self.called.swap(false, Ordering::Acquire)
    }

    /// Wakes whoever sleeps; nobody, if that was done before.
    fn wake_all(&self) {
        if self.woken.set(()).is_ok() {
            let first = Some(&self.first).filter(|_| self.first_waits);
            let others = [first, self.second.get()].into_iter().flatten();
            others.filter(|other| !is_current(other)).for_each(Thread::unpark);
        }
    }
}

fn is_current(thread: &Thread) -> bool {
    thread.id() == std::thread::current().id()
}

/// Of fewer who were told together nobody is waited for.
const MANY: usize = 4;

/// Before a write: lets those come back who were told last, until most of them are here or no more come. `here` is how many are.
/// Only if they were many: so a lone caller, and one after another, waits for nobody.
pub(crate) fn gather(patience: &Patience, told: usize, here: impl Fn() -> usize) {
    if told < MANY {
        return;
    }
    let mut before = None;
    patience.until(|| {
        let here = Some(here());
        let are_enough = here.is_some_and(|here| here * 4 >= told * 3) || here == before;
        before = here;
        are_enough
    });
}

/// Writes that take longer are long: about what it takes a hundred callers to be woken and to come again.
const LONG_US: u64 = 400;
/// Over how many writes the mean is taken.
const WRITES: u64 = 64;

/// How long writes take, in the mean of the last ones.
///
/// The clock counts milliseconds, and a write may take a tenth of one: then one in ten seems to take a whole one, and the mean is
/// right all the same.
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    /// Microseconds of so many writes. Only whoever writes changes it.
    sum_us: AtomicU64,
}

impl Pace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sum_us: AtomicU64::new(0) }
    }

    /// Does a write, and sees how long it takes.
    pub(crate) fn time<R>(&self, write: impl FnOnce() -> R) -> R {
        let began = self.clock.now();
        let written = write();
        self.wrote(self.clock.now().since(began));
        written
    }

    fn wrote(&self, took: Duration) {
        // A clock that was set forward is no slow disk.
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(100 * LONG_US);
        let before = self.sum_us.load(Ordering::Relaxed);
        self.sum_us.store(before - before / WRITES + took_us, Ordering::Relaxed);
    }

    /// Who should wake those who wait for a write.
    pub(crate) fn wake(&self) -> Wake {
        match self.sum_us.load(Ordering::Relaxed) > LONG_US * WRITES {
            true => Wake::All,
            false => Wake::One,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "callers are threads")]

    use super::*;
    use std::sync::Barrier;

    /// A group of so many, told by its first or by somebody else: everybody hears it.
    fn check(members: usize, by_first: bool, wake: Wake) {
        let (made, joined) = (OnceLock::new(), Barrier::new(members + usize::from(!by_first)));
        let patience = Patience::new();
        let heard = |at: usize| match at {
            0 => {
                made.set(Group::new()).ok().expect("made once");
                let group = made.get().expect("made");
                joined.wait();
                if by_first {
                    group.tell("done", wake);
                }
                loop {
                    if let Some(end) = group.end() {
                        return *end;
                    }
                    group.wait_for_call(&patience);
                }
            }
            1 => {
                made.wait().join_second();
                joined.wait();
                *made.wait().wait_second(&patience)
            }
            _ => {
                joined.wait();
                *made.wait().wait(&patience)
            }
        };
        std::thread::scope(|scope| {
            let heard = &heard;
            let members: Vec<_> = (0..members).map(|at| scope.spawn(move || heard(at))).collect();
            if !by_first {
                joined.wait();
                made.wait().tell("done", wake);
            }
            members.into_iter().for_each(|member| assert_eq!(member.join().unwrap(), "done"));
        });
    }

    #[test]
    fn everybody_hears_how_it_ended_whoever_wakes_them() {
        for _ in 0..50 {
            for members in [1, 2, 3, 4, 9] {
                for (by_first, wake) in [(true, Wake::One), (true, Wake::All), (false, Wake::One), (false, Wake::All)] {
                    check(members, by_first, wake);
                }
            }
        }
    }

    #[test]
    fn call_is_heard_once() {
        let group = Group::<()>::new();
        assert!(!group.hears_call(), "nobody called");
        std::thread::scope(|scope| scope.spawn(|| group.call()).join().unwrap());
        assert_eq!((group.hears_call(), group.hears_call()), (true, false));
        group.call();
        assert!(!group.hears_call(), "whoever calls itself need not be told");
    }

    /// How many of those who were told have come, one look after the other; tells after how many looks the write begins.
    fn looks(told: usize, here: &[usize]) -> usize {
        let looks = std::cell::Cell::new(0);
        gather(&Patience::new(), told, || {
            looks.set(looks.get() + 1);
            here[(looks.get() - 1).min(here.len() - 1)]
        });
        looks.get()
    }

    #[test]
    fn most_of_those_who_were_told_are_waited_for_and_nobody_who_does_not_come() {
        assert_eq!(looks(3, &[0]), 0, "of a few nobody is waited for");
        assert_eq!(looks(64, &[48]), 1, "most are here");
        // How often somebody looks is up to the scheduler, but nobody looks again when no more came.
        assert!(looks(64, &[1, 2, 2, 3, 4]) <= 3);
        assert!(looks(64, &[1, 20, 48, 64]) <= 3);
    }

    #[test]
    fn long_writes_are_told_from_short_ones_although_the_clock_counts_milliseconds() {
        let pace = Pace::new(Arc::new(crate::ManualClock::new(crate::Timestamp(0))));
        let write = |times: u32, every: u32| {
            for number in 1..=times {
                pace.wrote(Duration::from_millis(u64::from(number.is_multiple_of(every))));
            }
            pace.wake()
        };
        assert_eq!(pace.wake(), Wake::One, "nothing is known yet");
        assert_eq!(write(1_000, 10), Wake::One, "a tenth of a millisecond");
        assert_eq!(write(1_000, 1), Wake::All, "a millisecond");
        assert_eq!(write(1_000, 10), Wake::One);
        pace.wrote(Duration::MAX);
        assert_eq!(pace.wake(), Wake::All);
        assert_eq!(write(200, 10), Wake::One, "one that took for ever is forgotten");
    }
}
