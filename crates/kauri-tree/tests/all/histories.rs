//! Histories of threads that append to lists, through a checker: what commits is strictly serializable.
//!
//! A history has three lists that are values and three that are rows under a prefix, and seven transactions on them. Each thread has
//! many open at once and goes on with any of them, so they overlap however threads are scheduled; and lists of different
//! histories lie side by side, so that pages are shared and written by others all the time.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use kauri_tree::{Change, Durability, Options, Outcome, Read, Snapshot, Store, Table, Write};

use crate::checker::{self, Element, Key, Op, Txn};
use crate::random::Random;
use crate::watched::watched;

/// Lists that are values.
const VALUES: Table<u32, [u8]> = Table::new("values");
/// Lists that are rows, in the order of their sequences.
const ROWS: Table<(u32, u64), u32> = Table::new("rows");

const LISTS: u32 = 3;
const THREADS: usize = 3;
const TXNS: usize = 2;
const HISTORIES: usize = 250;
const OPEN: usize = 16;

/// Which transaction of which history, and where its lists are.
#[derive(Clone, Copy)]
struct Place {
    history: usize,
    txn: usize,
}

impl Place {
    /// The row of a list that is a value, or the prefix of one that is rows.
    fn row(self, list: u32) -> u32 {
        self.history as u32 * LISTS + list % LISTS
    }

    /// An element that nobody else appends.
    fn element(self, number: usize) -> Element {
        (self.txn * 100 + number) as u32
    }
}

fn decode(list: Option<&[u8]>) -> Vec<Element> {
    let elements = list.unwrap_or_default().as_chunks::<4>().0;
    elements.iter().map(|element| Element::from_le_bytes(*element)).collect()
}

fn encode(list: &[Element]) -> Vec<u8> {
    list.iter().flat_map(|element| element.to_le_bytes()).collect()
}

/// The lists from one to another, from whatever can be read.
fn read_values(from: &impl Read, place: Place, lists: std::ops::Range<u32>) -> Vec<Op> {
    let mut found: Vec<(Key, Vec<Element>)> = lists.clone().map(|list| (list, Vec::new())).collect();
    let mut rows =
        from.scan(&VALUES).unwrap().from(place.row(lists.start)).until(place.row(lists.start) + lists.len() as u32);
    while let Some((row, list)) = rows.next().unwrap() {
        found[(row - place.row(lists.start)) as usize].1 = decode(Some(&list));
    }
    found.into_iter().map(|(list, elements)| Op::Read(list, elements)).collect()
}

fn read_rows(from: &impl Read, place: Place, list: Key) -> Op {
    let row = place.row(list);
    let elements: Result<_, _> =
        from.scan(&ROWS).unwrap().from((row, 0)).until((row + 1, 0)).map(|_, element| element).collect();
    Op::Read(list, elements.unwrap())
}

/// A transaction on its way.
struct Open<'a> {
    place: Place,
    txn: Txn,
    steps_left: usize,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Reads a version.
    Snapshot(Snapshot<'a>),
    /// Observes and stages, and is committed at the end.
    Change(Change<'a>),
    /// The writer's turn, taken at the end for all steps at once: somebody who holds it and goes on with others waits for itself.
    Transaction,
}

struct World<'a> {
    store: &'a Store,
    clock: AtomicU64,
    conflicts: AtomicUsize,
}

impl<'a> World<'a> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn open(&self, place: Place, random: &mut Random) -> Open<'a> {
        let began = self.now();
        let kind = match random.below(8) {
            0 => Kind::Snapshot(self.store.snapshot()),
            1 => Kind::Transaction,
            _ => Kind::Change(Change::new(self.store.snapshot())),
        };
        let txn = Txn { began, ended: 0, committed: false, ops: Vec::new() };
        Open { place, txn, steps_left: 1 + random.below(4), kind }
    }

    fn end(&self, mut open: Open<'a>, random: &mut Random) -> Txn {
        let durability = if random.below(2) == 0 { Durability::None } else { Durability::Sync };
        open.txn.committed = match open.kind {
            Kind::Snapshot(_) => true,
            // Given up.
            Kind::Change(_) if random.below(20) == 0 => false,
            Kind::Change(change) => self.commit(open.place, change, durability),
            Kind::Transaction => self.transaction(open.place, &mut open.txn.ops, random, durability),
        };
        open.txn.ended = self.now();
        open.txn
    }

    fn commit(&self, place: Place, change: Change<'_>, durability: Durability) -> bool {
        let base = change.base().version();
        match self.store.commit_with(change, durability).unwrap() {
            Outcome::Committed { .. } => true,
            Outcome::Conflict { table, key } => {
                assert!(self.store.snapshot().version() > base, "what conflicts can be seen");
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                check_conflict(place, &table, &key);
                false
            }
        }
    }

    fn transaction(&self, place: Place, ops: &mut Vec<Op>, random: &mut Random, durability: Durability) -> bool {
        let mut txn = self.store.begin();
        for number in 0..1 + random.below(3) {
            let list = random.below(LISTS as usize) as u32;
            if random.below(2) == 0 {
                ops.extend(read_values(&txn, place, list..LISTS));
                ops.push(read_rows(&txn, place, LISTS + list));
            } else {
                let mut elements = decode(txn.get(&VALUES, place.row(list)).unwrap().as_deref());
                ops.push(Op::Read(list, elements.clone()));
                elements.push(place.element(number));
                txn.put(&VALUES, place.row(list), &encode(&elements)).unwrap();
                ops.push(Op::Append(list, place.element(number)));
            }
        }
        if random.below(4) == 0 {
            return false;
        }
        txn.commit_with(durability).unwrap();
        true
    }
}

/// A conflict is about something of the own history.
fn check_conflict(place: Place, table: &str, key: &[u8]) {
    let row = u32::from_be_bytes(key[..4].try_into().unwrap());
    assert!(table == "values" || table == "rows");
    assert!((place.row(0)..place.row(0) + LISTS).contains(&row), "{table} {row} is of another history");
}

impl Open<'_> {
    fn step(&mut self, random: &mut Random) {
        self.steps_left -= 1;
        let (place, list) = (self.place, random.below(LISTS as usize) as u32);
        let ops = &mut self.txn.ops;
        match &mut self.kind {
            Kind::Snapshot(snapshot) => {
                ops.extend(read_values(snapshot, place, 0..LISTS));
                ops.push(read_rows(snapshot, place, LISTS + list));
            }
            Kind::Change(change) => step_change(change, place, list, ops, random),
            Kind::Transaction => {}
        }
    }
}

fn step_change(change: &mut Change<'_>, place: Place, list: Key, ops: &mut Vec<Op>, random: &mut Random) {
    let element = place.element(ops.len());
    let has_appended = |ops: &[Op]| ops.iter().any(|op| matches!(op, Op::Append(to, _) if *to >= LISTS));
    match random.below(5) {
        0 => {
            let elements = decode(change.get(&VALUES, place.row(list)).unwrap().as_deref());
            ops.push(Op::Read(list, elements));
        }
        1 => ops.extend(read_values(change, place, list..LISTS)),
        // What is appended is not read before the commit.
        2 if !has_appended(ops) => ops.push(read_rows(change, place, LISTS + list)),
        3 => {
            change.append(&ROWS, &place.row(list).to_be_bytes(), element).unwrap();
            ops.push(Op::Append(LISTS + list, element));
        }
        _ => {
            let mut elements = decode(change.get(&VALUES, place.row(list)).unwrap().as_deref());
            ops.push(Op::Read(list, elements.clone()));
            elements.push(element);
            change.put(&VALUES, place.row(list), &encode(&elements)).unwrap();
            ops.push(Op::Append(list, element));
        }
    }
}

/// One thread's transactions of all histories, many of them open at once.
fn work(world: &World<'_>, thread: usize, seed: u64) -> Vec<(usize, Txn)> {
    let mut random = Random(seed);
    let mut places =
        (0..HISTORIES * TXNS).map(|number| Place { history: number / TXNS, txn: thread * TXNS + number % TXNS });
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut done = Vec::new();
    loop {
        while open.len() < OPEN
            && let Some(place) = places.next()
        {
            open.push(world.open(place, &mut random));
        }
        if open.is_empty() {
            return done;
        }
        let which = random.below(open.len());
        if open[which].steps_left > 0 {
            open[which].step(&mut random);
        } else {
            let ended = open.swap_remove(which);
            done.push((ended.place.history, world.end(ended, &mut random)));
        }
    }
}

/// What is there when all have ended.
fn last(world: &World<'_>, history: usize) -> Txn {
    let place = Place { history, txn: THREADS * TXNS };
    let began = world.now();
    let snapshot = world.store.snapshot();
    let mut ops = read_values(&snapshot, place, 0..LISTS);
    ops.extend((LISTS..2 * LISTS).map(|list| read_rows(&snapshot, place, list)));
    Txn { began, ended: world.now(), committed: true, ops }
}

/// Runs histories side by side, checks each, and takes their lists away.
fn batch(world: &World<'_>, seed: u64) -> usize {
    let mut histories: Vec<Vec<Txn>> = vec![Vec::new(); HISTORIES];
    thread::scope(|scope| {
        let work = |thread| move || work(world, thread, seed << 8 | thread as u64);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        for thread in threads {
            for (history, txn) in thread.join().unwrap() {
                histories[history].push(txn);
            }
        }
    });
    let mut committed = 0;
    for (index, mut history) in histories.into_iter().enumerate() {
        committed += history.iter().filter(|txn| txn.committed).count();
        history.push(last(world, index));
        assert_eq!(checker::check(&history), Ok(()), "seed {seed}, history {index}: {history:#?}");
    }
    let mut txn = world.store.begin();
    txn.drop_table(VALUES.name()).unwrap();
    txn.drop_table(ROWS.name()).unwrap();
    txn.commit().unwrap();
    committed
}

fn check(store: &Store, batches: u64, seed: u64) {
    let world = World { store, clock: AtomicU64::new(0), conflicts: AtomicUsize::new(0) };
    let committed: usize = (seed..seed + batches).map(|seed| batch(&world, seed)).sum();
    let all = batches as usize * HISTORIES * THREADS * TXNS;
    let conflicts = world.conflicts.into_inner();
    // Else the histories would say little.
    assert!(committed > all / 2 && conflicts > all / 20, "{committed} commits and {conflicts} conflicts of {all}");
    store.verify().unwrap();
}

#[test]
fn fifty_thousand_histories_in_memory_are_strictly_serializable() {
    check(&Options::new().page_bytes(256).in_memory().unwrap(), 200, 1 << 20);
}

#[test]
fn fifty_thousand_histories_in_a_file_are_strictly_serializable() {
    let options = Options::new().page_bytes(512).log_bytes(1 << 20);
    let (disk, watch) = watched();
    let store = options.open(&disk, "store").unwrap();
    check(&store, 196, 1 << 21);
    // Commits that are made and not yet seen: there are many when the disk is slow.
    watch.yields.store(2, Ordering::Relaxed);
    check(&store, 4, 1 << 22);
}
