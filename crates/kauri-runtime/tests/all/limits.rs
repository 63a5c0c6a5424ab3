//! Keys, ids and names that are longer than the substrate takes: refused in words, and nothing stands still for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kauri_runtime::run::{Class, Outcome, Retry, Submission};
use kauri_runtime::substrate::{
    Change, Early, Limits, ModelSubstrate, Posted, Rows, Signal, Substrate, TreeSubstrate, Verdict,
};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{
    Atomic, CatchUp, DeadLetter, Error, Failure, InboxSink, Policy, Read, Reason, Result, Runtime, When, Write,
};
use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Options, Store, Table};
use kauri_wire::{Flags, Intent, JobId, Message, MessageId, MessageRef, Timestamp};

use crate::runs::{CREW, crew, setup as with_runs};
use crate::setup::{ANN, BOB, Setup, command};

const STATE: Table<[u8], u64> = Table::new("state");
/// The longest key in pages of 4 KiB.
const KEY_BYTES: usize = 1016;
const ID_BYTES: usize = KEY_BYTES - 21;

/// A substrate that takes less than it says: so whatever is too long gets as far as the commit.
struct Sly<S>(S);

impl<S: Substrate> Substrate for Sly<S> {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        self.0.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        self.0.commit(change)
    }

    fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        self.0.commit_early(change, after)
    }

    fn snapshot_with(&self, early: &Early) -> Result<Box<dyn Rows + '_>> {
        self.0.snapshot_with(early)
    }

    fn wait(&self, early: &Early) -> Result<()> {
        self.0.wait(early)
    }

    fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        self.0.post(change)
    }

    fn settle(&self, posted: Posted) -> Result<Verdict> {
        self.0.settle(posted)
    }

    fn limits(&self) -> Limits {
        Limits::NONE
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.0.watch(table, prefix, signal);
    }
}

fn start(substrate: impl Substrate + 'static, policy: Policy) -> (Runtime, VirtualClock) {
    let clock = VirtualClock::default();
    let builder = Runtime::builder(Arc::new(substrate), Arc::new(clock.clone())).policy(policy);
    (builder.start().unwrap(), clock)
}

/// A store of which commits wait for a disk, so that batches may begin early.
fn in_a_file() -> Store {
    Options::new().log_bytes(1).keeper(false).open(&MemoryDisk::new(), "store").unwrap()
}

fn message(id: impl AsRef<[u8]>) -> Message {
    Message::command(ANN, MessageId::new(id).unwrap(), "payload")
}

fn long_id(byte: u8) -> Vec<u8> {
    vec![byte; 5000]
}

/// Puts a message where no check has looked at its id, as versions did that had none.
fn smuggle(store: &Store, messages: &[Message]) {
    let (runtime, _) = start(Sly(TreeSubstrate::new(store.clone())), Policy::default());
    runtime.send_all(messages).unwrap();
    runtime.stop();
}

fn letters(runtime: &Runtime) -> Vec<DeadLetter> {
    runtime.dead_letters(None, None, 1000).unwrap().into_iter().map(|(_, letter)| letter).collect()
}

/// Drains, a minute apart, until nothing waits; gives up after more rounds than any budget.
fn drain(runtime: &Runtime, clock: &VirtualClock, worker: &mut kauri_runtime::Worker) {
    for _ in 0..20 {
        worker.drain().unwrap();
        clock.advance(Duration::from_secs(60));
    }
    let gauges = runtime.gauges().unwrap();
    let waiting = (runtime.depth(ANN).unwrap(), gauges.timers, gauges.leases);
    assert_eq!(waiting, (0, 0, 0), "something stands still");
}

/// Writes a row under the message's payload, in a table that its id may name.
fn keeping(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let state = block.get(&STATE, message.id())?.unwrap_or(0);
    Ok(block.put(&STATE, message.id(), state + 1)?)
}

#[test]
fn key_that_is_too_long_buries_its_message_with_the_reason_and_the_others_are_handled() {
    let setup = Setup::new();
    setup.send_many(ANN, 10);
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, message: MessageRef<'_>| match message.id() {
        b"3" => Ok(block.put(&STATE, &[7; KEY_BYTES + 1], 1)?),
        b"5" => Ok(block.put(&Table::<[u8], u64>::named("t".repeat(KEY_BYTES + 1)), b"key", 1)?),
        _ => keeping(block, message),
    });
    worker.drain().unwrap();
    let found: Vec<(Reason, String, u32)> =
        letters(&setup.runtime).into_iter().map(|letter| (letter.reason, letter.detail, letter.failures)).collect();
    assert_eq!(
        found,
        [
            (Reason::FailuresSpent, "expected at most 1016 bytes of a key, found 1017".to_owned(), 2),
            (Reason::FailuresSpent, "expected at most 1016 bytes of a table's name, found 1017".to_owned(), 2),
        ]
    );
    assert_eq!(setup.runtime.read(|view| view.len(&STATE)).unwrap(), 8);
    assert_eq!(setup.runtime.depth(ANN).unwrap(), 0);
}

#[test]
fn block_is_told_at_once_what_is_too_long_and_may_go_on() {
    let setup = Setup::new();
    let kept = setup.runtime.atomic(|block| {
        let key = vec![1; KEY_BYTES + 1];
        assert!(matches!(block.put(&STATE, &key, 1), Err(Error::Limit { most: 1016, found: 1017, .. })));
        assert!(matches!(block.insert(&STATE, &key, 1), Err(Error::Limit { .. })));
        assert!(matches!(block.remove(&STATE, &key), Err(Error::Limit { .. })));
        assert!(matches!(block.acquire(&key, Duration::from_secs(1)), Err(Error::Limit { .. })));
        assert_eq!(block.get(&STATE, &key)?, None);
        assert_eq!(block.scan(&STATE)?.from(&key).count()?, 0);
        block.put(&STATE, &key[1..], 1)
    });
    kept.unwrap();
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, &[1; KEY_BYTES])).unwrap(), Some(1));
}

#[test]
fn message_whose_id_is_too_long_is_refused_wherever_it_is_sent() {
    let setup = Setup::new();
    let (runtime, long) = (&setup.runtime, message(vec![b'i'; ID_BYTES + 1]));
    let words = "expected at most 995 bytes of a message id, found 996";
    let intent = Intent::Emit { message: long.clone() }.encode().unwrap();
    let due = Timestamp(1_790_000_000_000);
    let every = When::Every(Duration::from_secs(1));
    let refused = [
        runtime.send(&long).map(drop),
        runtime.send(&long.clone().with(Flags::DEDUPE_REQUIRED)).map(drop),
        runtime.send_all(&[message("short"), long.clone()]).map(drop),
        runtime.send_until(&long, due).map(drop),
        runtime.arm(due, &long).map(drop),
        runtime.atomic(|block| block.intend(&intent)),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().to_string(), words);
    }
    let refused = runtime.schedule(&"s".repeat(ID_BYTES - 20), &every, CatchUp::Latest, &message("x"));
    assert_eq!(refused.unwrap_err().to_string(), "expected at most 974 bytes of a schedule's name, found 975");
    assert_eq!((runtime.gauges().unwrap().inbox, runtime.gauges().unwrap().timers), (0, 0));

    let all = Flags::DEDUPE_REQUIRED | Flags::REQUIRES_ACK;
    runtime.send(&message(vec![b'i'; ID_BYTES]).with(all).sent_by(BOB)).unwrap();
    runtime.schedule(&"s".repeat(ID_BYTES - 21), &every, CatchUp::Latest, &message("x").with(all)).unwrap();
    setup.advance(1000);
    let mut fails = 0;
    let mut worker = runtime.worker(ANN, move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        fails += 1;
        if fails <= 2 { Err(Failure::retry("not yet")) } else { Ok(()) }
    });
    worker.drain().unwrap();
    assert_eq!((runtime.depth(ANN).unwrap(), letters(runtime).len(), runtime.depth(BOB).unwrap()), (0, 0, 1));
    runtime.worker(BOB, |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::retry("busy"))).drain().unwrap();
    assert_eq!(letters(runtime)[0].failures, 4, "what answers the longest id can be counted too");
}

#[test]
fn message_with_a_long_id_that_is_there_all_the_same_is_retried_and_buried_like_any_other() {
    let store = Store::in_memory().unwrap();
    smuggle(&store, &[message(long_id(b'a')), message(long_id(b'b')), message("short")]);
    let setup = Setup::on(store, VirtualClock::default(), |builder| builder);
    let mut tries = BTreeMap::<Vec<u8>, u32>::new();
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        let tried = tries.entry(message.id()[..1].to_vec()).or_default();
        *tried += 1;
        match message.id()[0] {
            b'a' if *tried < 4 => Err(Failure::retry("not yet")),
            b'b' => Err(Failure::retry("never")),
            _ => Ok(()),
        }
    });
    worker.drain().unwrap();
    let letters = letters(&setup.runtime);
    assert_eq!((letters.len(), letters[0].failures, letters[0].reason), (1, 4, Reason::RetriesSpent));
    assert_eq!(MessageRef::decode(&letters[0].frame).unwrap().id(), long_id(b'b'));
    let gauges = setup.runtime.gauges().unwrap();
    assert_eq!((gauges.inbox, gauges.dedupe, setup.runtime.metrics().successes), (0, 0, 2));
}

#[test]
fn counters_of_long_ids_are_found_again_after_a_restart() {
    let store = Store::in_memory().unwrap();
    smuggle(&store, &[message(long_id(b'a'))]);
    let once = Policy { batch_messages_max: 1, ..Policy::default() };
    for life in 1..=4 {
        let clock = VirtualClock::default();
        let setup = Setup::on(store.clone(), clock, |builder| builder.policy(once.clone()));
        let mut worker = setup.runtime.worker(ANN, |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::retry("busy")));
        worker.tick().unwrap();
        worker.release().unwrap();
        assert_eq!(letters(&setup.runtime).len(), usize::from(life == 4), "in life {life}");
        setup.runtime.stop();
    }
}

#[test]
fn long_id_that_must_be_remembered_is_handled_once_and_forgotten_in_time() {
    let store = Store::in_memory().unwrap();
    let dedupe = |byte, payload: &str| {
        Message::command(ANN, MessageId::new(long_id(byte)).unwrap(), payload).with(Flags::DEDUPE_REQUIRED)
    };
    smuggle(&store, &[dedupe(b'a', "x"), dedupe(b'a', "x"), dedupe(b'b', "x"), dedupe(b'a', "y")]);
    let setup = Setup::on(store, VirtualClock::default(), |builder| builder);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take().len(), 2);
    assert_eq!(letters(&setup.runtime)[0].reason, Reason::OtherPayload);
    assert_eq!(setup.runtime.metrics().duplicates, 1);
    setup.advance(2 * 86_400_000);
    assert_eq!(setup.runtime.sweep_dedupe(10).unwrap(), 2);
    assert_eq!(setup.runtime.gauges().unwrap().dedupe, 0);
}

/// Messages of which some write what only the commit refuses, in a substrate that does not say so.
fn check_isolated(substrate: impl Substrate + 'static, policy: Policy) {
    let (runtime, clock) = start(Sly(substrate), policy);
    let bad = [0, 7, 8, 39];
    for number in 0..40_u64 {
        runtime.send(&message(number.to_string())).unwrap();
    }
    let mut worker = runtime.worker(ANN, move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        keeping(block, message)?;
        let number: u64 = std::str::from_utf8(message.id()).unwrap().parse().unwrap();
        match bad.iter().position(|bad| *bad == number) {
            None => Ok(()),
            Some(0) => Ok(block.put_row(&"t".repeat(5000).into(), b"key", b"")?),
            Some(_) => Ok(block.put(&STATE, &vec![1; 2000], 1)?),
        }
    });
    drain(&runtime, &clock, &mut worker);
    let dead: Vec<Vec<u8>> =
        letters(&runtime).iter().map(|letter| MessageRef::decode(&letter.frame).unwrap().id().to_vec()).collect();
    let mut expected: Vec<Vec<u8>> = bad.iter().map(|number| number.to_string().into_bytes()).collect();
    for (letter, budget) in letters(&runtime).iter().zip([2; 4]) {
        assert_eq!((letter.reason, letter.failures), (Reason::FailuresSpent, budget), "{}", letter.detail);
        assert!(letter.detail.starts_with("the commit was refused: expected"), "{}", letter.detail);
    }
    let mut dead = dead;
    dead.sort();
    expected.sort();
    assert_eq!(dead, expected);
    for number in (0..40_u64).filter(|number| !bad.contains(number)) {
        let state = runtime.read(|view| view.get(&STATE, number.to_string().as_bytes())).unwrap();
        assert_eq!(state, Some(1), "message {number}");
    }
    assert_eq!(runtime.metrics().successes, 36);
}

#[test]
fn commit_that_is_refused_costs_only_the_message_that_is_to_blame() {
    let limits = Limits { key_bytes_max: 100, value_bytes_max: 10_000, name_bytes_max: 100 };
    for size in [1, 3, 64] {
        let policy = Policy { batch_messages_max: size, ..Policy::default() };
        check_isolated(ModelSubstrate::with_limits(limits), policy.clone());
        check_isolated(TreeSubstrate::new(Store::in_memory().unwrap()), policy);
    }
}

#[test]
fn commit_that_is_refused_while_the_one_before_is_on_its_way_harms_neither() {
    for size in [2, 5, 16] {
        let policy = Policy { batch_messages_max: size, early_messages_min: 1, ..Policy::default() };
        check_isolated(TreeSubstrate::new(in_a_file()), policy.clone());
        // With threads that write early commits.
        let store = Options::new().log_bytes(1).open(&MemoryDisk::new(), "store").unwrap();
        check_isolated(TreeSubstrate::new(store), policy);
    }
}

/// An id that not even a counter can be written for, in a substrate that does not say so.
#[test]
fn message_whose_failure_cannot_be_counted_is_buried_at_once() {
    let (runtime, clock) = start(Sly(TreeSubstrate::new(Store::in_memory().unwrap())), Policy::default());
    runtime.send(&message("before")).unwrap();
    runtime.send(&message(long_id(b'a'))).unwrap();
    runtime.send(&message(long_id(b'b')).with(Flags::DEDUPE_REQUIRED)).unwrap();
    runtime.send(&message("behind")).unwrap();
    let mut worker = runtime.worker(ANN, |_: &mut Atomic<'_>, message: MessageRef<'_>| match message.id()[..2] {
        [b'a', b'a'] => Err(Failure::retry("busy")),
        _ => Ok(()),
    });
    drain(&runtime, &clock, &mut worker);
    let letters = letters(&runtime);
    assert_eq!(letters.len(), 2);
    for letter in letters {
        assert_eq!(letter.reason, Reason::FailuresSpent);
        assert!(letter.detail.contains("expected a key of at most 1016 bytes"), "{}", letter.detail);
    }
    assert_eq!(runtime.metrics().successes, 2);
}

/// Small numbers by chance, from a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// A length around a limit, or far from it.
    fn around(&mut self, limit: usize) -> usize {
        let near = usize::try_from(self.below(60)).unwrap();
        match self.below(3) {
            0 => (limit + 30).saturating_sub(near).max(1),
            1 => limit + 5000,
            _ => near + 1,
        }
    }
}

/// Every message of a random world ends applied, dead, or refused when it is sent.
fn check_random(substrate: impl Substrate + 'static, most: usize, policy: Policy, seed: u64) {
    let mut dice = Dice(seed);
    let (runtime, clock) = start(substrate, policy);
    let (mut sent, mut refused) = (0, 0);
    for number in 0..60_u64 {
        let (length, key, name) = (dice.around(most - 21), dice.around(most), dice.around(most));
        let mut id = number.to_string().into_bytes();
        id.resize(length.max(id.len()), b'.');
        let payload = format!("{key} {name} {}", dice.below(3));
        let flags = [Flags::NONE, Flags::DEDUPE_REQUIRED, Flags::REQUIRES_ACK, Flags::HIGH_PRIORITY];
        let flags = flags[usize::try_from(dice.below(4)).unwrap()];
        let message = Message::command(ANN, MessageId::new(id).unwrap(), payload).with(flags).sent_by(BOB);
        let now = runtime.now().wall;
        let due = Timestamp(now.0 + 1000);
        let answer =
            if dice.below(4) == 0 { runtime.arm(due, &message).map(drop) } else { runtime.send(&message).map(drop) };
        match answer {
            Ok(()) => sent += 1,
            Err(Error::Limit { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let mut worker = runtime.worker(ANN, |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        let words: Vec<usize> =
            std::str::from_utf8(message.payload()).unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
        block.put_row(&"n".repeat(words[1]).into(), &vec![b'k'; words[0]], b"value")?;
        if words[2] == 0 { Err(Failure::retry("busy")) } else { Ok(()) }
    });
    drain(&runtime, &clock, &mut worker);
    let counts = runtime.metrics();
    assert_eq!(counts.successes + letters(&runtime).len() as u64, sent, "seed {seed}");
    assert_eq!(sent + refused, 60);
}

#[test]
fn random_lengths_around_the_limits_leave_no_message_behind() {
    let limits = Limits { key_bytes_max: 90, value_bytes_max: 1 << 20, name_bytes_max: 90 };
    let early = Policy { early_messages_min: 1, batch_messages_max: 7, ..Policy::default() };
    for seed in 0..12 {
        let small = || Options::new().page_bytes(512).log_bytes(1).keeper(false);
        check_random(ModelSubstrate::with_limits(limits), 90, Policy::default(), seed);
        check_random(Sly(ModelSubstrate::with_limits(limits)), 90, Policy::default(), seed);
        check_random(TreeSubstrate::new(small().in_memory().unwrap()), 120, Policy::default(), seed);
        check_random(Sly(TreeSubstrate::new(small().in_memory().unwrap())), 120, Policy::default(), seed);
        let in_a_file = || TreeSubstrate::new(small().open(&MemoryDisk::new(), "store").unwrap());
        check_random(in_a_file(), 120, early.clone(), seed);
        check_random(Sly(in_a_file()), 120, early.clone(), seed);
    }
}

#[test]
fn outbox_goes_on_behind_a_message_whose_id_is_too_long_for_the_receiver() {
    let here = Setup::with(|builder| builder.elsewhere(|worker| worker == BOB));
    for id in ["x".repeat(900), "short".to_owned()] {
        here.runtime.send(&command(BOB, &id)).unwrap();
    }
    let (there, _) = start(TreeSubstrate::new(Options::new().page_bytes(512).in_memory().unwrap()), Policy::default());
    let mut sink = InboxSink::new(there.clone(), &"a source ".repeat(100));
    assert_eq!(here.runtime.drain_outbox(&mut sink, 10).unwrap(), 2);
    assert_eq!((there.depth(BOB).unwrap(), here.runtime.gauges().unwrap().outbox), (2, 0));
    there.worker(BOB, |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::retry("busy"))).drain().unwrap();
    assert_eq!(letters(&there).iter().map(|letter| letter.failures).collect::<Vec<_>>(), [4, 4]);
}

#[test]
fn substrate_whose_keys_are_too_short_for_a_runtime_is_refused() {
    let limits = Limits { key_bytes_max: 55, ..Limits::NONE };
    let builder = Runtime::builder(Arc::new(ModelSubstrate::with_limits(limits)), Arc::new(VirtualClock::default()));
    let refused = builder.start().unwrap_err().to_string();
    assert_eq!(refused, "the substrate failed: expected keys of 56 bytes at least, found 55 at most");
}

#[test]
fn submission_with_names_that_are_too_long_is_refused_in_words() {
    let (setup, runs) = with_runs();
    let long = "n".repeat(5000);
    let words = |refused: Result<kauri_runtime::run::Submitted>| refused.unwrap_err().to_string();
    let job = || Submission::new("work", "");
    let named = "of 1 to 200 bytes without a byte 0, found 5000";
    assert_eq!(words(runs.submit(&job().once(&*long))), format!("expected an idempotency key {named}"));
    assert_eq!(words(runs.submit(&job().tag(&*long))), format!("expected a tag {named}"));
    assert!(words(runs.submit(&Submission::new(&*long, ""))).contains("that was defined, found none"));
    let refused = runs.define(&long, &Class::new(CREW)).unwrap_err().to_string();
    assert_eq!(refused, format!("expected a class's name {named}"));
    let every = When::Every(Duration::from_secs(1));
    let refused = runs.schedule(&long, &every, CatchUp::Latest, &job()).unwrap_err().to_string();
    assert_eq!(refused, format!("expected a schedule's name {named}"));
    assert!(JobId::new(&*long).is_err());

    // A concurrency key stands in keys by its hash, and is of any length.
    let submitted = runs.submit(&job().one_at_a_time(&long)).unwrap();
    let refused = runs.signal(submitted.run, &long, b"").unwrap_err().to_string();
    assert_eq!(refused, format!("expected a signal's name {named}"));
    let mut worker =
        crew(&setup, move |run| run.step(&long, |_| Ok(Vec::new())).map(drop).and_then(|()| crate::runs::well(run)));
    worker.drain().unwrap();
    assert_eq!(runs.run(submitted.run).unwrap().outcome(), Some(Outcome::ScriptError));
    assert_eq!(setup.runtime.gauges().unwrap().inbox, 0);
}

#[test]
fn names_of_classes_and_jobs_that_small_pages_have_no_room_for_are_refused_before_anything_waits() {
    let store = Options::new().page_bytes(512).in_memory().unwrap();
    let setup = Setup::on(store, VirtualClock::default(), |builder| builder);
    let runs = setup.runtime.runs();
    let class = Class { retry: Retry::never(), ..Class::new(CREW) };
    let refused = runs.define(&"c".repeat(95), &class).unwrap_err().to_string();
    assert_eq!(refused, "expected at most 94 bytes of a class's name, found 95");
    let longest = "c".repeat(94);
    runs.define(&longest, &class).unwrap();
    let job = |bytes| Submission::new(&*longest, "").job_id(JobId::new("j".repeat(bytes)).unwrap());
    let refused = runs.submit(&job(103)).unwrap_err().to_string();
    assert_eq!(refused, "expected at most 102 bytes of a job id, found 103");
    let first = runs.submit(&job(102)).unwrap();
    let second = runs.submit(&Submission::new(&*longest, "").after(first.job.clone())).unwrap();
    crew(&setup, crate::runs::well).drain().unwrap();
    for run in [first.run, second.run] {
        assert!(runs.run(run).unwrap().outcome().is_some_and(|outcome| outcome.is_success()));
    }
}

/// Whatever a run wants that can never be written ends it: it is not driven again for ever.
#[test]
fn run_that_wants_what_is_refused_ends_with_the_reason() {
    let limits = kauri_runtime::BlockLimits { written_bytes_max: 10_000, ..kauri_runtime::BlockLimits::default() };
    let setup = Setup::with(|builder| builder.limits(limits));
    let runs = setup.runtime.runs();
    runs.define("work", &Class { retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    let submitted = crate::runs::submit(&runs);
    let mut worker = crew(&setup, |run| {
        run.step("big", |_| Ok(vec![0; 20_000]))?;
        crate::runs::well(run)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(submitted.run).unwrap().outcome(), Some(Outcome::ScriptError));
    assert_eq!(setup.runtime.gauges().unwrap().inbox, 0);
}

/// In the smallest pages there is no room for the row that says who waits for a job.
#[test]
fn run_that_cannot_wait_for_a_job_ends_with_the_reason() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let setup = Setup::on(store, VirtualClock::default(), |builder| builder);
    let runs = setup.runtime.runs();
    runs.define("work", &Class { retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    let later = Submission::new("work", "").at(Timestamp(1_790_000_000_000));
    let (later, waits) = (runs.submit(&later).unwrap().job, crate::runs::submit(&runs));
    let refused = runs.submit(&Submission::new("work", "").after(later.clone())).unwrap_err().to_string();
    assert_eq!(refused, "expected at most 56 bytes of a key, found 58");
    let mut worker = crew(&setup, move |run| {
        run.wait_for_job(&later)?;
        crate::runs::well(run)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(waits.run).unwrap().outcome(), Some(Outcome::ScriptError));
    assert_eq!(setup.runtime.gauges().unwrap().inbox, 0);
}
