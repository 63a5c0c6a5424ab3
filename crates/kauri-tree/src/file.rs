//! The file of a store: pages out of it, checked, and into it.

use std::sync::atomic::{AtomicU64, Ordering};

use kauri_arena::{Arena, CHUNK_PAGES, Stamp};

use crate::disk::File;
use crate::error::{Error, Fault, Result};
use crate::meta::checksum;
use crate::node::Node;
use crate::pager::Run;
use crate::sync::{Mutex, lock};

/// An open file of pages.
#[derive(Debug)]
pub(crate) struct StoreFile {
    file: Box<dyn File>,
    page_bytes: usize,
    /// Whoever loads a page holds the lock of its number: who wants the same page waits until it is there.
    loading: [Mutex<()>; LOADING_LOCKS],
    /// No page is of a later version; the greatest number while that is not known, and where somebody else writes the file.
    newest: AtomicU64,
    /// No page from this one on went through since the last checkpoint began.
    reach: Mutex<u32>,
}

const LOADING_LOCKS: usize = 16;

const CHECKSUM: std::ops::Range<usize> = 0..8;
const BIRTH: std::ops::Range<usize> = 8..16;
const KIND_AT: usize = 16;

impl StoreFile {
    pub(crate) fn new(file: Box<dyn File>, page_bytes: usize) -> Self {
        Self {
            file,
            page_bytes,
            loading: Default::default(),
            newest: AtomicU64::new(u64::MAX),
            reach: Mutex::default(),
        }
    }

    pub(crate) fn disk(&self) -> &dyn File {
        &*self.file
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Where a page begins.
    pub(crate) fn offset(&self, page: u32) -> u64 {
        u64::from(page) * self.page_bytes as u64
    }

    /// Brings a run into its frames, unless it is there.
    #[cold]
    pub(crate) fn load<R: Send + Sync>(&self, arena: &Arena<R>, run: Run) -> Result<()> {
        if run.first / CHUNK_PAGES != (run.iter().end - 1) / CHUNK_PAGES {
            let fault = Fault::new("a run that crosses no chunk", run.first.into());
            return Err(Error::Corrupt { page: run.first, fault });
        }
        // Before, not after: what is brought now is to stay for a while.
        if arena.is_crowded() {
            arena.sweep();
        }
        let _loading = lock(&self.loading[run.first as usize % LOADING_LOCKS]);
        arena.load(run.first, run.pages, |bytes| self.read(run, bytes))?;
        Ok(())
    }

    fn read_bytes(&self, first: u32, bytes: &mut [u8]) -> Result<()> {
        self.file.read_at(self.offset(first), bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::Corrupt { page: first, fault: Fault::new("a page inside the file", first.into()) }
            }
            _ => Error::Io(error),
        })
    }

    /// Reads a run, checks it, and tells when it was born.
    pub(crate) fn read(&self, run: Run, bytes: &mut [u8]) -> Result<Stamp> {
        let corrupt = |expected, found| Error::Corrupt { page: run.first, fault: Fault::new(expected, found) };
        self.read_bytes(run.first, bytes)?;
        let word = |at: std::ops::Range<usize>| u64::from_le_bytes(bytes[at].try_into().expect("eight bytes"));
        let (found, birth) = (word(CHECKSUM), word(BIRTH));
        if found != checksum(bytes, run.first) && !planted!(TrustDamagedPage) {
            return Err(corrupt("the checksum of the page", found));
        }
        if bytes[KIND_AT] == crate::node::KIND_NODE {
            Node::check_structure(bytes).map_err(|fault| Error::Corrupt { page: run.first, fault })?;
        }
        // A page that says it was born later would be taken for one that the present transaction has made.
        let newest = self.newest.load(Ordering::Acquire);
        let is_birth = |birth: &Stamp| *birth > Stamp::FIRST && birth.number() <= newest;
        Stamp::new(birth).filter(is_birth).ok_or_else(|| corrupt("a birth in a version of the file", birth))
    }

    /// No page of the file is of a later version than this, as far as whoever opens it knows.
    pub(crate) fn set_newest(&self, version: Stamp) {
        self.newest.store(version.number(), Ordering::Release);
    }

    /// Pages up to this version are written from now on.
    pub(crate) fn raise_newest(&self, version: Stamp) {
        self.newest.fetch_max(version.number(), Ordering::AcqRel);
    }

    /// Writes sealed pages that lie side by side, and that no checkpoint knows.
    pub(crate) fn write_through(&self, first: u32, bytes: &[u8]) -> Result<()> {
        let pages = u32::try_from(bytes.len() / self.page_bytes).expect("page numbers have 32 bits");
        {
            let mut reach = lock(&self.reach);
            *reach = (*reach).max(first + pages);
        }
        self.write(first, bytes)
    }

    /// Everything that went through is in the checkpoint that begins, or is nothing.
    pub(crate) fn forget_reach(&self) {
        *lock(&self.reach) = 0;
    }

    /// Gives the system back what lies behind the last page of a checkpoint, if it is more than this part, one of so many, of the file. What
    /// went through since the checkpoint began stays.
    pub(crate) fn cut(&self, end: u32, share: u64) -> Result<()> {
        // Who writes behind the end says so before; while we cut, nobody can.
        let reach = lock(&self.reach);
        let end = end.max(if planted!(CutWhatWentThrough) { 0 } else { *reach });
        let (end, length) = (self.offset(end), self.file.len()?);
        if length.saturating_sub(end).saturating_mul(share) > length {
            self.file.set_len(end)?;
        }
        Ok(())
    }

    /// Writes sealed pages that lie side by side.
    pub(crate) fn write(&self, first: u32, bytes: &[u8]) -> Result<()> {
        if !bytes.is_empty() {
            self.file.write_at(self.offset(first), bytes)?;
        }
        Ok(())
    }

    /// Makes a run ready to be written: with its birth and its checksum, which is returned.
    pub(crate) fn seal(first: u32, birth: Stamp, bytes: &mut [u8]) -> u64 {
        bytes[BIRTH].copy_from_slice(&birth.number().to_le_bytes());
        let sum = checksum(bytes, first);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// When a run was born that has this checksum, if it is there.
    pub(crate) fn read_birth(&self, run: Run, sum: u64) -> Result<Option<u64>> {
        // Nothing is allocated that the file does not have.
        if self.offset(run.iter().end) > self.file.len()? {
            return Ok(None);
        }
        let mut bytes = vec![0; run.pages as usize * self.page_bytes];
        self.file.read_at(self.offset(run.first), &mut bytes)?;
        let is_right = Self::sum_of(run.first, &bytes) == Some(sum) || planted!(TrustReferred);
        Ok(is_right.then(|| u64::from_le_bytes(bytes[BIRTH].try_into().expect("eight bytes"))))
    }

    /// The checksum of a run that was read, if it is right.
    pub(crate) fn sum_of(first: u32, bytes: &[u8]) -> Option<u64> {
        let found = u64::from_le_bytes(bytes[CHECKSUM].try_into().expect("eight bytes"));
        Some(found).filter(|found| *found == checksum(bytes, first))
    }
}
