//! Cancelling messages, queued or running.

use kauri_wire::{InboxKey, Key, MessageRef, WorkerId};

use crate::claim::Leases;
use crate::dead_letter::{DeadLetter, Reason};
use crate::error::Result;
use crate::lease::Lease;
use crate::metrics::Counter;
use crate::runtime::{Runtime, inbox_key, inbox_range};
use crate::schema::{DEAD_LETTER, DEADLINES, INBOX, URGENT};
use crate::substrate::{Change, KeyRange, Seen};

impl Runtime {
    /// Cancels a message: it is buried, with [`Reason::Cancelled`]. If a worker is at it, whatever that does commits nothing. Tells
    /// whether there was such a message.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn cancel(&self, key: InboxKey) -> Result<bool> {
        let bytes = InboxKey::encode(key);
        let now = self.now().wall;
        let done = self.shared.commit_until(|rows| {
            let Some(frame) = rows.get(&INBOX, &bytes)? else { return Ok(None) };
            let mut change = Change::default();
            change.expect(INBOX, &bytes[..], Seen::Present);
            for table in [INBOX, URGENT, DEADLINES] {
                change.remove(table, &bytes[..]);
            }
            // Whoever is at it loses it.
            let lease = Leases::read(rows, key.worker)?.withdraw(&mut change, key);
            let deliveries = lease.map_or(0, |lease| lease.deliveries);
            let (reason, detail) = (Reason::Cancelled, String::new());
            let letter =
                DeadLetter { reason, detail, failed_at: now, deliveries, failures: 0, frame: frame.into_owned() };
            change.put(DEAD_LETTER, &bytes[..], letter.encode());
            Ok(Some((change, ())))
        })?;
        self.shared.metrics.add(Counter::DeadLetters, u64::from(done.is_some()));
        Ok(done.is_some())
    }

    /// Where the messages with this id are in a worker's inbox, oldest first. Looks at each message there.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn find(&self, worker: WorkerId, id: &[u8]) -> Result<Vec<InboxKey>> {
        let rows = self.shared.substrate.snapshot()?;
        let (from, until) = inbox_range(worker);
        let mut scan = rows.scan(&INBOX, KeyRange { from: &from, until: until.as_deref() })?;
        let mut found = Vec::new();
        while let Some((key, frame)) = scan.next()? {
            if MessageRef::decode(&frame).is_ok_and(|message| message.id() == id) {
                found.push(inbox_key(&key)?);
            }
        }
        Ok(found)
    }

    /// Up to `most` messages of a worker's inbox, oldest first.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn inbox(&self, worker: WorkerId, most: usize) -> Result<Vec<(InboxKey, Vec<u8>)>> {
        let rows = self.shared.substrate.snapshot()?;
        let (from, until) = inbox_range(worker);
        let mut scan = rows.scan(&INBOX, KeyRange { from: &from, until: until.as_deref() })?;
        let mut found = Vec::new();
        while found.len() < most {
            let Some((key, frame)) = scan.next()? else { break };
            found.push((inbox_key(&key)?, frame.into_owned()));
        }
        Ok(found)
    }

    /// Who has a message, and until when.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn lease(&self, key: InboxKey) -> Result<Option<Lease>> {
        let rows = self.shared.substrate.snapshot()?;
        Ok(Leases::read(&*rows, key.worker)?.of(key))
    }
}
