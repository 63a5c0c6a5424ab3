//! A tour of everything the store can do, in the order in which one meets it. Each example is whole and runs as a test. The examples open stores in
//! memory, or files on a disk in memory, so that they leave nothing behind; with a path it is [`Store::open`].
//!
//! 1. The store: [open](#open), [tables](#tables), [read](#read), [write](#write), [transactions](#transactions-and-threads), [changes](#changes)
//! 2. Rows: [ranges](#ranges), [cursors](#cursors), [several values per key](#several-values-per-key), [rows that expire](#rows-that-expire), [watches](#watches)
//! 3. Versions: [pins](#pins-the-store-as-it-was), [differences](#differences), [forks](#forks), [backups](#checkpoint-streams-backups)
//! 4. Keeping it: [compaction](#compaction), [durability](#durability), [looking after it](#looking-after-it), [errors](#errors), [limits](#limits)
//!
//! # Open
//!
//! A store is one file, and there is one process that writes it: whoever opens it second, there or elsewhere, is [refused](Error::Locked). [`Store::open`] takes its
//! path and makes it if it is missing; [`Options`] say more: the size of pages, the length of the log, how much memory the pages may use, or that the file is
//! only read. Who only reads takes no lock and sees the version that was the newest when it opened the store; if the writer goes on and needs its pages, reading
//! says that a page is damaged, and one opens it again. A [`Store`] is a handle: clones of it are the same store, and the last one that is dropped closes it.
//!
//! The file grows as it is needed. Pages that were read stay in memory unless [`Options::cache_bytes`] bounds that: set it if the file may be longer than memory is.
//!
//! ```
//! use kauri_tree::{Options, Store};
//! use kauri_tree::disk::MemoryDisk;
//!
//! let scratch = Store::in_memory()?; // gone when it is dropped
//! assert_eq!(scratch.snapshot().tables().count(), 0);
//!
//! let disk = MemoryDisk::new();
//! let store = Options::new().page_bytes(8192).open(&disk, "stock.kauri")?;
//! let same = store.clone();
//! drop((store, same));
//! let reader = Options::new().read_only(true).open(&disk, "stock.kauri")?; // takes no lock
//! assert_eq!(reader.stat().page_bytes, 8192);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Tables
//!
//! A [`Table`] is a constant: a name, a type of keys and a type of values. Nothing has to be declared anywhere else; the first write makes the
//! table, and the store remembers its types and refuses others. Keys are numbers, text, bytes, tuples of them, or any type that implements
//! [`Key`](crate::wire::Key). Values are what implements [`Value`]. A key has at most a quarter of a page less eight bytes: 1016 of them in pages of 4 KiB, which is
//! what a store has unless one says otherwise; a value has less than 4 GiB. The [limits](#limits) stand at the end.
//!
//! ```
//! use kauri_tree::{Error, Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//! const SALES: Table<(u32, String), i64> = Table::new("sales"); // by day, then by fruit
//! const NOTES: Table<u64, [u8]> = Table::new("notes");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.put(&SALES, (20_260_221, "apples"), 3)?;
//! txn.put(&NOTES, 7, b"ripe on Monday")?;
//! txn.commit()?;
//!
//! let wrong = Table::<u64, u64>::new("stock");
//! assert!(matches!(store.snapshot().get(&wrong, 7), Err(Error::OtherTypes { .. })));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! Rows are in the order of their keys' type: numbers by size, text and bytes byte by byte, tuples part by part. A type of one's own can have another order. It is
//! compiled in, and the table remembers the type's name, so nobody reads it in the wrong order.
//!
//! ```
//! use std::borrow::Cow;
//! use std::cmp::Ordering;
//!
//! use kauri_tree::wire::{Key, WireError};
//! use kauri_tree::{Read, Store, Table, Write};
//!
//! /// Names as in a telephone book: capitals count only where nothing else differs.
//! struct Name;
//!
//! impl Key for Name {
//!     type Ref<'a> = &'a str;
//!     type View<'a> = &'a str;
//!     const BYTEWISE: bool = false;
//!
//!     fn name() -> Cow<'static, str> {
//!         "name".into()
//!     }
//!
//!     fn encode_into(name: &str, out: &mut Vec<u8>) {
//!         <str as Key>::encode_into(name, out);
//!     }
//!
//!     fn decode(bytes: &[u8]) -> Result<&str, WireError> {
//!         <str as Key>::decode(bytes)
//!     }
//!
//!     fn compare(left: &[u8], right: &[u8]) -> Ordering {
//!         left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase()).then_with(|| left.cmp(right))
//!     }
//! }
//!
//! const NUMBERS: Table<Name, u64> = Table::new("numbers");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! for (name, number) in [("de Vries", 5552), ("Zoe", 5553), ("Dean", 5551)] {
//!     txn.put(&NUMBERS, name, number)?;
//! }
//! let names: Result<Vec<String>, _> = txn.scan(&NUMBERS)?.map(|name, _| name.to_owned()).collect();
//! assert_eq!(names?, ["de Vries", "Dean", "Zoe"]);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Read
//!
//! A [`Snapshot`] is the store at one moment. Taking one costs next to nothing, takes no lock, and no later commit changes it. What it gives out
//! is borrowed from its pages. Whatever can be read implements [`Read`], so one function reads snapshots, transactions and changes.
//!
//! ```
//! use kauri_tree::{Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! fn is_there(from: &impl Read, fruit: &str) -> kauri_tree::Result<bool> {
//!     from.contains(&STOCK, fruit)
//! }
//!
//! let store = Store::in_memory()?;
//! let before = store.snapshot();
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! assert!(is_there(&txn, "apples")?); // what it has so far
//! txn.commit()?;
//! assert!(!is_there(&before, "apples")? && is_there(&store.snapshot(), "apples")?);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Write
//!
//! There is one writer at a time: [`Store::begin`] waits for its turn. A [`WriteTxn`] is committed, or dropped and as if it had never been.
//! Transactions [nest](WriteTxn::nest): a child merges into its parent or vanishes. Beside `put` and `remove` there are `insert` (only if there is none),
//! [`replace_if`](Write::replace_if) (compare and swap), [`update`](Write::update) (a value made of the one before), [`add`](Write::add) and
//! [`subtract`](Write::subtract) for counters, and [`reserve`](Write::reserve) to fill a value where it will lie.
//!
//! ```
//! use kauri_tree::{Compared, Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//! const NOTES: Table<str, [u8]> = Table::new("notes");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! assert!(txn.insert(&STOCK, "apples", 12)?);
//! assert!(!txn.insert(&STOCK, "apples", 99)?);
//! assert_eq!(txn.replace_if(&STOCK, "apples", 11, 5)?, Compared::Differs);
//! assert_eq!(txn.replace_if(&STOCK, "apples", 12, 5)?, Compared::Matches);
//! assert_eq!(txn.replace_if(&STOCK, "plums", 12, 5)?, Compared::Missing);
//! assert_eq!(txn.update(&STOCK, "apples", |count| count.map(|count| count * 2))?, Some(10));
//! assert_eq!(txn.add(&STOCK, "pears", 3)?, 3);
//! txn.reserve(&NOTES, "apples", 4, |bytes| bytes.copy_from_slice(b"ripe"))?;
//!
//! let mut child = txn.nest();
//! child.remove(&STOCK, "apples")?;
//! drop(child); // it never happened
//! txn.commit()?;
//! assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(10));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Transactions and threads
//!
//! Each thread has a clone of the store. Snapshots wait for nobody and nobody waits for them, however long they are held; a snapshot keeps the pages that it sees, so one that
//! is held for days keeps the rows of that day. Writers wait for each other, in line; [`Store::try_begin`] does not wait. A transaction stays on the thread that
//! began it. What it has so far is seen by that thread alone, and by those to which it lends a [`View`].
//!
//! A thread that has a transaction open must not begin another: it would wait for itself, for ever. It [nests](WriteTxn::nest) one instead. The same goes for whatever else needs the
//! writer's turn: [`Store::commit`], [`commit_early`](Store::commit_early), [`pin`](Store::pin), [`unpin`](Store::unpin), [`checkpoint`](Store::checkpoint), [`compact`](Store::compact),
//! [`fork`](Store::fork), [`restore_from`](Store::restore_from), [`stat`](Store::stat), [`verify`](Store::verify).
//! If code panics in a transaction, that one is rolled back, and the store goes on.
//!
//! ```
//! use std::thread;
//!
//! use kauri_tree::{Read, Store, Table, Write};
//!
//! const VISITS: Table<str, u64> = Table::new("visits");
//!
//! let store = Store::in_memory()?;
//! let count = |store: Store| -> kauri_tree::Result<()> {
//!     let mut txn = store.begin(); // when it is its turn
//!     txn.add(&VISITS, "ann", 1)?;
//!     txn.commit()
//! };
//! let threads = [(); 4].map(|()| thread::spawn({ let store = store.clone(); move || count(store) }));
//! for thread in threads {
//!     thread.join().expect("it does not panic")?;
//! }
//! assert_eq!(store.snapshot().get(&VISITS, "ann")?, Some(4));
//!
//! let mut txn = store.begin();
//! txn.remove(&VISITS, "ann")?;
//! let view = txn.view();
//! assert_eq!(thread::scope(|scope| scope.spawn(move || view.len(&VISITS)).join()).expect("it does not panic")?, 0);
//! drop(txn); // it never happened
//! assert_eq!(store.snapshot().len(&VISITS)?, 1);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Changes
//!
//! Who must not hold the writer's turn while it thinks makes a [`Change`]: it reads a snapshot, notes what it read, stages what it would write, and
//! [commits](Store::commit) if all of that still holds. If not, the [`Outcome`] is a conflict, and one tries again on a newer snapshot. Threads that commit
//! at once share a sync.
//!
//! ```
//! use kauri_tree::{Change, Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! fn sell(store: &Store, fruit: &str) -> kauri_tree::Result<bool> {
//!     loop {
//!         let mut change = Change::new(store.snapshot());
//!         let Some(count) = change.get(&STOCK, fruit)?.filter(|count| *count > 0) else { return Ok(false) };
//!         change.put(&STOCK, fruit, count - 1)?;
//!         if store.commit(change)?.is_committed() {
//!             return Ok(true);
//!         }
//!     }
//! }
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 1)?;
//! txn.commit()?;
//! assert!(sell(&store, "apples")?);
//! assert!(!sell(&store, "apples")?);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! A change can also [append](Change::append) rows under numbers that the commit chooses, and then never conflicts with others that do. Who has more to do than wait for the
//! disk goes on from a change before it is durable: [`Store::commit_early`].
//!
//! # Ranges
//!
//! A [`Scan`] gives rows in order, from either end, between any two keys. Counting a range, asking which place a key has ([`rank`](Read::rank)) and going to the row at
//! a place ([`nth`](Scan::nth)) look at a few pages, however many rows there are. Whole ranges are [removed](WriteTxn::remove_range) by
//! unlinking pages, [loaded](WriteTxn::load_sorted) in one pass, and [divided](Scan::split) evenly, for as many threads.
//!
//! ```
//! use kauri_tree::{Read, Store, Table};
//!
//! const SQUARES: Table<u64, u64> = Table::new("squares");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.load_sorted(&SQUARES, (0..10_000).map(|number| (number, number * number)))?;
//! assert_eq!(txn.remove_range(&SQUARES, 5_000..)?, 5_000);
//! txn.commit()?;
//!
//! let snapshot = store.snapshot();
//! let mut rows = snapshot.scan(&SQUARES)?.from(10).until(4_000);
//! assert_eq!(rows.count()?, 3_990);
//! assert_eq!(rows.next()?, Some((10, 100)));
//! assert_eq!(rows.previous()?, Some((3_999, 15_992_001)));
//! assert_eq!(rows.nth(9)?, Some((20, 400)));
//! assert_eq!(snapshot.rank(&SQUARES, 77)?, 77);
//!
//! let mut sum = 0;
//! snapshot.scan(&SQUARES)?.until(4).for_each(|_, square| sum += square)?; // the fastest way to see many
//! assert_eq!(sum, 14);
//! let parts = snapshot.scan(&SQUARES)?.split(4)?;
//! assert_eq!(parts.len(), 4);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Cursors
//!
//! A [`Cursor`] is a place: on a row, between two, or at an end. It seeks, moves both ways, and in a transaction or a change writes where it stands; after
//! [`remove`](Cursor::remove) it is on the next row. Its [`Position`] can be kept, and returned to in a later version.
//!
//! ```
//! use kauri_tree::{Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! for (fruit, count) in [("apples", 12), ("bananas", 0), ("cherries", 40)] {
//!     txn.put(&STOCK, fruit, count)?;
//! }
//! let mut cursor = txn.cursor_mut(&STOCK)?;
//! assert_eq!(cursor.seek("b")?, Some(("bananas", 0)));
//! cursor.remove()?;
//! assert_eq!(cursor.key()?, Some("cherries"));
//! cursor.put(39)?;
//! let position = cursor.position();
//! txn.commit()?;
//!
//! let snapshot = store.snapshot();
//! let mut cursor = snapshot.cursor(&STOCK)?;
//! assert!(cursor.resume(&position)?);
//! assert_eq!(cursor.previous()?, Some(("apples", 12)));
//! assert_eq!(cursor.previous()?, None); // before all rows
//! assert_eq!(cursor.next()?, Some(("apples", 12)));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Several values per key
//!
//! In a [`MultiTable`] a key has any number of values, sorted, each once: an index from tags to fruit, say. They are counted without being looked at.
//!
//! ```
//! use kauri_tree::{MultiTable, ReadMulti, Store, WriteMulti};
//!
//! const BY_COLOUR: MultiTable<str, str> = MultiTable::new("by colour");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.load_sorted_values(&BY_COLOUR, [("green", "apple"), ("green", "pear"), ("red", "apple")])?;
//! assert!(txn.put_value(&BY_COLOUR, "red", "cherry")?);
//! assert!(!txn.put_value(&BY_COLOUR, "red", "cherry")?);
//! assert_eq!(txn.count_values(&BY_COLOUR, "green")?, 2);
//! let mut values = txn.values(&BY_COLOUR, "red")?;
//! assert_eq!(values.next()?, Some("apple"));
//! assert_eq!(values.next()?, Some("cherry"));
//! drop(values);
//! assert!(txn.remove_value(&BY_COLOUR, "red", "apple")?);
//!
//! let mut cursor = txn.cursor(&BY_COLOUR)?;
//! assert_eq!(cursor.seek_key("green")?, Some("apple"));
//! assert_eq!(cursor.next_of_key()?, Some("pear"));
//! assert_eq!(cursor.next_of_key()?, None);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Rows that expire
//!
//! The rows of a [`TtlTable`] are there until a moment, which is a number of the caller's: the store has no clock. Reading is told what time it is;
//! [`sweep`](WriteTtl::sweep) removes what has expired, a bounded number at a time, and misses nothing.
//!
//! ```
//! use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
//!
//! const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
//! txn.put_until(&SESSIONS, "bob", 8, 2_000)?;
//! assert_eq!(txn.get_live(&SESSIONS, "ann", 999)?, Some(7));
//! assert_eq!(txn.get_live(&SESSIONS, "ann", 1_000)?, None);
//! assert_eq!((txn.count_live(&SESSIONS, 1_500)?, txn.first_expiry(&SESSIONS)?), (1, Some(1_000)));
//! let swept = txn.sweep(&SESSIONS, 1_500, 100)?;
//! assert_eq!((swept.rows, swept.is_done), (1, true));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Watches
//!
//! A [watch](Store::watch) is told which rows under a prefix a commit changed and what it wrote: after the commit, in order, none left out. A
//! [`WatchQueue`] holds what it is told until somebody takes it; one that was full says so.
//!
//! ```
//! use kauri_tree::{Notice, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?;
//! let mut queue = store.watch_queue(&STOCK, b"app", 100)?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.put(&STOCK, "pears", 5)?;
//! txn.commit()?;
//! assert!(matches!(queue.try_next(), Some(Notice::Put { key: "apples", value: 12, .. })));
//! assert!(queue.try_next().is_none());
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Pins: the store as it was
//!
//! A snapshot ends with the process. A [pin](Store::pin) gives a version a name, and [`as_of`](Store::as_of) reads it, after any restart, until
//! [`unpin`](Store::unpin). It costs the pages that were changed since.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Options, Read, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let disk = MemoryDisk::new();
//! let store = Options::new().open(&disk, "store")?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.commit()?;
//! store.pin("monday", 1_767_571_200_000)?;
//! let mut txn = store.begin();
//! txn.remove(&STOCK, "apples")?;
//! txn.commit()?;
//! drop(store);
//!
//! let store = Options::new().open(&disk, "store")?;
//! let monday = store.as_of("monday")?.expect("it was pinned");
//! assert_eq!(monday.get(&STOCK, "apples")?, Some(12));
//! assert_eq!(store.snapshot().get(&STOCK, "apples")?, None);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Differences
//!
//! What differs between any two versions is told in time of the difference, not of what is there: pages that both have are not looked at.
//!
//! ```
//! use kauri_tree::{Difference, Store, Table, Write};
//!
//! const SQUARES: Table<u64, u64> = Table::new("squares");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.load_sorted(&SQUARES, (0..10_000).map(|number| (number, number * number)))?;
//! txn.commit()?;
//! let before = store.snapshot();
//! let mut txn = store.begin();
//! txn.put(&SQUARES, 7, 50)?;
//! txn.commit()?;
//!
//! let after = store.snapshot();
//! let mut differences = after.diff(&before, &SQUARES)?;
//! assert_eq!(differences.next()?, Some(Difference::Changed { key: 7, old: 49, new: 50 }));
//! assert_eq!(differences.next()?, None);
//! assert_eq!(after.diff_tables(&before)?.len(), 1);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Forks
//!
//! [`Store::fork`] makes a second store of what is there, pins and all, which then goes its own way; [`Snapshot::fork`] does so with one version. Where
//! the file system lets two files share bytes (reflinks), a fork of a store takes a constant number of calls, however much there is, and copies nothing until one
//! of the two writes. Elsewhere, and from a store in memory, all rows are copied. What the fork holds is the same.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Options, Read, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let disk = MemoryDisk::new();
//! let store = Options::new().open(&disk, "store")?;
//! store.pin("empty", 0)?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.commit()?;
//!
//! let fork = store.fork(&Options::new(), &disk, "fork")?;
//! let mut txn = fork.begin();
//! txn.put(&STOCK, "apples", 0)?;
//! txn.commit()?;
//! assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
//! assert!(fork.as_of("empty")?.is_some());
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Checkpoint streams: backups
//!
//! [`checkpoint_to`](Snapshot::checkpoint_to) writes a version out as bytes that know nothing of pages or machines, while others read and write;
//! [`checkpoint_since`](Snapshot::checkpoint_since) writes only what changed. [`Options::restore`] makes a store of the first, [`Store::restore_from`] brings one up
//! to date with the second. A stream that is damaged or cut is refused, and nothing is left of it.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Options, Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.commit()?;
//! store.pin("backup", 1)?;
//! let mut full = Vec::new(); // or a file, a pipe, a socket
//! let written = store.as_of("backup")?.expect("pinned").checkpoint_to(&mut full)?;
//!
//! let copy = Options::new().page_bytes(512).restore(&MemoryDisk::new(), "copy", &mut &full[..])?;
//! assert_eq!(copy.snapshot().content_hash()?, written.content);
//!
//! let mut txn = store.begin();
//! txn.put(&STOCK, "pears", 5)?;
//! txn.commit()?;
//! let mut changes = Vec::new();
//! store.checkpoint_since("backup", &mut changes)?.expect("pinned");
//! copy.restore_from(&mut &changes[..])?;
//! assert_eq!(copy.snapshot().get(&STOCK, "pears")?, Some(5));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Compaction
//!
//! What is freed is used again, and free pages at the end of the file are cut off. [`Store::compact`] makes the file as short as it can be, while it is in use: it moves
//! pages, in short steps, and ends.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Options, Table};
//!
//! const SQUARES: Table<u64, u64> = Table::new("squares");
//!
//! let store = Options::new().log_bytes(1).open(&MemoryDisk::new(), "store")?;
//! let mut txn = store.begin();
//! txn.load_sorted(&SQUARES, (0..50_000).map(|number| (number, number * number)))?;
//! txn.commit()?;
//! let mut txn = store.begin();
//! txn.remove_range(&SQUARES, ..45_000)?;
//! txn.commit()?;
//! let done = store.compact()?;
//! assert!(done.bytes_after < done.bytes_before / 2);
//! assert_eq!(store.verify()?.rows, 5_000); // looks at every page
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Durability
//!
//! A commit returns when its changes are on stable storage; after any crash the store opens with them, and with all commits before. [`Durability`] asks for less: a bound in
//! milliseconds, or only that the operating system has them. A write or sync that fails breaks the store until it is opened again, because nobody knows what the
//! file holds: nothing is acknowledged after it.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Durability, Options, Table, Write};
//!
//! const SEEN: Table<u64, ()> = Table::new("seen");
//!
//! let store = Options::new().open(&MemoryDisk::new(), "store")?;
//! let mut txn = store.begin();
//! txn.put(&SEEN, 1, ())?;
//! txn.commit_with(Durability::Flush(50))?; // on stable storage within 50 ms
//! store.sync()?; // everything so far is, now
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Looking after it
//!
//! [`stat`](Store::stat) says how many pages there are, how many are free and how full the log is. [`verify`](Store::verify) reads everything and compares it with what is said of it:
//! order, counts, checksums, and that each page is in use or free. A table whose types are not known is read as bytes ([`raw`](Snapshot::raw)). What a version holds is [one
//! number](Snapshot::content_hash), the same in every copy.
//!
//! ```
//! use kauri_tree::disk::MemoryDisk;
//! use kauri_tree::{Options, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Options::new().open(&MemoryDisk::new(), "store")?;
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.commit()?;
//! assert!(store.stat().log_used_bytes > 0);
//! store.checkpoint()?; // what the store does by itself when the log is half full, and when it is closed
//! assert_eq!(store.stat().log_used_bytes, 0);
//!
//! let report = store.verify()?;
//! assert_eq!((report.tables, report.rows), (1, 1));
//! let snapshot = store.snapshot();
//! assert_eq!(snapshot.raw("stock").map(|raw| raw.types()), Some("text to u64"));
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Errors
//!
//! Absence is `None`, a conflict is an [`Outcome`], and only trouble is an [`Error`]. Each says what was expected and what was found. Two questions are asked of them:
//! [`is_retryable`](Error::is_retryable) (somebody else has the file) and [`is_corruption`](Error::is_corruption) (the file is damaged: restore a copy).
//! Nothing of the store panics over what is in a file, and nothing allocates what a damaged length says.
//!
//! ```
//! use kauri_tree::{Error, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?;
//! let mut txn = store.begin();
//! let error = txn.put(&STOCK, &"a".repeat(5_000), 12).unwrap_err();
//! assert!(matches!(error, Error::KeyTooLong { most: 1016, found: 5_000 }));
//! let error = txn.load_sorted(&STOCK, [("b", 1), ("a", 2)]).unwrap_err();
//! assert_eq!(error.to_string(), "row 1: expected a key greater than that of the row before");
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! # Limits
//!
//! | what | how much |
//! |---|---|
//! | a key | a quarter of a page less 8 bytes: 1016 in pages of 4 KiB, 16376 in pages of 64 KiB. It may be empty |
//! | a key and a value of a [`MultiTable`] | the same, together; text and bytes of the key take two bytes more, and one more for each byte 0 |
//! | a key of a [`TtlTable`] | 9 bytes less |
//! | a value | less than 4 GiB |
//! | the name of a table, or of a pin | as a key; of a table somewhat less in small pages, beside long names of types |
//! | tables, rows, snapshots, pins, nested transactions | as many as there is room for |
//! | a store | 2^32 pages: 16 TiB in pages of 4 KiB, 256 TiB in pages of 64 KiB |
//! | a page | a power of two from 256 bytes to 64 KiB, chosen when the store is made |
//! | writers | one at a time, in one process |
//! | memory | without [`Options::cache_bytes`], every page that was read or written since the store was opened; with it, about as much as it says, and what was committed since the last checkpoint |
//! | systems | Linux; files on disks whose syncs reach stable storage, not on network file systems |
//!
//! What is too long is refused before anything is written; [`Store::key_bytes_max`] tells beforehand.
//!
//! ```
//! use kauri_tree::{Error, Options, Table, Write};
//!
//! let store = Options::new().page_bytes(65_536).in_memory()?;
//! let mut txn = store.begin();
//! let long = Table::<str, ()>::new("long");
//! txn.put(&long, &"k".repeat(16_376), ())?;
//! assert!(matches!(txn.put(&long, &"k".repeat(16_377), ()), Err(Error::KeyTooLong { most: 16_376, .. })));
//! let named = Table::<str, ()>::named("n".repeat(20_000));
//! assert!(matches!(txn.put(&named, "k", ()), Err(Error::NameTooLong { most: 16_376, found: 20_000 })));
//! # Ok::<(), kauri_tree::Error>(())
//! ```

#[expect(unused_imports, reason = "what the tour links to")]
use crate::{
    Change, Cursor, Durability, Error, MultiTable, Options, Outcome, Position, Read, Scan, Snapshot, Store, Table,
    TtlTable, Value, View, WatchQueue, Write, WriteTtl, WriteTxn,
};
