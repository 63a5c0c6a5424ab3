//! Timers: messages due at a time. When it has come they move to the inbox of their worker, and get leases, retries and dead letters
//! like everything else.

use std::time::Duration;

use kauri_wire::{InboxKey, Key, MessageRef, Seq, TimerKey, Timestamp};

use crate::dead_letter::{DeadLetter, NOBODY, Reason};
use crate::error::{Error, Result};
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::runtime::{Runtime, Shared, into_inbox, into_outbox};
use crate::schema::{DEAD_LETTER, SCHEDULE_DUE, TIMER_DEADLINES, TIMERS};
use crate::substrate::{Bytes, Change, KeyRange, Rows, Seen};

/// The longest sleep until a timer: the wall clock may jump meanwhile, and then the timer is due at another moment.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How long it is until a timer is due, as far as anybody knows.
pub(crate) fn until(now: Timestamp, due: Timestamp) -> Duration {
    let millis = u64::try_from(due.0.saturating_sub(now.0)).unwrap_or(0);
    Duration::from_millis(millis).min(LOOK_AGAIN_AFTER)
}

/// A due timer, as it stands in its row.
struct Due {
    key: TimerKey,
    bytes: Bytes,
    frame: Vec<u8>,
    deadline: Option<Timestamp>,
}

impl Runtime {
    /// Moves up to `most` due timers and schedule slots to the inboxes of their workers, earliest first. Answers how many.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn fire_due(&self, most: usize) -> Result<usize> {
        let Ok(_timekeeper) = self.shared.timekeeper.try_lock() else {
            // Somebody else is at it.
            return Ok(0);
        };
        let now = self.shared.clock.now().wall;
        let slots = crate::schedule::fire_due(&self.shared, now, most)?;
        Ok(slots + fire_due(&self.shared, now, most.saturating_sub(slots))?)
    }

    /// When the next timer or schedule slot is due.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn next_due(&self) -> Result<Option<Timestamp>> {
        let rows = self.shared.substrate.snapshot()?;
        let mut first = None;
        for table in [TIMERS, SCHEDULE_DUE] {
            let mut scan = rows.scan(&table, KeyRange::ALL)?;
            if let Some((key, _)) = scan.next()? {
                let due =
                    *key.first_chunk().ok_or_else(|| Error::damaged("timers", "a key that begins with a moment"))?;
                first = [first, Some(Timestamp(i64::from_be_bytes(due)))].into_iter().flatten().min();
            }
        }
        Ok(first)
    }

    /// Takes a timer back. Tells whether there was one: a timer that has come due is a message in an inbox.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn disarm(&self, key: TimerKey) -> Result<bool> {
        let bytes = TimerKey::encode(key);
        let done = self.shared.commit_until(|rows| {
            if rows.get(&TIMERS, &bytes)?.is_none() {
                return Ok(None);
            }
            let mut change = Change::default();
            change.expect(TIMERS, &bytes[..], Seen::Present);
            change.remove(TIMERS, &bytes[..]);
            change.remove(TIMER_DEADLINES, &bytes[..]);
            Ok(Some((change, ())))
        })?;
        Ok(done.is_some())
    }

    /// Up to `most` timers, earliest first.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn timers(&self, most: usize) -> Result<Vec<(TimerKey, Vec<u8>)>> {
        let rows = self.shared.substrate.snapshot()?;
        let due = find(&*rows, None, most)?;
        Ok(due.into_iter().map(|due| (due.key, due.frame)).collect())
    }
}

fn fire_due(shared: &Shared, now: Timestamp, most: usize) -> Result<usize> {
    #[cfg(feature = "planted")]
    let now =
        if shared.is_planted(crate::planted::Bug::EarlyTimer) { Timestamp(now.0.saturating_add(40)) } else { now };
    if now.0 < 0 || most == 0 {
        return Ok(0);
    }
    let done = shared.commit_until(|rows| {
        let due = find(rows, Some(now), most)?;
        if due.is_empty() {
            return Ok(None);
        }
        let mut change = Change::default();
        due.iter().for_each(|due| stage(shared, &mut change, due, now));
        Ok(Some((change, due)))
    })?;
    let Some((_, fired)) = done else { return Ok(0) };
    shared.metrics.add(Counter::TimersFired, fired.len() as u64);
    for due in &fired {
        shared.observe(&Observation::TimerFired { key: due.key, frame: &due.frame });
    }
    Ok(fired.len())
}

/// The first timers, up to the moment if one is given.
fn find(rows: &dyn Rows, now: Option<Timestamp>, most: usize) -> Result<Vec<Due>> {
    // No timer has a due time below zero, so the order of the bytes is the order of the times.
    let until = now.and_then(|now| now.0.checked_add(1)).map(i64::to_be_bytes);
    let mut scan = rows.scan(&TIMERS, KeyRange { from: &[], until: until.as_ref().map(|until| &until[..]) })?;
    let mut found = Vec::new();
    while found.len() < most {
        let Some((key, frame)) = scan.next()? else { break };
        let bytes = Bytes::from(&key[..]);
        let key = TimerKey::decode(&key).map_err(|_| Error::damaged("timers", "a key of due time and sequence"))?;
        found.push(Due { key, bytes, frame: frame.into_owned(), deadline: None });
    }
    drop(scan);
    for due in &mut found {
        let deadline = rows.get(&TIMER_DEADLINES, &due.bytes)?;
        due.deadline =
            deadline.and_then(|bytes| bytes[..].try_into().ok()).map(|bytes| Timestamp(i64::from_le_bytes(bytes)));
    }
    Ok(found)
}

/// Stages the move of one timer.
fn stage(shared: &Shared, change: &mut Change, due: &Due, now: Timestamp) {
    change.expect(TIMERS, due.bytes.clone(), Seen::Present);
    change.remove(TIMERS, due.bytes.clone());
    if due.deadline.is_some() {
        change.remove(TIMER_DEADLINES, due.bytes.clone());
    }
    let frame = due.frame.clone();
    match MessageRef::decode(&due.frame) {
        Ok(message) if shared.is_elsewhere(message.to()) => change.appends.push(into_outbox(frame)),
        Ok(message) => change.appends.push(into_inbox(message.to(), message.flags(), frame, due.deadline)),
        Err(error) => {
            let (reason, detail) = (Reason::Undecodable, error.to_string());
            let letter = DeadLetter { reason, detail, failed_at: now, deliveries: 0, failures: 0, frame };
            let key = InboxKey { worker: NOBODY, seq: Seq(due.key.seq.0) };
            change.put(DEAD_LETTER, InboxKey::encode(key), letter.encode());
        }
    }
}
