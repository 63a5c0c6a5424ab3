//! Watches against copies that are kept by what they tell.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{
    Change, MultiTable, Notice, Options, Read, Store, Table, Watch, WatchQueue, Write, WriteMulti, WriteTxn,
};

use crate::model::{Bytes, Odd};
use crate::places::{Place, Subject, work};
use crate::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const ROWS: Table<[u8], [u8]> = Table::new("rows");
const ODD: Table<Odd, [u8]> = Table::new("odd");
const COUNTS: Table<u64, u64> = Table::new("counts");

/// A copy of the rows under a prefix, kept by notices alone.
struct Copy {
    rows: Arc<Mutex<Map>>,
    prefix: &'static [u8],
    _watch: Watch,
}

impl Copy {
    fn of<K: Bytes + ?Sized>(store: &Store, table: &Table<K, [u8]>, prefix: &'static [u8]) -> Self {
        let rows = Arc::new(Mutex::new(Map::new()));
        let (copy, mut last) = (Arc::clone(&rows), (0, Vec::new()));
        let watch = store.watch(table, prefix, move |notice| {
            let (version, key, value) = match notice {
                Notice::Put { version, key, value } => (version, key, Some(value.into_owned())),
                Notice::Removed { version, key } => (version, key, None),
                Notice::Missed => panic!("nothing is missed"),
            };
            let is_later = version > last.0 || version == last.0 && K::compare(&last.1, key).is_lt();
            assert!(is_later, "version {version} after {}", last.0);
            last = (version, key.to_vec());
            let mut rows = copy.lock().unwrap();
            let before = match value.clone() {
                Some(value) => rows.insert(key.to_vec(), value),
                None => rows.remove(key),
            };
            assert_ne!(before, value, "a change is one");
        });
        // What is there already is in a snapshot that is taken now, and everything else is told.
        let snapshot = store.snapshot();
        let there = snapshot.scan(table).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
        rows.lock().unwrap().extend(there.map(Result::unwrap).filter(|(key, _)| key.starts_with(prefix)));
        Self { rows, prefix, _watch: watch.unwrap() }
    }

    fn check(&self, rows: &Map) {
        let expected: Map = rows.iter().filter(|(key, _)| key.starts_with(self.prefix)).map(pair).collect();
        assert!(*self.rows.lock().unwrap() == expected, "under {:?}", self.prefix);
    }
}

fn pair((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

/// Every way to change rows.
struct Changes;

impl Subject for Changes {
    type Model = [Map; 2];

    fn change(&self, txn: &mut WriteTxn<'_>, [rows, odd]: &mut Self::Model, random: &mut Random, page_bytes: usize) {
        let (key, value) = (random.key(page_bytes / 4 - 8, 200), random.value(page_bytes));
        match random.below(40) {
            0..20 => {
                txn.put(&ROWS, &key, &value).unwrap();
                rows.insert(key, value);
            }
            20..28 => {
                txn.remove(&ROWS, &key).unwrap();
                rows.remove(&key);
            }
            28..36 => {
                txn.put(&ODD, &key, &value).unwrap();
                odd.insert(key, value);
            }
            36 => {
                txn.remove_range(&ROWS, ..&key[..]).unwrap();
                rows.retain(|other, _| *other >= key);
            }
            37 => {
                txn.drop_table("odd").unwrap();
                odd.clear();
            }
            38 => {
                txn.drop_table("rows").unwrap();
                rows.clear();
            }
            _ => {
                let loaded: Map = (0..random.below(80)).map(|_| (random.key(40, 500), value.clone())).collect();
                txn.load_sorted(&ROWS, loaded.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
                rows.extend(loaded);
            }
        }
    }

    fn compare(&self, _: &impl Read, _: &Self::Model) {}
}

#[test]
fn watches_tell_everything_that_commits_change() {
    for (mut place, seed) in Place::all().into_iter().zip(900..) {
        let (mut model, mut random) = (<[Map; 2]>::default(), Random(seed));
        for _ in 0..4 {
            let store = place.store().clone();
            let all = Copy::of(&store, &ROWS, b"");
            let some = Copy::of(&store, &ROWS, b"a common beginning/");
            let odd = Copy::of(&store, &ODD, b"");
            for _ in 0..12 {
                let before = model.clone();
                let mut txn = store.begin();
                work(&Changes, &mut txn, &mut model, &mut random, place.page_bytes, 2);
                all.check(&before[0]);
                if random.below(6) == 0 {
                    drop(txn);
                    model = before;
                } else {
                    txn.commit().unwrap();
                }
                all.check(&model[0]);
                some.check(&model[0]);
                odd.check(&model[1]);
            }
            drop((all, some, odd, store));
            place.reopen();
        }
    }
}

#[test]
fn no_watch_is_lost_on_a_split() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let see = move |_: Notice<'_, u64, u64>| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let _watch = store.watch(&COUNTS, b"", see).unwrap();
    for row in 0..3_000_u64 {
        let mut txn = store.begin();
        txn.put(&COUNTS, row.wrapping_mul(0x9e37_79b9_7f4a_7c15), row).unwrap();
        txn.commit().unwrap();
        assert_eq!(told.load(Ordering::Relaxed), row + 1);
    }
}

fn put(store: &Store, key: u64, value: u64) {
    let mut txn = store.begin();
    txn.put(&COUNTS, key, value).unwrap();
    txn.commit().unwrap();
}

#[test]
fn notices_have_the_value_that_their_commit_wrote() {
    let store = Store::in_memory().unwrap();
    let mut queue = store.watch_queue(&COUNTS, b"", 100).unwrap();
    put(&store, 1, 10);
    put(&store, 1, 20);
    put(&store, 1, 20); // nothing changes
    let mut txn = store.begin();
    txn.put(&COUNTS, 1, 30).unwrap();
    let mut child = txn.nest();
    child.put(&COUNTS, 1, 40).unwrap();
    child.put(&COUNTS, 2, 40).unwrap();
    drop(child);
    let mut child = txn.nest();
    child.put(&COUNTS, 3, 50).unwrap();
    child.commit().unwrap();
    assert!(queue.try_next().is_some() && queue.try_next().is_some() && queue.try_next().is_none());
    txn.commit().unwrap();
    let mut txn = store.begin();
    txn.remove(&COUNTS, 1).unwrap();
    txn.commit().unwrap();
    assert_eq!(told(&mut queue), [(1, Some(30)), (3, Some(50)), (1, None)]);
}

/// What a queue has to tell: keys, and the values that were put.
fn told(queue: &mut WatchQueue<u64, u64>) -> Vec<(u64, Option<u64>)> {
    let mut told = Vec::new();
    while let Some(notice) = queue.try_next() {
        told.push(match notice {
            Notice::Put { key, value, .. } => (key, Some(value)),
            Notice::Removed { key, .. } => (key, None),
            Notice::Missed => panic!("nothing is missed"),
        });
    }
    told
}

#[test]
fn tables_that_come_and_go_are_watched_all_the_while_and_none_is_taken_for_another() {
    const LATER: Table<u64, u64> = Table::new("later");
    const OTHER: Table<u64, u64> = Table::new("other");
    let store = Store::in_memory().unwrap();
    let mut counts = store.watch_queue(&COUNTS, b"", 10).unwrap();
    let mut later = store.watch_queue(&LATER, b"", 10).unwrap();
    let mut commit =
        |work: &dyn Fn(&mut WriteTxn<'_>), of_counts: &[(u64, Option<u64>)], of_later: &[(u64, Option<u64>)]| {
            let mut txn = store.begin();
            work(&mut txn);
            txn.commit().unwrap();
            assert_eq!((told(&mut counts), told(&mut later)), (of_counts.to_vec(), of_later.to_vec()));
        };
    commit(&|txn| txn.put(&COUNTS, 1, 1).unwrap(), &[(1, Some(1))], &[]);
    commit(&|txn| txn.put(&LATER, 2, 2).unwrap(), &[], &[(2, Some(2))]);
    // Another table takes the place of one that goes, in the same commit.
    let replace = |txn: &mut WriteTxn<'_>| {
        assert!(txn.drop_table("counts").unwrap());
        txn.put(&OTHER, 3, 3).unwrap();
    };
    commit(&replace, &[(1, None)], &[]);
    commit(&|txn| txn.put(&OTHER, 4, 4).unwrap(), &[], &[]);
    commit(&|txn| txn.put(&COUNTS, 5, 5).unwrap(), &[(5, Some(5))], &[]);
    commit(&|txn| txn.put(&COUNTS, 5, 6).unwrap(), &[(5, Some(6))], &[]);
    let both = |txn: &mut WriteTxn<'_>| {
        assert!(txn.drop_table("other").unwrap() && txn.remove(&LATER, 2).unwrap());
        txn.put(&COUNTS, 5, 7).unwrap();
    };
    commit(&both, &[(5, Some(7))], &[(2, None)]);
    // A place that is free, for a table that was there before.
    commit(&|txn| txn.put(&OTHER, 8, 8).unwrap(), &[], &[]);
    let moved = |txn: &mut WriteTxn<'_>| {
        assert!(txn.drop_table("counts").unwrap() && txn.drop_table("later").unwrap());
        txn.put(&LATER, 9, 9).unwrap();
        txn.put(&COUNTS, 9, 9).unwrap();
    };
    commit(&moved, &[(5, None), (9, Some(9))], &[(9, Some(9))]);
    commit(&|txn| txn.put(&LATER, 9, 10).unwrap(), &[], &[(9, Some(10))]);
}

#[test]
fn a_watch_that_begins_while_a_transaction_is_open_is_told_of_it() {
    for place in Place::all() {
        let store = place.store();
        let mut txn = store.begin();
        txn.put(&COUNTS, 1, 1).unwrap();
        let mut queue = store.watch_queue(&COUNTS, b"", 10).unwrap();
        txn.commit().unwrap();
        assert!(matches!(queue.try_next(), Some(Notice::Put { key: 1, value: 1, .. })));
    }
}

#[test]
fn a_callback_can_write_and_what_it_writes_is_told_too() {
    let store = Store::in_memory().unwrap();
    let other = store.clone();
    let watch = store.watch(&COUNTS, b"", move |notice| {
        if let Notice::Put { key, value, .. } = notice
            && value > 0
        {
            put(&other, key + 1, value - 1);
        }
    });
    put(&store, 0, 50);
    assert_eq!(store.snapshot().len(&COUNTS).unwrap(), 51);
    drop(watch);
    put(&store, 100, 50);
    assert_eq!(store.snapshot().len(&COUNTS).unwrap(), 52);
}

#[test]
fn a_callback_that_panics_is_not_called_again_and_harms_nobody() {
    let store = Store::in_memory().unwrap();
    let _watch = store.watch(&COUNTS, b"", |_| panic!("this is told to nobody")).unwrap();
    let mut queue = store.watch_queue(&COUNTS, b"", 10).unwrap();
    put(&store, 1, 1);
    let mut change = Change::new(store.snapshot());
    change.put(&COUNTS, 2, 2).unwrap();
    assert!(store.commit(change).unwrap().is_committed());
    assert!(queue.try_next().is_some() && queue.try_next().is_some() && queue.try_next().is_none());
}

#[test]
fn a_full_queue_says_where_something_is_missing() {
    let store = Store::in_memory().unwrap();
    let mut queue = store.watch_queue(&COUNTS, b"", 3).unwrap();
    let mut take = || match queue.try_next()? {
        Notice::Put { value, .. } => Some(Some(value)),
        Notice::Missed => Some(None),
        Notice::Removed { .. } => panic!("nothing is removed"),
    };
    (0..6).for_each(|count| put(&store, 1, count));
    assert_eq!((take(), take()), (Some(Some(0)), Some(Some(1))));
    (6..9).for_each(|count| put(&store, 1, count));
    assert_eq!((take(), take(), take(), take()), (Some(Some(2)), Some(None), Some(Some(6)), Some(None)));
    assert_eq!(take(), None);
    put(&store, 1, 10);
    assert_eq!((take(), take()), (Some(Some(10)), None));
}

#[test]
fn who_waits_for_a_notice_is_told_when_the_store_is_closed() {
    let store = Store::in_memory().unwrap();
    let mut queue = store.watch_queue(&COUNTS, b"", 3).unwrap();
    put(&store, 1, 1);
    let waiter = thread::spawn(move || (queue.wait_next().is_some(), queue.wait_next().is_none()));
    drop(store);
    assert_eq!(waiter.join().unwrap(), (true, true));
}

#[test]
fn values_of_multi_tables_are_watched_as_pairs() {
    const TAGS: MultiTable<str, u32> = MultiTable::new("tags");
    let store = Store::in_memory().unwrap();
    let (sender, told) = mpsc::channel();
    let _watch = store.watch(&TAGS, b"ann\0", move |notice| match notice {
        Notice::Put { key: (key, value), .. } => sender.send((key.into_owned(), value, true)).unwrap(),
        Notice::Removed { key: (key, value), .. } => sender.send((key.into_owned(), value, false)).unwrap(),
        Notice::Missed => panic!("nothing is missed"),
    });
    let mut txn = store.begin();
    for (key, value) in [("ann", 1), ("ann", 2), ("anna", 3)] {
        txn.put_value(&TAGS, key, value).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = store.begin();
    txn.remove_values(&TAGS, "ann").unwrap();
    txn.commit().unwrap();
    let ann = |value, put| (String::from("ann"), value, put);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [ann(1, true), ann(2, true), ann(1, false), ann(2, false)]);
}

#[test]
fn threads_that_begin_to_watch_while_others_commit_miss_nothing() {
    let disk = MemoryDisk::new();
    for store in [Store::in_memory().unwrap(), Options::new().open(&disk, "store").unwrap()] {
        const COMMITS: u64 = 300;
        let count = |key: u64| {
            for _ in 0..COMMITS {
                let mut change = Change::new(store.snapshot());
                change.add(&COUNTS, key, 1).unwrap();
                assert!(store.commit(change).unwrap().is_committed());
            }
        };
        let follow = || {
            let mut queue = store.watch_queue(&COUNTS, b"", 10_000).unwrap();
            let snapshot = store.snapshot();
            let mut counts: BTreeMap<u64, u64> =
                snapshot.scan(&COUNTS).unwrap().map(|key, count| (key, count)).collect::<Result<_, _>>().unwrap();
            let (seen, mut last) = (snapshot.version(), 0);
            drop(snapshot);
            while counts.values().sum::<u64>() < 3 * COMMITS {
                let Some(Notice::Put { version, key, value }) = queue.wait_next() else { panic!("only puts are told") };
                assert!(version >= last, "version {version} after {last}");
                last = version;
                // What the snapshot has may be told, and nothing else may be left out.
                let known = counts.entry(key).or_default();
                assert!(value == *known + 1 || version <= seen && value <= *known, "{value} after {known}");
                *known = value.max(*known);
            }
        };
        thread::scope(|scope| {
            let count = &count;
            for key in 0..3 {
                scope.spawn(move || count(key));
            }
            for _ in 0..4 {
                scope.spawn(follow);
                thread::yield_now();
            }
        });
    }
}

#[test]
fn a_table_that_is_made_anew_with_other_types_is_empty_for_whom_watches_it() {
    let store = Store::in_memory().unwrap();
    put(&store, 1, 1);
    let mut queue = store.watch_queue(&COUNTS, b"", 10).unwrap();
    let mut txn = store.begin();
    txn.drop_table("counts").unwrap();
    txn.put(&Table::<u64, [u8]>::new("counts"), 1, b"text").unwrap();
    txn.commit().unwrap();
    assert!(matches!(queue.try_next(), Some(Notice::Removed { key: 1, .. })));
    assert!(queue.try_next().is_none());
}
