//! The lease under a step, for handlers that take longer than it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::{InboxKey, Key, Seq, WorkerId};

use crate::claim::{Held, Leases};
use crate::error::Result;
use crate::lease::{Lease, encode_row, row_key};
use crate::runtime::Shared;
use crate::schema::{INBOX, LEASES};
use crate::substrate::{Bytes, Change, Seen};

/// What became of a wish to keep a message longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "whoever lost the message can stop: nothing of the step will be committed"]
pub enum Renewed {
    /// Nobody else gets the message for another term of the lease.
    Yes,
    /// Somebody else has the message by now, or it was cancelled. Nothing of this step will be committed.
    Lost,
    /// No message began this block, so there is no lease.
    Unneeded,
}

/// The lease on what a worker handles at the moment.
pub(crate) struct Hold<'a> {
    shared: &'a Shared,
    worker: WorkerId,
    owner: u64,
    term: Duration,
    held: RefCell<Held>,
    /// The message that is handled.
    at: Cell<Seq>,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(shared: &'a Shared, worker: WorkerId, owner: u64, term: Duration, held: Held) -> Self {
        Self { shared, worker, owner, term, held: RefCell::new(held), at: Cell::new(Seq(0)) }
    }

    /// This message is handled now.
    pub(crate) fn begin(&self, seq: Seq) {
        self.at.set(seq);
    }

    /// The lease as it stands.
    pub(crate) fn into_held(self) -> Held {
        self.held.into_inner()
    }

    /// Lets the lease end a term from now. It is a commit of its own, and changes nothing else.
    pub(crate) fn renew(&self) -> Result<Renewed> {
        let (key, message) = (row_key(self.worker, self.owner), InboxKey { worker: self.worker, seq: self.at.get() });
        let renewed = self.shared.commit_until(|rows| {
            // What others have taken out of it meanwhile is theirs.
            let leases = Leases::read(rows, self.worker)?;
            let Some((held, seqs)) = leases.held_by(self.owner) else { return Ok(None) };
            if !seqs.contains(&message.seq) || rows.get(&INBOX, &InboxKey::encode(message))?.is_none() {
                return Ok(None);
            }
            let lease = Lease { deadline: self.shared.mono() + self.term, ..held.lease };
            let row = Bytes::from(encode_row(&lease, seqs.iter().copied()));
            // As with a claim: one that a crash of the machine takes away is one that nobody has.
            let mut change = Change { durability: Durability::None, ..Change::default() };
            change.expect(LEASES, key, Seen::of(Some(&held.row)));
            change.put(LEASES, key, row.clone());
            Ok(Some((change, Held { lease, row })))
        })?;
        match renewed {
            Some((_, held)) => {
                self.held.replace(held);
                Ok(Renewed::Yes)
            }
            None => Ok(Renewed::Lost),
        }
    }
}
