//! A damaged journal, made readable again: what can be read is kept, what cannot is told, and the damaged file stays beside it.
//!
//! ```text
//! actions_wal.jsonl             ── copied ──> actions_wal.jsonl.damaged-1
//! its whole lines, counted anew ── written ─> actions_wal.jsonl.new ── renamed ──> actions_wal.jsonl
//! ```
//!
//! Both files are durable, and the audit knows, before the journal is replaced: a crash leaves the old journal or the new one.

use std::ops::ControlFlow;

use kauri_disk::{Disk, File, Open};

use super::wal::{WAL_NAME, WalLine, parse, read, write_line};
use crate::error::{Error, Result};
use crate::journal::{Head, Torn};
use crate::lines::{Line, each_line};
use crate::seal::check;

/// How many places that cannot be read are listed one by one.
const PLACES_MAX: usize = 1_000;
/// How much is written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// What was made of a damaged journal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Salvage {
    /// What was wrong with it.
    pub damage: String,
    /// How many lines could be read, and are in the journal now.
    pub kept: u64,
    /// How many could not. Each may have been the beginning of an action of which nothing else is known.
    pub lost: u64,
    /// Where those were, a thousand at most.
    pub places: Vec<Torn>,
    /// The name of the damaged journal, as it was, in the same directory.
    pub aside: String,
}

/// Makes a damaged journal readable, in the directory whose lock the caller has. Nothing if it is not damaged. `tell` is called
/// before the journal is replaced.
pub(crate) fn salvage(disk: &dyn Disk, tell: impl FnOnce(&Salvage) -> Result<()>) -> Result<Option<Salvage>> {
    let damage = match read(disk, |_| Ok(())) {
        Err(Error::Damaged { what, at, .. }) => format!("{what}, at byte {at}"),
        other => return other.map(|_| None),
    };
    let failed = || Error::io(format!("salvage {WAL_NAME}"));
    let file = disk.open(WAL_NAME, Open::ReadOnly).map_err(failed())?;
    let aside = free_name(&disk.names().map_err(failed())?);
    copy(&*file, &*disk.open(&aside, Open::CreateNew).map_err(failed())?).map_err(failed())?;
    let new = format!("{WAL_NAME}.new");
    let mut salvage = Salvage { damage, kept: 0, lost: 0, places: Vec::new(), aside };
    keep_lines(&*file, &*disk.open(&new, Open::Create).map_err(failed())?, &mut salvage)?;
    disk.sync_dir().map_err(failed())?;
    tell(&salvage)?;
    disk.rename(&new, WAL_NAME).map_err(failed())?;
    disk.sync_dir().map_err(failed())?;
    Ok(Some(salvage))
}

/// A name that no damaged journal has yet.
fn free_name(names: &[String]) -> String {
    let name = |number: usize| format!("{WAL_NAME}.damaged-{number}");
    let is_free = |name: &String| !names.contains(name);
    (1..).map(name).find(is_free).expect("there are more numbers than files")
}

fn copy(from: &dyn File, to: &dyn File) -> std::io::Result<()> {
    let (len, mut at) = (from.len()?, 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    while at < len {
        let bytes = usize::try_from(len - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        from.read_at(at, &mut chunk[..bytes])?;
        to.write_at(at, &chunk[..bytes])?;
        at += bytes as u64;
    }
    to.sync()
}

/// Writes every line that can be read, in the order in which they stand, and counts the others.
fn keep_lines(from: &dyn File, to: &dyn File, salvage: &mut Salvage) -> Result<()> {
    let failed = || Error::io(format!("salvage {WAL_NAME}"));
    to.set_len(0).map_err(failed())?;
    let (len, mut out, mut end) = (from.len().map_err(failed())?, Vec::new(), 0_u64);
    let mut flush = |out: &mut Vec<u8>, least: usize| -> std::io::Result<()> {
        if out.len() >= least {
            to.write_at(end, out)?;
            end += out.len() as u64;
            out.clear();
        }
        Ok(())
    };
    let looked = each_line(from, |at, line| {
        match readable(line) {
            Some(line) => {
                salvage.kept += 1;
                // All of them count as one batch: each was durable.
                write_line(&line, Head { seq: salvage.kept, batch: 1 }, &mut out);
            }
            None => salvage.lose(at, line, len),
        }
        match flush(&mut out, CHUNK_BYTES) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    });
    if let ControlFlow::Break(error) = looked.map_err(failed())? {
        return Err(failed()(error));
    }
    flush(&mut out, 1).and_then(|()| to.sync()).map_err(failed())
}

fn readable(line: Line<'_>) -> Option<WalLine<'_>> {
    match line {
        Line::Whole(bytes) => check(bytes).ok().and_then(|_| parse(bytes).ok()),
        Line::Broken => None,
    }
}

impl Salvage {
    fn lose(&mut self, at: u64, line: Line<'_>, len: u64) {
        self.lost += 1;
        let bytes = match line {
            Line::Whole(bytes) => bytes.len() as u64 + 1,
            // Too long to be known, or the last.
            Line::Broken => len - at,
        };
        if self.places.len() < PLACES_MAX {
            self.places.push(Torn { at, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use kauri_disk::MemoryDisk;
    use kauri_disk::testing::{Call, TwistedDisk};

    use super::*;

    /// A disk on which so many calls are allowed, and all others fail.
    fn failing(disk: MemoryDisk, allowed: u32) -> TwistedDisk<MemoryDisk> {
        let allowed = AtomicU32::new(allowed);
        TwistedDisk::new(disk, move |call, go| {
            if !matches!(call, Call::Remove(_)) {
                let spent = allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                spent.map_err(|_| io::Error::other("ordered"))?;
            }
            go()
        })
    }

    fn bytes(disk: &MemoryDisk, name: &str) -> Vec<u8> {
        let file = disk.open(name, Open::ReadOnly).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Two lines, the first of them edited.
    fn damaged() -> Vec<u8> {
        let line = |id: &'static str| WalLine {
            action_id: id.into(),
            trace_id: "t".into(),
            task: "x".into(),
            status: super::super::Status::Started,
            timestamp: crate::Timestamp(0),
            result_ref: None,
            error: None,
            retry_of: None,
            needs: Vec::new(),
            seq: 0,
            batch: 0,
        };
        let mut out = Vec::new();
        for (id, seq) in [("first", 1), ("second", 2)] {
            write_line(&line(id), Head { seq, batch: seq }, &mut out);
        }
        out[15] ^= 1;
        out
    }

    #[test]
    fn whatever_call_fails_the_journal_is_the_old_one_or_the_new_one_and_the_audit_knew() {
        let before = damaged();
        for allowed in 0.. {
            let disk = MemoryDisk::new();
            disk.open(WAL_NAME, Open::CreateNew).unwrap().write_at(0, &before).unwrap();
            let failing = failing(disk.clone(), allowed);
            let mut is_told = false;
            let ended = salvage(&failing, |_| {
                is_told = true;
                Ok(())
            });
            let is_old = bytes(&disk, WAL_NAME) == before;
            assert!(is_old || is_told, "{allowed}");
            if !is_old {
                assert_eq!(bytes(&disk, &format!("{WAL_NAME}.damaged-1")), before, "{allowed}");
                let mut ids = Vec::new();
                let read = read(&disk, |line| {
                    ids.push(line.action_id.to_string());
                    Ok(())
                });
                assert!(read.is_ok_and(|scan| scan.is_some_and(|scan| scan.torn.is_none())), "{allowed}");
                assert_eq!(ids, ["second"], "{allowed}");
            }
            if let Ok(found) = ended {
                assert_eq!(found.map(|found| (found.kept, found.lost)), Some((1, 1)));
                assert!(allowed > 15 && !is_old, "only {allowed} calls");
                return;
            }
        }
    }

    #[test]
    fn nothing_is_replaced_before_it_was_told() {
        let disk = MemoryDisk::new();
        disk.open(WAL_NAME, Open::CreateNew).unwrap().write_at(0, &damaged()).unwrap();
        let refused = salvage(&disk, |_| Err(Error::QueueFull));
        assert!(matches!(refused, Err(Error::QueueFull)));
        assert_eq!(bytes(&disk, WAL_NAME), damaged());
    }
}
