//! Submissions that nobody waits for one by one: tasks, and threads with many on their way.

use std::pin::Pin;
use std::task::{Context, Poll, Wake as Woken, Waker};

use super::*;

/// Counts how often a task is woken; panics then, if it is one of those.
#[derive(Default)]
struct Bell {
    rung: AtomicU32,
    panics: bool,
}

impl Woken for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "an executor's own trouble");
    }
}

impl Bell {
    fn rung(&self) -> u32 {
        self.rung.load(Ordering::SeqCst)
    }

    /// As an executor does.
    fn poll(self: &Arc<Self>, submitting: &mut Submitting) -> Poll<Result<Applied>> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(submitting).poll(&mut Context::from_waker(&waker))
    }
}

fn ids(fixture: &Fixture) -> Vec<i64> {
    fixture.rows().into_iter().map(|(id, _)| id).collect()
}

#[test]
fn what_comes_meanwhile_goes_into_one_transaction_and_each_is_told_by_itself() {
    let fixture = Fixture::new("later", CAPACITY);
    let submitter = fixture.queue.submitter().unwrap();
    fixture.orders.shut(true);
    let many: Vec<Submitting> = (0..50).map(|id| submitter.submit_batch([insert(id % 49)]).unwrap()).collect();
    fixture.orders.shut(false);
    let told: Vec<bool> = many.into_iter().map(|submitting| submitting.wait().is_ok()).collect();
    assert_eq!(told.iter().position(|is_well| !is_well), Some(49), "the one that was there before");
    assert_eq!(ids(&fixture), (0..49).collect::<Vec<_>>());
    assert!(fixture.queue.stats().batches <= 2, "{:?}", fixture.queue.stats());
    assert_eq!(submitter.submit(INSERT, [70.into(), "x".into()]).unwrap().wait().unwrap().rows, 1);
}

#[test]
fn task_is_woken_once_by_the_waker_that_it_gave_last() {
    let fixture = Fixture::new("task", CAPACITY);
    let submitter = fixture.queue.submitter().unwrap();
    fixture.orders.shut(true);
    let [mut one, mut other, asleep] = [1, 2, 3].map(|id| submitter.submit_batch([insert(id)]).unwrap());
    let [first, second, others] = [(); 3].map(|()| Arc::new(Bell::default()));
    assert!(first.poll(&mut one).is_pending() && second.poll(&mut one).is_pending());
    assert!(others.poll(&mut other).is_pending());
    fixture.orders.shut(false);
    asleep.wait().unwrap();
    // It is told before anybody is woken; the writer may be on its way from one task to the next.
    while second.rung() + others.rung() < 2 {
        std::thread::yield_now();
    }
    assert!(matches!(second.poll(&mut one), Poll::Ready(Ok(Applied { rows: 1 }))));
    assert!(matches!(first.poll(&mut other), Poll::Ready(Ok(_))), "whoever asks");
    drop(submitter);
    assert_eq!((first.rung(), second.rung(), others.rung()), (0, 1, 1));
}

#[test]
fn executor_that_panics_is_not_the_writers_trouble() {
    let fixture = Fixture::new("panicking-executor", CAPACITY);
    let submitter = fixture.queue.submitter().unwrap();
    fixture.orders.shut(true);
    let mut many = [1, 2].map(|id| submitter.submit_batch([insert(id)]).unwrap());
    let (bad, good) = (Arc::new(Bell { panics: true, ..Bell::default() }), Arc::new(Bell::default()));
    assert!(bad.poll(&mut many[0]).is_pending() && good.poll(&mut many[1]).is_pending());
    fixture.orders.shut(false);
    while good.rung() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(bad.rung(), 1);
    submitter.submit_batch([insert(3)]).unwrap().wait().unwrap();
    fixture.queue.submit_batch([insert(4)]).unwrap();
    assert_eq!((ids(&fixture), fixture.queue.stats().restarts), (vec![1, 2, 3, 4], 0));
}

#[test]
fn what_nobody_waits_for_is_written_before_the_submitter_is_gone() {
    let fixture = Fixture::new("dropped", CAPACITY);
    for round in 0..20 {
        let submitter = fixture.queue.submitter().unwrap();
        for id in 0..10 {
            drop(submitter.submit_batch([insert(round * 10 + id)]).unwrap());
        }
        let mut last = submitter.submit_batch([insert(10_000 + round)]).unwrap();
        drop(submitter);
        assert!(Arc::new(Bell::default()).poll(&mut last).is_ready(), "{round}");
    }
    assert_eq!(ids(&fixture).len(), 220);
}

#[test]
fn submitter_refuses_what_a_full_or_closed_queue_does() {
    let fixture = Fixture::new("later-full", 4);
    let submitter = fixture.queue.submitter().unwrap();
    let submit = |id: i64| submitter.submit_batch([insert(id)]);
    fixture.orders.shut(true);
    let first = submit(0).unwrap();
    fixture.until(|stats| stats.depth == 0 && fixture.queue.state().writing);
    let waiting: Vec<Submitting> = (1..=4).map(|id| submit(id).unwrap()).collect();
    // Whatever fails from here on, nobody is left standing at the gate.
    let _opened_at_last = OpenAtLast(&fixture.orders);
    assert!(matches!(submit(5), Err(Error::QueueFull)));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| fixture.queue.close());
        fixture.until(|stats| !stats.is_running);
        assert!(matches!(submit(6), Err(Error::QueueClosed)));
        fixture.orders.shut(false);
        closing.join().unwrap();
    });
    assert_eq!(ids(&fixture), [0, 1, 2, 3, 4], "closing waits for those that were taken");
    first.wait().unwrap();
    waiting.into_iter().for_each(|submitting| assert_eq!(submitting.wait().unwrap().rows, 1));
}

#[test]
fn tasks_that_wait_when_the_writer_is_given_up_are_told_exactly() {
    let fixture = Fixture::new("later-given-up", CAPACITY);
    let submitter = fixture.queue.submitter().unwrap();
    fixture.orders.shut(true);
    fixture.orders.order(1, 1_000, Trouble::Panics);
    let many: Vec<Submitting> = (0..300).map(|id| submitter.submit_batch([insert(id)]).unwrap()).collect();
    fixture.orders.shut(false);
    // Three restarts, each with the batch that comes next, and the fourth panic is the last.
    for submitting in many {
        assert!(matches!(submitting.wait(), Err(Error::NotApplied { .. })));
    }
    let mut id = 300;
    while fixture.queue.stats().is_running {
        submitter.submit_batch([insert(id)]).unwrap().wait().unwrap_err();
        id += 1;
    }
    assert!(matches!(submitter.submit_batch([insert(id)]), Err(Error::NotApplied { .. })));
    assert_eq!((fixture.rows().len(), fixture.alarms.lock().unwrap().len()), (0, 1));
}

#[test]
fn threads_and_tasks_of_two_submitters_share_batches() {
    check_mixed(&Fixture::new("mixed", CAPACITY));
}

#[test]
fn threads_and_tasks_of_two_submitters_share_batches_when_writes_take_long() {
    let fixture = Fixture::with_clock("mixed-slow", CAPACITY, |clock| Arc::new(Slow(clock)));
    check_mixed(&fixture);
    assert_eq!(fixture.queue.shared.pace.wake(), Wake::All);
}

/// Everybody is told, whoever is first in a batch and whoever writes it; submitters come and go.
fn check_mixed(fixture: &Fixture) {
    const ROUNDS: i64 = 40;
    let id = |caller: i64, round: i64, at: i64| (caller * ROUNDS + round) * 8 + at;
    std::thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    fixture.queue.submit_batch([insert(id(caller, round, 0))]).unwrap();
                }
            });
        }
        for caller in 6..8 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let submitter = fixture.queue.submitter().unwrap();
                    let many = [0, 1, 2, 3].map(|at| submitter.submit_batch([insert(id(caller, round, at))]).unwrap());
                    many.into_iter().for_each(|submitting| assert_eq!(submitting.wait().unwrap().rows, 1));
                    let last = submitter.submit_batch([insert(id(caller, round, 4))]).unwrap();
                    drop(submitter);
                    last.wait().unwrap();
                }
            });
        }
    });
    let threads = (0..6).flat_map(|caller| (0..ROUNDS).map(move |round| id(caller, round, 0)));
    let tasks =
        (6..8).flat_map(|caller| (0..ROUNDS).flat_map(move |round| [0, 1, 2, 3, 4].map(|at| id(caller, round, at))));
    assert!(ids(fixture).into_iter().eq(threads.chain(tasks)));
    let stats = fixture.queue.stats();
    assert!(stats.batch_max > 1 && stats.depth == 0, "{stats:?}");
}
