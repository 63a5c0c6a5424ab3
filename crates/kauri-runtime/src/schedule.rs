//! Schedules: messages that recur, by a cron expression or at an interval.
//!
//! ```text
//!  0            8           12           16
//!  | next i64   | kind u32  | words u32  | cron expression or milliseconds, as text | message frame |
//! ```
//!
//! Little-endian; bit 8 of the kind says that every slot counts. A slot is a moment at which the message is due. It fires in the commit
//! that moves the schedule to its next slot, so each slot fires once, whatever crashes; the message's id is the schedule's name, `@`
//! and the slot in milliseconds.
//!
//! After a pause (nobody ran, or the clock jumped forward) several slots may have come: [`CatchUp`] says what happens then. If the
//! clock jumps back, nothing fires again: the next slot stays where it is.

use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use jiff::tz::TimeZone;
use kauri_wire::{Message, MessageId, MessageRef, Timestamp};

use crate::error::{Error, Result};
use crate::keys;
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::runtime::{Runtime, Shared, into_inbox, into_outbox};
use crate::schema::{SCHEDULE_DUE, SCHEDULES};
use crate::substrate::{Change, KeyRange, Rows, Seen};

/// When a schedule's slots are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// At the moments of a cron expression, in UTC: five fields, or six with seconds first.
    Cron(String),
    /// At fixed distances, the first one distance from now; at least a millisecond.
    Every(Duration),
}

/// What happens when several slots have come at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CatchUp {
    /// The latest of them fires, once; the others are left out.
    #[default]
    Latest,
    /// Each of them fires, in order.
    Every,
}

/// A schedule, as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// When its slots are.
    pub when: When,
    /// What happens when several have come.
    pub catch_up: CatchUp,
    /// The next one; `None` if there is none any more.
    pub next: Option<Timestamp>,
    /// The message, whose id is replaced in each slot.
    pub frame: Vec<u8>,
}

const HEADER_BYTES: usize = 16;
const NEVER: i64 = i64::MAX;
const EVERY_SLOT: u32 = 1 << 8;
/// The begin of 2026: who asks from then on whether a cron expression has slots asks the same at any time.
const LONG_SINCE: Timestamp = Timestamp(1_767_225_600_000);

impl When {
    /// The first slot after this moment.
    fn after(&self, moment: Timestamp) -> Result<Option<Timestamp>> {
        match self {
            Self::Every(distance) => Ok(moment.0.checked_add(millis(*distance)).map(Timestamp)),
            Self::Cron(words) => {
                let found = cron(words)?.find_next_occurrence(&zoned(moment)?, false);
                Ok(found.ok().map(|found| Timestamp(found.timestamp().as_millisecond())))
            }
        }
    }

    /// The latest slot that is not after `now`, given one that is not.
    fn latest(&self, slot: Timestamp, now: Timestamp) -> Result<Timestamp> {
        match self {
            Self::Every(distance) => {
                let distance = millis(*distance);
                Ok(Timestamp(slot.0 + now.0.saturating_sub(slot.0) / distance * distance))
            }
            Self::Cron(words) => {
                let found = cron(words)?.find_previous_occurrence(&zoned(now)?, true);
                let found = found.map_or(slot.0, |found| found.timestamp().as_millisecond());
                Ok(Timestamp(found.max(slot.0)))
            }
        }
    }

    /// Whether it has slots.
    ///
    /// # Errors
    /// `Schedule` if it has none, or is no cron expression.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Every(distance) if distance.as_millis() == 0 => {
                Err(Error::Schedule("expected an interval of a millisecond at least, found less".into()))
            }
            Self::Every(_) => Ok(()),
            Self::Cron(words) => match self.after(LONG_SINCE)? {
                Some(_) => Ok(()),
                None => Err(Error::Schedule(
                    format!("expected a cron expression whose moment comes, found {words:?}, which has none").into(),
                )),
            },
        }
    }
}

fn millis(distance: Duration) -> i64 {
    i64::try_from(distance.as_millis()).unwrap_or(i64::MAX).max(1)
}

fn cron(words: &str) -> Result<Cron> {
    let refused = |error| Error::Schedule(format!("expected a cron expression, found {words:?}: {error}").into());
    Cron::from_str(words).map_err(refused)
}

fn zoned(moment: Timestamp) -> Result<jiff::Zoned> {
    let stamp = jiff::Timestamp::from_millisecond(moment.0);
    let stamp = stamp.map_err(|error| Error::Schedule(format!("the moment has no date: {error}").into()))?;
    Ok(stamp.to_zoned(TimeZone::UTC))
}

impl Schedule {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, words) = match &self.when {
            When::Cron(words) => (0, words.clone()),
            When::Every(distance) => (1, millis(*distance).to_string()),
        };
        let kind: u32 = if self.catch_up == CatchUp::Every { kind | EVERY_SLOT } else { kind };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + words.len() + self.frame.len());
        bytes.extend(self.next.map_or(NEVER, |next| next.0).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u32::try_from(words.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(words.as_bytes());
        bytes.extend(&self.frame);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("schedules", "a schedule");
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(damaged)?;
        let next = i64::from_le_bytes(std::array::from_fn(|at| header[at]));
        let short = |from: usize| u32::from_le_bytes(std::array::from_fn(|at| header[from + at]));
        let words = usize::try_from(short(12)).map_err(|_| damaged())?;
        let (words, frame) = rest.split_at_checked(words).ok_or_else(damaged)?;
        let words = std::str::from_utf8(words).map_err(|_| damaged())?.to_owned();
        let when = match short(8) & !EVERY_SLOT {
            0 => When::Cron(words),
            1 => When::Every(Duration::from_millis(words.parse().map_err(|_| damaged())?)),
            _ => return Err(damaged()),
        };
        let catch_up = if short(8) & EVERY_SLOT == 0 { CatchUp::Latest } else { CatchUp::Every };
        let next = (next != NEVER).then_some(Timestamp(next));
        Ok(Self { when, catch_up, next, frame: frame.to_vec() })
    }

    fn due_key(&self, name: &str) -> Option<Vec<u8>> {
        Some([&self.next?.0.max(0).to_be_bytes()[..], name.as_bytes()].concat())
    }
}

impl Runtime {
    /// Makes a schedule, or replaces the one of this name. Its message's id is replaced in each slot by the name, `@` and the slot.
    ///
    /// # Errors
    /// `Schedule` if it has no slots; or if the name or the message is too long, or the substrate fails.
    pub fn schedule(&self, name: &str, when: &When, catch_up: CatchUp, message: &Message) -> Result<Schedule> {
        when.check()?;
        keys::check_schedule(&self.shared.takes, name)?;
        let next = when.after(self.shared.clock.now().wall)?;
        let schedule = Schedule { when: when.clone(), catch_up, next, frame: message.encode()? };
        self.shared.commit_until(|rows| {
            let mut change = Change::default();
            forget(rows, &mut change, name)?;
            change.put(SCHEDULES, name.as_bytes(), schedule.encode());
            if let Some(key) = schedule.due_key(name) {
                change.put(SCHEDULE_DUE, key, []);
            }
            Ok(Some((change, ())))
        })?;
        Ok(schedule)
    }

    /// Ends a schedule, and tells whether there was one. What has fired stays.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn unschedule(&self, name: &str) -> Result<bool> {
        let done = self.shared.commit_until(|rows| {
            let mut change = Change::default();
            Ok(forget(rows, &mut change, name)?.then_some((change, ())))
        })?;
        Ok(done.is_some())
    }

    /// The schedules, by name.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn schedules(&self) -> Result<Vec<(String, Schedule)>> {
        let rows = self.shared.substrate.snapshot()?;
        let mut scan = rows.scan(&SCHEDULES, KeyRange::ALL)?;
        let mut all = Vec::new();
        while let Some((name, value)) = scan.next()? {
            all.push((String::from_utf8_lossy(&name).into_owned(), Schedule::decode(&value)?));
        }
        Ok(all)
    }
}

/// Stages the removal of a schedule, if there is one.
fn forget(rows: &dyn Rows, change: &mut Change, name: &str) -> Result<bool> {
    let before = rows.get(&SCHEDULES, name.as_bytes())?;
    change.expect(SCHEDULES, name.as_bytes(), Seen::of(before.as_deref()));
    let Some(before) = before else { return Ok(false) };
    change.remove(SCHEDULES, name.as_bytes());
    if let Some(key) = Schedule::decode(&before)?.due_key(name) {
        change.remove(SCHEDULE_DUE, key);
    }
    Ok(true)
}

/// Fires up to `most` slots that have come.
pub(crate) fn fire_due(shared: &Shared, now: Timestamp, most: usize) -> Result<usize> {
    let mut fired = 0;
    while fired < most {
        let done = shared.commit_until(|rows| fire_first(shared, rows, now))?;
        let Some((_, (name, slot))) = done else { break };
        shared.metrics.add(Counter::SchedulesFired, 1);
        shared.observe(&Observation::ScheduleFired { name: &name, slot });
        fired += 1;
    }
    Ok(fired)
}

/// Stages the slot that came first.
fn fire_first(shared: &Shared, rows: &dyn Rows, now: Timestamp) -> Result<Option<(Change, (String, Timestamp))>> {
    let Some(until) = now.0.checked_add(1).filter(|until| *until > 0).map(i64::to_be_bytes) else { return Ok(None) };
    let mut scan = rows.scan(&SCHEDULE_DUE, KeyRange { from: &[], until: Some(&until) })?;
    let Some((key, _)) = scan.next()? else { return Ok(None) };
    let damaged = || Error::damaged("schedule_due", "a moment and the name of a schedule");
    let (due, name) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
    let name = std::str::from_utf8(name).map_err(|_| damaged())?.to_owned();
    let value = rows.get(&SCHEDULES, name.as_bytes())?.ok_or_else(damaged)?;
    let mut schedule = Schedule::decode(&value)?;
    let first = Timestamp(i64::from_be_bytes(*due));
    let slot = match schedule.catch_up {
        CatchUp::Every => first,
        CatchUp::Latest => schedule.when.latest(first, now)?,
    };
    let mut change = Change::default();
    change.expect(SCHEDULES, name.as_bytes(), Seen::of(Some(&value)));
    change.expect(SCHEDULE_DUE, &key[..], Seen::Present);
    change.remove(SCHEDULE_DUE, &key[..]);
    schedule.next = schedule.when.after(slot)?;
    if let Some(key) = schedule.due_key(&name) {
        change.put(SCHEDULE_DUE, key, []);
    }
    change.put(SCHEDULES, name.as_bytes(), schedule.encode());
    let mut message = MessageRef::decode(&schedule.frame)?.to_message();
    message.id = MessageId::new(format!("{name}@{}", slot.0))?;
    let frame = message.encode()?;
    change.appends.push(match shared.is_elsewhere(message.to) {
        true => into_outbox(frame),
        false => into_inbox(message.to, message.flags, frame, None),
    });
    Ok(Some((change, (name, slot))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(when: &When, moment: i64, next: Option<i64>) {
        assert_eq!(when.after(Timestamp(moment)).unwrap(), next.map(Timestamp), "{when:?} after {moment}");
    }

    #[test]
    fn cron_slots_are_in_utc_and_strictly_later() {
        let hourly = When::Cron("0 * * * *".to_owned());
        check(&hourly, 0, Some(3_600_000));
        check(&hourly, 3_599_999, Some(3_600_000));
        check(&hourly, 3_600_000, Some(7_200_000));
        check(&When::Cron("30 4 29 2 *".to_owned()), 1_767_225_600_000, Some(1_835_411_400_000));
    }

    #[test]
    fn latest_slot_is_found_without_walking_through_all() {
        let minute = When::Every(Duration::from_secs(60));
        assert_eq!(
            minute.latest(Timestamp(10), Timestamp(10 + 86_400_000 + 59_999)).unwrap(),
            Timestamp(10 + 86_400_000)
        );
        let hourly = When::Cron("0 * * * *".to_owned());
        assert_eq!(hourly.latest(Timestamp(3_600_000), Timestamp(86_400_001)).unwrap(), Timestamp(86_400_000));
    }

    #[test]
    fn what_is_no_schedule_is_refused_in_words() {
        let crons =
            ["every day", "61 * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"].map(|words| When::Cron(words.into()));
        for bad in [When::Every(Duration::ZERO)].into_iter().chain(crons) {
            assert!(matches!(bad.check(), Err(Error::Schedule(_))), "{bad:?}");
        }
    }

    #[test]
    fn schedules_survive_the_trip() {
        let schedule = Schedule {
            when: When::Every(Duration::from_millis(1500)),
            catch_up: CatchUp::Every,
            next: Some(Timestamp(7)),
            frame: b"frame".to_vec(),
        };
        assert_eq!(Schedule::decode(&schedule.encode()).unwrap(), schedule);
        let ended = Schedule { next: None, when: When::Cron("0 0 1 1 *".to_owned()), ..schedule };
        assert_eq!(Schedule::decode(&ended.encode()).unwrap(), ended);
        assert!(Schedule::decode(b"short").is_err());
    }
}
