//! The queue against a database that fails, panics or stands still, at every call.
#![expect(clippy::disallowed_methods, reason = "callers are threads, and the database is a file")]

mod submitter;

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::clock::{ManualClock, Timestamp};
use session::Answer;

const INSERT: &str = "INSERT INTO t (id, text) VALUES (?1, ?2)";
const SCHEMA: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);
    CREATE TABLE writer_epochs (epoch INTEGER PRIMARY KEY, batch INTEGER NOT NULL);
    INSERT INTO writer_epochs VALUES (1, 0);";

/// How a call goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    Panics,
    /// It does nothing, and says that the disk failed.
    FailsBefore,
    /// It does what it should, and says that the disk failed: as after a commit whose sync failed.
    FailsAfter,
    /// The transaction is gone, as SQLite does it when the disk is full.
    Aborts,
}

const TROUBLES: [Trouble; 4] = [Trouble::Panics, Trouble::FailsBefore, Trouble::FailsAfter, Trouble::Aborts];

/// What is ordered for all sessions together.
#[derive(Default)]
struct Orders {
    /// Which calls go wrong, counted from 1, and how.
    trouble: Mutex<Vec<(std::ops::Range<u32>, Trouble)>>,
    calls: AtomicU32,
    struck: AtomicU32,
    /// Who began transactions, one after the other.
    writers: Mutex<Vec<std::thread::ThreadId>>,
    /// Whether a transaction may begin.
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Orders {
    fn order(&self, nth: u32, times: u32, trouble: Trouble) {
        self.order_all(vec![(nth..nth + times, trouble)]);
    }

    fn order_all(&self, trouble: Vec<(std::ops::Range<u32>, Trouble)>) {
        self.calls.store(0, Ordering::SeqCst);
        self.struck.store(0, Ordering::SeqCst);
        *self.trouble.lock().unwrap() = trouble;
    }

    fn heal(&self) {
        self.trouble.lock().unwrap().clear();
    }

    fn strikes(&self) -> Option<Trouble> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let ordered = self.trouble.lock().unwrap();
        let struck = ordered.iter().find(|(calls, _)| calls.contains(&call)).map(|(_, trouble)| *trouble);
        self.struck.fetch_add(u32::from(struck.is_some()), Ordering::SeqCst);
        struck
    }

    fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut shut = self.shut.lock().unwrap();
        while *shut {
            shut = self.opened.wait(shut).unwrap();
        }
    }
}

struct OpenAtLast<'a>(&'a Orders);

impl Drop for OpenAtLast<'_> {
    fn drop(&mut self) {
        self.0.shut(false);
    }
}

struct Faulty {
    session: Sqlite,
    orders: Arc<Orders>,
}

fn io_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(10), Some("the disk failed".to_owned()))
}

fn full() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), Some("the disk is full".to_owned()))
}

impl Faulty {
    fn call<T>(&mut self, act: impl FnOnce(&mut Sqlite) -> Answer<T>) -> Answer<T> {
        match self.orders.strikes() {
            None => act(&mut self.session),
            Some(Trouble::Panics) => panic!("ordered"),
            Some(Trouble::FailsBefore) => Err(io_error()),
            Some(Trouble::FailsAfter) => act(&mut self.session).and_then(|_| Err(io_error())),
            Some(Trouble::Aborts) => {
                if self.session.in_transaction() {
                    self.session.rollback()?;
                }
                Err(full())
            }
        }
    }
}

impl Session for Faulty {
    fn begin(&mut self) -> Answer<()> {
        self.orders.writers.lock().unwrap().push(std::thread::current().id());
        self.orders.pass();
        self.call(Sqlite::begin)
    }

    fn nest(&mut self) -> Answer<()> {
        self.call(Sqlite::nest)
    }

    fn keep(&mut self) -> Answer<()> {
        self.call(Sqlite::keep)
    }

    fn undo(&mut self) -> Answer<()> {
        self.call(Sqlite::undo)
    }

    fn execute(&mut self, op: &Op) -> Answer<usize> {
        self.call(|session| session.execute(op))
    }

    fn mark(&mut self, epoch: i64, batch: i64) -> Answer<()> {
        self.call(|session| session.mark(epoch, batch))
    }

    fn marked(&mut self, epoch: i64) -> Answer<Option<i64>> {
        self.call(|session| session.marked(epoch))
    }

    fn commit(&mut self) -> Answer<()> {
        self.call(Sqlite::commit)
    }

    fn rollback(&mut self) -> Answer<()> {
        self.call(Sqlite::rollback)
    }

    fn in_transaction(&self) -> bool {
        self.session.in_transaction()
    }
}

/// Without syncs: what survives a crash of the machine is tried elsewhere, and there are many databases here.
fn connect(path: &Path) -> Answer<Connection> {
    let connection = session::connect(path)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    Ok(connection)
}

/// A queue over a faulty database, in a directory of its own.
struct Fixture {
    directory: PathBuf,
    orders: Arc<Orders>,
    clock: Arc<ManualClock>,
    alarms: Arc<Mutex<Vec<String>>>,
    queue: Queue,
}

impl Fixture {
    fn new(name: &str, capacity: usize) -> Self {
        Self::with_clock(name, capacity, |clock| clock)
    }

    /// A queue that is told the time by another clock.
    fn with_clock<C: Clock>(name: &str, capacity: usize, other: impl FnOnce(Arc<ManualClock>) -> Arc<C>) -> Self {
        let directory = std::env::temp_dir().join(format!("kauri-queue-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("db");
        connect(&path).unwrap().execute_batch(SCHEMA).unwrap();
        let (orders, clock) = (Arc::new(Orders::default()), Arc::new(ManualClock::new(Timestamp(0))));
        let alarms = Arc::new(Mutex::new(Vec::new()));
        let reconnect = {
            let orders = Arc::clone(&orders);
            move || -> Answer<Box<dyn Session>> {
                let session = Sqlite { connection: connect(&path)? };
                Ok(Box::new(Faulty { session, orders: Arc::clone(&orders) }))
            }
        };
        let alarm = {
            let alarms = Arc::clone(&alarms);
            move |why: &str| alarms.lock().unwrap().push(why.to_owned())
        };
        let first = reconnect().unwrap();
        let queue = Queue::with(first, Box::new(reconnect), 1, other(Arc::clone(&clock)), Box::new(alarm), capacity);
        Self { directory, orders, clock, alarms, queue }
    }

    fn rows(&self) -> Vec<(i64, String)> {
        let connection = connect(&self.directory.join("db")).unwrap();
        let mut statement = connection.prepare("SELECT id, text FROM t ORDER BY id").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Answer<_>>().unwrap()
    }

    fn marked(&self) -> i64 {
        let connection = connect(&self.directory.join("db")).unwrap();
        connection.query_row("SELECT batch FROM writer_epochs WHERE epoch = 1", [], |row| row.get(0)).unwrap()
    }

    /// Waits until the queue looks so, without a clock: somebody is on the way there.
    fn until(&self, is_so: impl Fn(QueueStats) -> bool) {
        while !is_so(self.queue.stats()) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn insert(id: i64) -> Op {
    Op::new(INSERT, [id.into(), "x".into()])
}

/// TestWriterQueueBatch.
#[test]
fn submissions_that_wait_go_into_one_transaction() {
    let fixture = Fixture::new("batch", CAPACITY);
    fixture.orders.shut(true);
    std::thread::scope(|scope| {
        for id in 0..51 {
            let queue = &fixture.queue;
            scope.spawn(move || queue.submit(INSERT, [id.into(), "x".into()]).unwrap());
        }
        // One writes and stands at the gate, the others wait; they come before it commits, so they go with it.
        fixture.until(|stats| stats.depth == 50);
        fixture.orders.shut(false);
    });
    let stats = fixture.queue.stats();
    assert_eq!((stats.batches, stats.submissions, stats.batch_max, stats.depth), (1, 51, 51, 0));
    assert_eq!((fixture.rows().len(), fixture.marked()), (51, 1));
}

#[test]
fn a_transaction_has_a_hundred_operations_at_most_and_keeps_submissions_whole() {
    let fixture = Fixture::new("hundred", CAPACITY);
    fixture.orders.shut(true);
    std::thread::scope(|scope| {
        for at in 0..8 {
            let queue = &fixture.queue;
            scope.spawn(move || queue.submit_batch((at * 40..(at + 1) * 40).map(insert)).unwrap());
        }
        fixture.until(|stats| stats.depth == 7);
        fixture.orders.shut(false);
    });
    let stats = fixture.queue.stats();
    assert_eq!((stats.batches, stats.batch_max, fixture.rows().len()), (1 + 4, 2, 320));
    assert_eq!(fixture.marked(), 5, "the first had forty, and the next eighty");
    // One that is larger than a transaction's share goes alone.
    fixture.queue.submit_batch((1_000..1_150).map(insert)).unwrap();
    assert_eq!(fixture.rows().len(), 470);
    // A hundred go together, and one more does not.
    assert_eq!((together(50, 50), together(50, 51)), (1, 2));
}

/// How many transactions two submissions with so many operations become that come at the same time.
fn together(first: i64, second: i64) -> u64 {
    let fixture = Fixture::new(&format!("together-{first}-{second}"), CAPACITY);
    fixture.orders.shut(true);
    std::thread::scope(|scope| {
        let submit = |ids: std::ops::Range<i64>| {
            let queue = &fixture.queue;
            scope.spawn(move || queue.submit_batch(ids.map(insert)).unwrap());
        };
        submit(0..first);
        fixture.until(|stats| stats.depth == 0 && fixture.queue.state().writing);
        submit(first..first + second);
        fixture.until(|stats| stats.depth == 1);
        fixture.orders.shut(false);
    });
    assert_eq!(fixture.rows().len(), usize::try_from(first + second).unwrap());
    fixture.queue.stats().batches
}

#[test]
fn whoever_writes_for_others_hands_that_on_after_some_batches() {
    let fixture = Fixture::new("in-a-row", CAPACITY);
    fixture.orders.shut(true);
    let batches = BATCHES_IN_A_ROW_MAX + 3;
    std::thread::scope(|scope| {
        for at in 0..i64::try_from(batches).unwrap() {
            let queue = &fixture.queue;
            // As many operations as a transaction has: nobody goes with somebody else.
            scope.spawn(move || queue.submit_batch((at * 100..(at + 1) * 100).map(insert)).unwrap());
        }
        fixture.until(|stats| stats.depth == batches - 1);
        fixture.orders.shut(false);
    });
    assert_eq!(fixture.queue.stats().batches, batches as u64);
    let writers = fixture.orders.writers.lock().unwrap().clone();
    let by_first = writers.iter().filter(|writer| **writer == writers[0]).count();
    assert_eq!((writers.len(), by_first), (batches, BATCHES_IN_A_ROW_MAX));
}

/// TestWriterQueueBackpressure.
#[test]
fn a_full_queue_lets_callers_wait_and_refuses_who_would_not() {
    let fixture = Fixture::new("full", 4);
    fixture.orders.shut(true);
    std::thread::scope(|scope| {
        let submit = |id: i64| {
            let queue = &fixture.queue;
            scope.spawn(move || queue.submit(INSERT, [id.into(), "x".into()]).unwrap());
        };
        submit(0);
        fixture.until(|stats| stats.depth == 0 && fixture.queue.state().writing);
        (1..=4).for_each(submit);
        fixture.until(|stats| stats.depth == 4);
        // Whatever fails from here on, nobody is left standing at the gate.
        let _opened_at_last = OpenAtLast(&fixture.orders);
        assert!(fixture.queue.state().is_full(4));
        assert!(matches!(fixture.queue.try_submit(INSERT, [9.into(), "x".into()]), Err(Error::QueueFull)));
        submit(5);
        fixture.until(|stats| stats.waits == 1);
        assert_eq!(fixture.queue.stats().depth, 4, "it has no place");
        fixture.orders.shut(false);
    });
    assert_eq!(fixture.rows().len(), 6, "and it had one later");
    assert_eq!(fixture.queue.stats().depth_max, 4);
    fixture.queue.try_submit(INSERT, [9.into(), "x".into()]).unwrap();
}

#[test]
fn a_submission_that_fails_by_itself_is_no_transaction_and_forgives_no_panic() {
    let fixture = Fixture::new("refused", CAPACITY);
    let submit = |id: i64| fixture.queue.submit(INSERT, [id.into(), "x".into()]);
    submit(1).unwrap();
    fixture.orders.order(1, 1, Trouble::Panics);
    assert!(matches!(submit(2), Err(Error::NotApplied { .. })));
    assert!(matches!(submit(1), Err(Error::Sql { .. })), "it is there");
    let stats = fixture.queue.stats();
    assert_eq!((stats.batches, stats.submissions, fixture.queue.state().panics), (1, 1, 1));
    submit(2).unwrap();
    assert_eq!((fixture.queue.stats().batches, fixture.queue.state().panics), (2, 0));
}

#[test]
fn a_database_lets_a_thousand_submissions_wait() {
    let directory = std::env::temp_dir().join(format!("kauri-queue-thousand-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let database = crate::Database::open(&directory, Arc::new(ManualClock::new(Timestamp(0))), |_| {}).unwrap();
    assert_eq!(database.queue().shared.capacity, 1_000);
    drop(database);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// TestWriterQueueCrashRestart.
#[test]
fn a_writer_that_panics_is_started_again_three_times_and_then_given_up() {
    let fixture = Fixture::new("panic", CAPACITY);
    let submit = |id: i64| fixture.queue.submit(INSERT, [id.into(), "x".into()]);
    // Three in a row: after each, a pause and a new connection.
    fixture.orders.order(1, 3, Trouble::Panics);
    for id in 0..3 {
        assert!(matches!(submit(id), Err(Error::NotApplied { why }) if why.contains("panicked")));
    }
    assert_eq!((fixture.queue.stats().restarts, fixture.clock.paused()), (3, Duration::from_secs(3)), "a second each");
    submit(3).unwrap();
    // What was committed in between counts: three more are allowed, and the fourth is the last.
    fixture.orders.order(1, 4, Trouble::Panics);
    for id in 4..8 {
        assert!(fixture.alarms.lock().unwrap().is_empty() && fixture.queue.stats().is_running, "{id}");
        assert!(matches!(submit(id), Err(Error::NotApplied { .. })));
    }
    let alarms = fixture.alarms.lock().unwrap().clone();
    assert!(alarms.len() == 1 && alarms[0].contains("panicked: ordered; started again 3 times in vain"), "{alarms:?}");
    assert!(!fixture.queue.stats().is_running);
    fixture.orders.heal();
    assert!(matches!(submit(8), Err(Error::NotApplied { .. })), "it stays so");
    assert_eq!(fixture.rows(), [(3, "x".to_owned())]);
}

#[test]
fn callers_that_wait_when_the_writer_is_given_up_are_told_exactly() {
    let fixture = Fixture::new("given-up", CAPACITY);
    fixture.orders.shut(true);
    fixture.orders.order(1, 1_000, Trouble::Panics);
    let answers: Vec<Result<Applied>> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..300)
            .map(|id| {
                let queue = &fixture.queue;
                scope.spawn(move || queue.submit(INSERT, [id.into(), "x".into()]))
            })
            .collect();
        fixture.until(|stats| stats.depth == 299);
        fixture.orders.shut(false);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::NotApplied { .. } | Error::QueueClosed))));
    assert_eq!((fixture.rows().len(), fixture.alarms.lock().unwrap().len()), (0, 1));
}

#[test]
fn closing_drains_and_then_refuses() {
    let fixture = Fixture::new("close", CAPACITY);
    fixture.orders.shut(true);
    std::thread::scope(|scope| {
        for id in 0..20 {
            let queue = &fixture.queue;
            scope.spawn(move || queue.submit(INSERT, [id.into(), "x".into()]).unwrap());
        }
        fixture.until(|stats| stats.depth == 19);
        let queue = &fixture.queue;
        let closing = scope.spawn(move || queue.close());
        fixture.until(|stats| !stats.is_running);
        assert!(matches!(queue.submit(INSERT, [99.into(), "x".into()]), Err(Error::QueueClosed)));
        fixture.orders.shut(false);
        closing.join().unwrap();
        assert_eq!(fixture.rows().len(), 20, "when close returns, all that waited is written");
    });
    assert!(matches!(fixture.queue.try_submit(INSERT, [99.into(), "x".into()]), Err(Error::QueueClosed)));
    fixture.queue.close();
}

/// What callers are told about a batch in which one call goes wrong, and some after it, is what the database holds.
fn check_told(trouble: Trouble, nth: u32, times: u32, has_fault: bool) -> bool {
    let is_running = check_all_told(vec![(nth..nth + times, trouble)], has_fault);
    assert!(times > 1 || is_running != Some(false), "{trouble:?} {nth}: one failure is survived");
    is_running.is_some()
}

/// The same with any orders. Answers whether the queue runs, if one of them struck.
fn check_all_told(orders: Vec<(std::ops::Range<u32>, Trouble)>, has_fault: bool) -> Option<bool> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let fixture = Fixture::new(&format!("told-{}", COUNT.fetch_add(1, Ordering::SeqCst)), CAPACITY);
    fixture.queue.submit_batch([insert(100)]).unwrap();
    let name = format!("{orders:?} {has_fault}");
    fixture.orders.order_all(orders);
    // One that works, one that may have a bad second operation, one of two operations.
    let second = if has_fault { vec![insert(2), insert(100)] } else { vec![insert(2)] };
    let batch = [vec![insert(1)], second, vec![insert(3), insert(4)]];
    let session = fixture.queue.state().session.take();
    let (session, answers) = fixture.queue.write(session, &mut &batch[..]);
    fixture.queue.state().session = session;
    assert_eq!(answers.len(), 3, "{name}: every caller is answered");
    let struck = fixture.orders.struck.load(Ordering::SeqCst) > 0;
    fixture.orders.heal();
    let rows: Vec<i64> = fixture.rows().into_iter().map(|(id, _)| id).collect();
    let mut unknown = Vec::new();
    for (answer, ids) in answers.into_iter().zip([&[1_i64][..], &[2], &[3, 4]]) {
        let found: Vec<bool> = ids.iter().map(|id| rows.contains(id)).collect();
        assert!(found.iter().all(|is_there| *is_there == found[0]), "{name}: half of a submission");
        match answer {
            Ok(applied) => assert!(found[0] && applied.rows == ids.len(), "{name}: {ids:?} is not there"),
            Err(Error::Unknown { key, .. }) => {
                unknown.push(key);
                assert_eq!(found[0], fixture.marked() == key.batch, "{name}");
            }
            Err(error) => assert!(!found[0], "{name}: {ids:?} is there, in spite of {error}"),
        }
    }
    assert!(unknown.windows(2).all(|two| two[0] == two[1]), "{name}: one batch at most is unknown, {unknown:?}");
    // Life goes on, unless it cannot be known what happened.
    let goes_on = fixture.queue.submit_batch([insert(200)]);
    assert_eq!(goes_on.is_ok(), fixture.queue.stats().is_running, "{name}: {goes_on:?}");
    struck.then(|| fixture.queue.stats().is_running)
}

/// Numbers below another, as if by chance.
fn below(mut random: u64) -> impl FnMut(u32) -> u32 {
    move |most| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(random >> 33).unwrap() % most
    }
}

/// Many callers, threads and tasks, each of whom may be the one who writes when something goes wrong. Answers how many were told that they are not
/// applied, and how many transactions there were.
fn check_many_told(seed: u64) -> (usize, u64) {
    let mut below = below(seed);
    let fixture = Fixture::new(&format!("many-told-{seed}"), CAPACITY);
    // A call or two go wrong, then there is peace for a while: the queue is not given up by panics alone.
    let mut at = 1;
    let orders = (0..30).map(|_| {
        let first = at + 40 + below(60);
        at = first + 1 + below(2);
        (first..at, TROUBLES[below(4) as usize])
    });
    fixture.orders.order_all(orders.collect());
    let submit = |caller: i64| {
        let ids = (0..25).map(|at| (caller * 25 + at) * 2);
        if caller % 4 > 0 {
            return ids.map(|id| (id, fixture.queue.submit_batch([insert(id), insert(id + 1)]))).collect::<Vec<_>>();
        }
        // All of them on their way before one is waited for.
        let submitter = fixture.queue.submitter().unwrap();
        let underway: Vec<_> = ids.map(|id| (id, submitter.submit_batch([insert(id), insert(id + 1)]))).collect();
        underway.into_iter().map(|(id, submitting)| (id, submitting.and_then(Submitting::wait))).collect()
    };
    let answers: Vec<(i64, Result<Applied>)> = std::thread::scope(|scope| {
        let submit = &submit;
        let callers: Vec<_> = (0..8).map(|caller| scope.spawn(move || submit(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    fixture.orders.heal();
    assert_eq!(answers.len(), 8 * 25, "{seed}: everybody is answered");
    let rows: std::collections::BTreeSet<i64> = fixture.rows().into_iter().map(|(id, _)| id).collect();
    for (id, answer) in &answers {
        let found = (rows.contains(id), rows.contains(&(id + 1)));
        let is_applied = match answer {
            Ok(applied) => applied.rows == 2,
            Err(Error::Unknown { key, .. }) => fixture.marked() == key.batch,
            Err(_) => false,
        };
        assert_eq!(found, (is_applied, is_applied), "{seed}: {id} was told {answer:?}");
    }
    (answers.iter().filter(|(_, answer)| answer.is_err()).count(), fixture.queue.stats().batches)
}

#[test]
fn whoever_writes_when_something_fails_everybody_is_told_what_the_database_holds() {
    let told: Vec<(usize, u64)> = (0..24).map(check_many_told).collect();
    let (refused, batches) = told.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(refused > 24 && batches > 24 * 10, "too little went wrong, or too much: {told:?}");
}

#[test]
fn every_failing_call_is_told_as_it_is() {
    for trouble in TROUBLES {
        // Without a fault of its own a batch has no savepoints; with one it is done twice.
        for (times, has_fault, least) in
            [(1, true, 17), (2, true, 17), (1_000, true, 17), (1, false, 7), (1_000, false, 7)]
        {
            let calls = (1..).take_while(|nth| check_told(trouble, *nth, times, has_fault)).count();
            assert!(calls >= least, "{trouble:?}, {has_fault}: only {calls} calls were failed");
        }
    }
}

#[test]
fn whatever_fails_one_after_the_other_is_told_as_it_is() {
    let mut below = below(3);
    let (mut survived, mut given_up) = (0, 0);
    for round in 0..150 {
        // Some calls in a row, a while of peace, some more.
        let mut at = 1;
        let orders = (0..2 + below(3)).map(|_| {
            let first = at + below(9);
            at = first + 1 + below(3);
            (first..at, TROUBLES[below(4) as usize])
        });
        match check_all_told(orders.collect(), round % 2 == 0) {
            Some(true) => survived += 1,
            Some(false) => given_up += 1,
            None => {}
        }
    }
    assert!(survived > 10 && given_up > 10, "{survived} survived, {given_up} given up");
}

#[test]
fn nothing_is_written_after_a_batch_that_nobody_knows_about() {
    let fixture = Fixture::new("unknown", CAPACITY);
    // The transaction is lost as a whole; then each submission is tried alone, and of the first the commit's answer is lost, and
    // the database cannot be asked.
    let commit = 4;
    fixture.orders.order_all(vec![(2..3, Trouble::Aborts), (2 + commit..4 + commit, Trouble::FailsAfter)]);
    let session = fixture.queue.state().session.take();
    let (_, answers) = fixture.queue.write(session, &mut &[vec![insert(1)], vec![insert(2)], vec![insert(3)]][..]);
    fixture.orders.heal();
    let told: Vec<&str> = answers
        .iter()
        .map(|answer| match answer {
            Err(Error::Unknown { .. }) => "unknown",
            Err(Error::NotApplied { .. }) => "not applied",
            Err(_) => "failed",
            Ok(_) => "applied",
        })
        .collect();
    assert_eq!(told, ["failed", "unknown", "not applied"]);
    let Err(Error::Unknown { key, .. }) = answers[1] else { panic!("{answers:?}") };
    assert_eq!((fixture.marked(), fixture.rows().len()), (key.batch, 1), "the key tells that it was applied");
}

/// Every way in which SQLite lets a statement fail: it alone, what it did so far not, the whole transaction; and triggers.
const WAYS: [&str; 8] = [
    INSERT,
    "INSERT OR FAIL INTO t (id, text) SELECT ?1 + value, ?2 FROM (SELECT 3 AS value UNION SELECT 2 UNION SELECT 0)",
    "INSERT OR ROLLBACK INTO t (id, text) VALUES (?1, ?2)",
    "INSERT OR IGNORE INTO t (id, text) VALUES (?1, ?2)",
    "INSERT OR REPLACE INTO t (id, text) VALUES (?1, ?2)",
    "UPDATE t SET text = ?2 WHERE id >= ?1 AND id < ?1 + 3",
    "UPDATE t SET id = id + 1, text = ?2 WHERE id = ?1",
    "INSERT INTO t (id, text) SELECT max(id) + 1, ?2 || changes() || ?1 FROM t",
];

const TRIGGERS: &str = "
    CREATE TRIGGER abort AFTER INSERT ON t WHEN new.id % 7 = 3 BEGIN SELECT raise(ABORT, 'no'); END;
    CREATE TRIGGER fail AFTER UPDATE ON t WHEN new.id % 11 = 5 BEGIN SELECT raise(FAIL, 'no'); END;
    CREATE TRIGGER gone AFTER INSERT ON t WHEN new.id % 29 = 8 BEGIN SELECT raise(ROLLBACK, 'no'); END;
    INSERT INTO t VALUES (0, 'first');";

/// What a submission does by itself: all of it, or nothing.
fn model(connection: &mut Connection, ops: &[Op]) -> Option<usize> {
    let txn = connection.transaction().unwrap();
    let mut rows = 0;
    for op in ops {
        let found = txn.execute(op.sql, rusqlite::params_from_iter(op.args.iter())).ok()?;
        if op.rows.is_some_and(|expected| expected != found) {
            return None;
        }
        rows += found;
    }
    txn.commit().unwrap();
    Some(rows)
}

#[test]
fn a_batch_does_what_its_submissions_would_do_one_after_the_other() {
    let mut random = 7_u64;
    let mut below = move |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut well, mut failed) = (0, 0);
    for round in 0..150 {
        let fixture = Fixture::new(&format!("model-{round}"), CAPACITY);
        connect(&fixture.directory.join("db")).unwrap().execute_batch(TRIGGERS).unwrap();
        let mut alone = Connection::open_in_memory().unwrap();
        alone.execute_batch(&format!("{SCHEMA}{TRIGGERS}")).unwrap();
        for batch in 0..3 {
            // The last way asks for the statement before it: only one of the same submission counts.
            let mut op = |at: u64| {
                let way = WAYS[usize::try_from(below(if at == 0 { 7 } else { 8 })).unwrap()];
                let op = Op::new(way, [i64::try_from(below(60)).unwrap().into(), "x".into()]);
                if below(4) == 0 { op.changing(1) } else { op }
            };
            let batch: Vec<Vec<Op>> = (0..2 + batch).map(|at| (0..=at % 3).map(&mut op).collect()).collect();
            let session = fixture.queue.state().session.take();
            let (session, answers) = fixture.queue.write(session, &mut &batch[..]);
            fixture.queue.state().session = session;
            for (ops, answer) in batch.iter().zip(answers) {
                let expected = model(&mut alone, ops);
                *if expected.is_some() { &mut well } else { &mut failed } += 1;
                assert_eq!(
                    answer.as_ref().ok().map(|applied| applied.rows),
                    expected,
                    "round {round}: {ops:?} {answer:?}"
                );
            }
        }
        let rows = "SELECT id, text FROM t ORDER BY id";
        let mut statement = alone.prepare(rows).unwrap();
        let expected: Vec<(i64, String)> =
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Answer<_>>().unwrap();
        assert_eq!(fixture.rows(), expected, "round {round}");
    }
    assert!(well > 300 && failed > 300, "{well} went well, {failed} failed");
}

#[test]
fn a_disk_that_is_full_applies_nothing_twice() {
    let fixture = Fixture::new("no-space", CAPACITY);
    let connection = connect(&fixture.directory.join("db")).unwrap();
    connection.pragma_update(None, "max_page_count", 12).unwrap();
    let batch = [vec![insert(1)], vec![Op::new(INSERT, [2.into(), "x".repeat(1 << 20).into()])], vec![insert(3)]];
    let (_, answers) = fixture.queue.write(Some(Box::new(Sqlite { connection })), &mut &batch[..]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(answers[1].as_ref().unwrap_err().to_string().contains("full"), "{answers:?}");
    assert_eq!(fixture.rows().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn an_operation_that_changes_another_number_of_rows_fails_its_submission() {
    let fixture = Fixture::new("rows", CAPACITY);
    let update = || Op::new("UPDATE t SET text = 'y' WHERE id = ?1", [7.into()]).changing(1);
    let answer = fixture.queue.submit_batch([insert(1), update()]);
    assert!(matches!(answer, Err(Error::RowCount { expected: 1, found: 0 })), "{answer:?}");
    assert_eq!(fixture.rows(), []);
    assert_eq!(fixture.queue.submit_batch([insert(7), update()]).unwrap(), Applied { rows: 2 });
}

/// A clock by which every write takes long.
struct Slow(Arc<ManualClock>);

impl Clock for Slow {
    fn now(&self) -> Timestamp {
        self.0.advance(Duration::from_millis(2));
        self.0.now()
    }

    fn pause(&self, time: Duration) {
        self.0.pause(time);
    }
}

#[test]
fn many_callers_get_what_they_asked_for() {
    check_many(&Fixture::new("many", 16));
}

#[test]
fn many_callers_get_what_they_asked_for_when_writes_take_long() {
    let fixture = Fixture::with_clock("many-slow", 16, |clock| Arc::new(Slow(clock)));
    check_many(&fixture);
    assert_eq!(fixture.queue.shared.pace.wake(), Wake::All);
}

fn check_many(fixture: &Fixture) {
    std::thread::scope(|scope| {
        for caller in 0..32_i64 {
            let queue = &fixture.queue;
            scope.spawn(move || {
                for round in 0..20 {
                    let id = caller * 1_000 + round * 2;
                    queue.submit_batch([insert(id), insert(id + 1)]).unwrap();
                    // The same once more is refused, whoever else is in the batch.
                    assert!(matches!(queue.submit_batch([insert(id + 500), insert(id)]), Err(Error::Sql { .. })));
                }
            });
        }
    });
    let expected = (0..32).flat_map(|caller| (0..40).map(move |at| caller * 1_000 + at));
    assert!(fixture.rows().into_iter().map(|(id, _)| id).eq(expected));
}
