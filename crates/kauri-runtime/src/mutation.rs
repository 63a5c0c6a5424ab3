//! Rows of the runtime's own tables, cut at every place and with every byte wrong: each is refused, or is another good row. Nothing
//! panics, and nothing allocates what a length asks for.

use std::fmt::Debug;
use std::time::Duration;

use kauri_wire::{Message, MessageId, Seq, Timestamp, WorkerId};

use crate::dead_letter::{DeadLetter, Reason};
use crate::dedupe::{self, Failures, Handled};
use crate::error::Result;
use crate::lease::{self, Lease};
use crate::named_lease::NamedLease;
use crate::schedule::{CatchUp, Schedule, When};
use crate::time::{Chance, Mono};

/// Whether every row that is nearly this one is refused as damaged, or read as what it says. `is_same` says that the bytes are what a row
/// is written as that was read from them.
fn check<T: Debug>(row: &[u8], decode: impl Fn(&[u8]) -> Result<T>, is_same: impl Fn(&T, &[u8]) -> bool) {
    let look = |bytes: &[u8]| match decode(bytes) {
        Ok(found) => assert!(is_same(&found, bytes), "{found:?} is not what {bytes:?} says"),
        Err(error) => assert!(error.is_corruption(), "{error}"),
    };
    assert!(decode(row).is_ok_and(|found| is_same(&found, row)), "the row itself");
    (0..row.len()).for_each(|len| look(&row[..len]));
    let mut changed = row.to_vec();
    for at in 0..row.len() {
        for byte in 0..=u8::MAX {
            changed[at] = byte;
            look(&changed);
        }
        changed[at] = row[at];
    }
    let mut chance = Chance::new(row.len() as u64);
    let mut random = |end: usize| usize::try_from(chance.next_u64() % end as u64).unwrap_or(0);
    for _ in 0..2000 {
        let mut bytes = row.to_vec();
        for _ in 0..1 + random(8) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap_or(0);
        }
        bytes.truncate(random(2 * row.len()).max(1));
        bytes.extend(std::iter::repeat_n(7, random(12)));
        look(&bytes);
    }
}

fn lease() -> Lease {
    Lease { owner: 1 << 40 | 7, deadline: Mono::from_millis(123_456), deliveries: 3, incarnation: 9 }
}

#[test]
fn leases_that_are_damaged_are_refused() {
    check(&lease().encode(), Lease::decode, |found, bytes| found.encode() == bytes);
    let row = lease::encode_row(&lease(), [Seq(1), Seq(300), Seq(u64::MAX)]);
    check(&row, lease::decode_row, |(lease, seqs), bytes| lease::encode_row(lease, seqs.iter().copied()) == bytes);
}

#[test]
fn named_leases_that_are_damaged_are_refused() {
    let row = [&lease().encode()[..], &77_i64.to_le_bytes()].concat();
    check(&row, NamedLease::decode, |found, bytes| found.encode() == bytes);
}

#[test]
fn remembered_ids_and_counters_that_are_damaged_are_refused() {
    let message = Message::command(WorkerId(1), MessageId::new("m").expect("an id"), "payload");
    let frame = message.encode().expect("a frame");
    let message = kauri_wire::MessageRef::decode(&frame).expect("a message");
    let handled = Handled::new(message, Timestamp(5), Timestamp(1 << 40));
    check(&handled.encode(), Handled::decode, |found, bytes| found.encode() == bytes);

    let (ann, bob, once) = (WorkerId(1), WorkerId(-2), Failures { retryable: 1, fatal: 2 });
    let counters = dedupe::with_failures(None, ann, once).expect("one");
    let counters = dedupe::with_failures(Some(&counters), bob, once).expect("two");
    // Whatever it says of one worker: taking that away leaves the other's.
    check(
        &counters,
        |bytes| dedupe::failures(Some(bytes), ann),
        |found, bytes| {
            let without = dedupe::with_failures(Some(bytes), ann, Failures::default());
            dedupe::failures(without.as_deref(), ann).is_ok_and(|left| left == Failures::default())
                && dedupe::failures(dedupe::with_failures(Some(bytes), ann, *found).as_deref(), ann)
                    .is_ok_and(|again| again == *found)
        },
    );
}

#[test]
fn dead_letters_that_are_damaged_are_refused() {
    let (reason, detail, failed_at) = (Reason::Expired, "too late".to_owned(), Timestamp(-5));
    let letter = DeadLetter { reason, detail, failed_at, deliveries: 2, failures: 3, frame: b"frame".to_vec() };
    check(&letter.encode(), DeadLetter::decode, |found, bytes| {
        // Words that are no text are shown as far as they are.
        found.encode() == bytes || found.detail.contains(char::REPLACEMENT_CHARACTER)
    });
}

#[test]
fn schedules_that_are_damaged_are_refused() {
    for when in [When::Cron("*/5 * * * *".to_owned()), When::Every(Duration::from_millis(250))] {
        let frame = b"frame".to_vec();
        let schedule = Schedule { when, catch_up: CatchUp::Every, next: Some(Timestamp(1 << 41)), frame };
        check(&schedule.encode(), Schedule::decode, |found, bytes| {
            // A number can be written in several ways, and zero is taken for one.
            found.encode() == bytes || matches!(found.when, When::Every(_))
        });
    }
}
