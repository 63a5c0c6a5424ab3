//! Commits by pages that nobody waits for: written, and synced with whatever is synced next.
//!
//! A transaction that is too long for the log, and that need not survive a crash of the machine, writes its pages as a checkpoint does.
//! Instead of a meta page, which would have to wait for them, it makes a record in the log: where the pages are, and the checksum of them
//! all. Whoever opens the store and finds the record looks whether the pages are there. If they are, the record is as good as a meta page; if
//! they are not, the log ends before it, and the last checkpoint, whose pages are kept until the next one is durable, is what there is.
//!
//! There is one such record after a checkpoint: the pages of a second would be those of the first in part, and whoever opens the store
//! could trust neither alone. So the next transaction of the kind is a checkpoint.

use std::ops::Range;

use kauri_arena::Stamp;
use twox_hash::XxHash3_64;

use super::{Durable, Held, Job, OnPanic, Stage, WRITE_BYTES_MAX};
use crate::durable::Turn;
use crate::error::Result;
use crate::file::StoreFile;
use crate::group::{Ticket, Until};
use crate::log::PagesRecord;
use crate::meta::{LOG_PAGE, Meta};
use crate::store::State;
use crate::sync::lock;

impl Durable {
    /// Commits a transaction that is no record, by a record of the pages it wrote: with the operating system when this returns, and on
    /// stable storage with the next sync. The last checkpoint stays what a crash of the machine may return to. Where that cannot be, it is
    /// a checkpoint, in the turn.
    pub(crate) fn commit_loosely(&self, state: &mut State, until: Until) -> Result<Option<Ticket>> {
        let (mut job, version) = self.begin(state, None)?;
        let turn = state.turn.as_mut().expect("as above");
        // What the transaction did is in the pages.
        turn.body.clear();
        if until == Until::Written && turn.loose.is_none() {
            state.pager.hold();
            let panics = OnPanic(self);
            let record = self.or_break(self.write_loosely(&mut job, &Held::Turn(&state.pager), turn));
            std::mem::forget(panics);
            state.pager.let_go();
            if !matches!(record, Ok(None)) {
                *lock(&self.stage) = Stage::Idle;
                self.ended.notify_all();
            }
            if let Some((at, record)) = record? {
                turn.loose = Some(version.version());
                let ticket = self.group.push(at, record, (version, state.catalog.clone()), until);
                // In the turn: no record that is synced by itself is written together with this one, whose pages are not.
                self.wait(ticket)?;
                return Ok(Some(ticket));
            }
        }
        // The log does not have it. If the checkpoint's meta page is damaged later, the one before must not be followed by records from
        // here on, with a commit missing in between.
        turn.ring.skip_ahead();
        job.meta.log = turn.ring.next();
        self.finish_in_turn(state, job, version)?;
        Ok(None)
    }

    /// Writes the pages, and makes the record that says so; where in the file that goes. Nothing is written if the record is too long.
    fn write_loosely(&self, job: &mut Job, held: &Held<'_>, turn: &mut Turn) -> Result<Option<(u64, Vec<u8>)>> {
        let meta = Meta { checkpoint: turn.meta.checkpoint, ring_pages: turn.meta.ring_pages, ..job.meta };
        let page_bytes = self.file.page_bytes();
        job.born.sort_unstable();
        job.born.dedup();
        let mut sketch = Footprint::default();
        for page in job.born.iter().filter(|page| **page != job.bitmap.first) {
            held.whole(*page, |_, bytes| sketch.reach(*page, bytes.len() / page_bytes));
        }
        sketch.reach(job.bitmap.first, job.bitmap.pages as usize);
        if !turn.ring.has_room(&sketch.record(&meta).encode()) {
            return Ok(None);
        }
        self.file.set_newest(Stamp::new(meta.version).expect("the version was just made"));
        let mut footprint = Footprint::default();
        let written = self.write_pages(held, std::mem::take(&mut job.born), job.bitmap, &mut |first, bytes| {
            footprint.add(first, bytes, page_bytes);
        })?;
        self.write_bits(held, job.bitmap, &mut job.bits)?;
        footprint.add(job.bitmap.first, &job.bits, page_bytes);
        for page in written {
            held.mark_written(page);
        }
        let (offset, record) = turn.ring.append(&footprint.record(&meta).encode());
        Ok(Some((self.file.offset(LOG_PAGE) + offset, record)))
    }
}

/// What was written of pages, and where.
#[derive(Default)]
struct Footprint {
    ranges: Vec<Range<u32>>,
    checksum: u64,
}

impl Footprint {
    fn add(&mut self, first: u32, bytes: &[u8], page_bytes: usize) {
        self.checksum = fold(self.checksum, bytes, page_bytes);
        self.reach(first, bytes.len() / page_bytes);
    }

    fn reach(&mut self, first: u32, pages: usize) {
        let end = first + u32::try_from(pages).expect("page numbers have 32 bits");
        match self.ranges.last_mut() {
            _ if pages == 0 => {}
            Some(last) if last.end == first => last.end = end,
            _ => self.ranges.push(first..end),
        }
    }

    fn record(self, meta: &Meta) -> PagesRecord {
        PagesRecord { meta: meta.encode(0), checksum: self.checksum, ranges: self.ranges }
    }
}

/// The checksum of pages, each keyed by that of those before.
fn fold(checksum: u64, bytes: &[u8], page_bytes: usize) -> u64 {
    bytes.chunks(page_bytes).fold(checksum, XxHash3_64::oneshot_with_seed)
}

/// Whether the pages of a record are what was written.
pub(crate) fn has_pages(file: &StoreFile, record: &PagesRecord) -> Result<bool> {
    let (page_bytes, mut checksum) = (file.page_bytes(), 0);
    let mut buffer = vec![0; WRITE_BYTES_MAX];
    let (length, mut read) = (file.disk().len()?, 0);
    for range in &record.ranges {
        let (mut at, end) = (file.offset(range.start), file.offset(range.end));
        read += end - at;
        // No page is there twice, so no more is read than there is.
        if end > length || read > length {
            return Ok(false);
        }
        while at < end {
            let part = &mut buffer[..usize::try_from(end - at).unwrap_or(usize::MAX).min(WRITE_BYTES_MAX)];
            file.disk().read_at(at, part)?;
            checksum = fold(checksum, part, page_bytes);
            at += part.len() as u64;
        }
    }
    Ok(checksum == record.checksum)
}
