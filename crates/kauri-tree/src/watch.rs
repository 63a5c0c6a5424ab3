//! Watches: who wants to know what a commit changed, and the telling of it.
//!
//! ```text
//! commit, in its turn ──> what differs between the two versions, for each watch ──> parcel ──┐   in the order of versions
//! published ──> whoever comes first delivers all parcels of versions that can be seen  <─────┘   and in no turn
//! ```
//!
//! What changed is not noted while it is changed: it is what differs between the versions before and after, and pages that both have
//! are skipped. So nothing can be forgotten, whatever changed the rows, and a commit that nobody watches looks once whether
//! somebody does.

mod queue;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use kauri_wire::Key;

use crate::btree::{Between, Root};
use crate::catalog::{Catalog, Names};
use crate::error::Result;
use crate::kind::Kind;
use crate::read::{Access, resolve};
use crate::store::{State, Store};
use crate::sync::{Mutex, lock};
use crate::table::{Table, behind};
use crate::value::Value;

pub use queue::WatchQueue;

/// Something that a watch has to tell.
///
/// A row that was written again as it was is not told of.
///
/// ```
/// use kauri_tree::{Notice, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// let mut queue = store.watch_queue(&STOCK, b"", 100)?;
/// for count in [Some(12), None] {
///     let mut txn = store.begin();
///     match count {
///         Some(count) => txn.put(&STOCK, "apples", count)?,
///         None => drop(txn.remove(&STOCK, "apples")?),
///     }
///     txn.commit()?;
/// }
/// let Some(Notice::Put { version: first, key: "apples", value: 12 }) = queue.try_next() else { panic!("it was put") };
/// let Some(Notice::Removed { version: second, key: "apples" }) = queue.try_next() else { panic!("it was removed") };
/// assert!(first < second); // each commit makes a version
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub enum Notice<'a, K: Key + ?Sized, V: Value + ?Sized> {
    /// A commit wrote a row.
    Put {
        /// The version that the commit made.
        version: u64,
        /// The row's key.
        key: K::View<'a>,
        /// The value that this commit gave it, whatever later ones did.
        value: V::View<'a>,
    },
    /// A commit removed a row.
    Removed {
        /// The version that the commit made.
        version: u64,
        /// The row's key.
        key: K::View<'a>,
    },
    /// Here something is missing: a queue was full, or the rows could not be read. A snapshot that is taken now has it.
    Missed,
}

/// A notice, as bytes.
#[derive(Clone, Debug)]
enum Note {
    Changed { key: Box<[u8]>, value: Option<Box<[u8]>> },
    Missed,
}

impl Note {
    /// What it says, if the bytes are of the table's types.
    fn read<K: Key + ?Sized, V: Value + ?Sized>(&self, version: u64) -> Notice<'_, K, V> {
        let Self::Changed { key, value } = self else { return Notice::Missed };
        let Ok(key) = K::decode(key) else { return Notice::Missed };
        match value.as_deref().map(|value| V::decode(Cow::Borrowed(value))) {
            None => Notice::Removed { version, key },
            Some(Ok(value)) => Notice::Put { version, key, value },
            Some(Err(_)) => Notice::Missed,
        }
    }
}

/// Whom to tell.
type Tell = Box<dyn FnMut(u64, Note) + Send>;

/// A watch, as the store keeps it.
struct Watcher {
    table: Cow<'static, str>,
    kind: Kind,
    is_bytewise: bool,
    prefix: Box<[u8]>,
    tell: Mutex<Tell>,
    /// Nobody wants to be told any more.
    ended: AtomicBool,
}

/// All watches of a store, and what they have not been told yet.
#[derive(Default)]
pub(crate) struct Watches {
    desk: Mutex<Desk>,
    /// How many parcels wait.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Desk {
    /// By table: however many watch one that did not change, it is looked at once.
    watched: BTreeMap<Cow<'static, str>, Watched>,
    /// The names by which the places of all that are watched were found last.
    names: Option<Names>,
    /// In the order of versions.
    parcels: VecDeque<Parcel>,
    /// Somebody is telling what was in a parcel.
    delivering: bool,
}

/// A table that is watched.
#[derive(Default)]
struct Watched {
    watchers: Vec<Arc<Watcher>>,
    /// Its place in the versions that have the desk's names, if it is in them.
    place: Option<usize>,
}

/// What a commit has to tell.
struct Parcel {
    version: u64,
    notes: Vec<(Arc<Watcher>, Note)>,
}

/// The tables of two versions.
struct Versions<'a> {
    before: &'a Catalog,
    after: &'a Catalog,
    pages: Access<'a>,
}

impl Watches {
    /// Runs a commit of what was made of an earlier version, and keeps what there is to tell, if it succeeds. Whoever begins to watch
    /// meanwhile waits: either the commit tells of its changes, or it was made before.
    pub(crate) fn around<T>(
        &self,
        before: &Catalog,
        state: &mut State,
        commit: impl FnOnce(&mut State) -> Result<(T, u64)>,
    ) -> Result<T> {
        let mut desk = lock(&self.desk);
        let notes = match desk.watched.is_empty() {
            true => Vec::new(),
            false => desk.compare(&Versions { before, after: &state.catalog, pages: Access::Turn(&state.pager) }),
        };
        let (done, version) = commit(state)?;
        if !notes.is_empty() {
            desk.parcels.push_back(Parcel { version, notes });
            self.waiting.fetch_add(1, Ordering::Release);
        }
        Ok(done)
    }

    /// Tells everything that can be seen by now, unless somebody is at it. Not to be called with the writer's turn.
    pub(crate) fn deliver(&self, store: &Store) {
        while self.waiting.load(Ordering::Acquire) > 0 {
            let Some(parcel) = self.take(store) else { return };
            let done = Delivery(self);
            for (watcher, note) in parcel.notes {
                self.tell(&watcher, parcel.version, note);
            }
            drop(done);
        }
    }

    /// The next parcel whose version can be seen.
    fn take(&self, store: &Store) -> Option<Parcel> {
        let mut desk = lock(&self.desk);
        if desk.delivering {
            // They look again when they are done.
            return None;
        }
        let published = store.snapshot().version();
        let parcel = desk.parcels.pop_front_if(|parcel| parcel.version <= published)?;
        desk.delivering = true;
        self.waiting.fetch_sub(1, Ordering::Release);
        Some(parcel)
    }

    fn tell(&self, watcher: &Arc<Watcher>, version: u64, note: Note) {
        if watcher.ended.load(Ordering::Acquire) {
            return;
        }
        let mut tell = lock(&watcher.tell);
        if catch_unwind(AssertUnwindSafe(|| tell(version, note))).is_err() {
            // Who commits has nothing to do with it.
            drop(tell);
            self.remove(watcher);
        }
    }

    fn remove(&self, watcher: &Arc<Watcher>) {
        watcher.ended.store(true, Ordering::Release);
        let removed = lock(&self.desk).remove(watcher);
        // Not under the lock: what it tells may belong to something that has its own.
        drop(removed);
    }
}

/// Held while somebody is telling.
struct Delivery<'a>(&'a Watches);

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        lock(&self.0.desk).delivering = false;
    }
}

impl Desk {
    fn add(&mut self, watcher: Arc<Watcher>) {
        self.watched.entry(watcher.table.clone()).or_default().watchers.push(watcher);
        self.names = None;
    }

    fn remove(&mut self, watcher: &Arc<Watcher>) -> Option<Arc<Watcher>> {
        let watchers = &mut self.watched.get_mut(&watcher.table)?.watchers;
        let place = watchers.iter().position(|other| Arc::ptr_eq(other, watcher))?;
        let removed = watchers.remove(place);
        if watchers.is_empty() {
            self.watched.remove(&watcher.table);
        }
        Some(removed)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Watcher>> {
        self.watched.values().flat_map(|watched| &watched.watchers)
    }

    /// What all watches have to be told.
    fn compare(&mut self, versions: &Versions<'_>) -> Vec<(Arc<Watcher>, Note)> {
        let mut notes = Vec::new();
        let same_names = self.find_places(versions);
        let changed = self.watched.iter().filter(|(table, watched)| match same_names {
            true => watched.place.is_some_and(|place| versions.before.root(place) != versions.after.root(place)),
            false => !versions.before.has_same(versions.after, table),
        });
        for watcher in changed.flat_map(|(_, watched)| &watched.watchers) {
            let mut see = |note| notes.push((Arc::clone(watcher), note));
            // A page that is damaged, or a panic of the key's type, is nothing that whoever commits has to do with.
            let compared = catch_unwind(AssertUnwindSafe(|| watcher.compare(versions, &mut see)));
            if !matches!(compared, Ok(Ok(()))) {
                see(Note::Missed);
            }
        }
        notes
    }

    /// Finds the places of the tables that are watched, unless they are known, if both versions have the same names. Most have those of
    /// the commit before: then a table that did not change costs a look at its roots.
    fn find_places(&mut self, versions: &Versions<'_>) -> bool {
        if self.names.as_ref().is_none_or(|names| !names.are_of(versions.after)) {
            for (table, watched) in &mut self.watched {
                watched.place = versions.after.place(table);
            }
            self.names = Some(versions.after.names());
        }
        self.names.as_ref().is_some_and(|names| names.are_of(versions.before))
    }
}

impl Watcher {
    fn compare(&self, versions: &Versions<'_>, see: &mut dyn FnMut(Note)) -> Result<()> {
        // A table of other types has no rows of these.
        let root = |catalog: &Catalog| match catalog.find(&self.table, self.kind.types()) {
            Ok(Some(place)) => catalog.root(place),
            Ok(None) | Err(_) => Root::default(),
        };
        let (old, new) = (root(versions.before), root(versions.after));
        let until = behind(&self.prefix);
        let range = match self.is_bytewise {
            true => Between { from: Bound::Included(&self.prefix), until: bound(until.as_deref()) },
            false => Between { from: Bound::Unbounded, until: Bound::Unbounded },
        };
        self.kind.differences(versions.pages, old, new, range, &mut |key, value| {
            if key.starts_with(&self.prefix) && (value.is_some() || !planted!(TellNoRemovals)) {
                let value = value.map(|value| resolve(versions.pages, value)).transpose()?;
                see(Note::Changed { key: key.into(), value: value.map(|value| value[..].into()) });
            }
            Ok(true)
        })
    }
}

fn bound(until: Option<&[u8]>) -> Bound<&[u8]> {
    until.map_or(Bound::Unbounded, Bound::Excluded)
}

/// Somebody watches rows, as long as this is kept.
///
/// When it is dropped, no call begins any more; one that has begun in another thread may still go on.
///
/// ```
/// use std::sync::mpsc;
///
/// use kauri_tree::{Store, Table, Watch, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// # let put = |count| -> kauri_tree::Result<()> {
/// #     let mut txn = store.begin();
/// #     txn.put(&STOCK, "apples", count)?;
/// #     txn.commit()
/// # };
/// let (sender, seen) = mpsc::channel();
/// let watch: Watch = store.watch(&STOCK, b"", move |_| sender.send(()).expect("somebody listens"))?;
/// put(12)?; // a transaction of its own
/// drop(watch);
/// put(11)?;
/// assert_eq!(seen.try_iter().count(), 1);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "whoever drops it watches no more"]
pub struct Watch {
    watches: Weak<Watches>,
    watcher: Arc<Watcher>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        match self.watches.upgrade() {
            Some(watches) => watches.remove(&self.watcher),
            None => self.watcher.ended.store(true, Ordering::Release),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watcher { table, prefix, .. } = &*self.watcher;
        f.debug_struct("Watch").field("table", table).field("prefix", prefix).finish_non_exhaustive()
    }
}

impl Store {
    /// Calls `see` for each row of a table that a commit changes and whose key begins with these bytes: after the commit, with the
    /// value that it wrote, in the order of commits and within one of keys. All rows if the prefix is empty.
    ///
    /// Every commit counts that is not in a snapshot taken when this returns, and none is left out. It can be called at any time, also
    /// while transactions are open. The calls come one after the other, from threads that commit, when they have given up the
    /// writer's turn: `see` can read and write the store, and what it takes long for others wait for only to be told. If it panics, it is not
    /// called again.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use kauri_tree::{Notice, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let (sender, seen) = mpsc::channel();
    /// let watch = store.watch(&STOCK, b"app", move |notice| {
    ///     if let Notice::Put { key, value, .. } = notice {
    ///         sender.send((key.to_owned(), value)).unwrap();
    ///     }
    /// })?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apple", 12)?;
    /// txn.put(&STOCK, "banana", 3)?;
    /// txn.commit()?;
    /// assert_eq!(seen.try_iter().collect::<Vec<_>>(), [("apple".to_owned(), 12)]);
    /// drop(watch);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is [broken](crate::Error::Broken).
    pub fn watch<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        prefix: &[u8],
        mut see: impl FnMut(Notice<'_, K, V>) + Send + 'static,
    ) -> Result<Watch> {
        self.watch_bytes(table, prefix, Box::new(move |version, note: Note| see(note.read(version))))
    }

    fn watch_bytes<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        prefix: &[u8],
        tell: Tell,
    ) -> Result<Watch> {
        let watcher = Arc::new(Watcher {
            table: table.shared_name(),
            kind: Kind::of::<K, V>(),
            is_bytewise: K::BYTEWISE,
            prefix: prefix.into(),
            tell: Mutex::new(tell),
            ended: AtomicBool::new(false),
        });
        let watches = self.watches();
        let watch = Watch { watches: Arc::downgrade(watches), watcher: Arc::clone(&watcher) };
        lock(&watches.desk).add(watcher);
        // Commits that were made before and tell nothing: now they can be seen.
        self.wait_for_published()?;
        Ok(watch)
    }
}

impl Drop for Watches {
    /// Whoever waits to be told waits no more.
    fn drop(&mut self) {
        for watcher in lock(&self.desk).all() {
            *lock(&watcher.tell) = Box::new(|_, _| ());
        }
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let desk = lock(&self.desk);
        f.debug_struct("Watches").field("watchers", &desk.all().count()).finish_non_exhaustive()
    }
}
