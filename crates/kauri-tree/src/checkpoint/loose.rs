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

use super::{Durable, Held, Job, OnPanic, Stage, WRITE_BYTES_MAX};
use crate::durable::Turn;
use crate::error::Result;
use crate::file::StoreFile;
use crate::group::{Ticket, Until};
use crate::log::PagesRecord;
use crate::meta::{LOG_PAGE, Meta};
use crate::overflow;
use crate::pager::Run;
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
        let ranges = self.ranges(job, held);
        if !turn.ring.has_room(&record(&meta, 0, ranges.clone()).encode()) {
            return Ok(None);
        }
        self.file.raise_newest(Stamp::new(meta.version).expect("the version was just made"));
        let mut sum = job.written.iter().fold(0, |sum: u64, written| sum.wrapping_add(written.sum));
        let mut note = |of_page| sum = sum.wrapping_add(of_page);
        let written = self.write_pages(held, std::mem::take(&mut job.born), job.bitmap, &mut note, &mut || ())?;
        note(self.write_bits(held, job.bitmap, &mut job.bits)?);
        for page in written {
            held.mark_written(page);
        }
        let (offset, record) = turn.ring.append(&record(&meta, sum, ranges).encode());
        Ok(Some((self.file.offset(LOG_PAGE) + offset, record)))
    }

    /// Where the pages are, with those that are in the file already.
    fn ranges(&self, job: &Job, held: &Held<'_>) -> Vec<Range<u32>> {
        let page_bytes = self.file.page_bytes();
        let length = |page: &u32| held.whole(*page, |_, bytes| bytes.len() / page_bytes);
        let run = |first: u32, pages| first..first + u32::try_from(pages).expect("page numbers have 32 bits");
        let born = job.born.iter().filter(|page| **page != job.bitmap.first);
        let born = born.filter_map(|page| Some(run(*page, length(page)?)));
        let written = job.written.iter().filter(|_| !planted!(ForgetWrittenThrough)).map(|written| written.run.iter());
        let mut runs: Vec<Range<u32>> = born.chain(written).chain([job.bitmap.iter()]).collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup();
        // Those that lie side by side are one.
        runs.dedup_by(|next, last| {
            let goes_on = last.end == next.start;
            if goes_on {
                last.end = next.end;
            }
            goes_on
        });
        runs
    }
}

fn record(meta: &Meta, checksum: u64, ranges: Vec<Range<u32>>) -> PagesRecord {
    PagesRecord { meta: meta.encode(0), checksum, ranges }
}

/// Whether the pages of a record, of a version with this bitmap, are what was written.
pub(crate) fn has_pages(file: &StoreFile, record: &PagesRecord, bitmap: Run) -> Result<bool> {
    let (length, mut read, mut sum) = (file.disk().len()?, 0, 0_u64);
    for range in &record.ranges {
        let (at, end) = (file.offset(range.start), file.offset(range.end));
        read += end - at;
        // No page is there twice, so no more is read than there is.
        if end > length || read > length {
            return Ok(false);
        }
        let mut window = Window { file, range: range.clone(), first: range.start, bytes: Vec::new() };
        while !window.range.is_empty() {
            match window.next(bitmap)? {
                Some(of_run) => sum = sum.wrapping_add(of_run),
                None => return Ok(false),
            }
        }
    }
    Ok(sum == record.checksum)
}

/// Pages that are read one after the other, many at once.
struct Window<'a> {
    file: &'a StoreFile,
    /// Those that were not looked at yet.
    range: Range<u32>,
    /// The first page of the bytes.
    first: u32,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The checksum of the next run, if it is right.
    fn next(&mut self, bitmap: Run) -> Result<Option<u64>> {
        let first = self.range.start;
        let pages = match first == bitmap.first {
            true => Some(bitmap.pages),
            false => overflow::pages_of(self.bytes(first, 1)?),
        };
        let Some(pages) = pages.filter(|pages| *pages > 0 && *pages <= self.range.end - first) else {
            return Ok(None);
        };
        let sum = StoreFile::sum_of(first, self.bytes(first, pages)?);
        self.range.start += pages;
        Ok(sum)
    }

    /// So many pages that lie in the range.
    fn bytes(&mut self, first: u32, pages: u32) -> Result<&[u8]> {
        let page_bytes = self.file.page_bytes();
        let in_window = |window: &Self| {
            let start = (first - window.first) as usize * page_bytes;
            start..start + pages as usize * page_bytes
        };
        if in_window(self).end > self.bytes.len() {
            let most = u32::try_from(WRITE_BYTES_MAX / page_bytes).expect("few pages");
            let count = most.max(pages).min(self.range.end - first) as usize;
            self.bytes.resize(count * page_bytes, 0);
            self.first = first;
            self.file.disk().read_at(self.file.offset(first), &mut self.bytes)?;
        }
        let place = in_window(self);
        Ok(&self.bytes[place])
    }
}
