//! Claiming: which messages a worker takes next, and the leases that say so.

use kauri_tree::Durability;
use kauri_wire::{InboxKey, Key, MessageRef, Seq, Timestamp, WorkerId};

use crate::dead_letter::Reason;
use crate::error::{Conflict, Result};
use crate::lease::{self, Lease};
use crate::policy::Policy;
use crate::runtime::{Shared, inbox_key, inbox_range};
use crate::schema::{DEADLINES, INBOX, LEASES, URGENT};
use crate::substrate::{Bytes, Change, KeyRange, Rows, Seen, SeenRange, Substrate, Verdict};
use crate::time::{Mono, Now};

/// A message that a worker has, or is about to have.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) key: InboxKey,
    pub(crate) frame: Vec<u8>,
    /// How often it was claimed, this time included.
    pub(crate) deliveries: u32,
    pub(crate) is_urgent: bool,
    pub(crate) deadline: Option<Timestamp>,
    /// It was claimed too often: it is buried and not run.
    pub(crate) doom: Option<Reason>,
    /// Its concurrency key.
    pub(crate) flow_key: Option<Vec<u8>>,
}

impl Claimed {
    pub(crate) fn key_bytes(&self) -> Bytes {
        InboxKey::with_bytes(self.key, |bytes| bytes.into())
    }
}

/// An instance's lease, and its row as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    pub(crate) row: Bytes,
}

/// The leases on one worker's messages.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    rows: Vec<LeaseRow>,
    /// Messages whose numbers follow each other and that are in one row, in order: instances claim what comes next, so there are few
    /// of these, however many messages are leased.
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: Seq,
    last: Seq,
    row: usize,
}

#[derive(Debug)]
struct LeaseRow {
    key: Bytes,
    row: Bytes,
    lease: Lease,
    seqs: Vec<Seq>,
}

impl Leases {
    pub(crate) fn read(rows: &dyn Rows, worker: WorkerId) -> Result<Self> {
        Self::read_others(rows, worker, None)
    }

    /// The leases of all instances but one.
    fn read_others(rows: &dyn Rows, worker: WorkerId, except: Option<u64>) -> Result<Self> {
        let (from, until) = inbox_range(worker);
        let mut scan = rows.scan(&LEASES, KeyRange { from: &from, until: until.as_deref() })?;
        let mut leases = Self::default();
        while let Some((key, row)) = scan.next()? {
            // A lease that does not decode is nobody's.
            let Ok((lease, seqs)) = lease::decode_row(&row) else { continue };
            if except == Some(lease.owner) {
                continue;
            }
            leases.add_spans(&seqs);
            leases.rows.push(LeaseRow { key: key[..].into(), row: row[..].into(), lease, seqs });
        }
        leases.spans.sort_unstable_by_key(|span| span.first);
        Ok(leases)
    }

    /// Adds the messages of the next row.
    fn add_spans(&mut self, seqs: &[Seq]) {
        let row = self.rows.len();
        for seq in seqs {
            match self.spans.last_mut() {
                Some(span) if span.row == row && span.last.0.checked_add(1) == Some(seq.0) => span.last = *seq,
                _ => self.spans.push(Span { first: *seq, last: *seq, row }),
            }
        }
    }

    /// The lease on a message.
    pub(crate) fn of(&self, key: InboxKey) -> Option<Lease> {
        self.row_of(key).map(|row| row.lease)
    }

    fn row_of(&self, key: InboxKey) -> Option<&LeaseRow> {
        self.spans_from(key).first().map(|span| &self.rows[span.row])
    }

    /// The span that a message is in, and those behind it; nothing if it is in none.
    fn spans_from(&self, key: InboxKey) -> &[Span] {
        let at = self.spans.partition_point(|span| span.last < key.seq);
        let spans = &self.spans[at..];
        if spans.first().is_some_and(|span| span.first <= key.seq) { spans } else { &[] }
    }

    /// How far messages are leased from this one on without a gap, by leases that are so; and when the first of those ends.
    fn reach(&self, key: InboxKey, is_so: impl Fn(&Lease) -> bool) -> Option<(Seq, Mono)> {
        let mut reached: Option<(Seq, Mono)> = None;
        for span in self.spans_from(key) {
            let lease = &self.rows[span.row].lease;
            let follows = reached.is_none_or(|(last, _)| last.0.checked_add(1) == Some(span.first.0));
            if !follows || !is_so(lease) {
                break;
            }
            reached = Some((span.last, reached.map_or(lease.deadline, |(_, ends)| ends.min(lease.deadline))));
        }
        reached
    }

    /// The row of an instance.
    pub(crate) fn held_by(&self, owner: u64) -> Option<(Held, &[Seq])> {
        let row = self.rows.iter().find(|row| row.lease.owner == owner)?;
        Some((Held { lease: row.lease, row: row.row.clone() }, &row.seqs))
    }

    /// Stages that a message is taken out of the lease it is in, and answers that lease.
    pub(crate) fn withdraw(&self, change: &mut Change, key: InboxKey) -> Option<Lease> {
        let row = self.row_of(key)?;
        change.expect(LEASES, row.key.clone(), Seen::of(Some(&row.row)));
        let left: Vec<Seq> = row.seqs.iter().copied().filter(|seq| *seq != key.seq).collect();
        match left.is_empty() {
            true => change.remove(LEASES, row.key.clone()),
            false => change.put(LEASES, row.key.clone(), lease::encode_row(&row.lease, left)),
        }
        Some(row.lease)
    }
}

/// Takes messages out of leases that are not in the inbox: whoever claimed them came too late, and died before it saw that. Nobody
/// would ever take them over.
pub(crate) fn forget_what_is_gone(substrate: &dyn Substrate) -> Result<()> {
    loop {
        let rows = substrate.snapshot()?;
        // If a crash takes it away, it is done again.
        let mut change = Change { base: rows.version(), durability: Durability::None, ..Change::default() };
        let mut scan = rows.scan(&LEASES, KeyRange::ALL)?;
        while let Some((key, row)) = scan.next()? {
            let (Ok(InboxKey { worker, .. }), Ok((lease, seqs))) = (inbox_key(&key), lease::decode_row(&row)) else {
                continue;
            };
            let mut left = Vec::with_capacity(seqs.len());
            for seq in &seqs {
                if rows.get(&INBOX, &InboxKey::encode(InboxKey { worker, seq: *seq }))?.is_some() {
                    left.push(*seq);
                }
            }
            if left.len() == seqs.len() {
                continue;
            }
            change.expect(LEASES, &key[..], Seen::of(Some(&row)));
            match left.is_empty() {
                true => change.remove(LEASES, &key[..]),
                false => change.put(LEASES, &key[..], lease::encode_row(&lease, left)),
            }
        }
        drop(scan);
        drop(rows);
        if change.is_empty() {
            return Ok(());
        }
        if let Verdict::Committed(_) = substrate.commit(&change.into())? {
            return Ok(());
        }
    }
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) claims: Vec<Claimed>,
    /// The lease that somebody else had on the one message found.
    prior: Option<Leases>,
    /// When there may be more: a lease of somebody else runs out, or the rate allows it.
    pub(crate) wake_at: Option<Mono>,
    /// Something waits for a concurrency key.
    pub(crate) is_flow_limited: bool,
    /// There may be more that others could claim.
    pub(crate) is_cut: bool,
}

impl Found {
    pub(crate) fn is_takeover(&self) -> bool {
        self.prior.is_some()
    }

    /// Takes out of a change what the conflict is about, if it is what was to be taken over.
    pub(crate) fn unstage(&self, change: &mut Change, conflict: &Conflict) -> bool {
        let Some(row) = self.prior.as_ref().zip(self.claims.first()).and_then(|(prior, first)| prior.row_of(first.key))
        else {
            return false;
        };
        let is_about = *conflict.table == *LEASES && conflict.key[..] == row.key[..];
        if is_about {
            change.reads.get_mut(&LEASES).and_then(|rows| rows.remove(&row.key));
            change.writes.get_mut(&LEASES).and_then(|rows| rows.remove(&row.key));
        }
        is_about
    }

    /// Stages the lease on what was found, in place of the one that the instance has.
    pub(crate) fn stage(&self, change: &mut Change, worker: WorkerId, lease: &Lease) -> Option<Held> {
        let first = self.claims.first()?;
        if let Some(prior) = &self.prior {
            prior.withdraw(change, first.key);
        }
        let lease = Lease { deliveries: first.deliveries, ..*lease };
        let row = Bytes::from(lease::encode_row(&lease, self.claims.iter().map(|claimed| claimed.key.seq)));
        change.put(LEASES, lease::row_key(worker, lease.owner), row.clone());
        Some(Held { lease, row })
    }
}

/// Demands that these messages are in the inbox. Numbers are never used twice, so if theirs follow each other it is enough that
/// there are as many rows from the first to the last.
///
/// Answers whether they are, in these rows.
pub(crate) fn expect_present(change: &mut Change, rows: &dyn Rows, claims: &[Claimed]) -> Result<bool> {
    let Some(first) = claims.iter().map(|claimed| claimed.key).min() else { return Ok(true) };
    let last = claims.iter().map(|claimed| claimed.key).max().unwrap_or(first);
    let from = Bytes::from(InboxKey::encode(first));
    let until = Bytes::from([&InboxKey::encode(last)[..], &[0]].concat());
    let count = rows.count(&INBOX, KeyRange { from: &from, until: Some(&until) })?;
    let is_unbroken = last.seq.0 - first.seq.0 + 1 == claims.len() as u64;
    if is_unbroken && count == claims.len() as u64 {
        change.ranges.push(SeenRange { table: INBOX, from, until: Some(until), rows: count, hash: None });
        return Ok(true);
    }
    for claimed in claims {
        let key = claimed.key_bytes();
        if rows.get(&INBOX, &key)?.is_none() {
            return Ok(false);
        }
        change.expect(INBOX, key, Seen::Present);
    }
    Ok(true)
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
    /// How many it wants at most.
    pub(crate) most: usize,
}

/// How many messages that cannot be claimed are looked past, beyond those that are leased.
const LOOK_PAST_MAX: usize = 256;

/// Fewer messages than these are passed one by one: finding a place anew costs more.
const SKIP_MIN: u64 = 8;

/// The state of one search.
struct Progress<'a> {
    search: &'a Search<'a>,
    leases: Leases,
    /// Ours already, or found a moment ago among the urgent ones, in order.
    taken: Vec<Seq>,
    has_deadlines: bool,
    most: usize,
    bytes: usize,
    looked: usize,
    found: Found,
    is_takeover: bool,
    /// Other instances have the same inbox.
    is_shared: bool,
}

enum Next {
    Go,
    /// Others have everything up to this one.
    GoBehind(Seq),
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
                    progress.found.is_cut = true;
                    return Ok(progress.finish());
                }
            }
        }
        let mut inbox = rows.scan(&INBOX, range)?;
        while let Some((key, frame)) = inbox.next()? {
            let key = inbox_key(&key)?;
            match progress.consider(rows, key, &frame, false)? {
                Next::Go => {}
                Next::GoBehind(seq) if seq.0.saturating_sub(key.seq.0) >= SKIP_MIN => {
                    let behind = [&InboxKey::encode(InboxKey { seq, ..key })[..], &[0]].concat();
                    inbox = rows.scan(&INBOX, KeyRange { from: &behind, until: range.until })?;
                }
                Next::GoBehind(_) => {}
                Next::Stop => {
                    progress.found.is_cut = true;
                    break;
                }
            }
        }
        Ok(progress.finish())
    }

    fn begin<'a>(&'a self, rows: &dyn Rows, range: KeyRange<'_>) -> Result<Result<Progress<'a>, Mono>> {
        let mut most = self.most;
        if let Some(rate) = self.policy.rate {
            match self.shared.flow().allowance(self.worker, rate, self.now.mono) {
                Ok(allowed) => most = most.min(allowed),
                Err(wake_at) => return Ok(Err(wake_at)),
            }
        }
        let mut taken: Vec<Seq> = self.held.iter().map(|claimed| claimed.key.seq).collect();
        taken.sort_unstable();
        Ok(Ok(Progress {
            search: self,
            // What this instance has is held, or was lost.
            leases: Leases::read_others(rows, self.worker, Some(self.owner))?,
            taken,
            has_deadlines: rows.count(&DEADLINES, range)? > 0,
            most,
            bytes: 0,
            looked: 0,
            found: Found::default(),
            is_takeover: false,
            is_shared: self.shared.flow().instances(self.worker) > 1,
        }))
    }

    /// The lease on whatever is claimed now.
    pub(crate) fn lease(&self) -> Lease {
        let deadline = self.now.mono + self.policy.lease;
        Lease { owner: self.owner, deadline, deliveries: 1, incarnation: self.shared.incarnation }
    }
}

impl Progress<'_> {
    fn consider(&mut self, rows: &dyn Rows, key: InboxKey, frame: &[u8], is_urgent: bool) -> Result<Next> {
        let search = self.search;
        if self.found.claims.len() >= self.most || self.looked > LOOK_PAST_MAX {
            return Ok(Next::Stop);
        }
        if self.taken.binary_search(&key.seq).is_ok() {
            return Ok(Next::Go);
        }
        let prior = self.leases.of(key);
        let Some(lease) = self.claim(prior) else {
            let reached = self.leases.reach(key, |lease| self.claim(Some(*lease)).is_none());
            let (last, deadline) = reached.unzip();
            self.found.wake_at = [self.found.wake_at, deadline].into_iter().flatten().min();
            return Ok(last.map_or(Next::Go, Next::GoBehind));
        };
        let is_first = self.found.claims.is_empty();
        let is_too_much = self.bytes.saturating_add(frame.len()) > search.policy.batch_bytes_max;
        if !is_first && (prior.is_some() || is_too_much) {
            return Ok(Next::Stop);
        }
        if self.is_shared
            && let Err(last) = search.shared.flow().reserve(key, search.owner, prior.is_some())
        {
            // Another instance is about to claim it, or has done so since this snapshot; with a lease that runs out like any other.
            let deadline = search.now.mono + search.policy.lease;
            self.found.wake_at = Some(self.found.wake_at.map_or(deadline, |wake_at| wake_at.min(deadline)));
            self.looked += 1;
            return Ok(Next::GoBehind(last));
        }
        let Ok(flow_key) = self.admit(frame) else {
            search.shared.flow().leave(key, search.owner, None);
            self.looked += 1;
            self.found.is_flow_limited = true;
            return Ok(Next::Go);
        };
        if is_urgent {
            let at = self.taken.partition_point(|seq| *seq < key.seq);
            self.taken.insert(at, key.seq);
        }
        let deadline = if self.has_deadlines { deadline(rows, key)? } else { None };
        let deliveries = lease.deliveries;
        let doom = (deliveries > search.policy.delivery_budget).then_some(Reason::DeliveriesSpent);
        self.bytes += frame.len();
        let frame = frame.to_vec();
        self.found.claims.push(Claimed { key, frame, deliveries, is_urgent, deadline, doom, flow_key });
        self.is_takeover = prior.is_some();
        Ok(if self.is_takeover { Next::Stop } else { Next::Go })
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
        Found { prior: self.is_takeover.then_some(self.leases), ..self.found }
    }
}

fn deadline(rows: &dyn Rows, key: InboxKey) -> Result<Option<Timestamp>> {
    let value = rows.get(&DEADLINES, &InboxKey::encode(key))?;
    let damaged = || crate::Error::damaged("deadlines", "a moment of eight bytes");
    let decode = |value: &[u8]| value.try_into().map(i64::from_le_bytes).map(Timestamp).map_err(|_| damaged());
    value.map(|value| decode(&value)).transpose()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WORKER: WorkerId = WorkerId(7);

    fn leases(rows: &[(u64, u64, &[u64])]) -> Leases {
        let mut leases = Leases::default();
        for (owner, deadline, seqs) in rows {
            let deadline = Mono(Duration::from_millis(*deadline));
            let lease = Lease { owner: *owner, deadline, deliveries: 1, incarnation: 1 };
            let seqs: Vec<Seq> = seqs.iter().copied().map(Seq).collect();
            leases.add_spans(&seqs);
            let row = lease::encode_row(&lease, seqs.iter().copied()).into();
            leases.rows.push(LeaseRow { key: Bytes::default(), row, lease, seqs });
        }
        leases.spans.sort_unstable_by_key(|span| span.first);
        leases
    }

    #[test]
    fn leases_are_found_by_message_and_reach_as_far_as_there_is_no_gap() {
        let leases = leases(&[(1, 50, &[4, 5, 6, 9]), (2, 40, &[1, 2]), (3, 30, &[7, 8]), (4, 20, &[3, 12])]);
        let key = |seq| InboxKey { worker: WORKER, seq: Seq(seq) };
        let owner = |seq| leases.of(key(seq)).map(|lease| lease.owner);
        let owners: Vec<Option<u64>> = (0..=13).map(owner).collect();
        let expected = [0, 2, 2, 4, 1, 1, 1, 3, 3, 1, 0, 0, 4, 0].map(|owner| (owner > 0).then_some(owner));
        assert_eq!(owners, expected);
        let reach =
            |seq, is_so: fn(&Lease) -> bool| leases.reach(key(seq), is_so).map(|(last, ends)| (last.0, ends.millis()));
        assert_eq!(reach(1, |_| true), Some((9, 20)));
        assert_eq!(reach(5, |_| true), Some((9, 30)));
        assert_eq!(reach(12, |_| true), Some((12, 20)));
        assert_eq!(reach(1, |lease| lease.owner != 3), Some((6, 20)), "one of them has run out");
        assert_eq!((reach(0, |_| true), reach(10, |_| true), reach(1, |_| false)), (None, None, None));
    }
}
