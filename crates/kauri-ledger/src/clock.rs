//! Time, as the ledger is told it: a wall clock for people, and pauses.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAY_MS: i64 = 86_400_000;

/// Tells the time and lets time pass.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Returns when about this much time has passed.
    fn pause(&self, time: Duration);
}

/// Milliseconds since 1970 in UTC, written as `2026-02-21T09:30:00.123Z`.
///
/// ```
/// use kauri_ledger::Timestamp;
///
/// let time = Timestamp(1_771_666_200_123);
/// assert_eq!(time.to_string(), "2026-02-21T09:30:00.123Z");
/// assert_eq!("2026-02-21T09:30:00.123Z".parse(), Ok(time));
/// assert_eq!(time.day(), "2026-02-21");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub i64);

/// A text that is no time in UTC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTimestamp(String);

impl Timestamp {
    /// The day in UTC, as `2026-02-21`.
    #[must_use]
    pub fn day(self) -> String {
        let (year, month, day) = civil(self.0.div_euclid(DAY_MS));
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// How long ago `earlier` was, nothing if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_day = self.0.rem_euclid(DAY_MS);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, ms) = (of_day / 1_000 % 60, of_day % 1_000);
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", self.day())
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        parse(text).ok_or_else(|| BadTimestamp(text.chars().take(64).collect()))
    }
}

/// `YYYY-MM-DDThh:mm:ss[.f...]Z`: what this crate writes, and what others write in UTC.
fn parse(text: &str) -> Option<Timestamp> {
    if let Some(time) = parse_ours(text.as_bytes()) {
        return Some(time);
    }
    let (date, rest) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let numbers = |text: &str, separator| text.split(separator).map(digits).collect::<Option<Vec<i64>>>();
    let [year, month, day] = numbers(date, '-')?[..] else { return None };
    let [hour, minute, second] = numbers(time, ':')?[..] else { return None };
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    let days = Some(days(year, month, day)).filter(|days| in_range && civil(*days) == (year, month, day))?;
    let ms = digits(fraction).map(|_| format!("{fraction:0<3}")).and_then(|text| digits(text.get(..3)?))?;
    Some(Timestamp(days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1_000 + ms))
}

/// Exactly the form that this crate writes: a journal of a million lines has a million of them.
fn parse_ours(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let [_, _, _, _, b'-', _, _, b'-', _, _, b'T', _, _, b':', _, _, b':', _, _, b'.', _, _, _, b'Z'] = text else {
        return None;
    };
    let number = |range: std::ops::Range<usize>| {
        text[range].iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second, ms) = (number(11..13)?, number(14..16)?, number(17..19)?, number(20..23)?);
    let in_range = (1..=12).contains(&month) && (1..=28).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let of_day = hour * 3_600_000 + minute * 60_000 + second * 1_000 + ms;
    // Days that not every month has are left to the longer way.
    in_range.then(|| Timestamp(days(year, month, day) * DAY_MS + of_day))
}

fn digits(text: &str) -> Option<i64> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Days since 1970 as year, month and day. Years begin in March here, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_era_year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_year + of_era_year / 4 - of_era_year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + of_era_year + i64::from(month <= 2), month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era_year) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era_year * 365 + of_era_year / 4 - of_era_year / 100 + of_year - 719_468
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for BadTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a time such as 2026-02-21T09:30:00.123Z, found {:?}", self.0)
    }
}

impl std::error::Error for BadTimestamp {}

/// The clock of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "this is the edge: here the ledger meets the system's clock")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that goes on only when it is told to, or when somebody pauses: for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    paused_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at this time.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(now.0), paused_ms: AtomicI64::new(0) }
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.now_ms.fetch_add(millis(time), Ordering::SeqCst);
    }

    /// How long callers have paused in all.
    #[must_use]
    pub fn paused(&self) -> Duration {
        Duration::from_millis(self.paused_ms.load(Ordering::SeqCst).unsigned_abs())
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.load(Ordering::SeqCst))
    }

    fn pause(&self, time: Duration) {
        self.paused_ms.fetch_add(millis(time), Ordering::SeqCst);
        self.advance(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_eight_centuries_is_read_back() {
        for day in -146_097..146_097 {
            let time = Timestamp(day * DAY_MS + (day * 7_919).rem_euclid(DAY_MS));
            assert_eq!(time.to_string().parse(), Ok(time), "{time}");
        }
    }

    #[test]
    fn days_follow_the_calendar() {
        let check = |ms, text: &str| assert_eq!(Timestamp(ms).to_string(), text);
        check(0, "1970-01-01T00:00:00.000Z");
        check(-1, "1969-12-31T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(4_107_542_399_999, "2100-02-28T23:59:59.999Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn other_texts_are_no_times() {
        for bad in ["", "Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01"] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
        for bad in ["2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "+026-01-01T00:00:00Z", "2026-01-01T00:00Z"] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(Timestamp(1_000)));
        assert_eq!("1970-01-01T00:00:00.123456Z".parse(), Ok(Timestamp(123)));
    }

    #[test]
    fn pauses_pass_on_a_manual_clock_at_once() {
        let clock = ManualClock::new(Timestamp(5));
        clock.pause(Duration::from_secs(3));
        clock.advance(Duration::from_millis(1));
        assert_eq!((clock.now(), clock.paused()), (Timestamp(3_006), Duration::from_secs(3)));
    }
}
