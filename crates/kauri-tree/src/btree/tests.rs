//! Trees against `BTreeMap`s: random changes, nested and not, with every page accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kauri_arena::{Arena, Reader, Stamp};
use kauri_wire::Key;

use super::{Old, Pages, Root, Scan, Seen, get, key_bytes_max, put, rank, remove, row_bytes_max, verify};
use crate::error::{Error, Fault, Result};
use crate::node::Value;
use crate::pager::Pager;

type Roots = Vec<Root>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Keys that share beginnings, with zeros and short and long ones among them.
    fn key(&mut self, most: usize, spread: usize) -> Vec<u8> {
        let number = self.below(spread);
        let mut key = match self.below(4) {
            0 => format!("{number}").into_bytes(),
            1 => [b"a common beginning/".as_slice(), &number.to_be_bytes()[4..]].concat(),
            2 => vec![0; number % 9],
            _ => number.to_be_bytes()[5..].repeat(1 + number % 5),
        };
        key.truncate(most);
        key
    }

    fn value(&mut self, most: usize) -> Vec<u8> {
        let bytes = match self.below(8) {
            0 => 0,
            1 => self.below(most + 1),
            2 => most,
            _ => self.below(most.min(40) + 1),
        };
        vec![self.next() as u8; bytes]
    }
}

struct Snapshot<'a>(Reader<'a, Roots>);

impl Pages for Snapshot<'_> {
    fn page(&self, page: u32) -> Result<&[u8]> {
        self.0.page(page).ok_or(Error::Corrupt { page, fault: Fault::new("a page of this version", page.into()) })
    }
}

struct World {
    arena: Arc<Arena<Roots>>,
    pager: Pager<Roots>,
    roots: Roots,
    models: Vec<Model>,
    random: Random,
    spread: usize,
    page_bytes: usize,
}

impl World {
    fn new(page_bytes: usize, trees: usize, spread: usize, seed: u64) -> Self {
        let roots = vec![Root::default(); trees];
        let (arena, writer) = Arena::new(page_bytes, Stamp::FIRST, roots.clone());
        let pager = Pager::new(writer, 1);
        Self { arena, pager, roots, models: vec![Model::new(); trees], random: Random(seed), spread, page_bytes }
    }

    fn change<K: Key + ?Sized>(&mut self) {
        let tree = self.random.below(self.roots.len());
        let key = self.random.key(key_bytes_max(self.page_bytes), self.spread);
        let (root, model) = (&mut self.roots[tree], &mut self.models[tree]);
        let old = if self.random.below(5) < 3 {
            let most = row_bytes_max(self.page_bytes) - 10 - key.len();
            let value = self.random.value(most);
            let old = put::<K>(&mut self.pager, root, &key, Value::Inline(&value)).unwrap();
            (old, model.insert(key, value))
        } else {
            (remove::<K>(&mut self.pager, root, &key).unwrap(), model.remove(&key))
        };
        assert_eq!(old.0, if old.1.is_some() { Old::Inline } else { Old::Missing });
    }

    /// Random changes in nested transactions, some of which end badly.
    fn nested<K: Key + ?Sized>(&mut self, depth: usize) {
        for _ in 0..self.random.below(30) {
            self.change::<K>();
        }
        if depth > 0 && self.random.below(2) == 0 {
            let before = (self.roots.clone(), self.models.clone());
            self.pager.begin();
            self.nested::<K>(depth - 1);
            if self.random.below(3) == 0 {
                self.pager.abort();
                (self.roots, self.models) = before;
            } else {
                self.pager.merge();
            }
            self.nested::<K>(depth - 1);
        }
    }

    fn transaction<K: Key + ?Sized>(&mut self) {
        let before = (self.roots.clone(), self.models.clone());
        self.pager.begin();
        self.nested::<K>(3);
        if self.random.below(10) == 0 {
            self.pager.abort();
            (self.roots, self.models) = before;
        } else {
            let version = self.pager.commit();
            self.arena.publish(version, self.roots.clone());
        }
    }

    /// Every page is in a tree, free, or waiting; none is two of these.
    fn account<K: Key + ?Sized>(&self) {
        let mut seen = BTreeSet::new();
        for &root in &self.roots {
            let mut see = |what: Seen<'_>| {
                if let Seen::Page(page) = what {
                    assert!(seen.insert(page), "page {page} is in the trees twice");
                }
            };
            verify::<K>(&self.pager, root, &mut see).unwrap();
        }
        for page in self.pager.free().iter().chain(self.pager.waiting()) {
            assert!(seen.insert(page), "page {page} is used, free or waiting, and again");
        }
        assert!(seen.into_iter().eq(1..self.pager.end()), "a page is lost");
    }
}

fn compare<K: Key + ?Sized>(pages: &impl Pages, root: Root, model: &Model) {
    let mut expected: Vec<_> = model.iter().collect();
    expected.sort_by(|left, right| K::compare(left.0, right.0));
    assert_eq!(root.rows, expected.len() as u64);
    let mut forward = Scan::first(pages, root).unwrap();
    for &(key, value) in &expected {
        check_row(forward.next().unwrap(), key, value);
    }
    assert!(forward.next().unwrap().is_none());
    let mut backward = Scan::last(pages, root).unwrap();
    for &(key, value) in expected.iter().rev() {
        check_row(backward.previous().unwrap(), key, value);
    }
    assert!(backward.previous().unwrap().is_none());
    for (place, &(key, value)) in expected.iter().enumerate() {
        assert_eq!(get::<K>(pages, root, key).unwrap(), Some(Value::Inline(value)));
        assert_eq!(rank::<K>(pages, root, key).unwrap(), (place as u64, true));
        let mut scan = Scan::seek::<K>(pages, root, key).unwrap();
        check_row(scan.next().unwrap(), key, value);
    }
}

fn check_row(row: Option<(crate::node::Node<'_>, usize)>, key: &[u8], value: &[u8]) {
    let (node, index) = row.expect("a row");
    let mut found = Vec::new();
    node.key_into(index, &mut found);
    assert_eq!((found.as_slice(), node.value(index)), (key, Value::Inline(value)));
}

fn check<K: Key + ?Sized>(page_bytes: usize, spread: usize, transactions: usize, seed: u64) {
    let mut world = World::new(page_bytes, 3, spread, seed);
    for _ in 0..transactions {
        world.transaction::<K>();
        world.account::<K>();
        for (&root, model) in world.roots.iter().zip(&world.models) {
            compare::<K>(&world.pager, root, model);
            let snapshot = Snapshot(world.arena.read());
            let published = snapshot.0.root().clone();
            assert_eq!(published, world.roots);
            compare::<K>(&snapshot, root, model);
        }
    }
}

#[test]
fn trees_agree_with_maps_on_tiny_pages() {
    for seed in 0..20 {
        check::<[u8]>(256, 20 + 300 * (seed as usize % 3), 40, seed);
    }
}

#[test]
fn trees_agree_with_maps_on_larger_pages() {
    check::<[u8]>(512, 500, 60, 100);
    check::<[u8]>(1024, 2_000, 60, 101);
    check::<[u8]>(4096, 5_000, 80, 102);
    check::<[u8]>(65536, 5_000, 40, 103);
}

/// Longer keys first, then by their bytes backwards: nothing like the order of bytes.
struct Odd;

impl Key for Odd {
    type Ref<'a> = &'a [u8];
    type View<'a> = &'a [u8];
    const BYTEWISE: bool = false;

    fn name() -> std::borrow::Cow<'static, str> {
        "odd".into()
    }

    fn encode_into(key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn decode(bytes: &[u8]) -> std::result::Result<&[u8], kauri_wire::WireError> {
        Ok(bytes)
    }

    fn compare(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        right.len().cmp(&left.len()).then_with(|| right.iter().rev().cmp(left.iter().rev()))
    }
}

#[test]
fn trees_in_another_order_agree_with_maps() {
    for seed in 0..6 {
        check::<Odd>(256, 400, 40, seed);
    }
    check::<Odd>(4096, 3_000, 40, 7);
}

#[test]
fn held_versions_keep_their_rows_and_let_the_rest_go() {
    let mut world = World::new(256, 1, 300, 9);
    let arena = Arc::clone(&world.arena);
    let mut held = Vec::new();
    for round in 0..200 {
        world.transaction::<[u8]>();
        world.account::<[u8]>();
        if round % 20 == 3 {
            held.push((Snapshot(arena.read()), world.models[0].clone()));
        }
        if held.len() > 4 {
            held.remove(round % held.len());
        }
        for (snapshot, model) in &held {
            compare::<[u8]>(snapshot, snapshot.0.root()[0], model);
        }
    }
    held.clear();
    world.pager.begin();
    world.pager.abort();
    assert_eq!(world.pager.waiting().count(), 0, "nobody holds anything");
}

#[test]
fn rows_put_in_order_fill_their_pages() {
    let mut world = World::new(4096, 1, 1, 0);
    world.pager.begin();
    for number in 0..20_000_u32 {
        put::<[u8]>(&mut world.pager, &mut world.roots[0], &number.to_be_bytes(), Value::Inline(&[7; 32])).unwrap();
    }
    let bytes = 20_000 * (4 + 32);
    let pages = world.pager.end() as usize * 4096;
    assert!(pages < bytes * 5 / 4, "{pages} bytes of pages for {bytes} bytes of rows");
}
