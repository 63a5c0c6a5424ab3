//! The suite `wire`: frames and keys, against serialisers and against a plain copy of the same bytes.
//!
//! Every contender works on the same message (all fields set, an id of 8 bytes, a trace id of 16, a payload of 64 B or
//! 4 KiB), again and again, so everything is in the first cache. Like is compared with like: what borrows, with what
//! borrows where the peer can; what owns its parts, with what owns them. `memcpy` copies the frame that we make of the
//! message: nothing that moves these bytes can be faster, and what only looks at them can.

use std::hint::black_box;

use kauri_wire::{
    Flags, InboxKey, Intent, IntentRef, Key, Message, MessageId, MessageKind, MessageRef, Seq, Timestamp, TraceId,
    WorkerId,
};
use prost::Message as _;
use prost::bytes::Bytes;

use crate::measure::{Outcome, Workload};
use crate::peer::{Borrowed, BorrowedArm, FIXED, FIXED_BE, Owned, ProstArm, ProstOwned, ProstShared};
use crate::report::{Bound, Goal};

const MEMCPY: &str = "memcpy";
const PAYLOADS: [(&str, usize); 2] = [("64 B", 64), ("4 KiB", 4096)];
const DUE: Timestamp = Timestamp(1_700_000_060_000);
const KEY: InboxKey = InboxKey { worker: WorkerId(7), seq: Seq(123_456) };
const PAGE_BYTES: usize = 4096;
/// Room for any contender's form of the largest message, wherever in the first page it starts.
const BUFFER_BYTES: usize = 3 * PAGE_BYTES;

/// What the contenders work on.
pub(crate) struct Fixtures {
    records: Vec<Record>,
    inbox_key: Vec<u8>,
    bincode_key: Vec<u8>,
}

/// One message in every contender's form.
struct Record {
    size: &'static str,
    message: Message,
    frame: Vec<u8>,
    intent: Vec<u8>,
    prost: Bytes,
    prost_arm: Bytes,
    rmp: Vec<u8>,
    rmp_arm: Vec<u8>,
    bincode: Vec<u8>,
    bincode_arm: Vec<u8>,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        Self {
            records: PAYLOADS.map(|(size, payload_bytes)| Record::new(size, payload_bytes)).into(),
            inbox_key: InboxKey::encode(KEY),
            bincode_key: encode_bincode((KEY.worker.key_bits(), KEY.seq.0), FIXED_BE),
        }
    }

    /// The suite, in the order of its table.
    pub(crate) fn workloads(&self) -> Vec<Workload<'_>> {
        let message: [fn(&Record) -> Workload<'_>; 5] =
            [Record::decode_borrowed, Record::decode_and_read, Record::decode_owned, Record::encode, Record::append];
        let mut workloads: Vec<_> = message.iter().flat_map(|make| self.records.iter().map(make)).collect();
        workloads
            .extend(self.records.iter().take(1).flat_map(|record| [record.decode_intent(), record.encode_intent()]));
        workloads.extend([self.decode_key(), self.encode_key()]);
        workloads
    }

    fn decode_key(&self) -> Workload<'_> {
        Workload::new("decode inbox key", || InboxKey::decode(black_box(&self.inbox_key)))
            .against("bincode", || bincode::decode_from_slice::<(u64, u64), _>(black_box(&self.bincode_key), FIXED_BE))
    }

    fn encode_key(&self) -> Workload<'_> {
        Workload::new("append inbox key", appending(|out| InboxKey::encode_into(black_box(KEY), out)))
            .against(MEMCPY, appending(|out| out.extend_from_slice(black_box(&self.inbox_key))))
            .against(
                "bincode",
                appending(|out| {
                    let key = black_box((KEY.worker.key_bits(), KEY.seq.0));
                    bincode::encode_into_std_write(key, out, FIXED_BE)
                }),
            )
    }
}

impl Record {
    fn new(size: &'static str, payload_bytes: usize) -> Self {
        let id = MessageId::new(b"order-17").expect("it has eight bytes");
        let message = Message::new(MessageKind::Event, WorkerId(7), id, vec![0xa5; payload_bytes])
            .with(Flags::DURABLE | Flags::DEDUPE_REQUIRED)
            .sent_by(WorkerId(3))
            .routed(WorkerId(9), Timestamp(1_700_000_000_000))
            .traced(TraceId::new(b"0123456789abcdef"));
        let arm = BorrowedArm::new(DUE, &message);
        Self {
            size,
            frame: message.encode().expect("it is shorter than 4 GiB"),
            intent: Intent::Arm { due: DUE, message: message.clone() }.encode().expect("it is shorter than 4 GiB"),
            prost: ProstOwned::from(&message).encode_to_vec().into(),
            prost_arm: ProstArm::new(DUE, &message).encode_to_vec().into(),
            rmp: rmp_serde::to_vec(&Owned::from(&message)).expect("memory takes it"),
            rmp_arm: rmp_serde::to_vec(&arm).expect("memory takes it"),
            bincode: encode_bincode(Owned::from(&message), FIXED),
            bincode_arm: encode_bincode(arm, FIXED),
            message,
        }
    }

    fn decode_borrowed(&self) -> Workload<'_> {
        Workload::new(format!("decode borrowed {}", self.size), || MessageRef::decode(black_box(&self.frame)))
            .against(MEMCPY, copying(&self.frame))
            .against("prost Bytes", || ProstShared::decode(black_box(&self.prost).clone()))
            .against("rmp-serde &[u8]", || rmp_serde::from_slice::<Borrowed<'_>>(black_box(&self.rmp)))
            .against("bincode &[u8]", || {
                bincode::borrow_decode_from_slice::<Borrowed<'_>, _>(black_box(&self.bincode), FIXED)
            })
    }

    /// The same, and then every part is read: our view looks at the frame when it is asked, the peers have looked before.
    fn decode_and_read(&self) -> Workload<'_> {
        let ours = || MessageRef::decode(black_box(&self.frame)).map(|message| message.parts());
        Workload::new(format!("decode, read all {}", self.size), ours)
            .against("prost Bytes", || ProstShared::decode(black_box(&self.prost).clone()))
            .against("rmp-serde &[u8]", || rmp_serde::from_slice::<Borrowed<'_>>(black_box(&self.rmp)))
            .against("bincode &[u8]", || {
                bincode::borrow_decode_from_slice::<Borrowed<'_>, _>(black_box(&self.bincode), FIXED)
            })
    }

    fn decode_owned(&self) -> Workload<'_> {
        let ours = || MessageRef::decode(black_box(&self.frame)).map(|message| message.to_message());
        Workload::new(format!("decode owned {}", self.size), ours)
            .against(MEMCPY, copying(&self.frame))
            .against("prost Vec", || ProstOwned::decode(&black_box(&self.prost)[..]))
            .against("rmp-serde Vec", || rmp_serde::from_slice::<Owned>(black_box(&self.rmp)))
            .against("bincode Vec", || bincode::decode_from_slice::<Owned, _>(black_box(&self.bincode), FIXED))
    }

    fn encode(&self) -> Workload<'_> {
        let view = self.message.parts();
        let (prost, plain) = (ProstOwned::from(&self.message), Borrowed::from(&self.message));
        let plain_again = plain.clone();
        Workload::new(format!("encode {}", self.size), filling(move |buffer| black_box(&view).encode_into(buffer)))
            .against(MEMCPY, copying(&self.frame))
            .against("prost", filling(move |mut buffer| black_box(&prost).encode(&mut buffer)))
            .against("rmp-serde", filling(move |mut buffer| rmp_serde::encode::write(&mut buffer, black_box(&plain))))
            .against(
                "bincode",
                filling(move |buffer| bincode::encode_into_slice(black_box(&plain_again), buffer, FIXED)),
            )
    }

    fn append(&self) -> Workload<'_> {
        let view = self.message.parts();
        let (prost, plain) = (ProstOwned::from(&self.message), Borrowed::from(&self.message));
        let plain_again = plain.clone();
        Workload::new(format!("append {}", self.size), appending(move |out| black_box(&view).append_to(out)))
            .against(MEMCPY, appending(|out| out.extend_from_slice(black_box(&self.frame))))
            .against("prost", appending(move |out| black_box(&prost).encode(out)))
            .against("rmp-serde", appending(move |out| rmp_serde::encode::write(out, black_box(&plain))))
            .against(
                "bincode",
                appending(move |out| bincode::encode_into_std_write(black_box(&plain_again), out, FIXED)),
            )
    }

    fn decode_intent(&self) -> Workload<'_> {
        Workload::new(format!("decode intent {}", self.size), || IntentRef::decode(black_box(&self.intent)))
            .against(MEMCPY, copying(&self.intent))
            .against("prost Bytes", || ProstArm::decode(black_box(&self.prost_arm).clone()))
            .against("rmp-serde &[u8]", || rmp_serde::from_slice::<BorrowedArm<'_>>(black_box(&self.rmp_arm)))
            .against("bincode &[u8]", || {
                bincode::borrow_decode_from_slice::<BorrowedArm<'_>, _>(black_box(&self.bincode_arm), FIXED)
            })
    }

    fn encode_intent(&self) -> Workload<'_> {
        let intent = Intent::Arm { due: DUE, message: self.message.clone() };
        let (prost, plain) = (ProstArm::new(DUE, &self.message), BorrowedArm::new(DUE, &self.message));
        let plain_again = plain.clone();
        let ours = filling(move |buffer| black_box(&intent).encode_into(buffer));
        Workload::new(format!("encode intent {}", self.size), ours)
            .against(MEMCPY, copying(&self.intent))
            .against("prost", filling(move |mut buffer| black_box(&prost).encode(&mut buffer)))
            .against("rmp-serde", filling(move |mut buffer| rmp_serde::encode::write(&mut buffer, black_box(&plain))))
            .against(
                "bincode",
                filling(move |buffer| bincode::encode_into_slice(black_box(&plain_again), buffer, FIXED)),
            )
    }
}

/// Work that writes to the start of a buffer that is used again.
fn filling<T>(mut work: impl FnMut(&mut [u8]) -> T) -> impl FnMut() -> T {
    let mut buffer = vec![0; BUFFER_BYTES];
    move || work(black_box(&mut buffer))
}

/// Work that writes to the end of a vector that is emptied and used again.
fn appending<T>(mut work: impl FnMut(&mut Vec<u8>) -> T) -> impl FnMut() -> T {
    let mut out = Vec::with_capacity(BUFFER_BYTES);
    move || {
        let out = black_box(&mut out);
        out.clear();
        work(out)
    }
}

/// A plain copy of these bytes into a buffer that is used again.
///
/// The copy goes half a page away from its source, counted within a page: the processor takes a load for one that
/// depends on an earlier store if both have the same place in their pages, and then copies at a third of the speed. The
/// measure of all others must not depend on where the allocator happened to put it.
fn copying(bytes: &[u8]) -> impl FnMut() {
    let mut buffer = vec![0; BUFFER_BYTES];
    let apart = bytes.as_ptr().addr().wrapping_sub(buffer.as_ptr().addr()).wrapping_add(PAGE_BYTES / 2);
    let start = apart % PAGE_BYTES;
    move || {
        let (bytes, buffer) = (black_box(bytes), black_box(&mut buffer[start..]));
        buffer[..bytes.len()].copy_from_slice(bytes);
    }
}

fn encode_bincode(value: impl bincode::Encode, config: impl bincode::config::Config) -> Vec<u8> {
    bincode::encode_to_vec(value, config).expect("memory takes it")
}

/// What we want of this suite: decoding is nearly free, encoding is nearly a copy.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let named = |start: &'static str| outcomes.iter().filter(move |outcome| outcome.workload.starts_with(start));
    let mut goals: Vec<Goal> = named("decode borrowed").map(nearly_free).collect();
    goals.extend(named("decode borrowed").filter_map(ahead));
    goals.extend(named("encode").chain(named("append")).filter_map(nearly_a_copy));
    goals
}

fn nearly_free(outcome: &Outcome) -> Goal {
    Goal { of: outcome.workload.clone(), found: outcome.ours.median, bound: Bound::Below(20.0), unit: " ns" }
}

/// Five times the fastest peer that reads the message; `memcpy` does not.
fn ahead(outcome: &Outcome) -> Option<Goal> {
    let readers = outcome.peers.iter().filter(|(name, _)| *name != MEMCPY);
    let (name, peer) = readers.min_by(|(_, left), (_, right)| left.median.total_cmp(&right.median))?;
    Some(Goal {
        of: format!("{}, as fast as the fastest peer ({name})", outcome.workload),
        found: outcome.unit.ratio(outcome.ours.median, peer.median),
        bound: Bound::AtLeast(5.0),
        unit: "x",
    })
}

fn nearly_a_copy(outcome: &Outcome) -> Option<Goal> {
    let copy = outcome.peer(MEMCPY)?.median;
    Some(Goal {
        of: format!("{} (twice memcpy and 20 ns)", outcome.workload),
        found: outcome.ours.median,
        bound: Bound::Below(2.0 * copy + 20.0),
        unit: " ns",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Estimate, Unit};

    #[test]
    fn every_contender_reads_back_the_same_message() {
        for record in Fixtures::new().records {
            let (message, plain) = (&record.message, Borrowed::from(&record.message));
            assert_eq!(MessageRef::decode(&record.frame).unwrap().parts(), message.parts());
            assert_eq!(rmp_serde::from_slice::<Borrowed<'_>>(&record.rmp).unwrap(), plain);
            assert_eq!(rmp_serde::from_slice::<Owned>(&record.rmp).unwrap(), Owned::from(message));
            assert_eq!(
                bincode::borrow_decode_from_slice(&record.bincode, FIXED).unwrap(),
                (plain, record.bincode.len())
            );
            assert_eq!(bincode::decode_from_slice::<Owned, _>(&record.bincode, FIXED).unwrap().0, Owned::from(message));
            assert_eq!(ProstShared::decode(record.prost.clone()).unwrap(), ProstShared::from(message));
            assert_eq!(ProstOwned::decode(record.prost).unwrap(), ProstOwned::from(message));
            let arm = BorrowedArm::new(DUE, message);
            assert_eq!(rmp_serde::from_slice::<BorrowedArm<'_>>(&record.rmp_arm).unwrap(), arm);
            assert_eq!(
                bincode::borrow_decode_from_slice(&record.bincode_arm, FIXED).unwrap(),
                (arm, record.bincode_arm.len())
            );
            assert_eq!(ProstArm::decode(record.prost_arm).unwrap(), ProstArm::new(DUE, message));
        }
    }

    #[test]
    fn memcpy_is_the_measure_of_encoding_and_no_peer_in_decoding() {
        let estimate = |median| Estimate { median, min: median };
        let outcome = |workload: &str| Outcome {
            workload: workload.into(),
            unit: Unit::Nanoseconds,
            ours: estimate(10.0),
            peers: vec![(MEMCPY, estimate(4.0)), ("slow", estimate(90.0)), ("fast", estimate(60.0))],
        };
        let goals = goals(&[outcome("decode borrowed 64 B"), outcome("encode 64 B")]);
        let found: Vec<_> = goals.iter().map(|goal| (goal.found, goal.bound)).collect();
        assert_eq!(found, [(10.0, Bound::Below(20.0)), (6.0, Bound::AtLeast(5.0)), (10.0, Bound::Below(28.0))]);
        assert!(goals[1].of.contains("fast)"), "{}", goals[1].of);
    }
}
