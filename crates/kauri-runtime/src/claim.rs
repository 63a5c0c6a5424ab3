//! Claiming: which messages a worker takes next.

use std::collections::{BTreeMap, BTreeSet};

use kauri_wire::{InboxKey, Key, MessageRef, Timestamp, WorkerId};

use crate::dead_letter::Reason;
use crate::error::Result;
use crate::lease::Lease;
use crate::policy::Policy;
use crate::runtime::{Shared, inbox_key, inbox_range};
use crate::schema::{DEADLINES, INBOX, LEASES, URGENT};
use crate::substrate::{Change, KeyRange, Rows, Seen};
use crate::time::{Mono, Now};

/// A message that a worker has, or is about to have.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) key: InboxKey,
    pub(crate) frame: Vec<u8>,
    pub(crate) lease: Lease,
    /// The lease that ran out, as it stands in its row.
    prior: Option<Box<[u8]>>,
    pub(crate) is_urgent: bool,
    pub(crate) deadline: Option<Timestamp>,
    /// It was claimed too often: it is buried and not run.
    pub(crate) doom: Option<Reason>,
    /// Its concurrency key.
    pub(crate) flow_key: Option<Vec<u8>>,
}

impl Claimed {
    pub(crate) fn key_bytes(&self) -> Box<[u8]> {
        InboxKey::encode(self.key).into()
    }

    pub(crate) fn is_takeover(&self) -> bool {
        self.prior.is_some()
    }
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) claims: Vec<Claimed>,
    /// When there may be more: a lease of somebody else runs out, or the rate allows it.
    pub(crate) wake_at: Option<Mono>,
    /// Something waits for a concurrency key.
    pub(crate) is_flow_limited: bool,
}

/// Who looks for messages.
pub(crate) struct Search<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) worker: WorkerId,
    pub(crate) owner: u64,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Now,
    /// What the worker has already.
    pub(crate) held: &'a [Claimed],
}

/// How many messages that cannot be claimed are looked past, beyond those that are leased.
const LOOK_PAST_MAX: usize = 256;

/// The state of one search.
struct Progress<'a> {
    search: &'a Search<'a>,
    leases: BTreeMap<InboxKey, Box<[u8]>>,
    /// Ours already, or found a moment ago among the urgent ones.
    taken: BTreeSet<InboxKey>,
    has_deadlines: bool,
    most: usize,
    bytes: usize,
    looked: usize,
    found: Found,
}

enum Next {
    Go,
    Stop,
}

impl Search<'_> {
    /// The messages to claim next: urgent ones first, then the oldest. What others have is left out, and what nobody ended is
    /// claimed alone, so that a message that takes the process down takes no other with it.
    pub(crate) fn run(&self, rows: &dyn Rows) -> Result<Found> {
        let (from, until) = inbox_range(self.worker);
        let range = KeyRange { from: &from, until: until.as_deref() };
        let mut progress = match self.begin(rows, range)? {
            Ok(progress) => progress,
            Err(wake_at) => return Ok(Found { wake_at: Some(wake_at), ..Found::default() }),
        };
        if rows.count(&URGENT, range)? > 0 {
            let mut urgent = rows.scan(&URGENT, range)?;
            while let Some((key, _)) = urgent.next()? {
                let key = inbox_key(&key)?;
                let Some(frame) = rows.get(&INBOX, &InboxKey::encode(key))? else { continue };
                if let Next::Stop = progress.consider(rows, key, &frame, true)? {
                    return Ok(progress.finish());
                }
            }
        }
        let mut inbox = rows.scan(&INBOX, range)?;
        while let Some((key, frame)) = inbox.next()? {
            if let Next::Stop = progress.consider(rows, inbox_key(&key)?, &frame, false)? {
                break;
            }
        }
        Ok(progress.finish())
    }

    fn begin<'a>(&'a self, rows: &dyn Rows, range: KeyRange<'_>) -> Result<Result<Progress<'a>, Mono>> {
        let mut most = self.policy.batch_messages_max;
        if let Some(rate) = self.policy.rate {
            match self.shared.flow().allowance(self.worker, rate, self.now.mono) {
                Ok(allowed) => most = most.min(allowed),
                Err(wake_at) => return Ok(Err(wake_at)),
            }
        }
        let mut leases = BTreeMap::new();
        let mut scan = rows.scan(&LEASES, range)?;
        while let Some((key, lease)) = scan.next()? {
            leases.insert(inbox_key(&key)?, lease[..].into());
        }
        drop(scan);
        let has_deadlines = rows.count(&DEADLINES, range)? > 0;
        let taken = self.held.iter().map(|claimed| claimed.key).collect();
        Ok(Ok(Progress {
            search: self,
            leases,
            taken,
            has_deadlines,
            most,
            bytes: 0,
            looked: 0,
            found: Found::default(),
        }))
    }
}

impl Progress<'_> {
    fn consider(&mut self, rows: &dyn Rows, key: InboxKey, frame: &[u8], is_urgent: bool) -> Result<Next> {
        let search = self.search;
        if self.found.claims.len() >= self.most || self.looked > LOOK_PAST_MAX {
            return Ok(Next::Stop);
        }
        if self.taken.contains(&key) {
            return Ok(Next::Go);
        }
        let prior = self.leases.get(&key).cloned();
        // A lease that does not decode is nobody's.
        let present = prior.as_deref().and_then(|bytes| Lease::decode(bytes).ok());
        let Some(lease) = self.claim(present) else {
            let deadline = present.map(|lease| lease.deadline);
            self.found.wake_at = [self.found.wake_at, deadline].into_iter().flatten().min();
            return Ok(Next::Go);
        };
        let is_first = self.found.claims.is_empty();
        let is_too_much = self.bytes.saturating_add(frame.len()) > search.policy.batch_bytes_max;
        if !is_first && (prior.is_some() || is_too_much) {
            return Ok(Next::Stop);
        }
        let Ok(flow_key) = self.admit(frame) else {
            self.looked += 1;
            self.found.is_flow_limited = true;
            return Ok(Next::Go);
        };
        let deadline = if self.has_deadlines { deadline(rows, key)? } else { None };
        let doom = (lease.deliveries > search.policy.delivery_budget).then_some(Reason::DeliveriesSpent);
        self.bytes += frame.len();
        let is_alone = prior.is_some();
        let frame = frame.to_vec();
        if is_urgent {
            self.taken.insert(key);
        }
        self.found.claims.push(Claimed { key, frame, lease, prior, is_urgent, deadline, doom, flow_key });
        Ok(if is_alone { Next::Stop } else { Next::Go })
    }

    fn claim(&self, present: Option<Lease>) -> Option<Lease> {
        let Search { shared, owner, policy, now, .. } = *self.search;
        #[cfg(feature = "planted")]
        if shared.is_planted(crate::planted::Bug::OldLeaseHonoured)
            && present.is_some_and(|lease| lease.incarnation < shared.incarnation)
        {
            return None;
        }
        Lease::claim(present, owner, now.mono, policy.lease, shared.incarnation)
    }

    /// The message's concurrency key, if this worker may have it.
    fn admit(&self, frame: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        let Search { shared, worker, owner, policy, .. } = *self.search;
        let Some(concurrency) = &policy.concurrency else { return Ok(None) };
        // What does not decode is buried soon.
        let Some(key) = MessageRef::decode(frame).ok().and_then(|message| (concurrency.key)(message)) else {
            return Ok(None);
        };
        match shared.flow().admit(worker, owner, &key, concurrency.limit.max(1)) {
            true => Ok(Some(key)),
            false => Err(()),
        }
    }

    fn finish(self) -> Found {
        self.found
    }
}

fn deadline(rows: &dyn Rows, key: InboxKey) -> Result<Option<Timestamp>> {
    let value = rows.get(&DEADLINES, &InboxKey::encode(key))?;
    let damaged = || crate::Error::damaged("deadlines", "a moment of eight bytes");
    let decode = |value: &[u8]| value.try_into().map(i64::from_le_bytes).map(Timestamp).map_err(|_| damaged());
    value.map(|value| decode(&value)).transpose()
}

/// Stages the leases of these messages.
pub(crate) fn stage(change: &mut Change, claims: &[Claimed]) {
    for claimed in claims {
        let key = claimed.key_bytes();
        change.expect(INBOX, key.clone(), Seen::Present);
        change.expect(LEASES, key.clone(), claimed.prior.clone().map_or(Seen::Absent, Seen::Value));
        change.put(LEASES, key, claimed.lease.encode());
    }
}

/// Takes the leases of these messages out of a change again.
pub(crate) fn unstage(change: &mut Change, claims: &[Claimed]) {
    for claimed in claims {
        let key = claimed.key_bytes();
        for table in [INBOX, LEASES] {
            change.reads.get_mut(&table).and_then(|rows| rows.remove(&key));
        }
        change.writes.get_mut(&LEASES).and_then(|rows| rows.remove(&key));
    }
}
