//! Random operations: every answer of the arena is the model's, and what a reader saw first it sees until it is dropped.
//!
//! The model says which page or run lies where, when each was born and died, and what every frame has in it. It knows nothing of
//! slots, words and claims.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use kauri_arena::{Arena, CHUNK_PAGES, InUse, Load, Reader, Sealed, Stamp, Writer};
use proptest::prelude::*;
use proptest::test_runner::Config;

const PAGE_BYTES: usize = 256;
/// Pages on both sides of the end of a chunk, so that runs can hit it.
const FIRST_PAGE: u32 = CHUNK_PAGES - 4;
const PAGES: u32 = 8;
const READERS_MAX: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Tick,
    Take {
        first: u32,
        pages: u32,
    },
    Change {
        page: u32,
    },
    Copy {
        from: u32,
        to: u32,
    },
    Untake {
        first: u32,
    },
    Retire {
        first: u32,
    },
    Reclaim {
        first: u32,
    },
    Load {
        first: u32,
        pages: u32,
        born: u64,
        end: Ending,
    },
    Seal,
    /// One of the versions that are sealed and not published.
    Publish {
        which: usize,
    },
    Scan,
    Read,
    /// Drops one of the readers.
    Drop {
        which: usize,
    },
}

/// How the filling of a page ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Well,
    Error,
    Panic,
}

/// What lies in the frames from one page on.
#[derive(Clone, Copy, Debug)]
struct Life {
    born: u64,
    pages: u32,
}

struct Model {
    now: u64,
    base: u64,
    published: u64,
    /// The newest version and those held, at the last scan.
    scanned: (u64, Vec<u64>),
    lives: BTreeMap<u32, Life>,
    /// Pages that died and were not emptied since, in memory or not.
    deaths: BTreeMap<u32, u64>,
    /// What is in every frame, used or not.
    bytes: BTreeMap<u32, u8>,
}

impl Model {
    fn new(version: u64) -> Self {
        let bytes = (FIRST_PAGE..FIRST_PAGE + PAGES).map(|page| (page, 0)).collect();
        let (lives, deaths) = (BTreeMap::new(), BTreeMap::new());
        Self { now: version, base: version, published: version, scanned: (version, Vec::new()), lives, deaths, bytes }
    }

    fn is_empty(&self, page: u32) -> bool {
        !self.lives.iter().any(|(first, life)| (*first..first + life.pages).contains(&page))
    }

    fn death(&self, page: u32) -> u64 {
        self.deaths.get(&page).copied().unwrap_or(u64::MAX)
    }

    /// The byte that fills each page of a run.
    fn run(&self, first: u32, pages: u32) -> Option<Vec<u8>> {
        let life = self.lives.get(&first)?;
        (1..=life.pages).contains(&pages).then(|| (first..first + pages).map(|page| self.bytes[&page]).collect())
    }

    fn run_of(&self, version: u64, first: u32, pages: u32) -> Option<Vec<u8>> {
        let life = self.lives.get(&first)?;
        if (life.born..self.death(first)).contains(&version) { self.run(first, pages) } else { None }
    }

    fn owns(&self, page: u32) -> bool {
        self.lives.get(&page).is_some_and(|life| life.born > self.base)
    }

    fn is_free(&self, first: u32, pages: u32) -> bool {
        (first..first + pages).all(|page| self.is_empty(page))
    }

    fn fill(&mut self, first: u32, pages: u32, byte: u8) {
        self.bytes.extend((first..first + pages).map(|page| (page, byte)));
    }

    fn empty(&mut self, first: u32) {
        let pages = self.lives.remove(&first).map_or(1, |life| life.pages);
        self.deaths.retain(|page, _| !(first..first + pages).contains(page));
    }

    fn reclaim(&mut self, first: u32) -> Result<(), InUse> {
        let born = match self.lives.get(&first) {
            Some(life) => life.born,
            None if !self.is_empty(first) => return Err(InUse::Taken),
            None if !self.deaths.contains_key(&first) => return Ok(()),
            None => 1,
        };
        let died = *self.deaths.get(&first).ok_or(InUse::Taken)?;
        let (newest, held) = &self.scanned;
        let holder = if died > *newest { Some(newest) } else { held.iter().find(|held| (born..died).contains(held)) };
        if let Some(holder) = holder {
            return Err(InUse::Held(stamp(*holder)));
        }
        self.empty(first);
        Ok(())
    }
}

/// The byte that fills each page.
fn filled_with(bytes: &[u8]) -> Vec<u8> {
    let pages =
        bytes.chunks(PAGE_BYTES).inspect(|page| assert_eq!(*page, [page[0]; PAGE_BYTES], "a page in one piece"));
    pages.map(|page| page[0]).collect()
}

fn stamp(number: u64) -> Stamp {
    Stamp::new(number).expect("the model's stamps are stamps")
}

/// A reader, and what it saw when it began.
struct Watcher<'a> {
    reader: Reader<'a, u64>,
    seen: Vec<Option<Vec<u8>>>,
}

impl<'a> Watcher<'a> {
    fn new(reader: Reader<'a, u64>) -> Self {
        let seen = pages().map(|page| reader.page(page).map(filled_with)).collect();
        Self { reader, seen }
    }

    fn check(&self, model: &Model) {
        let version = self.reader.version().number();
        assert_eq!(*self.reader.root(), version);
        for (page, seen) in pages().zip(&self.seen) {
            let now = self.reader.page(page).map(filled_with);
            assert!(seen.is_none() || now == *seen, "page {page} of version {version} has changed");
            for count in 0..4 {
                let run = self.reader.run(page, count).map(filled_with);
                assert_eq!(run, model.run_of(version, page, count), "{count} pages from {page} in version {version}");
            }
            let birth = model.run_of(version, page, 1).map(|_| stamp(model.lives[&page].born));
            assert_eq!(self.reader.birth(page), birth);
        }
    }
}

fn pages() -> impl Iterator<Item = u32> {
    FIRST_PAGE..FIRST_PAGE + PAGES
}

fn is_run(first: u32, pages: u32) -> bool {
    first / CHUNK_PAGES == (first + pages - 1) / CHUNK_PAGES && first + pages <= FIRST_PAGE + PAGES
}

/// The arena and everything that stands beside it.
struct Pair<'a> {
    arena: &'a Arena<u64>,
    writer: Writer<u64>,
    model: Model,
    sealed: Vec<Sealed>,
    watchers: Vec<Watcher<'a>>,
    /// What is written next.
    byte: u8,
}

impl Pair<'_> {
    fn apply(&mut self, operation: Operation) {
        self.byte = self.byte.wrapping_add(1);
        match operation {
            Operation::Tick => self.tick(),
            Operation::Take { first, pages } => self.take(first, pages),
            Operation::Change { page } => self.change(page),
            Operation::Copy { from, to } => self.copy(from, to),
            Operation::Untake { first } => self.untake(first),
            Operation::Retire { first } => self.retire(first),
            Operation::Reclaim { first } => assert_eq!(self.writer.reclaim(first), self.model.reclaim(first)),
            Operation::Load { first, pages, born, end } => self.load(first, pages, born, end),
            Operation::Seal => self.seal(),
            Operation::Publish { which } => self.publish(which),
            Operation::Scan => self.scan(),
            Operation::Read => self.read(),
            Operation::Drop { which } if which < self.watchers.len() => drop(self.watchers.swap_remove(which)),
            Operation::Drop { .. } => {}
        }
    }

    fn tick(&mut self) {
        self.model.now += 1;
        assert_eq!(self.writer.tick().number(), self.model.now);
    }

    /// What needs time to have passed would panic otherwise.
    fn tick_after_seal(&mut self) {
        if self.model.now == self.model.base {
            self.tick();
        }
    }

    fn take(&mut self, first: u32, pages: u32) {
        if !is_run(first, pages) {
            return;
        }
        self.tick_after_seal();
        let model = &mut self.model;
        let is_dead = (first..first + pages).any(|page| model.deaths.contains_key(&page));
        let taken = self.writer.take_run(first, pages);
        assert_eq!(taken.is_ok(), model.is_free(first, pages) && !is_dead);
        let Ok(bytes) = taken else { return };
        model.lives.insert(first, Life { born: model.now, pages });
        assert_eq!(Some(filled_with(bytes)), model.run(first, pages), "whatever was there before");
        bytes.fill(self.byte);
        model.fill(first, pages, self.byte);
    }

    fn change(&mut self, page: u32) {
        let bytes = self.writer.page_mut(page);
        assert_eq!(bytes.is_some(), self.model.owns(page));
        if let Some(bytes) = bytes {
            bytes.fill(self.byte);
            self.model.fill(page, 1, self.byte);
        }
    }

    fn copy(&mut self, from: u32, to: u32) {
        let both = self.writer.from_to(from, to);
        assert_eq!(both.is_some(), from != to && self.model.lives.contains_key(&from) && self.model.owns(to));
        if let Some((from_bytes, to_bytes)) = both {
            to_bytes.copy_from_slice(from_bytes);
            self.model.fill(to, 1, self.model.bytes[&from]);
        }
    }

    fn untake(&mut self, first: u32) {
        assert_eq!(self.writer.untake(first) > 0, self.model.owns(first));
        if self.model.owns(first) {
            self.model.empty(first);
        }
    }

    fn retire(&mut self, first: u32) {
        self.tick_after_seal();
        self.writer.retire(first);
        self.model.deaths.entry(first).or_insert(self.model.now);
    }

    fn load(&mut self, first: u32, pages: u32, born: u64, end: Ending) {
        if !is_run(first, pages) {
            return;
        }
        let byte = self.byte;
        let fill = |bytes: &mut [u8]| {
            assert_eq!(bytes.len(), pages as usize * PAGE_BYTES);
            bytes.fill(byte);
            match end {
                Ending::Well => Ok(stamp(born)),
                Ending::Error => Err("no such page"),
                Ending::Panic => resume_unwind(Box::new("no such disk")),
            }
        };
        let loaded = catch_unwind(AssertUnwindSafe(|| self.arena.load(first, pages, fill))).ok();
        if !self.model.is_free(first, pages) {
            return assert_eq!(loaded, Some(Ok(Load::Elsewhere)));
        }
        self.model.fill(first, pages, byte);
        match end {
            Ending::Well => {
                assert_eq!(loaded, Some(Ok(Load::Done)));
                self.model.lives.insert(first, Life { born, pages });
            }
            Ending::Error => assert_eq!(loaded, Some(Err("no such page"))),
            Ending::Panic => assert_eq!(loaded, None),
        }
    }

    fn seal(&mut self) {
        self.tick_after_seal();
        let sealed = self.writer.seal();
        assert_eq!(sealed.version().number(), self.model.now);
        self.model.base = self.model.now;
        self.sealed.push(sealed);
    }

    fn publish(&mut self, which: usize) {
        if which < self.sealed.len() {
            let sealed = self.sealed.swap_remove(which);
            let version = sealed.version().number();
            self.arena.publish(sealed, version);
            self.model.published = version;
            // An earlier one would be refused.
            self.sealed.retain(|sealed| sealed.version().number() > version);
        }
    }

    fn scan(&mut self) {
        let mut held: Vec<u64> = self.watchers.iter().map(|watcher| watcher.reader.version().number()).collect();
        held.sort_unstable();
        held.dedup();
        let found: Vec<u64> = self.writer.scan().iter().map(|held| held.number()).collect();
        assert_eq!((self.writer.newest().number(), &found), (self.model.published, &held));
        self.model.scanned = (self.model.published, held);
    }

    fn read(&mut self) {
        if self.watchers.len() < READERS_MAX {
            let reader = self.arena.read();
            assert_eq!(reader.version().number(), self.model.published);
            self.watchers.push(Watcher::new(reader));
        }
    }

    fn check(&self) {
        for page in pages() {
            let birth = self.model.lives.get(&page).map(|life| stamp(life.born));
            assert_eq!(self.writer.birth(page), birth);
            for count in 0..4 {
                let run = self.writer.run(page, count).map(filled_with);
                assert_eq!(run, self.model.run(page, count), "{count} pages from {page}");
            }
        }
        for watcher in &self.watchers {
            watcher.check(&self.model);
        }
    }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let page = || FIRST_PAGE..FIRST_PAGE + PAGES;
    let ending = prop_oneof![4 => Just(Ending::Well), 1 => Just(Ending::Error), 1 => Just(Ending::Panic)];
    let operation = prop_oneof![
        2 => Just(Operation::Tick),
        6 => (page(), 1..4_u32).prop_map(|(first, pages)| Operation::Take { first, pages }),
        2 => page().prop_map(|page| Operation::Change { page }),
        1 => (page(), page()).prop_map(|(from, to)| Operation::Copy { from, to }),
        1 => page().prop_map(|first| Operation::Untake { first }),
        4 => page().prop_map(|first| Operation::Retire { first }),
        8 => page().prop_map(|first| Operation::Reclaim { first }),
        // Births are in the past, in the version being made and in the future.
        3 => (page(), 1..4_u32, 2..40_u64, ending)
            .prop_map(|(first, pages, born, end)| Operation::Load { first, pages, born, end }),
        4 => Just(Operation::Seal),
        4 => (0..3_usize).prop_map(|which| Operation::Publish { which }),
        4 => Just(Operation::Scan),
        3 => Just(Operation::Read),
        2 => (0..READERS_MAX).prop_map(|which| Operation::Drop { which }),
    ];
    prop::collection::vec(operation, 1..120)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn arena_does_what_the_model_does(operations in operations()) {
        let (arena, writer) = Arena::new(PAGE_BYTES, stamp(9), 9);
        let (sealed, watchers) = (Vec::new(), Vec::new());
        let mut pair = Pair { arena: &arena, writer, model: Model::new(9), sealed, watchers, byte: 0 };
        for operation in operations {
            pair.apply(operation);
            pair.check();
        }
    }
}
