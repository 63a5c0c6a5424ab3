//! Jobs that recur: a schedule's message carries what is to be submitted, and whoever drives runs submits it.
//!
//! ```text
//!  0      4          5          21               25
//!  | SUB0 | flags u8 | gate 16  | gate limit u32 | length u32, class | length u32, input | tags u32 | length u32, tag ... |
//! ```
//!
//! Flag 1 is urgent, 2 that there is a gate. The message's id, the schedule's name with `@` and the slot, is the job's key: so each slot
//! is submitted once, however often its message is delivered.

use kauri_wire::{Flags, Message, MessageId, MessageRef};

use super::codec::{Reader, Writer};
use super::fault::RunFault;
use super::index::Gate;
use super::job::Submission;
use super::make;
use super::runs::{Runs, check_name};
use super::submit;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::runtime::Shared;
use crate::schedule::{CatchUp, Schedule, When};

const MAGIC: [u8; 4] = *b"SUB0";
const URGENT: u8 = 1;
const GATED: u8 = 2;

/// The longest name: with a slot after it, it is still a key.
const NAME_BYTES_MAX: usize = 150;

impl Runs {
    /// Submits a job in each slot of a schedule, or replaces the schedule of this name. [`Runtime::unschedule`] ends it.
    ///
    /// [`Runtime::unschedule`]: crate::Runtime::unschedule
    ///
    /// # Errors
    /// `Schedule` if it has no slots, or the submission has what only one job can have: ids, a key, a time, a deadline, jobs to wait for.
    /// `NoClass`, `Name`, or if the substrate fails.
    pub fn schedule(&self, name: &str, when: &When, catch_up: CatchUp, job: &Submission) -> Result<Schedule> {
        let message = self.slot_message(name, job)?;
        self.runtime().schedule(name, when, catch_up, &message)
    }

    /// As [`schedule`](Self::schedule), but a schedule that is the same stays as it is, with its next slot: whoever says this at each
    /// start loses no slot. Tells whether it was another, or none.
    ///
    /// # Errors
    /// As for `schedule`.
    pub fn keep_schedule(&self, name: &str, when: &When, catch_up: CatchUp, job: &Submission) -> Result<bool> {
        let message = self.slot_message(name, job)?;
        let frame = message.encode()?;
        let is_same =
            |schedule: &Schedule| schedule.when == *when && schedule.catch_up == catch_up && schedule.frame == frame;
        if self.runtime().schedules()?.iter().any(|(found, schedule)| found == name && is_same(schedule)) {
            return Ok(false);
        }
        self.runtime().schedule(name, when, catch_up, &message)?;
        Ok(true)
    }

    fn slot_message(&self, name: &str, job: &Submission) -> Result<Message> {
        check_name("a schedule's name", name)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(RunFault::Name { of: "a schedule's name", most: NAME_BYTES_MAX, found: name.len() }.into());
        }
        let is_single = job.job.is_some() || job.run.is_some() || job.unique.is_some();
        if is_single || job.at.is_some() || job.deadline.is_some() || !job.after.is_empty() {
            let words =
                "expected a submission that many jobs can share, found an id, a key, a moment or a job to wait for";
            return Err(Error::Schedule(words.into()));
        }
        let worker = self.read(|view| make::class(view, &job.class))?.class.worker;
        Ok(Message::command(worker, MessageId::new(name)?, encode(job)).with(Flags::DURABLE))
    }
}

fn encode(job: &Submission) -> Vec<u8> {
    let flags = (u8::from(job.is_urgent) * URGENT) | (u8::from(job.gate.is_some()) * GATED);
    let (gate, limit) = job.gate.unwrap_or((Gate([0; 16]), 0));
    let mut row = Writer::new(MAGIC);
    row.byte(flags).raw(&gate.0).short(limit).bytes(job.class.as_bytes()).bytes(&job.input);
    row.short(u32::try_from(job.tags.len()).unwrap_or(0));
    for tag in &job.tags {
        row.bytes(tag.as_bytes());
    }
    row.finish()
}

fn decode(payload: &[u8]) -> Option<Submission> {
    let mut row = Reader::new(payload, MAGIC)?;
    let (flags, gate, limit) = (row.byte()?, Gate(row.array()?), row.short()?);
    let mut job = Submission::new(row.text()?, row.bytes()?);
    for _ in 0..row.short()? {
        job.tags.push(row.text()?.into());
    }
    row.end()?;
    job.is_urgent = flags & URGENT != 0;
    job.gate = (flags & GATED != 0).then_some((gate, limit));
    Some(job)
}

/// Stages the job that a schedule's message carries. Tells whether it carried one.
pub(super) fn submit_slot(block: &mut Atomic<'_>, shared: &Shared, message: MessageRef<'_>) -> Result<bool> {
    let Some(job) = decode(message.payload()) else { return Ok(false) };
    let job = job.once(format!("schedule:{}", String::from_utf8_lossy(message.id())));
    // Nothing is staged of what is refused: the message is buried then.
    match submit::check_submission(&job).and_then(|()| submit::stage_submission(block, shared, &job)) {
        Ok(_) => Ok(true),
        Err(Error::Run(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_slot_carries_survives_the_trip_and_other_bytes_are_refused() {
        let job = Submission::new("work", "input").tag("a").tag("b").urgent().some_at_a_time("k", 3);
        let bytes = encode(&job);
        let found = decode(&bytes).unwrap();
        assert_eq!((found.class, found.input, found.tags), (job.class, job.input, job.tags));
        assert_eq!((found.is_urgent, found.gate), (true, job.gate));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_none(), "{length} bytes");
        }
    }
}
