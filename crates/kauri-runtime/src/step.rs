//! Steps: a batch of messages is handled on one snapshot, and lands in one commit.
//!
//! Each message runs in a nest of its own, so one that fails takes nothing with it, and each sees what the ones before it wrote. The
//! commit demands that every lease is still ours and everything read is still so; it applies all writes, sends what was emitted,
//! arms timers, remembers ids, clears counters, removes the messages with their leases, requeues or buries what failed, and takes
//! the leases of the next batch.

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use kauri_wire::{Flags, Message, MessageId, MessageKind, MessageRef, Timestamp};

use crate::atomic::Atomic;
use crate::claim::Claimed;
use crate::dead_letter::{DeadLetter, HEADER_BYTES, Reason};
use crate::dedupe::{self, Failures, Handled};
use crate::error::Result;
use crate::handler::{Failure, Handler};
use crate::observe::{Observation, StepEnd};
use crate::policy::Policy;
use crate::read::Read;
use crate::runtime::{Shared, into_inbox, into_timers};
use crate::schema::{DEAD_LETTER, DEADLINES, DEDUPE, DEDUPE_EXPIRY, INBOX, URGENT};
use crate::substrate::{Bytes, Change, Rows, Seen, Writes, clip};

/// How a message's pass came out, before anything is committed.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done,
    Duplicate,
    Failed { why: Box<str>, retryable: bool },
    Doomed { reason: Reason, why: Box<str> },
}

/// A message's pass.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    pub(crate) writes: Option<Writes>,
}

/// Runs one message in a nest of its own.
///
/// # Errors
/// Only if the runtime itself failed.
pub(crate) fn run(
    shared: &Shared,
    policy: &Policy,
    handler: &mut dyn Handler,
    block: &mut Atomic<'_>,
    claimed: &Claimed,
) -> Result<(Outcome, Option<Writes>)> {
    let doomed = |reason, why: &dyn ToString| Ok((Outcome::Doomed { reason, why: why.to_string().into() }, None));
    let message = match MessageRef::decode(&claimed.frame) {
        Ok(message) => message,
        Err(error) => return doomed(Reason::Undecodable, &error),
    };
    if message.to() != claimed.key.worker {
        return doomed(Reason::WrongWorker, &format!("it is for worker {}", message.to()));
    }
    if let Some(reason) = claimed.doom {
        return doomed(reason, &format!("claimed {} times before", claimed.deliveries - 1));
    }
    if claimed.deadline.is_some_and(|deadline| block.now().wall >= deadline) {
        return doomed(Reason::Expired, &"nobody had begun it when its deadline came");
    }
    match find_handled(block, message)? {
        Some(true) => return Ok((Outcome::Duplicate, None)),
        Some(false) => return doomed(Reason::OtherPayload, &"the first one with this id had other bytes"),
        None => {}
    }
    if shared.has_observers() {
        let (key, delivery) = (claimed.key, claimed.deliveries);
        shared.observe(&Observation::StepBegan { key, delivery, frame: &claimed.frame });
    }
    let depth = block.depth();
    block.enter();
    let result = catch_unwind(AssertUnwindSafe(|| handler.handle(block, message)))
        .unwrap_or_else(|panic| Err(Failure::Fatal(panic_words("the handler", &*panic))));
    let result = result.and_then(|()| Ok(conclude(block, policy, message)?));
    match result {
        Ok(()) => {
            let writes = shared.wants_writes().then(|| block.top().writes.clone());
            block.merge_to(depth);
            Ok((Outcome::Done, writes))
        }
        Err(failure) => {
            block.vanish_to(depth);
            match failure {
                Failure::Retry(why) => Ok((Outcome::Failed { why, retryable: true }, None)),
                Failure::Fatal(why) => Ok((Outcome::Failed { why, retryable: false }, None)),
                Failure::Runtime(error) => Err(error),
            }
        }
    }
}

pub(crate) fn panic_words(who: &str, panic: &(dyn Any + Send)) -> Box<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("{who} panicked: {}", text.unwrap_or("without a word")).into()
}

/// Whether the message's id was handled before: with the same payload, or with another.
fn find_handled(block: &Atomic<'_>, message: MessageRef<'_>) -> Result<Option<bool>> {
    if !message.flags().contains(Flags::DEDUPE_REQUIRED) {
        return Ok(None);
    }
    let Some(bytes) = block.row(&DEDUPE, &Handled::key(&block.setting().takes, message))? else { return Ok(None) };
    let handled = Handled::decode(&bytes)?;
    // What has expired is forgotten, swept or not.
    Ok((block.now().wall < handled.expires).then(|| handled.is_same(message)))
}

/// What a message that was handled wants besides: that its id be remembered, and that its sender be told.
fn conclude(block: &mut Atomic<'_>, policy: &Policy, message: MessageRef<'_>) -> Result<()> {
    if message.flags().contains(Flags::DEDUPE_REQUIRED) {
        let now = block.now().wall;
        let kept = i64::try_from(policy.dedupe_for.as_millis()).unwrap_or(i64::MAX);
        let handled = Handled::new(message, now, Timestamp(now.0.saturating_add(kept)));
        let key = Handled::key(&block.setting().takes, message);
        block.stage(&DEDUPE, &key, Some(&handled.encode()))?;
        block.stage(&DEDUPE_EXPIRY, &handled.expiry_key(&key), Some(&[]))?;
    }
    if message.flags().contains(Flags::REQUIRES_ACK) {
        block.pass_on(&acknowledgement(message)?, None)?;
    }
    Ok(())
}

/// The news that a message was handled: an event to its sender, or along its route, with the id `ack:` and the message's.
fn acknowledgement(message: MessageRef<'_>) -> Result<Message> {
    let to = message.from().unwrap_or(message.route().worker);
    let id = MessageId::new([b"ack:", message.id()].concat())?;
    let ack = Message::new(MessageKind::Event, to, id, Vec::new()).sent_by(message.to());
    let ack = ack.routed(message.route().worker, message.route().timestamp);
    Ok(match message.trace() {
        Some(trace) => ack.traced(kauri_wire::TraceId::new(trace)),
        None => ack,
    })
}

/// What becomes of messages: rows in a change.
pub(crate) struct Disposal<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) policy: &'a Policy,
    pub(crate) rows: &'a dyn Rows,
    pub(crate) change: &'a mut Change,
    pub(crate) now: Timestamp,
    /// Retry counters made, less those removed.
    pub(crate) counters: i64,
}

impl Disposal<'_> {
    /// Stages that these messages are in the inbox no longer.
    pub(crate) fn end(&mut self, claims: &[Claimed]) {
        self.change.writes.entry(INBOX).or_default().extend(claims.iter().map(|claimed| (claimed.key_bytes(), None)));
    }

    /// Stages what becomes of a message that is ended.
    pub(crate) fn dispose(&mut self, claimed: &Claimed, outcome: Outcome) -> Result<StepEnd> {
        if claimed.is_urgent || is_urgent(&claimed.frame) {
            self.change.remove(URGENT, claimed.key_bytes());
        }
        if claimed.deadline.is_some() {
            self.change.remove(DEADLINES, claimed.key_bytes());
        }
        match outcome {
            Outcome::Done => {
                self.count(claimed, Count::Clear)?;
                Ok(StepEnd::Done)
            }
            Outcome::Duplicate => {
                self.count(claimed, Count::Clear)?;
                Ok(StepEnd::Duplicate)
            }
            Outcome::Failed { why, retryable } => self.fail(claimed, why, retryable),
            Outcome::Doomed { reason, why } => Ok(self.bury(claimed, reason, why, 0)),
        }
    }

    fn fail(&mut self, claimed: &Claimed, why: Box<str>, retryable: bool) -> Result<StepEnd> {
        let (failures, budget, reason) = if retryable {
            let failures = self.count(claimed, Count::Retryable)?.retryable;
            (failures, self.policy.retry_budget, Reason::RetriesSpent)
        } else {
            let failures = self.count(claimed, Count::Fatal)?.fatal;
            (failures, self.policy.failure_budget, Reason::FailuresSpent)
        };
        if failures >= budget {
            self.count(claimed, Count::Clear)?;
            return Ok(self.bury(claimed, reason, why, failures));
        }
        let wait = self.shared.wait_after(self.policy, failures);
        let (to, frame) = (claimed.key.worker, claimed.frame.clone());
        self.change.appends.push(if wait.is_zero() {
            let flags = MessageRef::decode(&frame)?.flags();
            into_inbox(to, flags, frame, claimed.deadline)
        } else {
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1);
            into_timers(Timestamp(self.now.0.saturating_add(wait).max(0)), frame, claimed.deadline)
        });
        Ok(StepEnd::Requeued { reason: why, retryable, failures })
    }

    pub(crate) fn bury(&mut self, claimed: &Claimed, reason: Reason, why: Box<str>, failures: u32) -> StepEnd {
        let room = self.shared.takes.value_bytes_max.saturating_sub(HEADER_BYTES + claimed.frame.len());
        let letter = DeadLetter {
            reason,
            detail: clip(&why, room).into_owned(),
            failed_at: self.now,
            deliveries: claimed.deliveries,
            failures,
            frame: claimed.frame.clone(),
        };
        self.change.put(DEAD_LETTER, claimed.key_bytes(), letter.encode());
        StepEnd::Buried { reason, detail: why, failures }
    }

    /// Changes the failures counted for a message, and answers how many there are then.
    fn count(&mut self, claimed: &Claimed, count: Count) -> Result<Failures> {
        if count == Count::Clear && self.counters == 0 && self.shared.retries.load(Ordering::Relaxed) == 0 {
            // There is no counter at all.
            return Ok(Failures::default());
        }
        let Ok(message) = MessageRef::decode(&claimed.frame) else { return Ok(Failures::default()) };
        let (key, worker) = (dedupe::retry_key(&self.shared.takes, message.id()), claimed.key.worker);
        let staged = self.change.writes.get(&DEDUPE).and_then(|rows| rows.get(&key[..])).cloned();
        let is_staged = staged.is_some();
        let before = match staged {
            Some(value) => value.map(|value| value.to_vec()),
            None => self.rows.get(&DEDUPE, &key)?.map(Cow::into_owned),
        };
        let failures = count.apply(dedupe::failures(before.as_deref(), worker)?);
        let after = dedupe::with_failures(before.as_deref(), worker, failures);
        if after != before {
            if !is_staged {
                self.change.expect(DEDUPE, &key[..], Seen::of(before.as_deref()));
            }
            self.counters += i64::from(after.is_some()) - i64::from(before.is_some());
            self.change.writes.entry(DEDUPE).or_default().insert(key.into(), after.map(Bytes::from));
        }
        Ok(failures)
    }
}

/// What is done to the count of a message's failures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Clear,
    Retryable,
    Fatal,
}

impl Count {
    fn apply(self, before: Failures) -> Failures {
        match self {
            Self::Clear => Failures::default(),
            Self::Retryable => Failures { retryable: before.retryable.saturating_add(1), ..before },
            Self::Fatal => Failures { fatal: before.fatal.saturating_add(1), ..before },
        }
    }
}

pub(crate) fn is_urgent(frame: &[u8]) -> bool {
    MessageRef::decode(frame).is_ok_and(|message| message.flags().contains(Flags::HIGH_PRIORITY))
}
