//! Commits that survive: the log, its flushing in groups, and checkpoints.
//!
//! A commit is a record in the log. Whoever has the writer's turn makes the record and gives the turn up; then whoever comes
//! first writes all records that are waiting, with one durable write, and publishes their versions. Meanwhile the next ones
//! are made. When the ring is half full, or a transaction is no record, a checkpoint writes the pages themselves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kauri_arena::{Arena, Sealed};

use crate::btree::{self, Of, Old, PagesMut, Root};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::file::StoreFile;
use crate::free::FreeSet;
use crate::log::{Body, Ring};
use crate::meta::{LOG_PAGE, META_BYTES, Meta};
use crate::node;
use crate::overflow::RunsMut;
use crate::pager::{Pager, Run};
use crate::store::State;

/// The most that a checkpoint writes at once, unless one run is longer.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// When a commit returns.
///
/// ```
/// use kauri_tree::disk::MemoryDisk;
/// use kauri_tree::{Durability, Options, Table, Write};
///
/// const SEEN: Table<u64, ()> = Table::new("seen");
/// let store = Options::new().open(&MemoryDisk::new(), "store")?;
/// for number in 0..100 {
///     let mut txn = store.begin();
///     txn.put(&SEEN, number, ())?;
///     // A power cut may take some of these away, the last ones first.
///     txn.commit_with(Durability::None)?;
/// }
/// // After this one, it takes none of them.
/// let mut txn = store.begin();
/// txn.put(&SEEN, 100, ())?;
/// txn.commit_with(Durability::Sync)?;
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When its changes are on stable storage: no crash takes them away.
    #[default]
    Sync,
    /// When its changes are with the operating system: a crash of the program leaves them, a crash of the machine may take
    /// them, together with later ones, up to the next commit that is synced.
    None,
}

/// What belongs to a store in a file and to no one's turn.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) file: Arc<StoreFile>,
    flush: Mutex<Flush>,
    flushed: Condvar,
    /// A write failed: nobody knows what the file holds, so nothing is written to it any more.
    broken: AtomicBool,
}

/// Records on their way to the file.
#[derive(Debug, Default)]
struct Flush {
    /// Where in the file, and what.
    waiting: Vec<(u64, Vec<u8>)>,
    newest: Option<(Sealed, Catalog)>,
    wants_sync: bool,
    /// How many records were made, and how many are where they should be.
    made: u64,
    done: u64,
    /// Somebody is writing.
    busy: bool,
    /// Records were written that no sync has covered.
    unsynced: bool,
}

/// A record that was made and is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// What belongs to a store in a file and to whoever has the writer's turn.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) ring: Ring,
    pub(crate) body: Body,
    pub(crate) meta: Meta,
    /// The tree in which the catalog was written last.
    pub(crate) catalog: Root,
    pub(crate) bitmap: Option<Run>,
    /// Nothing was committed since the store was opened.
    pub(crate) opened: bool,
}

impl Durable {
    pub(crate) fn new(file: Arc<StoreFile>) -> Self {
        Self { file, flush: Mutex::default(), flushed: Condvar::new(), broken: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Flush> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file can be written.
    ///
    /// # Errors
    /// `Broken` after a failed write.
    pub(crate) fn check(&self) -> Result<()> {
        if self.broken.load(Ordering::Acquire) { Err(Error::Broken) } else { Ok(()) }
    }

    /// Runs a write of which nobody knows what it did if it fails.
    fn or_break<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() && !planted!(WriteOnAfterFailure) {
            self.broken.store(true, Ordering::Release);
        }
        result
    }

    /// Makes a record of what the transaction did; or writes its pages, if it cannot be one.
    pub(crate) fn commit(
        &self,
        arena: &Arena<Catalog>,
        state: &mut State,
        version: Sealed,
        durability: Durability,
    ) -> Result<Option<Ticket>> {
        self.check()?;
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        if turn.body.is_empty() {
            return Ok(None);
        }
        if turn.opened && !planted!(FollowStaleRecords) {
            // A crash may have kept a record and lost the one before it. If the lost one were made again to the byte, the
            // other would follow it: a commit that nobody made in this life. So the first commit of a life is a checkpoint, and
            // its records have numbers that nothing in the ring has.
            turn.ring.skip_ahead();
            turn.opened = false;
            self.checkpoint(arena, state)?;
            return Ok(None);
        }
        if turn.body.is_unfit() || !turn.ring.has_room(&turn.body) {
            self.checkpoint(arena, state)?;
            return Ok(None);
        }
        let (offset, record) = turn.ring.append(&turn.body);
        turn.body.clear();
        let at = self.file.offset(LOG_PAGE) + offset;
        let mut flush = self.lock();
        match flush.waiting.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.extend_from_slice(&record),
            _ => flush.waiting.push((at, record)),
        }
        flush.newest = Some((version, state.catalog.clone()));
        flush.wants_sync |= durability == Durability::Sync;
        flush.made += 1;
        Ok(Some(Ticket(flush.made)))
    }

    /// Returns when a record is where it should be. The first to wait writes for all.
    pub(crate) fn wait(&self, arena: &Arena<Catalog>, ticket: Ticket) -> Result<()> {
        let mut flush = self.lock();
        while flush.done < ticket.0 {
            self.check()?;
            flush = match flush.busy {
                true => self.flushed.wait(flush).unwrap_or_else(PoisonError::into_inner),
                false => self.lead(arena, flush)?,
            };
        }
        Ok(())
    }

    /// Writes all records that wait, and publishes the newest of their versions.
    fn lead<'a>(&'a self, arena: &Arena<Catalog>, mut flush: MutexGuard<'a, Flush>) -> Result<MutexGuard<'a, Flush>> {
        let waiting = std::mem::take(&mut flush.waiting);
        let newest = flush.newest.take();
        let (sync, unsynced, made) = (std::mem::take(&mut flush.wants_sync), flush.unsynced, flush.made);
        flush.busy = true;
        drop(flush);
        let written = self.or_break(self.write_records(&waiting, sync, unsynced));
        let mut flush = self.lock();
        flush.busy = false;
        if written.is_ok() {
            flush.unsynced = !sync && (unsynced || !waiting.is_empty());
            flush.done = if planted!(AnswerTooMany) { flush.made } else { made };
            if let Some((version, catalog)) = newest {
                arena.publish(version, catalog);
            }
        }
        self.flushed.notify_all();
        written.map(|()| flush)
    }

    fn write_records(&self, waiting: &[(u64, Vec<u8>)], sync: bool, unsynced: bool) -> Result<()> {
        let file = self.file.disk();
        match (sync && !planted!(WriteWithoutSync), unsynced && !planted!(SyncLastRecordOnly), waiting) {
            // One durable write is all that most commits need.
            (true, false, [(at, bytes)]) => file.write_durable_at(*at, bytes)?,
            (sync, ..) => {
                for (at, bytes) in waiting {
                    file.write_at(*at, bytes)?;
                }
                if sync {
                    file.sync()?;
                }
            }
        }
        Ok(())
    }

    /// Writes what waits, so that everything made before is done.
    fn drain(&self, arena: &Arena<Catalog>) -> Result<()> {
        let made = self.lock().made;
        self.wait(arena, Ticket(made))
    }

    /// Writes the pages of the newest version, and then the meta page that points to them. After it the log is empty.
    pub(crate) fn checkpoint(&self, arena: &Arena<Catalog>, state: &mut State) -> Result<()> {
        self.check()?;
        self.drain(arena)?;
        let written = self.write_checkpoint(arena, state);
        self.or_break(written)
    }

    fn write_checkpoint(&self, arena: &Arena<Catalog>, state: &mut State) -> Result<()> {
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        state.pager.begin();
        write_catalog(&mut state.pager, &state.catalog, &mut turn.catalog)?;
        let bitmap = make_bitmap(&mut state.pager, &mut turn.bitmap)?;
        let version = state.pager.commit();
        self.write_pages(state, bitmap)?;
        if !planted!(PointAtUnsyncedPages) {
            self.file.disk().sync()?;
        }
        let turn = state.turn.as_mut().expect("as above");
        let meta = Meta {
            checkpoint: turn.meta.checkpoint + 1,
            version: version.version().number(),
            end: state.pager.end(),
            log: turn.ring.next(),
            catalog: turn.catalog,
            bitmap_page: bitmap.first,
            bitmap_pages: bitmap.pages,
            ..turn.meta
        };
        let page = u32::from(meta.checkpoint % 2 == 1 && !planted!(WriteOneMeta));
        self.file.disk().write_durable_at(self.file.offset(page), &meta.encode(page))?;
        turn.meta = meta;
        turn.ring.empty();
        turn.body.clear();
        state.pager.keep(version.version());
        self.lock().unsynced = false;
        arena.publish(version, state.catalog.clone());
        Ok(())
    }

    /// Writes the pages that were born since the last checkpoint and live, and the bitmap of all that live.
    fn write_pages(&self, state: &mut State, bitmap: Run) -> Result<()> {
        let page_bytes = state.page_bytes;
        // Pages that lie side by side are written at once: a call for each costs more than copying it does.
        let (mut first, mut buffer) = (0, Vec::new());
        for (run, birth, bytes) in state.pager.born().filter(|(run, ..)| *run != bitmap) {
            let goes_on = self.file.offset(first) + buffer.len() as u64 == self.file.offset(run.first);
            if !goes_on || buffer.len() + bytes.len() > WRITE_BYTES_MAX {
                self.file.write(first, &buffer)?;
                buffer.clear();
                first = run.first;
            }
            let start = buffer.len();
            buffer.extend_from_slice(bytes);
            StoreFile::seal(run.first, birth, &mut buffer[start..]);
        }
        self.file.write(first, &buffer)?;
        let birth = state.pager.birth(bitmap.first).expect("the bitmap was just made");
        let mut bytes = vec![0; bitmap.pages as usize * page_bytes];
        write_bitmap(&state.pager, &mut bytes);
        StoreFile::seal(bitmap.first, birth, &mut bytes);
        self.file.write(bitmap.first, &bytes)?;
        state.pager.forget_born();
        Ok(())
    }
}

/// Brings the tree of the catalog up to date.
fn write_catalog(pages: &mut Pager<Catalog>, catalog: &Catalog, root: &mut Root) -> Result<()> {
    let mut gone: BTreeSet<Vec<u8>> = catalog_rows(pages, *root)?.into_iter().map(|(name, _)| name).collect();
    for (name, types, table) in catalog.iter() {
        let row = encode_table(types, table);
        gone.remove(name.as_bytes());
        let old = btree::get::<Of<[u8]>>(pages, *root, name.as_bytes())?;
        if old != Some(node::Value::Inline(&row)) {
            btree::put::<Of<[u8]>>(pages, root, name.as_bytes(), node::Value::Inline(&row))?;
        }
    }
    for name in gone {
        let old = btree::remove::<Of<[u8]>>(pages, root, &name)?;
        assert_eq!(old, Old::Inline, "a row of the catalog");
    }
    Ok(())
}

/// A table as a row of the catalog's tree.
fn encode_table(types: &str, root: Root) -> Vec<u8> {
    [&root.page.to_le_bytes()[..], &root.rows.to_le_bytes(), types.as_bytes()].concat()
}

/// The rows of the catalog's tree.
pub(crate) fn catalog_rows(pages: &Pager<Catalog>, root: Root) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    let mut scan = btree::Scan::first(crate::read::Access::Turn(pages), root)?;
    while let Some(btree::Row { node, index, .. }) = scan.next()? {
        let mut name = Vec::new();
        node.key_into(index, &mut name);
        rows.push((name, node.value(index).bytes().to_vec()));
    }
    Ok(rows)
}

const BITMAP_HEADER_BYTES: usize = 32;
const KIND_BITMAP: u8 = 3;

/// Gives the old bitmap's pages up and takes new ones, enough for all pages and for those taken here.
fn make_bitmap(pages: &mut Pager<Catalog>, bitmap: &mut Option<Run>) -> Result<Run> {
    if let Some(old) = bitmap.take() {
        RunsMut::retire_run(pages, old);
    }
    let page_bytes = pages.page_bytes();
    let needed = |bits: usize| (bits.div_ceil(8) + BITMAP_HEADER_BYTES).div_ceil(page_bytes);
    // Taking them may make the store longer by as many.
    let mut count = needed(pages.end() as usize);
    while needed(pages.end() as usize + count) > count {
        count += 1;
    }
    let (first, _) = pages.make_run(u32::try_from(count).map_err(|_| Error::Full)?)?;
    let run = Run { first, pages: u32::try_from(count).map_err(|_| Error::Full)? };
    *bitmap = Some(run);
    Ok(run)
}

/// Writes which pages live: a bit for each, from page 0 on.
fn write_bitmap(pages: &Pager<Catalog>, bytes: &mut [u8]) {
    bytes[16] = KIND_BITMAP;
    let bits = &mut bytes[BITMAP_HEADER_BYTES..];
    for page in 0..pages.end() as usize {
        bits[page / 8] |= 1 << (page % 8);
    }
    for page in pages.free().iter().chain(pages.waiting().filter(|_| !planted!(KeepWaitingInBitmap))) {
        bits[page as usize / 8] &= !(1 << (page % 8));
    }
}

/// The free pages among those before `end`, by a bitmap that was read.
pub(crate) fn read_bitmap(bytes: &[u8], end: u32) -> Option<FreeSet> {
    let bits = bytes.get(BITMAP_HEADER_BYTES..)?;
    if bytes[16] != KIND_BITMAP || bits.len() * 8 < end as usize {
        return None;
    }
    let mut free = FreeSet::default();
    for page in (0..end).filter(|page| bits[*page as usize / 8] >> (page % 8) & 1 == 0) {
        free.insert(page);
    }
    Some(free)
}

const _: () = assert!(META_BYTES <= 256, "a meta page fits the smallest page");
