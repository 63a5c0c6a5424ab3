//! Opening a store in a file: made, if there is none; found, if there is; and brought to where it was.

use std::sync::Arc;

use kauri_arena::{Arena, Stamp};

use crate::btree::{self, Of, Root};
use crate::catalog::{Catalog, check_name};
use crate::checkpoint::{has_pages, read_bitmap, read_catalog};
use crate::disk::{Disk, File, Open};
use crate::durable::{Durable, Turn};
use crate::error::{Error, Fault, Result};
use crate::file::StoreFile;
use crate::free::FreeSet;
use crate::log::{Body, Operation, PagesRecord, Referred, Ring, operations};
use crate::meta::{FORMAT, LOG_PAGE, LogStart, META_BYTES, Meta, Unusable};
use crate::node;
use crate::overflow::{self, Reference};
use crate::pager::{Pager, Run};
use crate::pins;
use crate::read::Access;
use crate::store::State;

/// The smallest cache: a way down each of a few trees.
const CACHE_PAGES_MIN: usize = 32;

/// A log begins with a ring of this part of its pages, one of so many.
const RING_SHARE_FIRST: u32 = 16;
/// The shortest ring, in pages.
const RING_PAGES_MIN: u32 = 16;

/// What an open store is made of.
pub(crate) struct Opened {
    pub(crate) state: State,
    pub(crate) durable: Durable,
}

/// Opens the store of this name, or makes it with pages of this size and a log of so many bytes.
pub(crate) fn open(
    disk: &dyn Disk,
    name: &str,
    page_bytes: usize,
    log_bytes: usize,
    cache_bytes: Option<usize>,
) -> Result<Opened> {
    let file = match disk.open(name, Open::ReadWrite) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let file = make(disk, name, page_bytes, log_bytes)?;
            if !planted!(ForgetNameSync) {
                disk.sync_dir()?;
            }
            let mut opened = recover(file, true, cache_bytes)?;
            // There is nothing in the ring that could follow what comes, and the name is durable.
            let turn = opened.state.turn.as_mut().expect("a store in a file has a log");
            (turn.opened, turn.is_named) = (false, true);
            return Ok(opened);
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Err(Error::Locked),
        Err(error) => return Err(error.into()),
    };
    recover(file, true, cache_bytes)
}

/// Opens the store of this name to read it. Whoever writes it may be at work: what is read is a version that was committed, since
/// a page used for a later one says so by its birth.
pub(crate) fn open_to_read(disk: &dyn Disk, name: &str, cache_bytes: Option<usize>) -> Result<Opened> {
    recover(disk.open(name, Open::ReadOnly)?, false, cache_bytes)
}

/// Makes an empty store beside, whole and durable, before it gets its name. The name is not durable yet.
fn make(disk: &dyn Disk, name: &str, page_bytes: usize, log_bytes: usize) -> Result<Box<dyn File>> {
    let aside = format!("{name}.new");
    let file = lay_out(disk, &aside, page_bytes, log_bytes)?;
    disk.rename(&aside, name)?;
    Ok(file)
}

/// Makes an empty store that keeps the name it has aside until somebody gives it another.
pub(crate) fn make_aside(
    disk: &dyn Disk,
    aside: &str,
    page_bytes: usize,
    log_bytes: usize,
    cache_bytes: Option<usize>,
) -> Result<Opened> {
    recover(lay_out(disk, aside, page_bytes, log_bytes)?, true, cache_bytes)
}

/// An empty store, whole and durable, under a name that counts for nobody.
fn lay_out(disk: &dyn Disk, aside: &str, page_bytes: usize, log_bytes: usize) -> Result<Box<dyn File>> {
    // What an earlier crash left of such an attempt is nobody's.
    let file = match disk.open(aside, Open::Create) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Err(Error::Locked),
        opened => opened?,
    };
    file.set_len(0)?;
    let log_pages = u32::try_from(log_bytes.div_ceil(page_bytes)).map_err(|_| Error::Full)?;
    let meta = Meta {
        page_bytes: u32::try_from(page_bytes).expect("at most 64 KiB"),
        checkpoint: 0,
        version: Stamp::FIRST.number(),
        end: LOG_PAGE + log_pages,
        log_pages,
        ring_pages: (log_pages / RING_SHARE_FIRST).max(RING_PAGES_MIN).min(log_pages),
        log: LogStart::default(),
        catalog: Root::default(),
        bitmap_page: 0,
        bitmap_pages: 0,
        pins: Root::default(),
        kept: Root::default(),
    };
    // What the ring may grow into is room that nobody has asked the disk for yet.
    file.set_len(u64::from(meta.end) * page_bytes as u64)?;
    write_zeros(&*file, 0, u64::from(LOG_PAGE + meta.ring_pages) * page_bytes as u64)?;
    file.write_at(0, &meta.encode(0))?;
    if !planted!(NameUnsyncedFile) {
        file.sync()?;
    }
    Ok(file)
}

/// Writes zeros all through, so that writing the log later changes bytes and nothing else.
pub(crate) fn write_zeros(file: &dyn File, from: u64, end: u64) -> Result<()> {
    let zeros = vec![0; usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 20)];
    let mut at = from;
    while at < end {
        let bytes = &zeros[..usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len())];
        file.write_at(at, bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// The newest meta page that is whole.
fn find_meta(file: &dyn File) -> Result<Meta> {
    let first = read_meta(file, 0, 0)?;
    // The second meta page stands behind a first page of unknown size: the first page's own word, or any size there is.
    let second: Vec<_> = match &first {
        Some(Ok(meta)) => read_meta(file, meta.page_bytes.into(), 1)?.into_iter().collect(),
        _ => (8..=16).filter_map(|bits| read_meta(file, 1 << bits, 1).transpose()).collect::<Result<_>>()?,
    };
    let (mut best, mut newer): (Option<Meta>, _) = (None, None);
    for meta in first.into_iter().chain(second) {
        match meta {
            Ok(meta) => {
                let is_newer = |best: &Meta| best.checkpoint >= meta.checkpoint && !planted!(TakeSecondMeta);
                best = best.filter(is_newer).or(Some(meta));
            }
            Err(format) => newer = Some(format),
        }
    }
    match (newer, best) {
        (Some(found), _) => Err(Error::NewerFormat { most: FORMAT, found }),
        (None, Some(meta)) => check_meta(meta),
        (None, None) => Err(corrupt(0, "a meta page", 0)),
    }
}

/// The meta page at a place: what it says, or the newer format it has; nothing if there is none.
fn read_meta(file: &dyn File, at: u64, page: u32) -> Result<Option<std::result::Result<Meta, u32>>> {
    let mut bytes = [0; META_BYTES];
    match file.read_at(at, &mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        // The other meta page would be one of an older checkpoint, whose pages are used again, and whose commits are not all there are.
        Err(_) if planted!(TakeReadableMeta) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(match Meta::decode(&bytes, page) {
        Ok(meta) if page == 0 || u64::from(meta.page_bytes) == at => Some(Ok(meta)),
        Ok(_) | Err(Unusable::Broken) => None,
        Err(Unusable::Newer(format)) => Some(Err(format)),
    })
}

/// Nobody counts so far: a greater number was not counted. Versions go twice as far, so that there are some after any that is believed.
const COUNT_MAX: u64 = u64::MAX / 4;

fn check_meta(meta: Meta) -> Result<Meta> {
    let page_bytes = meta.page_bytes as usize;
    if !page_bytes.is_power_of_two() || !(256..=65536).contains(&page_bytes) {
        return Err(corrupt(0, "a page size", meta.page_bytes.into()));
    }
    let most = meta.checkpoint.max(meta.version).max(meta.log.number);
    if most > COUNT_MAX {
        return Err(corrupt(0, "counts that can go on", most));
    }
    let first = LOG_PAGE.checked_add(meta.log_pages);
    if meta.log_pages == 0 || first.is_none_or(|first| first > meta.end) {
        return Err(corrupt(0, "a log before the pages", meta.log_pages.into()));
    }
    if meta.ring_pages > meta.log_pages {
        return Err(corrupt(0, "a ring inside the log", meta.ring_pages.into()));
    }
    let ring = u64::from(meta.ring_pages) * u64::from(meta.page_bytes);
    if meta.log.offset >= ring || !meta.log.offset.is_multiple_of(sector(page_bytes)) {
        return Err(corrupt(0, "a log that goes on inside the ring", meta.log.offset));
    }
    Ok(meta)
}

/// The log and the bitmap are read whole: nothing is allocated for them that the file does not have.
fn check_inside(file: &dyn File, meta: &Meta) -> Result<()> {
    let pages = file.len()? / u64::from(meta.page_bytes);
    let log_end = u64::from(LOG_PAGE) + u64::from(meta.log_pages);
    let bitmap_end = u64::from(meta.bitmap_page) + u64::from(meta.bitmap_pages);
    match log_end.max(bitmap_end) {
        end if end > pages => Err(corrupt(0, "a log and a bitmap inside the file", end)),
        _ => Ok(()),
    }
}

fn corrupt(page: u32, expected: &'static str, found: u64) -> Error {
    Error::Corrupt { page, fault: Fault::new(expected, found) }
}

/// The disk's sector, or the page if that is smaller. Records begin at its multiples, so that writing one touches no other.
const fn sector(page_bytes: usize) -> u64 {
    if page_bytes < 512 { page_bytes as u64 } else { 512 }
}

/// Brings a store to where it was: its last checkpoint, and what the log has after it. Nothing is written.
fn recover(file: Box<dyn File>, writes: bool, cache_bytes: Option<usize>) -> Result<Opened> {
    let meta = find_meta(&*file)?;
    check_inside(&*file, &meta)?;
    let page_bytes = meta.page_bytes as usize;
    let file = Arc::new(StoreFile::new(file, page_bytes));
    let log = read_log(&file, &meta)?;
    let meta = match newest_pages(&file, &meta, &log)? {
        Some(newer) => {
            check_inside(file.disk(), &newer)?;
            if writes {
                // The next checkpoint may use pages of the last one: from here on that is no longer what a crash returns to.
                file.disk().sync()?;
            }
            newer
        }
        None => meta,
    };
    let version = Stamp::new(meta.version).ok_or_else(|| corrupt(0, "a version", meta.version))?;
    if writes {
        file.set_newest(version);
    }
    let (free, bitmap) = read_free(&file, &meta)?;
    let (arena, writer) = match cache_bytes {
        Some(bytes) => {
            Arena::bounded(page_bytes, (bytes / page_bytes).max(CACHE_PAGES_MIN), version, Catalog::default())
        }
        None => Arena::new(page_bytes, version, Catalog::default()),
    };
    let mut pager = Pager::in_file(writer, LOG_PAGE + meta.log_pages..meta.end, free, Arc::clone(&file));
    pager.keep(vec![version]);
    let mut catalog = read_catalog(Access::Turn(&pager), meta.catalog)?;
    *catalog.pins_mut() = pins::read(Access::Turn(&pager), meta.pins, version)?;
    pager.set_newest_pin(catalog.pins().values().map(|pinned| pinned.version).max());
    let mut ring = ring_of(&meta);
    let body = Body::new(ring.body_bytes_max());
    let mut state = State { pager, catalog, page_bytes, turn: None };
    let records = adopt_referred(&file, &mut state.pager, ring.clone(), &log)?;
    replay(&mut state, &mut ring, &log, records)?;
    publish(&arena, &mut state);
    let Meta { catalog, pins, kept, .. } = meta;
    state.turn = Some(Turn {
        ring,
        body,
        meta,
        catalog,
        pins,
        kept,
        bitmap,
        loose: None,
        opened: true,
        is_named: false,
        cut_all: false,
    });
    Ok(Opened { state, durable: Durable::new(file, arena, writes) })
}

/// Shows what was recovered, as a version of its own.
fn publish(arena: &Arena<Catalog>, state: &mut State) {
    state.pager.begin();
    let version = state.pager.commit();
    arena.publish(version, state.catalog.clone());
}

/// The pages that are free by the bitmap of a checkpoint.
fn read_free(file: &StoreFile, meta: &Meta) -> Result<(FreeSet, Option<Run>)> {
    if meta.bitmap_pages == 0 {
        return Ok((FreeSet::default(), None));
    }
    let run = Run { first: meta.bitmap_page, pages: meta.bitmap_pages };
    let needed = (meta.end as usize).div_ceil(8).div_ceil(meta.page_bytes as usize) + 2;
    let last = run.first.checked_add(run.pages);
    if run.pages as usize > needed || last.is_none_or(|last| last > meta.end) {
        return Err(corrupt(0, "a bitmap among the pages", run.pages.into()));
    }
    let mut bytes = vec![0; run.pages as usize * meta.page_bytes as usize];
    file.read(run, &mut bytes)?;
    let free =
        read_bitmap(&bytes, meta.end).ok_or_else(|| corrupt(run.first, "a bitmap of all pages", run.pages.into()))?;
    let lowest = free.iter().next();
    match lowest.filter(|page| *page < LOG_PAGE + meta.log_pages) {
        Some(page) => Err(corrupt(run.first, "metas and a log that are in use", page.into())),
        None => Ok((free, Some(run))),
    }
}

fn ring_of(meta: &Meta) -> Ring {
    let bytes = u64::from(meta.ring_pages) * u64::from(meta.page_bytes);
    Ring::new(bytes, sector(meta.page_bytes as usize), meta.log)
}

/// The ring's bytes; none if nothing follows the checkpoint.
fn read_log(file: &StoreFile, meta: &Meta) -> Result<Vec<u8>> {
    let ring = ring_of(meta);
    // A store that was closed has an empty log: two looks tell, and reading all of it takes milliseconds.
    if planted!(IgnoreLog)
        || !ring.may_go_on(|at, header| Ok(file.disk().read_at(file.offset(LOG_PAGE) + at, header)?))?
    {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; usize::try_from(ring.bytes()).map_err(|_| Error::Full)?];
    file.disk().read_at(file.offset(LOG_PAGE), &mut bytes)?;
    Ok(bytes)
}

/// The transaction in the log that was committed by its pages, if they are there, as the meta page of a checkpoint of it.
fn newest_pages(file: &StoreFile, meta: &Meta, log: &[u8]) -> Result<Option<Meta>> {
    let mut ring = ring_of(meta);
    while let Some(body) = ring.read(log) {
        let Some(record) = PagesRecord::decode(body) else { continue };
        let Ok(found) = Meta::decode(&record.meta, 0) else { break };
        let bitmap = Run { first: found.bitmap_page, pages: found.bitmap_pages };
        if !has_pages(file, &record, bitmap)? && !planted!(TrustPagesRecord) {
            break;
        }
        // What cannot change while a file lives is as the meta page says.
        let Meta { page_bytes, checkpoint, log_pages, ring_pages, .. } = *meta;
        return check_meta(Meta { page_bytes, checkpoint, log_pages, ring_pages, log: ring.next(), ..found }).map(Some);
    }
    Ok(None)
}

/// Takes the runs that the log names, so that nothing else is made there when it is done again. How many records there are to be done: up to
/// the first whose pages are not there.
fn adopt_referred(file: &StoreFile, pager: &mut Pager<Catalog>, mut ring: Ring, log: &[u8]) -> Result<usize> {
    let mut records = 0;
    while let Some(body) = ring.read(log).filter(|body| PagesRecord::decode(body).is_none()) {
        let Some(runs) = referred_by(file, body)? else { break };
        for (run, birth) in runs {
            file.raise_newest(birth);
            if !planted!(AdoptTooLate) && !pager.adopt(run, birth) {
                return Err(corrupt(run.first, "a run named by the log where free pages are", run.pages.into()));
            }
        }
        records += 1;
    }
    Ok(records)
}

/// The runs that a record names, and when each was born; nothing if one of them is not what was written.
fn referred_by(file: &StoreFile, body: &[u8]) -> Result<Option<Vec<(Run, Stamp)>>> {
    let mut runs = Vec::new();
    for operation in operations(body) {
        let Operation::Refer { run: Referred { reference, sum }, .. } = operation? else { continue };
        let run = overflow::single(file.page_bytes(), reference)
            .ok_or_else(|| corrupt(reference.first(), "a value of one run", reference.len() as u64))?;
        let Some(birth) = file.read_birth(run, sum)? else { return Ok(None) };
        let is_counted = |birth: &Stamp| birth.number() <= COUNT_MAX;
        let birth = Stamp::new(birth).filter(is_counted).ok_or_else(|| corrupt(run.first, "a birth", birth))?;
        runs.push((run, birth));
    }
    Ok(Some(runs))
}

/// Does again what the first so many records of the log say.
fn replay(state: &mut State, ring: &mut Ring, log: &[u8], records: usize) -> Result<()> {
    for index in 0.. {
        let before = ring.clone();
        let Some(body) = ring.read(log) else { break };
        if index == records {
            // Its pages are not there: neither it nor what followed was promised to survive, and neither may follow what comes now.
            if !planted!(FollowLostPages) {
                *ring = before;
                ring.skip_ahead();
            }
            break;
        }
        state.pager.begin();
        let mut table = None;
        for operation in operations(body) {
            apply(state, &mut table, operation?)?;
        }
        let _version_is_published_with_the_last = state.pager.commit();
    }
    Ok(())
}

/// Does one operation again; `table` is the place of the table that was named last.
fn apply(state: &mut State, table: &mut Option<usize>, operation: Operation<'_>) -> Result<()> {
    let State { pager, catalog, page_bytes, .. } = state;
    let place = |table: &Option<usize>| table.ok_or_else(|| corrupt(0, "a table before its rows", 0));
    match operation {
        Operation::Table { types, name } => {
            if catalog.place(name).is_none() && check_name(name, types, *page_bytes).is_err() {
                return Err(corrupt(0, "a name of a table that fits a page", name.len() as u64));
            }
            let found = catalog.find_or_make_named(name, types);
            *table = Some(found.ok_or_else(|| corrupt(0, "a table of the same types", 0))?);
        }
        Operation::Pages => return Err(corrupt(0, "pages in a record of their own", 0)),
        Operation::Drop { .. } if planted!(RecoverDroppedTable) => {}
        Operation::Drop { name } => {
            let place = catalog.place(name).ok_or_else(|| corrupt(0, "a table to drop", 0))?;
            btree::retire_all(pager, catalog.root(place))?;
            catalog.set_root(place, Root::default());
            catalog.forget(name);
        }
        Operation::Put { key, value } => {
            let place = place(table)?;
            let mut root = catalog.root(place);
            let old = put(pager, &mut root, *page_bytes, key, value)?;
            catalog.set_root(place, root);
            retire(pager, *page_bytes, old)?;
        }
        Operation::Refer { key, run } => {
            let place = place(table)?;
            let mut root = catalog.root(place);
            check_key(key, *page_bytes)?;
            if planted!(AdoptTooLate) {
                overflow::single(*page_bytes, run.reference).map(|run| pager.adopt(run, Stamp::FIRST));
            }
            let value = run.reference.encode();
            let old = btree::put::<Of<[u8]>>(pager, &mut root, key, node::Value::Overflow(&value))?;
            catalog.set_root(place, root);
            retire(pager, *page_bytes, old)?;
        }
        Operation::Remove { key } => {
            let place = place(table)?;
            let mut root = catalog.root(place);
            let old = btree::remove::<Of<[u8]>>(pager, &mut root, key)?;
            catalog.set_root(place, root);
            retire(pager, *page_bytes, old)?;
        }
    }
    Ok(())
}

fn put(pager: &mut Pager<Catalog>, root: &mut Root, page_bytes: usize, key: &[u8], value: &[u8]) -> Result<btree::Old> {
    check_key(key, page_bytes)?;
    if btree::fits(page_bytes, key.len(), value.len()) {
        return btree::put::<Of<[u8]>>(pager, root, key, node::Value::Inline(value));
    }
    let reference = overflow::write(pager, page_bytes, value)?.encode();
    btree::put::<Of<[u8]>>(pager, root, key, node::Value::Overflow(&reference))
}

fn check_key(key: &[u8], page_bytes: usize) -> Result<()> {
    match key.len() {
        long if long > btree::key_bytes_max(page_bytes) => {
            Err(corrupt(0, "a key of a quarter page at most", long as u64))
        }
        _ => Ok(()),
    }
}

fn retire(pager: &mut Pager<Catalog>, page_bytes: usize, old: btree::Old) -> Result<()> {
    match old {
        btree::Old::Overflow(reference) => overflow::retire(pager, page_bytes, Reference::decode(&reference)?),
        btree::Old::Missing | btree::Old::Inline => Ok(()),
    }
}
