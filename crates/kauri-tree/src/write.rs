//! A transaction: changes that become a version of the store together, or not at all.

mod load;
mod range;
mod raw;
mod relocate;
mod reserve;
mod sought;

pub(crate) use raw::RawLoader;

use std::cell::Cell;

use kauri_arena::Sealed;
use kauri_wire::Key;

use crate::btree::{self, Cut, Edge, Of, Old, Root};
use crate::catalog::{Catalog, Types};
use crate::cursor::{Cursor, Stand};
use crate::durable::{Durability, Pending};
use crate::error::{Error, Result};
use crate::log::{Body, Mark, Referred};
use crate::node;
use crate::overflow::{self, Reference};
use crate::pager::Pager;
use crate::read::{Access, Read, Source, Write};
use crate::store::{State, Store, TurnGuard};
use crate::table::Table;
use crate::update::{AsValue, Compared};
use crate::value::Value;
use crate::view::View;

/// The one writer's changes, until [`commit`](Self::commit). Dropped without it, they are as if they had never been.
///
/// A nested transaction is one of these too: it borrows its parent, which can do nothing meanwhile, and merges into it or
/// vanishes.
///
/// ```
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
///
/// let mut child = txn.nest();
/// child.put(&STOCK, "apples", 0)?;
/// drop(child); // vanishes
/// assert_eq!(txn.get(&STOCK, "apples")?, Some(12));
///
/// let mut child = txn.nest();
/// child.put(&STOCK, "pears", 5)?;
/// child.commit()?; // merges
/// txn.commit()?;
/// assert_eq!(store.snapshot().get(&STOCK, "pears")?, Some(5));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
#[derive(Debug)]
pub struct WriteTxn<'a> {
    turn: Turn<'a>,
    /// What to return to if the transaction vanishes.
    before: Option<Before>,
}

/// A version that was made and is not waited for.
pub(crate) struct Made<'a> {
    pub(crate) store: &'a Store,
    pub(crate) version: kauri_arena::Early,
    pub(crate) catalog: Catalog,
    pub(crate) pending: Pending,
}

/// How things were when a transaction began.
#[derive(Debug)]
struct Before {
    catalog: Catalog,
    log: Option<Mark>,
}

/// The writer's turn: taken from the store, or lent by the transaction around.
#[derive(Debug)]
enum Turn<'a> {
    Taken(&'a Store, TurnGuard<'a>),
    Lent(&'a mut State),
}

impl Turn<'_> {
    fn state(&self) -> &State {
        match self {
            Self::Taken(_, state) => state,
            Self::Lent(state) => state,
        }
    }

    fn state_mut(&mut self) -> &mut State {
        match self {
            Self::Taken(_, state) => state,
            Self::Lent(state) => state,
        }
    }
}

impl<'a> WriteTxn<'a> {
    pub(crate) fn new(store: &'a Store, state: TurnGuard<'a>) -> Self {
        let mut turn = Turn::Taken(store, state);
        if let Some(turn) = &mut turn.state_mut().turn {
            turn.body.clear();
        }
        Self::start(turn)
    }

    fn start(mut turn: Turn<'a>) -> Self {
        let state = turn.state_mut();
        state.pager.begin();
        let log = state.turn.as_ref().map(|turn| turn.body.mark());
        let before = Some(Before { catalog: state.catalog.clone(), log });
        Self { turn, before }
    }

    /// Begins a nested transaction. It costs the same whatever was done before.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// let mut child = txn.nest();
    /// child.put(&STOCK, "apples", 12)?;
    /// drop(child);
    /// assert_eq!(txn.len(&STOCK)?, 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn nest(&mut self) -> WriteTxn<'_> {
        WriteTxn::start(Turn::Lent(self.turn.state_mut()))
    }

    /// What the transaction has so far, for many threads to read while it is borrowed.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// let view = txn.view(); // copies of it can be given to threads
    /// assert_eq!(view.get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None); // nobody else sees it
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn view(&self) -> View<'_> {
        let state = self.turn.state();
        View::new(&state.pager, &state.catalog)
    }

    /// A place among the rows of a table, before the first of them, to be read.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// assert_eq!(cursor.next()?, Some(("apples", 12))); // what is not committed too
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn cursor<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Cursor<&Self, K, V>> {
        Cursor::new(self, table)
    }

    /// A place among the rows of a table, before the first of them, where they can be changed.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// let mut cursor = txn.cursor_mut(&STOCK)?;
    /// cursor.put_at("apples", 12)?;
    /// cursor.put_at("pears", 5)?;
    /// assert_eq!(cursor.previous()?, Some(("apples", 12)));
    /// assert!(cursor.remove()?);
    /// assert_eq!(txn.len(&STOCK)?, 1);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn cursor_mut<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<Cursor<&mut Self, K, V>> {
        Cursor::new(self, table)
    }

    /// Makes the changes a version of the store, or, if nested, changes of the transaction around. In a file, it returns when they
    /// are durable; others can begin meanwhile.
    ///
    /// # Errors
    /// If the disk fails: then nothing more can be committed until the store is opened again, and whether this was is found
    /// then.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn commit(self) -> Result<()> {
        self.commit_with(Durability::Sync)
    }

    /// As [`commit`](Self::commit), returning when it is as durable as that. For a nested transaction that is all the same.
    ///
    /// # Errors
    /// As for `commit`.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Durability, Options, Read, Table, Write};
    ///
    /// const HITS: Table<str, u64> = Table::new("hits");
    /// let store = Options::new().open(&MemoryDisk::new(), "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&HITS, "/", 1)?;
    /// // It is seen at once; losing the last few would be no harm.
    /// txn.commit_with(Durability::None)?;
    /// assert_eq!(store.snapshot().get(&HITS, "/")?, Some(1));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn commit_with(mut self, durability: Durability) -> Result<()> {
        self.flush()?;
        // From here on there is nothing to roll back.
        let before = self.before.take();
        let (store, pending) = match &mut self.turn {
            Turn::Lent(state) => {
                state.pager.merge();
                return Ok(());
            }
            Turn::Taken(store, state) => {
                let before = before.expect("a transaction is committed once").catalog;
                let commit = |state: &mut State| commit_state(store, state, durability);
                (*store, store.watches().around(&before, state, commit)?)
            }
        };
        // The turn is given up before the wait.
        drop(self);
        let finished = store.finish(pending);
        store.watches().deliver(store);
        finished
    }

    /// Writes what is on its way through to the file, while the transaction can be rolled back.
    fn flush(&self) -> Result<()> {
        match &self.turn {
            Turn::Taken(_, state) if !planted!(CommitBeforeThrough) => state.pager.flush(),
            // The transaction around it does.
            _ => Ok(()),
        }
    }

    /// Makes the changes a version of the store, and gives the turn up without waiting for it: how it is read, and what is left to do.
    /// A nested transaction has nothing left to do: it merges.
    pub(crate) fn seal_early(mut self, durability: Durability) -> Result<Option<Made<'a>>> {
        self.flush()?;
        let before = self.before.take();
        let (store, state) = match &mut self.turn {
            Turn::Lent(state) => {
                state.pager.merge();
                return Ok(None);
            }
            Turn::Taken(store, state) => (*store, state),
        };
        let before = before.expect("a transaction is committed once").catalog;
        // As it is when the version is sealed: a checkpoint may be made on top of it.
        let catalog = state.catalog.clone();
        let commit = |state: &mut State| {
            let version = state.pager.commit();
            let (early, number) = (version.early(), version.version().number());
            Ok(((early, commit_version(store, state, version, durability)?), number))
        };
        let (version, pending) = store.watches().around(&before, state, commit)?;
        Ok(Some(Made { store, version, catalog, pending }))
    }

    /// The names of the tables, in order.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// assert!(txn.tables().eq(["stock"]));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.turn.state().catalog.iter().map(|(name, ..)| name)
    }

    /// Drops a table with all its rows, and tells whether there was one.
    ///
    /// # Errors
    /// If the store is damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// assert!(txn.drop_table("stock")?);
    /// assert!(!txn.drop_table("stock")?);
    /// assert_eq!(txn.get(&STOCK, "apples")?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn drop_table(&mut self, name: &str) -> Result<bool> {
        let state = self.turn.state_mut();
        let Some(place) = state.catalog.place(name) else { return Ok(false) };
        let root = state.catalog.root(place);
        btree::retire_all(&mut state.pager, root)?;
        state.catalog.set_root(place, Root::default());
        state.catalog.forget(name);
        if let Some(turn) = &mut state.turn {
            turn.body.drop_table(name);
        }
        Ok(true)
    }

    /// Writes a row, by its bytes.
    pub(crate) fn put_bytes<K: Key + ?Sized>(
        &mut self,
        table: &str,
        types: Types,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let page_bytes = self.turn.state().page_bytes;
        check_key(key, page_bytes)?;
        if !btree::fits(page_bytes, key.len(), value.len()) {
            return self.put_long::<K>(table, types, key, value);
        }
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| {
            btree::put::<Of<K>>(pages, root, key, node::Value::Inline(value))
        };
        self.change::<K>(table, types, change, |body, _| body.put(key, value))?;
        Ok(())
    }

    /// Writes a row whose value lies elsewhere. The log has the value too, or, if it has many bytes already, says where it is.
    fn put_long<K: Key + ?Sized>(&mut self, table: &str, types: Types, key: &[u8], value: &[u8]) -> Result<()> {
        let State { pager, turn, page_bytes, .. } = self.turn.state();
        let page_bytes = *page_bytes;
        let prefers = turn.as_ref().is_some_and(|turn| turn.body.prefers_references());
        let refers =
            prefers && overflow::run_pages(page_bytes, value.len()).is_some_and(|pages| pager.can_go_through(pages));
        let referred = Cell::new(None);
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| {
            let reference = if refers {
                let (reference, sum) = overflow::write_through(pages, page_bytes, value)?;
                referred.set(Some(Referred { reference, sum }));
                reference
            } else {
                overflow::write(pages, page_bytes, value)?
            };
            btree::put::<Of<K>>(pages, root, key, node::Value::Overflow(&reference.encode()))
        };
        let log = |body: &mut Body, _: &Old| match referred.get() {
            Some(run) => body.refer(key, run),
            None => body.put(key, value),
        };
        self.change::<K>(table, types, change, log)?;
        Ok(())
    }

    /// Writes a row unless there is one with this key, by its bytes, and tells whether it did.
    fn insert_bytes<K: Key + ?Sized>(&mut self, table: &str, types: Types, key: &[u8], value: &[u8]) -> Result<bool> {
        let page_bytes = self.turn.state().page_bytes;
        check_key(key, page_bytes)?;
        if !btree::fits(page_bytes, key.len(), value.len()) {
            // Before pages are made for its value.
            let root = self.root(table, types)?.unwrap_or_default();
            let vacant = btree::get::<Of<K>>(&self.turn.state().pager, root, key)?.is_none();
            return if vacant { self.put_bytes::<K>(table, types, key, value).map(|()| true) } else { Ok(false) };
        }
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| {
            let inserted = btree::insert::<Of<K>>(pages, root, key, node::Value::Inline(value))?;
            // What is there stays, wherever its value lies.
            Ok(if inserted { Old::Missing } else { Old::Inline })
        };
        let log = |body: &mut Body, old: &Old| {
            if *old == Old::Missing {
                body.put(key, value);
            }
        };
        self.change::<K>(table, types, change, log).map(|was_there| !was_there)
    }

    /// Removes a row, by its bytes, and tells whether there was one.
    pub(crate) fn remove_bytes<K: Key + ?Sized>(&mut self, table: &str, types: Types, key: &[u8]) -> Result<bool> {
        // A table that is missing is not made for this.
        let Some(place) = self.turn.state().catalog.find(table, types)? else { return Ok(false) };
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| btree::remove::<Of<K>>(pages, root, key);
        let log = |body: &mut Body, old: &Old| {
            if *old != Old::Missing {
                body.remove(key);
            }
        };
        self.change_at::<K>(place, table, change, log)
    }

    fn change<K: Key + ?Sized>(
        &mut self,
        table: &str,
        types: Types,
        change: impl FnOnce(&mut Pager<Catalog>, &mut Root) -> Result<Old>,
        log: impl FnOnce(&mut Body, &Old),
    ) -> Result<bool> {
        let state = self.turn.state_mut();
        let place = state.catalog.find_or_make(table, types, state.page_bytes)?;
        self.change_at::<K>(place, table, change, log)
    }

    /// Changes the table at this place of the catalog.
    fn change_at<K: Key + ?Sized>(
        &mut self,
        place: usize,
        table: &str,
        change: impl FnOnce(&mut Pager<Catalog>, &mut Root) -> Result<Old>,
        log: impl FnOnce(&mut Body, &Old),
    ) -> Result<bool> {
        let state = self.turn.state_mut();
        let mut root = state.catalog.root(place);
        let changed = change(&mut state.pager, &mut root);
        // Also after an error: the pages that were made fresh on the way belong to the tree now.
        state.catalog.set_root(place, root);
        let old = changed?;
        if let Some(turn) = &mut state.turn {
            if K::BYTEWISE {
                turn.body.table(place, || state.catalog.types(table), table);
                log(&mut turn.body, &old);
            } else {
                // Without the key's type nobody could do it again.
                turn.body.set_unfit();
            }
        }
        match old {
            Old::Missing => Ok(false),
            Old::Inline => Ok(true),
            Old::Overflow(_) if planted!(KeepReplacedValue) => Ok(true),
            Old::Overflow(reference) => {
                overflow::retire(&mut state.pager, state.page_bytes, Reference::decode(&reference)?)?;
                Ok(true)
            }
        }
    }
}

impl Drop for WriteTxn<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let state = self.turn.state_mut();
            state.pager.abort();
            if !planted!(KeepTablesOfVanished) {
                state.catalog = before.catalog;
            }
            if let (Some(turn), Some(mark), false) = (&mut state.turn, before.log, planted!(LogVanished)) {
                turn.body.return_to(mark);
            }
        }
    }
}

impl Source for WriteTxn<'_> {
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn access(&self) -> Access<'_> {
        Access::Turn(&self.turn.state().pager)
    }

    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn root(&self, name: &str, types: fn() -> String) -> Result<Option<Root>> {
        let catalog = &self.turn.state().catalog;
        Ok(catalog.find(name, types)?.map(|place| catalog.root(place)))
    }
}

impl Read for WriteTxn<'_> {}

impl Stand for WriteTxn<'_> {}

impl Write for WriteTxn<'_> {
    fn put<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()> {
        K::with_bytes(key, |key| {
            V::with_bytes(value, |value| self.put_bytes::<K>(table.name(), Table::<K, V>::types, key, value))
        })
    }

    fn insert<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<bool> {
        K::with_bytes(key, |key| {
            V::with_bytes(value, |value| self.insert_bytes::<K>(table.name(), Table::<K, V>::types, key, value))
        })
    }

    fn remove<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        K::with_bytes(key, |key| self.remove_bytes::<K>(table.name(), Table::<K, V>::types, key))
    }

    fn replace_if<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<Compared> {
        K::with_bytes(key, |key| V::with_bytes(expected, |expected| self.replace_sought(key, expected, (table, value))))
    }

    fn update<K: Key + ?Sized, V: Value + ?Sized, N: AsValue<V>>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        make: impl FnOnce(Option<V::View<'_>>) -> Option<N>,
    ) -> Result<Option<N>> {
        self.update_sought(table, key, make)
    }

    fn remove_between<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> Result<u64> {
        if self.root(table.name(), Table::<K, V>::types)?.is_none() {
            return Ok(0);
        }
        self.remove_cut(table, Cut { from: Some(Edge::Before(from)), until: until.map(Edge::Before) })
    }

    fn reserve<K: Key + ?Sized>(
        &mut self,
        table: &Table<K, [u8]>,
        key: K::Ref<'_>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        K::with_bytes(key, |key| self.reserve_bytes::<K>(table.name(), Table::<K, [u8]>::types, key, bytes, fill))
    }
}

/// Makes a version of what the transaction did, and tells its number.
fn commit_state(store: &Store, state: &mut State, durability: Durability) -> Result<(Pending, u64)> {
    let version = state.pager.commit();
    let number = version.version().number();
    Ok((commit_version(store, state, version, durability)?, number))
}

fn commit_version(store: &Store, state: &mut State, version: Sealed, durability: Durability) -> Result<Pending> {
    match store.durable() {
        Some(durable) => durable.commit(state, version, durability),
        None => {
            store.arena().publish(version, state.catalog.clone());
            Ok(Pending::default())
        }
    }
}

pub(crate) fn check_key(key: &[u8], page_bytes: usize) -> Result<()> {
    let most = btree::key_bytes_max(page_bytes);
    match key.len() {
        found if found > most => Err(Error::KeyTooLong { most, found }),
        _ => Ok(()),
    }
}
