//! The audit: what was done and decided, in a chain of hashes, a file for each day.
//!
//! ```text
//! audit/2026-02-21.jsonl   {"timestamp":"...","kind":"LOCK_ORDER_VIOLATION","action_id":"...","trace_id":"...","detail":{...},
//!                           "seq":7,"batch":7,"prev_hash":"<hash of line 6>","hash":"<SHA-256 of all before>"}
//! audit/anchors.jsonl      {"date":"2026-02-21","chain_hash":"...","record_count":7,"last_seq":7,"created_at":"...",
//!                           "seq":1,"batch":1,"checksum":"..."}
//! ```
//!
//! The chain and its numbers go on from day to day. An anchor says what the hash of some line was; there is one for every day
//! that ended, and more when asked for. Old days may be moved away: the anchor of the last of them is where the rest begins.

mod verify;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use kauri_disk::{Disk, Open};
use serde::{Deserialize, Serialize};

pub use self::verify::{AuditReport, verify};
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Result};
use crate::journal::{Head, Journal, Torn, scan};
use crate::redact::Redactor;
use crate::seal::{Hash, check, check_hash, seal, seal_with_hash};

const ANCHORS_NAME: &str = "anchors.jsonl";
const DAY_SUFFIX: &str = ".jsonl";
/// What the first line of all follows.
const BEGINNING: Hash = [0; 32];

/// Something to be written into the audit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct AuditNote {
    kind: String,
    action_id: Option<String>,
    trace_id: Option<String>,
    detail: BTreeMap<String, String>,
}

impl AuditNote {
    /// A note of this kind, such as `LOCK_ORDER_VIOLATION`.
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), action_id: None, trace_id: None, detail: BTreeMap::new() }
    }

    /// About this action.
    pub fn action(self, id: impl Into<String>) -> Self {
        Self { action_id: Some(id.into()), ..self }
    }

    /// Belonging to this trace.
    pub fn trace(self, id: impl Into<String>) -> Self {
        Self { trace_id: Some(id.into()), ..self }
    }

    /// With this detail. Secrets are taken out of it before it is written.
    pub fn with(mut self, name: impl Into<String>, text: impl AsRef<str>) -> Self {
        self.detail.insert(name.into(), text.as_ref().to_owned());
        self
    }

    /// The same, if there is something to say.
    pub(crate) fn with_some(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.with(name, text),
            None => self,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct DayLine {
    timestamp: Timestamp,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    detail: BTreeMap<String, String>,
    seq: u64,
    batch: u64,
    prev_hash: String,
}

/// A line of the audit, as it stands there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditLine {
    /// Its number.
    pub seq: u64,
    /// When it was written.
    pub timestamp: Timestamp,
    /// What it is about, such as `LOCK_ORDER_VIOLATION`.
    pub kind: String,
    /// The action it is about.
    pub action_id: Option<String>,
    /// The trace it belongs to.
    pub trace_id: Option<String>,
    /// What else it says.
    pub detail: BTreeMap<String, String>,
}

/// The newest lines, so many at most, oldest first. What is no line is left out: [`verify`] tells of it.
pub(crate) fn newest(disk: &dyn Disk, most: usize) -> Result<Vec<AuditLine>> {
    let mut found = VecDeque::new();
    for date in days(disk)?.into_iter().rev() {
        let left = most - found.len();
        if left == 0 {
            break;
        }
        let name = format!("{date}{DAY_SUFFIX}");
        let file = disk.open(&name, Open::ReadOnly).map_err(Error::io(format!("open {name}")))?;
        let mut of_day = VecDeque::new();
        let looked = crate::lines::each_line(&*file, |_, line| {
            if let Some(line) = line_of(&line) {
                if of_day.len() == left {
                    of_day.pop_front();
                }
                of_day.push_back(line);
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
        let _ended = looked.map_err(Error::io(format!("read {name}")))?;
        of_day.append(&mut found);
        found = of_day;
    }
    Ok(found.into())
}

/// The lines after this number, so many at most, oldest first. What is no line is left out.
pub(crate) fn after(disk: &dyn Disk, after: u64, most: usize) -> Result<Vec<AuditLine>> {
    let mut found = Vec::new();
    for date in days(disk)? {
        let name = format!("{date}{DAY_SUFFIX}");
        let file = disk.open(&name, Open::ReadOnly).map_err(Error::io(format!("open {name}")))?;
        let looked = crate::lines::each_line(&*file, |_, line| {
            if found.len() >= most {
                return std::ops::ControlFlow::Break(());
            }
            found.extend(line_of(&line).filter(|line| line.seq > after));
            std::ops::ControlFlow::Continue(())
        });
        let _ended = looked.map_err(Error::io(format!("read {name}")))?;
    }
    Ok(found)
}

fn line_of(line: &crate::lines::Line<'_>) -> Option<AuditLine> {
    let crate::lines::Line::Whole(line) = line else { return None };
    let DayLine { seq, timestamp, kind, action_id, trace_id, detail, .. } = serde_json::from_slice(line).ok()?;
    Some(AuditLine { seq, timestamp, kind, action_id, trace_id, detail })
}

/// What the hash of some line was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Anchor {
    /// The day of the line.
    pub date: String,
    /// The hash of the line.
    pub chain_hash: String,
    /// How many lines the day had up to it.
    pub record_count: u64,
    /// The number of the line.
    pub last_seq: u64,
    /// When this was written.
    pub created_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct AnchorLine {
    #[serde(flatten)]
    anchor: Anchor,
    seq: u64,
    batch: u64,
}

/// The audit, open for appending.
pub struct Audit {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    /// Read by whoever appends, written when the day ends.
    day: RwLock<Day>,
    anchors: Journal<()>,
    torn: Option<Torn>,
}

struct Day {
    date: String,
    /// Its first line.
    first: u64,
    journal: Journal<Hash>,
}

impl Audit {
    /// Opens or makes the audit on this disk. A torn tail is cut off.
    ///
    /// # Errors
    /// Whatever the disk reports; `Damaged` if the newest day or the anchors do not hold what was written.
    pub fn open(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, redactor: Redactor) -> Result<Self> {
        let mut last: Option<Anchor> = None;
        let (anchors, _) = Journal::open(Arc::clone(&disk), ANCHORS_NAME, (1, ()), check, |(), _, bytes| {
            last = Some(anchor_of(bytes)?);
            Ok(())
        })?;
        anchors.cut()?;
        // Days that ended without an anchor, because the program did, get theirs now.
        let mut days = days(&*disk)?;
        let newest = days.pop();
        for date in days.into_iter() {
            if last.as_ref().is_some_and(|last| last.date > date) {
                continue;
            }
            let anchor = close_day(&*disk, &date, beginning(&*disk, &date, last.as_ref())?, clock.now())?;
            if last.as_ref().is_none_or(|last| last.last_seq < anchor.last_seq) {
                append_anchor(&anchors, &anchor)?;
            }
            last = Some(anchor);
        }
        let date = newest.unwrap_or_else(|| clock.now().day());
        let begins = beginning(&*disk, &date, last.as_ref())?;
        let (day, torn) = Day::open(&disk, date, begins)?;
        Ok(Self { disk, clock, redactor, day: RwLock::new(day), anchors, torn })
    }

    /// Writes a note, and returns its number when it is durable.
    ///
    /// # Errors
    /// Whatever the disk reports.
    pub fn append(&self, note: &AuditNote) -> Result<u64> {
        let now = self.clock.now();
        let today = now.day();
        let mut day = self.day.read().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back does not bring back a day that is over.
        if today > day.date {
            drop(day);
            self.end_day(&today)?;
            day = self.day.read().unwrap_or_else(PoisonError::into_inner);
        }
        let redact = |text: &String| self.redactor.redact(text);
        day.journal.append(|Head { seq, batch }, chain, out| {
            let line = DayLine {
                timestamp: now,
                kind: note.kind.clone(),
                action_id: note.action_id.clone(),
                trace_id: note.trace_id.clone(),
                detail: note.detail.iter().map(|(name, text)| (name.clone(), redact(text))).collect(),
                seq,
                batch,
                prev_hash: hex::encode(*chain),
            };
            let start = out.len();
            serde_json::to_writer(&mut *out, &line).expect("strings and numbers are always JSON");
            *chain = seal_with_hash(out, start);
        })
    }

    fn end_day(&self, today: &str) -> Result<()> {
        let mut day = self.day.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have done it.
        if today <= day.date.as_str() {
            return Ok(());
        }
        let (last, hash) = day.journal.tip();
        append_anchor(&self.anchors, &day.anchor(self.clock.now()))?;
        *day = Day::open(&self.disk, today.to_owned(), (last + 1, hash))?.0;
        Ok(())
    }

    /// Writes down what the hash of the last line is.
    ///
    /// # Errors
    /// Whatever the disk reports.
    pub fn anchor(&self) -> Result<Anchor> {
        let anchor = self.head();
        append_anchor(&self.anchors, &anchor)?;
        Ok(anchor)
    }

    /// What the hash of the last line is, without writing it down.
    #[must_use]
    pub fn head(&self) -> Anchor {
        self.day.read().unwrap_or_else(PoisonError::into_inner).anchor(self.clock.now())
    }

    /// The tail that a crash had left, and that was cut off when the audit was opened.
    #[must_use]
    pub const fn torn(&self) -> Option<Torn> {
        self.torn
    }
}

/// The line with which a day begins, and what it follows. `last` is the last anchor, of an earlier day or of this one.
fn beginning(disk: &dyn Disk, date: &str, last: Option<&Anchor>) -> Result<(u64, Hash)> {
    match last {
        None => Ok((1, BEGINNING)),
        Some(last) if last.date == date => Ok(first_of(disk, date)?.unwrap_or((1, BEGINNING))),
        Some(last) => Ok((last.last_seq + 1, hash_of(&last.chain_hash)?)),
    }
}

/// The anchor of a day that is over.
fn close_day(disk: &dyn Disk, date: &str, (first, mut chain): (u64, Hash), now: Timestamp) -> Result<Anchor> {
    let name = format!("{date}{DAY_SUFFIX}");
    let file = disk.open(&name, Open::ReadOnly).map_err(Error::io(format!("open {name}")))?;
    let found = scan(&*file, &name, first, head_of, |_, line| follow(&name, &mut chain, line))?;
    if let Some(torn) = found.torn {
        let what = "expected whole lines in a day that is over".to_owned();
        return Err(Error::Damaged { file: name, at: torn.at, what });
    }
    let (chain_hash, record_count) = (hex::encode(chain), found.last + 1 - first);
    Ok(Anchor { date: date.to_owned(), chain_hash, record_count, last_seq: found.last, created_at: now })
}

impl Day {
    fn open(disk: &Arc<dyn Disk>, date: String, (first, chain): (u64, Hash)) -> Result<(Self, Option<Torn>)> {
        let name = format!("{date}{DAY_SUFFIX}");
        let (journal, torn) = Journal::open(Arc::clone(disk), &name, (first, chain), head_of, |chain, _, line| {
            follow(&name, chain, line)
        })?;
        journal.cut()?;
        Ok((Self { date, first, journal }, torn))
    }

    fn anchor(&self, now: Timestamp) -> Anchor {
        let (last_seq, hash) = self.journal.tip();
        let record_count = last_seq + 1 - self.first;
        Anchor { date: self.date.clone(), chain_hash: hex::encode(hash), record_count, last_seq, created_at: now }
    }
}

fn head_of(line: &[u8]) -> std::result::Result<Head, String> {
    check_hash(line).map(|(head, _)| head)
}

/// Checks that a line follows the one before, and goes on to it.
fn follow(name: &str, chain: &mut Hash, bytes: &[u8]) -> Result<()> {
    let damaged = |what| Error::Damaged { file: name.to_owned(), at: 0, what };
    let line: DayLine =
        serde_json::from_slice(bytes).map_err(|error| damaged(format!("a line that is no note: {error}")))?;
    let (_, hash) = check_hash(bytes).map_err(damaged)?;
    let expected = hex::encode(*chain);
    if line.prev_hash != expected {
        let found = line.prev_hash;
        return Err(damaged(format!(
            "line {} follows another: expected prev_hash {expected}, found {found}",
            line.seq
        )));
    }
    *chain = hash;
    Ok(())
}

/// The days that have a file, in order.
fn days(disk: &dyn Disk) -> Result<Vec<String>> {
    let names = disk.names().map_err(Error::io("list the audit"))?;
    let day = |name: String| name.strip_suffix(DAY_SUFFIX).map(str::to_owned);
    Ok(names
        .into_iter()
        .filter_map(day)
        .filter(|date| format!("{date}T00:00:00Z").parse::<Timestamp>().is_ok())
        .collect())
}

/// Where a day begins: its first line, and what that follows.
fn first_of(disk: &dyn Disk, date: &str) -> Result<Option<(u64, Hash)>> {
    let name = format!("{date}{DAY_SUFFIX}");
    let file = disk.open(&name, Open::ReadOnly).map_err(Error::io(format!("open {name}")))?;
    let mut first = None;
    let looked = crate::lines::each_line(&*file, |_, line| {
        if let crate::lines::Line::Whole(line) = line
            && check_hash(line).is_ok()
        {
            first = serde_json::from_slice::<DayLine>(line).ok();
        }
        std::ops::ControlFlow::Break(())
    });
    let _ended = looked.map_err(Error::io(format!("read {name}")))?;
    first.map(|line| Ok((line.seq, hash_of(&line.prev_hash)?))).transpose()
}

fn hash_of(text: &str) -> Result<Hash> {
    let mut hash = [0; 32];
    let decoded = hex::decode_to_slice(text, &mut hash);
    decoded.map_err(|_| Error::input("a hash of the audit", "64 hexadecimal digits", text))?;
    Ok(hash)
}

fn anchor_of(bytes: &[u8]) -> Result<Anchor> {
    let line = serde_json::from_slice::<AnchorLine>(bytes);
    line.map(|line| line.anchor).map_err(|error| Error::Damaged {
        file: ANCHORS_NAME.to_owned(),
        at: 0,
        what: format!("a line that is no anchor: {error}"),
    })
}

fn append_anchor(anchors: &Journal<()>, anchor: &Anchor) -> Result<()> {
    // A day without a line has nothing to anchor: the day before has its own.
    if anchor.record_count == 0 {
        return Ok(());
    }
    let appended = anchors.append(|Head { seq, batch }, (), out| {
        let start = out.len();
        let line = AnchorLine { anchor: anchor.clone(), seq, batch };
        serde_json::to_writer(&mut *out, &line).expect("strings and numbers are always JSON");
        seal(out, start);
    });
    appended.map(drop)
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("head", &self.head()).finish_non_exhaustive()
    }
}
