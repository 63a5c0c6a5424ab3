//! Checkpoints: the pages themselves, beside the writer.
//!
//! ```text
//! turn:     begin ─ catalog, bitmap, seal ─┐                     ┌─ absorb: the ring's first part and older pages are free
//! no turn:                                 └─ pages ─ sync ─ meta ┘
//! ```
//!
//! A checkpoint begins in the writer's turn: it makes a version, and holds it as any reader does. Then the turn is free, and the
//! pages of that version which were born since the last checkpoint are written, made durable, and pointed to by the other
//! meta page. What the next turn finds done, it takes note of. There is one at a time.
//!
//! A transaction that is no record is committed by a checkpoint that keeps the turn: then the version is shown when it is durable. If nobody
//! asked for that, its pages are only written, and a record says where they are (`loose.rs`).

mod loose;

use std::collections::BTreeSet;
use std::ops::Range;

use kauri_arena::{Reader, Sealed, Stamp};

use crate::btree::{self, Of, Old, PagesMut, Root};
use crate::catalog::{Catalog, ROOT_BYTES};
use crate::content;
use crate::durable::Durable;
use crate::error::{Error, Fault, Result};
use crate::file::StoreFile;
use crate::free::FreeSet;
use crate::group::{Ticket, Until};
use crate::kept;
use crate::log::Used;
use crate::meta::{LOG_PAGE, META_BYTES, Meta};
use crate::node;
use crate::open::write_zeros;
use crate::overflow::RunsMut;
use crate::pager::{Pager, Run, Written};
use crate::pins::{self, PinChange};
use crate::read::Access;
use crate::store::State;
use crate::sync::{lock, wait};

pub(crate) use loose::has_pages;

/// The most that a checkpoint writes at once, unless one run is longer.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// A file is cut when more than this part of it, one of so many, is free at its end; and the room of free pages inside is given back when
/// they are more than this part.
const CUT_SHARE: u64 = 8;

/// Fewer free pages side by side are not given back: each call takes its time, and a file of many small pieces is slow from then on.
const GIVE_BACK_PAGES_MIN: u32 = 16;

/// So many times as long is the log's ring when it is made longer.
const RING_GROWTH: u32 = 4;

/// How far the checkpoint is that is made beside the writer.
#[derive(Debug)]
pub(crate) enum Stage {
    /// There is none.
    Idle,
    /// Somebody writes it.
    Running,
    /// There is none, and there cannot be: somebody gives room of the file back.
    GivingBack,
    /// It is durable, and no turn has taken note of it.
    Done(Done),
}

/// What a turn needs to know of a checkpoint that ended.
#[derive(Debug)]
pub(crate) struct Done {
    meta: Meta,
    version: Stamp,
    /// How much of the ring it set free.
    ring_used: Used,
}

/// A checkpoint that has begun: what to write of its version.
pub(crate) struct Job {
    /// First pages of what was made since the last checkpoint; some of it has died.
    born: Vec<u32>,
    /// What is in the file already, of what was made since then.
    written: Vec<Written>,
    bitmap: Run,
    bits: Vec<u8>,
    meta: Meta,
    ring_used: Used,
    /// Whether the file is cut behind its last page in any case.
    cut_all: bool,
    /// The part of the log that becomes its ring, if that is made longer.
    zeros: Range<u64>,
    /// Everything that it holds.
    ticket: Ticket,
}

/// What keeps the pages of a checkpoint's version as they are while it is written.
pub(crate) enum Held<'a> {
    /// A reader.
    Version(Reader<'a, Catalog>),
    /// The turn.
    Turn(&'a Pager<Catalog>),
}

impl Durable {
    /// Begins a checkpoint of everything committed so far, in the writer's turn. No other is going on.
    pub(crate) fn begin_checkpoint(&self, state: &mut State) -> Result<(Job, Held<'_>)> {
        let (job, version) = self.begin(state, None)?;
        let stamp = version.version();
        // What is in it was shown before, when it was written.
        self.arena.publish(version, state.catalog.clone());
        let reader = self.arena.read();
        assert_eq!(reader.version(), stamp, "nobody else publishes while everything before is written");
        Ok((job, Held::Version(reader)))
    }

    fn begin(&self, state: &mut State, pins: Option<PinChange<'_>>) -> Result<(Job, Sealed)> {
        self.check()?;
        self.settle(state)?;
        self.drain(Until::Written)?;
        self.or_break(self.sync_name(state))?;
        let job = self.make_job(state, pins);
        self.or_break(job)
    }

    /// Makes the file's name durable, once: whoever gave it that name may have died before it was. The first commit of a life is a
    /// checkpoint, so nothing is promised before this.
    fn sync_name(&self, state: &mut State) -> Result<()> {
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        if !turn.is_named && !planted!(ForgetNameSync) {
            self.file.disk().sync_name()?;
            turn.is_named = true;
        }
        Ok(())
    }

    fn make_job(&self, state: &mut State, pins: Option<PinChange<'_>>) -> Result<(Job, Sealed)> {
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        state.pager.begin();
        state.pager.cut_tail();
        write_catalog(&mut state.pager, &state.catalog, &mut turn.catalog)?;
        // What the versions had and have no more is known from here on: what follows belongs to none of them.
        kept::write(&mut state.pager, &mut turn.kept)?;
        if let Some(change) = pins {
            pins::apply(state, change)?;
        }
        let turn = state.turn.as_mut().expect("as above");
        let bitmap = state.pager.unseen(|pager| make_bitmap(pager, &mut turn.bitmap))?;
        let version = state.pager.commit();
        let stamp = version.version();
        let mut bits = vec![0; bitmap.pages as usize * state.page_bytes];
        write_bitmap(&state.pager, &mut bits);
        let ring_pages = longer_ring(&turn.meta, &state.pager);
        let ring_end = |pages: u32| self.file.offset(LOG_PAGE + pages);
        let zeros = ring_end(turn.meta.ring_pages)..ring_end(ring_pages);
        let meta = Meta {
            checkpoint: turn.meta.checkpoint + 1,
            version: stamp.number(),
            end: state.pager.end(),
            log: turn.ring.next(),
            catalog: turn.catalog,
            bitmap_page: bitmap.first,
            bitmap_pages: bitmap.pages,
            ring_pages,
            pins: turn.pins,
            kept: turn.kept,
            ..turn.meta
        };
        // The file holds the last checkpoint until this one is durable, and then this one: the pages of both stay.
        let last = Stamp::new(turn.meta.version).expect("a version was read or made");
        state.pager.keep([last].into_iter().chain(turn.loose).chain([stamp]).collect());
        state.pager.begin_checkpoint();
        self.file.forget_reach();
        *lock(&self.stage) = Stage::Running;
        let mut ring_used = turn.ring.used();
        if planted!(ReleaseLogTooSoon) {
            turn.ring.release(std::mem::take(&mut ring_used));
        }
        let (born, written) = (state.pager.take_born(), state.pager.take_written());
        let (cut_all, ticket) = (turn.cut_all, self.group.all(Until::Synced));
        Ok((Job { born, written, bitmap, bits, meta, ring_used, cut_all, zeros, ticket }, version))
    }

    /// Writes a checkpoint, in no one's turn or in its own. `between` is called between its writes.
    pub(crate) fn run_checkpoint(&self, job: Job, held: Held<'_>, between: &mut dyn FnMut()) -> Result<()> {
        let panics = OnPanic(self);
        let result = self.or_break(self.write_checkpoint(job, &held, between));
        // From where the stage is set on, another checkpoint may be running.
        std::mem::forget(panics);
        drop(held);
        let (stage, result) = match result {
            Ok(done) => (Stage::Done(done), Ok(())),
            Err(error) => (Stage::Idle, Err(error)),
        };
        *lock(&self.stage) = stage;
        self.ended.notify_all();
        result
    }

    fn write_checkpoint(&self, job: Job, held: &Held<'_>, between: &mut dyn FnMut()) -> Result<Done> {
        let Job { born, written: _, bitmap, mut bits, meta, ring_used, cut_all, zeros, ticket } = job;
        self.file.raise_newest(Stamp::new(meta.version).expect("the version was just made"));
        write_zeros(self.file.disk(), zeros.start, zeros.end)?;
        let written = self.write_pages(held, born, bitmap, &mut |_| (), between)?;
        self.write_bits(held, bitmap, &mut bits)?;
        if !planted!(PointAtUnsyncedPages) {
            self.file.disk().sync()?;
        }
        self.check_writes()?;
        let page = u32::from(meta.checkpoint % 2 == 1 && !planted!(WriteOneMeta));
        self.file.disk().write_durable_at(self.file.offset(page), &meta.encode(page))?;
        self.group.cover(ticket);
        // From here on they can leave memory and be read again.
        for page in written {
            held.mark_written(page);
        }
        self.cut_file(meta.end, cut_all)?;
        let version = Stamp::new(meta.version).expect("the version was just made");
        Ok(Done { meta, version, ring_used })
    }

    /// Writes the pages of the version that were born since the last checkpoint, and tells which. `note` hears the checksum of each,
    /// and `between` is called between writes. The bitmap is written by itself: it was sealed with the version, and says what else was free then.
    fn write_pages(
        &self,
        held: &Held<'_>,
        mut born: Vec<u32>,
        bitmap: Run,
        note: &mut dyn FnMut(u64),
        between: &mut dyn FnMut(),
    ) -> Result<Vec<u32>> {
        born.sort_unstable();
        born.dedup();
        // Pages that lie side by side are written at once: a call for each costs more than copying it does.
        let (mut first, mut buffer, mut written) = (0, Vec::with_capacity(WRITE_BYTES_MAX), Vec::new());
        let mut add = |page, birth, bytes: &[u8]| -> Result<()> {
            let goes_on = self.file.offset(first) + buffer.len() as u64 == self.file.offset(page);
            if !goes_on || buffer.len() + bytes.len() > WRITE_BYTES_MAX {
                self.file.write(first, &buffer)?;
                between();
                buffer.clear();
                first = page;
            }
            let start = buffer.len();
            buffer.extend_from_slice(bytes);
            note(StoreFile::seal(page, birth, &mut buffer[start..]));
            written.push(page);
            Ok(())
        };
        for page in born.into_iter().filter(|page| *page != bitmap.first) {
            // What died since it was made is not there.
            held.whole(page, |birth, bytes| add(page, birth, bytes)).unwrap_or(Ok(()))?;
        }
        self.file.write(first, &buffer)?;
        Ok(written)
    }

    /// Writes the bitmap, and tells its checksum.
    fn write_bits(&self, held: &Held<'_>, bitmap: Run, bits: &mut [u8]) -> Result<u64> {
        let birth = held.whole(bitmap.first, |birth, _| birth).expect("the bitmap was just made");
        let sum = StoreFile::seal(bitmap.first, birth, bits);
        self.file.write(bitmap.first, bits)?;
        Ok(sum)
    }

    /// Gives the system back what lies behind the last page, if it is worth it, or in any case. Nothing points there: neither this
    /// checkpoint nor, since it is durable, anything else that counts.
    fn cut_file(&self, end: u32, all: bool) -> Result<()> {
        self.file.cut(end, if all { u64::MAX } else { CUT_SHARE })
    }

    /// Takes note of a checkpoint that ended, in the writer's turn.
    pub(crate) fn absorb(&self, state: &mut State) {
        let mut stage = lock(&self.stage);
        let is_quiet = match std::mem::replace(&mut *stage, Stage::Idle) {
            Stage::Done(done) => {
                drop(stage);
                let turn = state.turn.as_mut().expect("a store in a file has a log");
                let before = std::mem::replace(&mut turn.meta, done.meta);
                turn.loose = None;
                turn.ring.release(done.ring_used);
                turn.ring.grow(u64::from(turn.meta.ring_pages) * state.page_bytes as u64);
                turn.body.set_most(turn.ring.body_bytes_max());
                let old = Stamp::new(before.version).filter(|_| planted!(KeepOldCheckpoint));
                state.pager.keep(vec![old.unwrap_or(done.version)]);
                state.pager.end_checkpoint();
                true
            }
            other => {
                *stage = other;
                // What was free when that began may be used by now, and would be lost if it were in the file.
                !matches!(*stage, Stage::GivingBack)
            }
        };
        state.pager.set_quiet(is_quiet && self.can_write());
    }

    /// Waits for the checkpoint that is going on, and takes note of it.
    pub(crate) fn settle(&self, state: &mut State) -> Result<()> {
        let mut stage = lock(&self.stage);
        while matches!(*stage, Stage::Running | Stage::GivingBack) {
            stage = wait(&self.ended, stage);
        }
        drop(stage);
        self.check()?;
        self.absorb(state);
        Ok(())
    }

    /// Makes a checkpoint without giving the turn up: of a transaction that is no record, when the ring is full, or of other pins.
    pub(crate) fn checkpoint_in_turn(&self, state: &mut State, pins: Option<PinChange<'_>>) -> Result<()> {
        let (job, version) = self.begin(state, pins)?;
        // What the transaction did is in the pages.
        state.turn.as_mut().expect("as above").body.clear();
        self.finish_in_turn(state, job, version)
    }

    fn finish_in_turn(&self, state: &mut State, job: Job, version: Sealed) -> Result<()> {
        if planted!(PublishBeforeDurable) {
            self.arena.publish(version, state.catalog.clone());
            state.pager.hold();
            self.run_checkpoint(job, Held::Turn(&state.pager), &mut || ())?;
        } else {
            state.pager.hold();
            self.run_checkpoint(job, Held::Turn(&state.pager), &mut || ())?;
            // Only now: nobody is to see what a crash may take away.
            self.arena.publish(version, state.catalog.clone());
        }
        state.pager.let_go();
        self.absorb(state);
        Ok(())
    }

    /// Where the file has room for pages that are free, if there is much of it, for [`give_back`](Self::give_back). Until then nobody writes
    /// pages.
    pub(crate) fn begin_give_back(&self, state: &mut State) -> Vec<Range<u64>> {
        let mut stage = lock(&self.stage);
        if !matches!(*stage, Stage::Idle) {
            return Vec::new();
        }
        state.pager.reclaim();
        let rooms = self.free_rooms(state);
        if !rooms.is_empty() {
            *stage = Stage::GivingBack;
        }
        rooms
    }

    fn free_rooms(&self, state: &State) -> Vec<Range<u64>> {
        let mut free = state.pager.free().clone();
        if planted!(GiveBackWaiting) {
            state.pager.waiting().for_each(|page| free.insert(page));
        }
        if free.len() as u64 * CUT_SHARE <= state.pages() {
            return Vec::new();
        }
        let rooms = free.runs(GIVE_BACK_PAGES_MIN).into_iter();
        rooms.map(|run| self.file.offset(run.start)..self.file.offset(run.end)).collect()
    }

    /// Gives room of the file back to the disk. Where that fails, the file keeps it.
    pub(crate) fn give_back(&self, rooms: Vec<Range<u64>>) {
        if rooms.is_empty() {
            return;
        }
        let _kept = self.discard(rooms);
        *lock(&self.stage) = Stage::Idle;
        self.ended.notify_all();
    }

    fn discard(&self, rooms: Vec<Range<u64>>) -> std::io::Result<()> {
        rooms.into_iter().try_for_each(|room| self.file.disk().discard(room))
    }

    /// The last thing done to a file: the log is emptied into the pages, and free pages at the end are cut off.
    pub(crate) fn close(&self, state: &mut State) -> Result<()> {
        self.settle(state)?;
        let turn = state.turn.as_ref().expect("as above");
        if turn.opened {
            return Ok(());
        }
        if !turn.ring.is_empty() {
            self.checkpoint_in_turn(state, None)?;
        }
        // What only the last checkpoint but one held is free now.
        state.pager.reclaim();
        if u64::from(state.pager.free_tail()) * CUT_SHARE > u64::from(state.pager.end()) {
            self.checkpoint_in_turn(state, None)?;
        }
        let _kept = self.discard(self.free_rooms(state));
        Ok(())
    }
}

/// Ends a checkpoint that a panic has left half written, so that nobody waits for it.
struct OnPanic<'a>(&'a Durable);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        self.0.break_off();
        *lock(&self.0.stage) = Stage::Idle;
        self.0.ended.notify_all();
    }
}

impl Held<'_> {
    /// The page or run that begins here is in the file.
    fn mark_written(&self, page: u32) {
        match self {
            Self::Version(reader) => reader.mark_written(page),
            Self::Turn(pages) => pages.mark_written(page),
        }
    }

    /// Shows the page or run that begins here, and when it was born; `None` if the version has none.
    fn whole<T>(&self, page: u32, see: impl FnOnce(Stamp, &[u8]) -> T) -> Option<T> {
        match self {
            Self::Version(reader) => reader.operation().whole(page).map(|(birth, bytes)| see(birth, bytes)),
            Self::Turn(pages) => pages.whole(page).map(|(birth, bytes)| see(birth, bytes)),
        }
    }
}

/// How many pages the log's ring has from this checkpoint on: four times as many, and again, as long as the store holds twice what it does.
fn longer_ring(meta: &Meta, pages: &Pager<Catalog>) -> u32 {
    let used = pages.end() as usize - pages.free().len() - meta.log_pages as usize;
    let mut ring = meta.ring_pages;
    while used / 2 >= ring as usize && ring < meta.log_pages {
        ring = ring.saturating_mul(RING_GROWTH).min(meta.log_pages);
    }
    ring
}

/// Brings the tree of the catalog up to date.
fn write_catalog(pages: &mut Pager<Catalog>, catalog: &Catalog, root: &mut Root) -> Result<()> {
    let mut gone = names(pages, *root)?;
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

/// The names in the catalog's tree.
fn names(pages: &Pager<Catalog>, root: Root) -> Result<BTreeSet<Vec<u8>>> {
    let mut names = BTreeSet::new();
    content::for_each(Access::Turn(pages), root, |name, _| {
        names.insert(name.to_vec());
        Ok(())
    })?;
    Ok(names)
}

/// The tables that a catalog's tree names.
pub(crate) fn read_catalog(access: Access<'_>, root: Root) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    content::for_each(access, root, |name, row| {
        let name = <str as kauri_wire::Key>::decode(name)?;
        let fault = Fault::new("a table in the catalog", row.len() as u64);
        let wrong = || Error::Corrupt { page: root.page, fault };
        let (root, types) = row.split_at_checked(ROOT_BYTES).ok_or_else(wrong)?;
        let types = <str as kauri_wire::Key>::decode(types)?;
        let page = u32::from_le_bytes(root[..4].try_into().expect("four bytes"));
        let rows = u64::from_le_bytes(root[4..].try_into().expect("eight bytes"));
        let place = catalog.find_or_make_named(name, types).ok_or_else(wrong)?;
        catalog.set_root(place, Root { page, rows });
        Ok(())
    })?;
    Ok(catalog)
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
    Some(FreeSet::unused(bits, end))
}

const _: () = assert!(META_BYTES <= 256, "a meta page fits the smallest page");
