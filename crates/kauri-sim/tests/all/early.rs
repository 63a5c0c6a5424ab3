//! Batches that begin before the one before is durable: what is told, and what is left, when the disk fails or the power goes meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Failure, Observation, Observer, Offer, Policy, Read, Runtime, Worker, Write};
use kauri_sim::{Call, CrashPoint, Failure as DiskFailure, Fault, Flight, SimDisk, Variant};
use kauri_tree::{Options, Table};
use kauri_wire::{Message, MessageId, MessageRef, Seq, WorkerId};

const ANN: WorkerId = WorkerId(1);
const ELSEWHERE: WorkerId = WorkerId(9);
const MESSAGES: u64 = 8;
const BATCH: usize = 2;
const HANDLED: Table<u8, u64> = Table::new("handled");

/// What was told: how many steps began, and for each that ended how many operations the disk had seen by then.
#[derive(Default)]
struct Tellings {
    began: usize,
    ended_at: Vec<usize>,
}

#[derive(Clone)]
struct Told {
    disk: SimDisk,
    tellings: Arc<Mutex<Tellings>>,
}

impl Told {
    fn of(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), tellings: Arc::default() }
    }

    fn counts(&self) -> (usize, usize) {
        let told = self.tellings.lock().expect("nobody panics with it");
        (told.began, told.ended_at.len())
    }

    /// How many steps were told to have ended before the disk had seen so many operations.
    fn ended_by(&self, op: usize) -> u64 {
        let told = self.tellings.lock().expect("nobody panics with it");
        told.ended_at.iter().filter(|at| **at <= op).count() as u64
    }
}

impl Observer for Told {
    fn observe(&self, observation: &Observation<'_>) {
        let mut told = self.tellings.lock().expect("nobody panics with it");
        match observation {
            Observation::StepBegan { .. } => told.began += 1,
            Observation::StepEnded { .. } => told.ended_at.push(self.disk.ops()),
            _ => {}
        }
    }
}

/// A runtime that begins batches early, on a disk that writes nothing by itself.
fn start(disk: &SimDisk, told: &Told) -> Runtime {
    let store = Options::new().keeper(false).open(disk, "store").expect("it opens");
    let policy = Policy { batch_messages_max: BATCH, early_messages_min: 1, ..Policy::default() };
    let builder = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(VirtualClock::default()));
    let builder = builder.policy(policy).observer(Arc::new(told.clone())).elsewhere(|worker| worker == ELSEWHERE);
    builder.start().expect("it starts")
}

fn handle(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let handled = block.get(&HANDLED, 0)?.unwrap_or(0);
    block.put(&HANDLED, 0, handled + 1)?;
    Ok(block.emit(&Message::event(ELSEWHERE, MessageId::new(message.id())?, ""))?)
}

fn send(runtime: &Runtime) {
    for number in 0..MESSAGES {
        let id = MessageId::new(number.to_string()).expect("an id");
        runtime.send(&Message::command(ANN, id, "")).expect("sent");
    }
}

/// Every message is handled or waits, once, and what a handled one released is there.
fn check(runtime: &Runtime) -> u64 {
    let handled = runtime.read(|view| view.get(&HANDLED, 0)).expect("read").unwrap_or(0);
    assert_eq!(handled + runtime.depth(ANN).expect("read"), MESSAGES);
    assert_eq!(runtime.gauges().expect("read").outbox, handled);
    handled
}

/// The disk after a power cut before this operation.
fn cut(disk: &SimDisk, op: usize, flight: Flight, variant: Variant) -> SimDisk {
    let point = CrashPoint { seed: 1, op, flight, variant };
    SimDisk::from_image(disk.trace().image_at(&point).expect("the operation was made"))
}

fn worker(runtime: &Runtime) -> Worker {
    runtime.worker(ANN, handle)
}

#[test]
fn batch_begins_before_the_one_before_is_durable_and_nothing_is_told_before_it_is() {
    let disk = SimDisk::new();
    let told = Told::of(&disk);
    let runtime = start(&disk, &told);
    send(&runtime);
    // The first write is the claim; the next one takes two batches.
    disk.inject(Fault::nth(Call::Sync, 1, DiskFailure::Io));
    disk.inject(Fault::nth(Call::WriteDurable, 1, DiskFailure::Io));
    let failed = worker(&runtime).drain();
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(told.counts(), (2 * BATCH, 0), "two batches were handled, and nothing was told of them");
    assert_eq!(runtime.metrics().steps, 0);
    // What nobody knows to be durable is delivered nowhere.
    let mut delivered = 0;
    let drained = runtime.drain_outbox(
        &mut |_: Seq, _: &[u8]| {
            delivered += 1;
            Offer::Accepted
        },
        100,
    );
    assert_eq!((drained.expect("nothing is written"), delivered), (0, 0));
    assert!(worker(&runtime).drain().is_err(), "nothing is written any more");
    drop(runtime);
    let again = start(&cut(&disk, disk.ops(), Flight::Between, Variant::None), &told);
    assert_eq!(check(&again), 0);
    worker(&again).drain().expect("drained");
    assert_eq!(check(&again), MESSAGES);
}

#[test]
fn power_cut_at_every_operation_leaves_whole_batches_and_all_that_were_told() {
    let disk = SimDisk::new();
    let told = Told::of(&disk);
    let runtime = start(&disk, &told);
    send(&runtime);
    let first = disk.ops();
    assert_eq!(worker(&runtime).drain().expect("drained"), usize::try_from(MESSAGES).expect("few"));
    assert_eq!(told.ended_by(disk.ops()), MESSAGES);
    let mut left = BTreeSet::new();
    for op in first..=disk.ops() {
        for variant in [Variant::None, Variant::All, Variant::Sample { number: 1, tear_bytes: 512 }] {
            let image = cut(&disk, op, Flight::Between, variant);
            let handled = check(&start(&image, &Told::of(&image)));
            let ended = told.ended_by(op);
            assert!(handled >= ended, "{handled} are handled after operation {op}, and {ended} were told to be");
            left.insert(handled);
        }
    }
    assert!(left.contains(&0) && left.contains(&MESSAGES), "{left:?}");
    assert!(left.iter().all(|handled| handled.is_multiple_of(BATCH as u64)), "{left:?}");
}
