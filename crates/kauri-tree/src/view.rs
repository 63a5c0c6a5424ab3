//! What a transaction has so far, for many threads to read.

use kauri_wire::Key;

use crate::btree::Root;
use crate::catalog::Catalog;
use crate::cursor::{Cursor, Stand};
use crate::error::Result;
use crate::pager::Pager;
use crate::read::{Access, Read, Source};
use crate::table::Table;
use crate::value::Value;

/// The rows of a transaction that is not committed, as they are while it is borrowed: it can be given to any number of threads.
///
/// ```
/// use std::thread;
///
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const SQUARES: Table<u64, u64> = Table::new("squares");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for number in 0..1000 {
///     txn.put(&SQUARES, number, number * number)?;
/// }
/// let view = txn.view();
/// let sums = thread::scope(|scope| {
///     let sum = |from, until| move || -> kauri_tree::Result<u64> {
///         view.scan(&SQUARES)?.from(from).until(until).map(|_, square| square).sum()
///     };
///     [scope.spawn(sum(0, 500)), scope.spawn(sum(500, 1000))].map(|half| half.join().unwrap())
/// });
/// let mut total = 0;
/// for sum in sums {
///     total += sum?;
/// }
/// txn.put(&SQUARES, 0, total)?; // the views are gone, the transaction goes on
/// txn.commit()?;
/// assert_eq!(store.snapshot().get(&SQUARES, 0)?, Some(332_833_500));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'txn> {
    pages: &'txn Pager<Catalog>,
    catalog: &'txn Catalog,
}

impl<'txn> View<'txn> {
    pub(crate) const fn new(pages: &'txn Pager<Catalog>, catalog: &'txn Catalog) -> Self {
        Self { pages, catalog }
    }

    /// A place among the rows of a table, before the first of them.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apples", 12), ("pears", 5)])?;
    /// let view = txn.view();
    /// let (mut front, mut back) = (view.cursor(&STOCK)?, view.cursor(&STOCK)?); // as many as one likes
    /// assert_eq!((front.first()?, back.last()?), (Some(("apples", 12)), Some(("pears", 5))));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn cursor<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Cursor<&Self, K, V>> {
        Cursor::new(self, table)
    }
}

impl Source for View<'_> {
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn access(&self) -> Access<'_> {
        Access::Turn(self.pages)
    }

    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn root(&self, name: &str, types: fn() -> String) -> Result<Option<Root>> {
        Ok(self.catalog.find(name, types)?.map(|place| self.catalog.root(place)))
    }
}

impl Read for View<'_> {}

impl Stand for View<'_> {}

/// Threads share a view, whatever the transaction is made of.
const _: () = {
    const fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<View<'_>>();
};
