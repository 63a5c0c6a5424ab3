//! Names of things: workers, sequence numbers, moments, messages, traces, runs and jobs.

use alloc::boxed::Box;
use alloc::string::String;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use uuid::Uuid;

use crate::error::{self, Found, WireError};

/// A worker: the owner of one inbox.
///
/// Signed in frames, and the same 64 bits unsigned in keys. Ids are ordered as their keys are,
/// so a negative id comes after every positive one.
///
/// ```
/// use kauri_wire::WorkerId;
///
/// let mut workers = [WorkerId(-1), WorkerId(7), WorkerId(0)];
/// workers.sort();
/// assert_eq!(workers, [WorkerId(0), WorkerId(7), WorkerId(-1)]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WorkerId(pub i64);

impl WorkerId {
    /// The id as the unsigned number that stands in keys.
    ///
    /// ```
    /// use kauri_wire::WorkerId;
    ///
    /// assert_eq!(WorkerId(7).key_bits(), 7);
    /// assert_eq!(WorkerId(-1).key_bits(), u64::MAX);
    /// ```
    #[must_use]
    pub const fn key_bits(self) -> u64 {
        self.0.cast_unsigned()
    }

    /// The worker whose key bits these are.
    ///
    /// ```
    /// use kauri_wire::WorkerId;
    ///
    /// assert_eq!(WorkerId::from_key_bits(u64::MAX - 1), WorkerId(-2));
    /// ```
    #[must_use]
    pub const fn from_key_bits(bits: u64) -> Self {
        Self(bits.cast_signed())
    }
}

impl Ord for WorkerId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key_bits().cmp(&other.key_bits())
    }
}

impl PartialOrd for WorkerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A sequence number: the order of rows under one prefix. Never used twice.
///
/// ```
/// use kauri_wire::{Key, Seq};
///
/// assert!(Seq(9) < Seq(10));
/// assert!(Seq::encode(Seq(9)) < Seq::encode(Seq(10)), "and so are the rows");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

/// A moment, in milliseconds since the Unix epoch.
///
/// ```
/// use kauri_wire::{Key, Timestamp};
///
/// let (eve, day) = (Timestamp(-1), Timestamp(0)); // 1970 began at 0
/// assert!(eve < day && Timestamp::encode(eve) < Timestamp::encode(day));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub i64);

/// The id of a message: any bytes, at least one.
///
/// ```
/// use kauri_wire::MessageId;
///
/// assert_eq!(MessageId::new("order-7")?.as_bytes(), b"order-7");
/// assert!(MessageId::new("").is_err());
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Box<[u8]>);

impl MessageId {
    /// An id of these bytes.
    ///
    /// ```
    /// use kauri_wire::{MessageId, WireErrorKind};
    ///
    /// assert!(MessageId::new([0, 255]).is_ok()); // it need not be text
    /// assert_eq!(MessageId::new(b"").unwrap_err().kind, WireErrorKind::Invalid);
    /// ```
    ///
    /// # Errors
    /// `Invalid` if there are none.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, WireError> {
        match bytes.as_ref() {
            [] => Err(error::invalid("a message id of at least one byte", Found::Nothing)),
            bytes => Ok(Self(bytes.into())),
        }
    }

    /// The bytes, at least one.
    ///
    /// ```
    /// use kauri_wire::MessageId;
    ///
    /// let id = MessageId::new(String::from("order-7"))?;
    /// assert!(id.as_bytes().starts_with(b"order-"));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The id of a trace that a message belongs to: any bytes, even none.
///
/// ```
/// use kauri_wire::{Message, MessageId, MessageRef, TraceId, WorkerId};
///
/// let untraced = Message::event(WorkerId(7), MessageId::new("m")?, "");
/// let traced = untraced.clone().traced(TraceId::new("")); // empty is not absent
/// let frames = (untraced.encode()?, traced.encode()?);
/// assert_eq!(MessageRef::decode(&frames.0)?.trace(), None);
/// assert_eq!(MessageRef::decode(&frames.1)?.trace(), Some(&[][..]));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(Box<[u8]>);

impl TraceId {
    /// An id of these bytes.
    ///
    /// ```
    /// use kauri_wire::TraceId;
    ///
    /// assert_eq!(TraceId::new("checkout"), TraceId::new(b"checkout"));
    /// ```
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self(bytes.as_ref().into())
    }

    /// The bytes.
    ///
    /// ```
    /// use kauri_wire::TraceId;
    ///
    /// assert_eq!(TraceId::new([1, 2, 3]).as_bytes(), [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId(\"{}\")", self.0.escape_ascii())
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId(\"{}\")", self.0.escape_ascii())
    }
}

/// The id of a run: a UUIDv7, so that ids made later sort later.
///
/// The clock and the randomness are the caller's:
///
/// ```
/// use kauri_wire::{RunId, Timestamp};
///
/// let run = RunId::from_parts(Timestamp(1_700_000_000_000), [7; 10]);
/// assert_eq!(run.to_string(), "018bcfe5-6800-7707-8707-070707070707");
/// assert_eq!(run.created(), Timestamp(1_700_000_000_000));
/// assert_eq!("018bcfe5-6800-7707-8707-070707070707".parse(), Ok(run));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Uuid);

impl RunId {
    /// How many bytes a run id has.
    ///
    /// ```
    /// use kauri_wire::{Key, RunId, Timestamp};
    ///
    /// assert_eq!(RunId::encode(RunId::from_parts(Timestamp(0), [7; 10])).len(), RunId::BYTES);
    /// ```
    pub const BYTES: usize = 16;

    /// The id of a run made at `created`, told apart from others of that millisecond by 74 of these 80 random bits.
    /// A moment outside the 48 bits that a UUIDv7 has for it becomes the nearest one inside.
    ///
    /// ```
    /// use kauri_wire::{RunId, Timestamp};
    ///
    /// let earlier = RunId::from_parts(Timestamp(1_000), [0xff; 10]);
    /// let later = RunId::from_parts(Timestamp(1_001), [0; 10]);
    /// assert!(earlier < later, "the moment comes first");
    /// assert_eq!(RunId::from_parts(Timestamp(-5), [0; 10]).created(), Timestamp(0)); // the nearest there is
    /// ```
    #[must_use]
    pub fn from_parts(created: Timestamp, random: [u8; 10]) -> Self {
        const MILLIS_MAX: i64 = (1 << 48) - 1;
        let millis = created.0.clamp(0, MILLIS_MAX).cast_unsigned();
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// The id with these bytes.
    ///
    /// ```
    /// use kauri_wire::{RunId, Timestamp};
    ///
    /// let run = RunId::from_parts(Timestamp(1_000), [7; 10]);
    /// assert_eq!(RunId::from_bytes(*run.as_bytes()), Ok(run));
    /// let error = RunId::from_bytes([0x44; 16]).unwrap_err(); // a random one
    /// assert_eq!(error.to_string(), "at byte 6: expected UUID version 7, found 4");
    /// ```
    ///
    /// # Errors
    /// `Format` if they are not a UUIDv7 of the standard variant.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self, WireError> {
        let (version, variant) = (bytes[6] >> 4, bytes[8] >> 6);
        if version != 7 {
            return Err(error::format(6, "UUID version 7", error::number(version.into())));
        }
        if variant != 0b10 {
            return Err(error::format(8, "the UUID variant bits 10", error::number(variant.into())));
        }
        Ok(Self(Uuid::from_bytes(bytes)))
    }

    /// The sixteen bytes, in the order in which ids are sorted.
    ///
    /// ```
    /// use kauri_wire::{RunId, Timestamp};
    ///
    /// let run = RunId::from_parts(Timestamp(0x0102_0304_0506), [0; 10]);
    /// assert_eq!(run.as_bytes()[..6], [1, 2, 3, 4, 5, 6]);
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        self.0.as_bytes()
    }

    /// When the run was made.
    ///
    /// ```
    /// use kauri_wire::{RunId, Timestamp};
    ///
    /// let run: RunId = "018bcfe5-6800-7707-8707-070707070707".parse()?;
    /// assert_eq!(run.created(), Timestamp(1_700_000_000_000)); // it says so itself
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn created(&self) -> Timestamp {
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.0.as_bytes()[..6]);
        Timestamp(i64::from_be_bytes(millis))
    }
}

impl FromStr for RunId {
    type Err = WireError;

    /// Reads the 36-character form with hyphens, in either case.
    fn from_str(text: &str) -> Result<Self, WireError> {
        let expected = "a UUID as 36 characters with hyphens";
        if text.len() != uuid::fmt::Hyphenated::LENGTH {
            return Err(error::format(0, expected, error::length(text.len())));
        }
        match Uuid::try_parse(text) {
            Ok(uuid) => Self::from_bytes(uuid.into_bytes()),
            Err(_) => Err(error::format(0, expected, Found::Type("other characters"))),
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

/// The id of a job: a short name that its retries keep.
///
/// One to 128 characters of `A-Z a-z 0-9 . _ : -`, but not `.` or `..`, so that it can stand in a path, a URL and a log
/// line as it is.
///
/// ```
/// use kauri_wire::JobId;
///
/// assert_eq!(JobId::new("import:2026-11")?.as_str(), "import:2026-11");
/// assert!(JobId::new("../etc").is_err());
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Box<str>);

impl JobId {
    /// The longest id, in bytes.
    ///
    /// ```
    /// use kauri_wire::JobId;
    ///
    /// assert!(JobId::new("a".repeat(JobId::BYTES_MAX)).is_ok());
    /// assert!(JobId::new("a".repeat(JobId::BYTES_MAX + 1)).is_err());
    /// ```
    pub const BYTES_MAX: usize = 128;

    /// An id of this text.
    ///
    /// ```
    /// use kauri_wire::JobId;
    ///
    /// assert!(JobId::new("nightly:report_2.b").is_ok());
    /// let error = JobId::new("nightly report").unwrap_err();
    /// assert_eq!((error.at, error.expected), (7, "only letters, digits and . _ : - in a job id"));
    /// ```
    ///
    /// # Errors
    /// `Invalid` if it is empty, too long, `.` or `..`, or has a character outside the set.
    pub fn new(text: impl Into<String>) -> Result<Self, WireError> {
        let text = text.into();
        Self::check(&text)?;
        Ok(Self(text.into_boxed_str()))
    }

    /// The text.
    ///
    /// ```
    /// use kauri_wire::JobId;
    ///
    /// let job: JobId = "import:2026-11".parse()?;
    /// assert_eq!(format!("jobs/{}.log", job.as_str()), "jobs/import:2026-11.log"); // nothing to escape
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn check(text: &str) -> Result<(), WireError> {
        if text.is_empty() || text.len() > Self::BYTES_MAX {
            return Err(error::invalid("a job id of 1 to 128 characters", error::length(text.len())));
        }
        if matches!(text, "." | "..") {
            return Err(error::invalid("a job id other than . and ..", Found::Type("the name of a directory")));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        match text.bytes().position(|byte| !allowed(byte)) {
            None => Ok(()),
            Some(at) => {
                let found = Found::Type("another character");
                Err(error::invalid("only letters, digits and . _ : - in a job id", found).shifted(at))
            }
        }
    }
}

impl FromStr for JobId {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::new(text)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn run(millis: i64, random: u8) -> RunId {
        RunId::from_parts(Timestamp(millis), [random; 10])
    }

    #[test]
    fn later_runs_sort_later_whatever_their_randomness() {
        assert!(run(1, 0xff) < run(2, 0));
    }

    #[test]
    fn moments_outside_the_uuid_range_become_the_nearest_inside() {
        assert_eq!(run(i64::MIN, 0).created(), Timestamp(0));
        assert_eq!(run(i64::MAX, 0).created(), Timestamp((1 << 48) - 1));
    }

    #[test]
    fn uuids_of_other_versions_and_variants_are_refused() {
        let good = *run(1_700_000_000_000, 3).as_bytes();
        for (at, byte) in [(6, 0x40), (6, 0x10), (8, 0x00), (8, 0x40), (8, 0xc0)] {
            let mut bad = good;
            bad[at] = byte;
            let error = RunId::from_bytes(bad).unwrap_err();
            assert_eq!(error.at, at, "{error}");
        }
    }

    #[test]
    fn run_ids_are_read_in_the_hyphenated_form_only() {
        let text = run(1_700_000_000_000, 3).to_string();
        assert_eq!(text.parse(), Ok(run(1_700_000_000_000, 3)));
        assert_eq!(text.to_uppercase().parse(), Ok(run(1_700_000_000_000, 3)));
        for bad in ["", &text[1..], &text.replace('-', ""), &text.replace('0', "g"), &["{", &text, "}"].concat()] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn job_ids_are_short_and_safe_in_paths_and_urls() {
        let longest = "x".repeat(128);
        for good in ["a", "...", ".a", "018bcfe5-6800", "import:2026.11_x", longest.as_str()] {
            assert!(JobId::new(good).is_ok(), "{good}");
        }
        for (bad, at) in
            [("", 0), ("a b", 1), ("a/b", 1), ("é", 0), (&*["x"; 129].concat(), 0), ("a\n", 1), (".", 0), ("..", 0)]
        {
            assert_eq!(JobId::new(bad).unwrap_err().at, at, "{bad}");
        }
    }

    #[test]
    fn worker_ids_are_ordered_as_their_keys() {
        assert!(
            WorkerId(1) < WorkerId(2) && WorkerId(i64::MAX) < WorkerId(i64::MIN) && WorkerId(i64::MIN) < WorkerId(-1)
        );
        assert_eq!(WorkerId::from_key_bits(WorkerId(-3).key_bits()), WorkerId(-3));
    }
}
