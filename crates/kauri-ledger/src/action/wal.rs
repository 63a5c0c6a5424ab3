//! `actions_wal.jsonl`: what was begun and what ended, before and after it happened.
//!
//! ```text
//! {"action_id":"a-1","trace_id":"t-1","task":"send the mail","status":"STARTED","timestamp":"2026-02-21T09:30:00.000Z",
//!  "seq":1,"batch":1,"checksum":"0123456789abcdef"}
//! ```
//!
//! One line each, in the order of the fields shown; `result_ref`, `error`, `retry_of` and `needs` follow the timestamp when there
//! is something to say. The checksum is xxh3 of everything before `,"checksum"`, so every byte of a line is covered.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use kauri_disk::Disk;
use serde::{Deserialize, Serialize};

use super::rows::Mark;
use super::status::Status;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::journal::{Head, Journal, Scan, Torn, scan};
use crate::seal::{check, seal};

/// The journal's name in the runtime directory.
pub const WAL_NAME: &str = "actions_wal.jsonl";

/// One line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WalLine<'a> {
    /// Which action.
    #[serde(borrow)]
    pub action_id: Cow<'a, str>,
    /// What it belongs to.
    #[serde(borrow)]
    pub trace_id: Cow<'a, str>,
    /// What it does, redacted. Empty in the line of an end.
    #[serde(borrow)]
    pub task: Cow<'a, str>,
    /// How far it has come.
    pub status: Status,
    /// When it came so far.
    pub timestamp: Timestamp,
    /// Where its result is.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<Cow<'a, str>>,
    /// Why it failed, redacted.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    /// The action that it tries again.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Cow<'a, str>>,
    /// The actions whose results it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Counts lines, from 1.
    pub seq: u64,
    /// The first line that was synced together with this one.
    pub batch: u64,
}

/// The journal of actions, open for appending.
pub(crate) struct Wal {
    journal: Journal<()>,
}

impl Wal {
    /// Opens or makes the journal, and calls `each` with every line. A torn tail is still there until [`cut`](Self::cut).
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        mut each: impl FnMut(&WalLine<'_>) -> Result<()>,
    ) -> Result<(Self, Option<Torn>)> {
        let (journal, torn) =
            Journal::open(disk, WAL_NAME, (1, ()), check, |(), _, bytes| with_line(bytes, &mut each))?;
        Ok((Self { journal }, torn))
    }

    /// Cuts off a torn tail.
    pub(crate) fn cut(&self) -> Result<()> {
        self.journal.cut()
    }

    /// Appends a line; returns when it is durable.
    pub(crate) fn append(&self, line: &WalLine<'_>) -> Result<u64> {
        // Others append meanwhile: what does not depend on the line's place is written before it is their turn to wait.
        let body = body(line);
        self.journal.append(|head, (), out| place(&body, head, out))
    }

    /// Puts these lines in place of all others.
    pub(crate) fn rewrite(&self, lines: &[WalLine<'_>]) -> Result<()> {
        let mut bytes = Vec::new();
        for (line, seq) in lines.iter().zip(1..) {
            write_line(line, Head { seq, batch: 1 }, &mut bytes);
        }
        self.journal.rewrite(&bytes, lines.len() as u64)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.journal.bytes()
    }

    /// The last line, by its place and its checksum; nothing if there is no line.
    pub(crate) fn mark(&self, disk: &dyn Disk) -> Result<Option<Mark>> {
        let (seq, end_at) = (self.journal.tip().0, self.journal.bytes());
        let tail = tail(disk, end_at)?;
        Ok(checksum_of(&tail).filter(|_| seq > 0).map(|checksum| Mark { seq, end_at, checksum }))
    }
}

/// Whether the journal has the line of this mark, at its place. If so, all before it is as it was: lines are only appended.
pub(crate) fn holds(disk: &dyn Disk, mark: &Mark) -> Result<bool> {
    let tail = tail(disk, mark.end_at)?;
    let place = format!(",\"seq\":{},\"batch\":", mark.seq);
    let has_place = memchr::memmem::rfind(&tail, place.as_bytes()).is_some();
    Ok(has_place && checksum_of(&tail).as_deref() == Some(&mark.checksum))
}

/// How much of a line's end holds its numbers and its checksum.
const TAIL_BYTES: usize = 128;

/// The bytes before this position, as many as tell a line's end; none if the journal is not so long.
fn tail(disk: &dyn Disk, end_at: u64) -> Result<Vec<u8>> {
    let failed = || crate::Error::io(format!("read {WAL_NAME}"));
    let file = match disk.open(WAL_NAME, kauri_disk::Open::ReadOnly) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed())?,
    };
    if file.len().map_err(failed())? < end_at {
        return Ok(Vec::new());
    }
    let mut tail = vec![0; usize::try_from(end_at).unwrap_or(usize::MAX).min(TAIL_BYTES)];
    file.read_at(end_at - tail.len() as u64, &mut tail).map_err(failed())?;
    Ok(tail)
}

/// The checksum of the line that ends here.
fn checksum_of(tail: &[u8]) -> Option<String> {
    let line = tail.strip_suffix(b"\"}\n")?;
    let digits = line
        .len()
        .checked_sub(16)
        .map(|at| line.split_at(at))
        .filter(|(before, _)| before.ends_with(b",\"checksum\":\""))?;
    String::from_utf8(digits.1.to_vec()).ok()
}

/// Calls `each` with every line of a journal that somebody may be appending to. Changes nothing.
pub(crate) fn read(disk: &dyn Disk, mut each: impl FnMut(&WalLine<'_>) -> Result<()>) -> Result<Option<Scan>> {
    let file = match disk.open(WAL_NAME, kauri_disk::Open::ReadOnly) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(crate::Error::io(format!("open {WAL_NAME}")))?,
    };
    scan(&*file, WAL_NAME, 1, check, |_, bytes| with_line(bytes, &mut each)).map(Some)
}

fn with_line(bytes: &[u8], each: &mut impl FnMut(&WalLine<'_>) -> Result<()>) -> Result<()> {
    // It was parsed a moment ago, when it was checked: this cannot fail, and if it does it is no panic.
    let line = parse(bytes).map_err(|what| crate::Error::Damaged { file: WAL_NAME.to_owned(), at: 0, what })?;
    each(&line)
}

/// A line without its place: everything up to `,"seq"`.
fn body(line: &WalLine<'_>) -> Vec<u8> {
    let mut body = serde_json::to_vec(line).expect("strings and numbers are always JSON, and memory takes them");
    let numbers = format!(",\"seq\":{},\"batch\":{}}}", line.seq, line.batch);
    assert!(body.ends_with(numbers.as_bytes()), "the place of a line stands at its end");
    body.truncate(body.len() - numbers.len());
    body
}

fn place(body: &[u8], head: Head, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(body);
    write!(out, ",\"seq\":{},\"batch\":{}}}", head.seq, head.batch).expect("memory takes it");
    seal(out, start);
}

/// A whole line, with its end.
pub(super) fn write_line(line: &WalLine<'_>, head: Head, out: &mut Vec<u8>) {
    place(&body(line), head, out);
    out.push(b'\n');
}

pub(super) fn parse(bytes: &[u8]) -> std::result::Result<WalLine<'_>, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("a line that is no action: {error}"))
}
