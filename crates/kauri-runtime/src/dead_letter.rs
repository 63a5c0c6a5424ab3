//! Dead letters: messages that will not be handled again by themselves, with the reason.
//!
//! ```text
//!  0      4            8                16               20              24              28
//!  | DLQ0 | reason i32 | failed_at i64  | deliveries u32 | failures u32  | detail_len u32 | detail | frame |
//! ```
//!
//! Little-endian. The key is that of the inbox row that the message had.

use kauri_wire::{InboxKey, Key, MessageRef, Timestamp, WorkerId};

use crate::error::{Error, Result};
use crate::runtime::{Runtime, Sent, Shared, inbox_key, inbox_range, into_inbox};
use crate::schema::DEAD_LETTER;
use crate::substrate::{Change, KeyRange, Rows, Seen};

pub(crate) const HEADER_BYTES: usize = 28;
/// What a dead letter has besides the frame, at least: there is always room for a sentence that says why.
pub(crate) const BESIDES_FRAME: usize = HEADER_BYTES + 256;
const MAGIC: [u8; 4] = *b"DLQ0";

/// The owner of dead letters whose frame does not say whose they are.
pub const NOBODY: WorkerId = WorkerId(-1);

/// Why a message was buried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i32)]
#[non_exhaustive]
pub enum Reason {
    /// Its frame does not decode.
    Undecodable = 1,
    /// Its frame is addressed to another worker than its inbox's.
    WrongWorker = 2,
    /// It failed retryably as often as its budget allows.
    RetriesSpent = 3,
    /// It failed otherwise as often as its budget allows.
    FailuresSpent = 4,
    /// It was claimed as often as its budget allows, and came to no end.
    DeliveriesSpent = 5,
    /// Its deadline came before it was begun.
    Expired = 6,
    /// Somebody cancelled it.
    Cancelled = 7,
    /// Its id was handled before with another payload.
    OtherPayload = 8,
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::Undecodable,
        Self::WrongWorker,
        Self::RetriesSpent,
        Self::FailuresSpent,
        Self::DeliveriesSpent,
        Self::Expired,
        Self::Cancelled,
        Self::OtherPayload,
    ];

    /// The reason in a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable frame",
            Self::WrongWorker => "addressed to another worker",
            Self::RetriesSpent => "retry budget spent",
            Self::FailuresSpent => "failure budget spent",
            Self::DeliveriesSpent => "delivery budget spent",
            Self::Expired => "deadline passed",
            Self::Cancelled => "cancelled",
            Self::OtherPayload => "id handled before with another payload",
        }
    }
}

/// A buried message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// Why it was buried.
    pub reason: Reason,
    /// What the handler, or whoever found the fault, said.
    pub detail: String,
    /// When.
    pub failed_at: Timestamp,
    /// How often it was claimed under its last key.
    pub deliveries: u32,
    /// How often it failed.
    pub failures: u32,
    /// The message.
    pub frame: Vec<u8>,
}

impl DeadLetter {
    /// The row's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let detail = self.detail.as_bytes();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + detail.len() + self.frame.len());
        bytes.extend(MAGIC);
        bytes.extend((self.reason as i32).to_le_bytes());
        bytes.extend(self.failed_at.0.to_le_bytes());
        bytes.extend(self.deliveries.to_le_bytes());
        bytes.extend(self.failures.to_le_bytes());
        bytes.extend(u32::try_from(detail.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(detail);
        bytes.extend(&self.frame);
        bytes
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// `Damaged` if it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("dead_letter", "a dead letter that begins with DLQ0");
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(damaged)?;
        let short = |from: usize| -> [u8; 4] { std::array::from_fn(|at| header[from + at]) };
        let code = i32::from_le_bytes(short(4));
        let reason = Reason::ALL.into_iter().find(|reason| *reason as i32 == code);
        let detail_bytes = usize::try_from(u32::from_le_bytes(short(24))).map_err(|_| damaged())?;
        let (detail, frame) = rest.split_at_checked(detail_bytes).ok_or_else(damaged)?;
        match reason {
            Some(reason) if short(0) == MAGIC => Ok(Self {
                reason,
                detail: String::from_utf8_lossy(detail).into_owned(),
                failed_at: Timestamp(i64::from_le_bytes(std::array::from_fn(|at| header[8 + at]))),
                deliveries: u32::from_le_bytes(short(16)),
                failures: u32::from_le_bytes(short(20)),
                frame: frame.to_vec(),
            }),
            _ => Err(damaged()),
        }
    }
}

/// What to do with a dead letter that was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Take it away and show the next.
    Take,
    /// Leave it and show the next.
    Leave,
    /// Leave it and stop.
    Stop,
}

/// How many dead letters are shown or purged between two commits.
const PAGE_ROWS_MAX: usize = 256;

impl Runtime {
    /// Up to `most` dead letters from `from` on, of one worker or of all, in the order of their keys.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn dead_letters(
        &self,
        worker: Option<WorkerId>,
        from: Option<InboxKey>,
        most: usize,
    ) -> Result<Vec<(InboxKey, DeadLetter)>> {
        let rows = self.shared.substrate.snapshot()?;
        page(&*rows, worker, from.map(InboxKey::encode).as_deref(), most)
    }

    /// One dead letter.
    ///
    /// # Errors
    /// As for `dead_letters`.
    pub fn dead_letter(&self, key: InboxKey) -> Result<Option<DeadLetter>> {
        let rows = self.shared.substrate.snapshot()?;
        rows.get(&DEAD_LETTER, &InboxKey::encode(key))?.map(|value| DeadLetter::decode(&value)).transpose()
    }

    /// Puts a dead letter back at the tail of its worker's inbox, with a new budget, and takes it from the dead letters in the same
    /// commit. Answers where it went; `None` if there is none.
    ///
    /// # Errors
    /// If the frame does not decode, the row is damaged, or the substrate fails.
    pub fn replay(&self, key: InboxKey) -> Result<Option<Sent>> {
        let bytes = InboxKey::encode(key);
        let done = self.shared.commit_until(|rows| {
            let Some(value) = rows.get(&DEAD_LETTER, &bytes)? else { return Ok(None) };
            let letter = DeadLetter::decode(&value)?;
            let message = MessageRef::decode(&letter.frame)?;
            let mut change = Change::default();
            change.expect(DEAD_LETTER, &bytes[..], Seen::Present);
            change.remove(DEAD_LETTER, &bytes[..]);
            let (to, flags) = (message.to(), message.flags());
            change.appends.push(into_inbox(to, flags, letter.frame.clone(), None));
            Ok(Some((change, to)))
        })?;
        Ok(done.map(|(committed, worker)| {
            let seq = kauri_wire::Seq(committed.appended[0]);
            Sent::Inbox(InboxKey { worker, seq })
        }))
    }

    /// Shows dead letters, of one worker or of all, in the order of their keys, and does with each what `decide` says: a row is
    /// taken only if it is still what was shown. Answers how many were taken.
    ///
    /// # Errors
    /// As for `dead_letters`.
    pub fn drain_dead_letters(
        &self,
        worker: Option<WorkerId>,
        mut decide: impl FnMut(InboxKey, &DeadLetter) -> Drain,
    ) -> Result<usize> {
        let mut taken = 0;
        let mut from: Option<Vec<u8>> = None;
        loop {
            let shown = {
                let rows = self.shared.substrate.snapshot()?;
                page(&*rows, worker, from.as_deref(), PAGE_ROWS_MAX)?
            };
            let Some((last, _)) = shown.last() else { return Ok(taken) };
            // The least key after the last one.
            from = Some([&InboxKey::encode(*last)[..], &[0]].concat());
            for (key, letter) in &shown {
                match decide(*key, letter) {
                    Drain::Take => taken += usize::from(take(&self.shared, *key, letter)?),
                    Drain::Leave => {}
                    Drain::Stop => return Ok(taken),
                }
            }
        }
    }

    /// Removes dead letters buried before this moment. Answers how many.
    ///
    /// # Errors
    /// As for `dead_letters`.
    pub fn purge_dead_letters(&self, before: Timestamp) -> Result<usize> {
        self.drain_dead_letters(None, |_, letter| if letter.failed_at < before { Drain::Take } else { Drain::Leave })
    }
}

fn page(
    rows: &dyn Rows,
    worker: Option<WorkerId>,
    from: Option<&[u8]>,
    most: usize,
) -> Result<Vec<(InboxKey, DeadLetter)>> {
    let (first, until) = worker.map_or((Vec::new(), None), inbox_range);
    let from = from.map_or(&first[..], |from| from.max(&first[..]));
    let mut scan = rows.scan(&DEAD_LETTER, KeyRange { from, until: until.as_deref() })?;
    let mut shown = Vec::new();
    while shown.len() < most {
        let Some((key, value)) = scan.next()? else { break };
        shown.push((inbox_key(&key)?, DeadLetter::decode(&value)?));
    }
    Ok(shown)
}

fn take(shared: &Shared, key: InboxKey, letter: &DeadLetter) -> Result<bool> {
    let bytes = InboxKey::encode(key);
    let value = letter.encode();
    let done = shared.commit_until(|rows| {
        if rows.get(&DEAD_LETTER, &bytes)?.as_deref() != Some(&value[..]) {
            return Ok(None);
        }
        let mut change = Change::default();
        change.expect(DEAD_LETTER, &bytes[..], Seen::of(Some(&value)));
        change.remove(DEAD_LETTER, &bytes[..]);
        Ok(Some((change, ())))
    })?;
    Ok(done.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_survive_the_trip_and_other_bytes_are_refused() {
        let letter = DeadLetter {
            reason: Reason::FailuresSpent,
            detail: "no such account".to_owned(),
            failed_at: Timestamp(-3),
            deliveries: 2,
            failures: 7,
            frame: b"any bytes".to_vec(),
        };
        let bytes = letter.encode();
        assert_eq!(DeadLetter::decode(&bytes).unwrap(), letter);
        for reason in Reason::ALL {
            let other = DeadLetter { reason, ..letter.clone() };
            assert_eq!(DeadLetter::decode(&other.encode()).unwrap(), other);
        }
        for bad in [&b""[..], &bytes[..27], &[0; 40], &bytes[..30]] {
            assert!(DeadLetter::decode(bad).is_err());
        }
    }
}
