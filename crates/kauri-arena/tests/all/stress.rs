//! Threads: readers begin, hold, look again and let go, elsewhere too, and loaders bring pages, while one writer makes versions
//! and uses pages again as soon as it may. Every page says in every word who wrote it, so a torn or reused one is seen.

#![expect(clippy::disallowed_methods, reason = "what is tested is threads against each other")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::thread;

use kauri_arena::{Arena, CHUNK_PAGES, InUse, Reader, Stamp, Writer};

const PAGE_BYTES: usize = 512;
const VERSIONS: u64 = 10_000;
/// Pages of all sorts, around the end of a chunk.
const FIRST_PAGE: u32 = CHUNK_PAGES - 12;
const PAGES: u32 = 24;
/// What a version is made of: pages, and runs of two.
const PARTS: usize = 6;
/// More than a block of slots has.
const READERS_MAX: usize = 40;
/// Pages that are loaded were born before every version.
const LOADED: u64 = 2;
const FIRST_VERSION: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Part {
    first: u32,
    pages: u32,
    born: u64,
}

type Root = Vec<Part>;

fn word(born: u64, first: u32) -> u64 {
    born << 32 | u64::from(first)
}

fn write(bytes: &mut [u8], born: u64, first: u32) {
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word(born, first).to_le_bytes());
    }
}

fn check(bytes: &[u8], born: u64, first: u32) {
    let expected = word(born, first).to_le_bytes();
    assert!(bytes.chunks_exact(8).all(|chunk| chunk == expected), "page {first} is not as it was born at {born}");
}

/// Numbers that are far apart; the threads need no better.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn page(&mut self) -> u32 {
        FIRST_PAGE + u32::try_from(self.roll(PAGES.into())).expect("fewer than PAGES")
    }
}

/// What a version has is there as it was made; what another number finds, belongs to the version and is whole.
fn check_version(reader: &Reader<'_, Root>, dice: &mut Dice) {
    for part in reader.root() {
        check(reader.run(part.first, part.pages).expect("a part of the version"), part.born, part.first);
    }
    let page = dice.page();
    // The birth after the bytes: once a reader has got them, the birth stays as well.
    if let Some(bytes) = reader.page(page) {
        let born = reader.birth(page).expect("a page that was there");
        assert!(born <= reader.version());
        check(bytes, born.number(), page);
    }
}

/// Where readers are left for another thread. Nobody ever waits for it.
type Elsewhere<'a> = Mutex<Vec<Reader<'a, Root>>>;

/// Holds some versions at a time, and leaves some elsewhere to be dropped.
fn read<'a>(arena: &'a Arena<Root>, seed: u64, done: &AtomicBool, elsewhere: &Elsewhere<'a>) {
    let mut dice = Dice(seed);
    let mut held = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let readers = 1 + dice.roll(READERS_MAX as u64);
        while (held.len() as u64) < readers {
            held.push(arena.read());
        }
        while held.len() as u64 > readers / 2 {
            let index = dice.roll(held.len() as u64);
            let reader = held.swap_remove(usize::try_from(index).expect("an index"));
            check_version(&reader, &mut dice);
            if dice.roll(4) == 0
                && let Ok(mut elsewhere) = elsewhere.try_lock()
            {
                elsewhere.push(reader);
            }
        }
        thread::yield_now();
    }
    for reader in held {
        check_version(&reader, &mut dice);
    }
}

fn drop_elsewhere(elsewhere: &Elsewhere<'_>, done: &AtomicBool) {
    let mut dice = Dice(5);
    while !done.load(Ordering::Relaxed) {
        let left = match elsewhere.try_lock() {
            Ok(mut elsewhere) => std::mem::take(&mut *elsewhere),
            Err(TryLockError::WouldBlock) => Vec::new(),
            Err(TryLockError::Poisoned(_)) => panic!("another thread panicked"),
        };
        left.iter().for_each(|reader| check_version(reader, &mut dice));
        drop(left);
        thread::yield_now();
    }
}

fn load(arena: &Arena<Root>, seed: u64, done: &AtomicBool, loads: &AtomicU64) {
    let mut dice = Dice(seed);
    while !done.load(Ordering::Relaxed) {
        let page = dice.page();
        let Ok(_) = arena.load(page, 1, |bytes| {
            write(bytes, LOADED, page);
            loads.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Stamp::new(LOADED).expect("not zero"))
        });
        thread::yield_now();
    }
}

/// The writer, and what it remembers of its pages.
struct Maker<'a> {
    arena: &'a Arena<Root>,
    writer: Writer<Root>,
    root: Root,
    /// What died and is not reclaimed.
    dead: Vec<u32>,
    dice: Dice,
    reused: u64,
}

impl Maker<'_> {
    /// Publishes a version with one part changed, and gives up a page that was loaded.
    fn make(&mut self) {
        let born = self.writer.tick().number();
        let part = self.take(born);
        let old = if self.root.len() < PARTS { None } else { Some(self.root.remove(0)) };
        self.root.extend(part);
        self.dead.extend(old.map(|part| part.first));
        let loaded = self.dice.page();
        if self.writer.birth(loaded).is_some_and(|birth| birth.number() == LOADED) && !self.dead.contains(&loaded) {
            self.dead.push(loaded);
        }
        self.dead.iter().for_each(|page| self.writer.retire(*page));
        self.arena.publish(self.writer.seal(), self.root.clone());
        self.writer.scan();
        self.reclaim();
    }

    fn take(&mut self, born: u64) -> Option<Part> {
        // As many tries as pages: some are used, dead or being loaded.
        for _ in 0..PAGES {
            let first = self.dice.page();
            let pages = if first % CHUNK_PAGES == CHUNK_PAGES - 1 { 1 } else { 1 + u32::from(self.dice.roll(3) == 0) };
            if let Ok(bytes) = self.writer.take_run(first, pages) {
                write(bytes, born, first);
                return Some(Part { first, pages, born });
            }
        }
        None
    }

    fn reclaim(&mut self) {
        let writer = &mut self.writer;
        let before = self.dead.len();
        self.dead.retain(|page| match writer.reclaim(*page) {
            Ok(()) => false,
            Err(InUse::Held(_)) => true,
            Err(InUse::Taken) => panic!("page {page} is dead"),
        });
        self.reused += (before - self.dead.len()) as u64;
    }
}

#[test]
fn readers_loaders_and_the_writer_never_disturb_each_other() {
    let (arena, writer) = Arena::new(PAGE_BYTES, Stamp::new(FIRST_VERSION).unwrap(), Root::new());
    let mut maker = Maker { arena: &arena, writer, root: Root::new(), dead: Vec::new(), dice: Dice(1), reused: 0 };
    let (done, loads) = (AtomicBool::new(false), AtomicU64::new(0));
    let elsewhere = Elsewhere::default();
    thread::scope(|scope| {
        let (arena, done, elsewhere) = (&arena, &done, &elsewhere);
        let others = [
            scope.spawn(|| read(arena, 2, done, elsewhere)),
            scope.spawn(|| read(arena, 3, done, elsewhere)),
            scope.spawn(|| drop_elsewhere(elsewhere, done)),
            scope.spawn(|| load(arena, 4, done, &loads)),
        ];
        // Also when it panics: the others would go on for ever.
        let stop = OnDrop(done);
        // On a busy machine some threads get their turn late; without them the test means nothing.
        for made in 0..100 * VERSIONS {
            let enough = maker.reused > VERSIONS / 4 && loads.load(Ordering::Relaxed) > 0;
            if made >= VERSIONS && enough {
                break;
            }
            maker.make();
            thread::yield_now();
        }
        drop(stop);
        // Joined by name: the sanitizer does not see how a scope waits.
        for other in others {
            other.join().expect("no thread panics");
        }
    });
    assert!(maker.reused > VERSIONS / 4, "{} pages were used again: too few to mean anything", maker.reused);
    assert!(loads.into_inner() > 0, "nothing was loaded");
}

/// Says that it is done when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
