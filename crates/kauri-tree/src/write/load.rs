//! Many rows at once, in order.

use kauri_wire::Key;

use super::{WriteTxn, check_key};
use crate::btree::{self, LOGGED_PAGES_MAX, Loader, Of};
use crate::error::{Error, Result};
use crate::node;
use crate::overflow;
use crate::read::Write;
use crate::store::State;
use crate::table::Table;
use crate::value::Value;

/// How many rows of a load are fetched from memory together.
const FETCHED_ROWS: usize = 16;

impl WriteTxn<'_> {
    /// Writes rows whose keys come in ascending order, all of them or none, and tells how many there were. A row that is there
    /// already is replaced. A table that is missing is made.
    ///
    /// This is the fastest way to fill a table: if it is empty, each of its pages is written once, and full. If not, it costs
    /// what putting the rows one after the other costs.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// assert_eq!(txn.load_sorted(&SQUARES, (0..1000).map(|number| (number, number * number)))?, 1000);
    ///
    /// let error = txn.load_sorted(&SQUARES, [(7, 0), (7, 0)]).unwrap_err();
    /// assert_eq!(error.to_string(), "row 1: expected a key greater than that of the row before");
    /// assert_eq!(txn.get(&SQUARES, 7)?, Some(49));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a key is not greater than the one before, or a row cannot be written: the error names the row, counted from 0, and the
    /// table is as it was. Also if the table was made for other types, or the store is full or damaged.
    pub fn load_sorted<'r, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        rows: impl IntoIterator<Item = (K::Ref<'r>, V::Ref<'r>)>,
    ) -> Result<u64> {
        // What is nested vanishes as a whole.
        let mut nest = self.nest();
        let loaded = match nest.is_empty(table)? {
            true => nest.build(table, rows.into_iter())?,
            false => nest.put_in_order(table, rows.into_iter())?,
        };
        nest.commit()?;
        Ok(loaded)
    }

    fn is_empty<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>) -> Result<bool> {
        let state = self.turn.state_mut();
        let place = state.catalog.find_or_make(table.name(), Table::<K, V>::types, state.page_bytes)?;
        Ok(state.catalog.root(place).rows == 0)
    }

    /// Makes the tree of an empty table.
    fn build<'r, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        rows: impl Iterator<Item = (K::Ref<'r>, V::Ref<'r>)>,
    ) -> Result<u64> {
        let state = self.turn.state_mut();
        let place = state.catalog.find_or_make(table.name(), Table::<K, V>::types, state.page_bytes)?;
        if let Some(turn) = &mut state.turn {
            turn.body.table(place, || state.catalog.types(table.name()), table.name());
        }
        let mut loader = Loader::<Of<K>>::new(state.page_bytes);
        let mut count = 0;
        for (key, value) in fetched::<K, V>(rows) {
            let pushed = K::with_bytes(key, |key| V::with_bytes(value, |value| push(state, &mut loader, key, value)));
            if let Err(error) = pushed {
                // A row before this one may be the first that is wrong.
                loader.check()?;
                return Err(error.of_row(count));
            }
            count += 1;
        }
        let root = loader.end(&mut state.pager)?;
        state.catalog.set_root(place, root);
        if let Some(turn) = state.turn.as_mut().filter(|_| !K::BYTEWISE) {
            // Without the key's type nobody could do it again.
            turn.body.set_unfit();
        }
        Ok(count)
    }

    fn put_in_order<'r, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        rows: impl Iterator<Item = (K::Ref<'r>, V::Ref<'r>)>,
    ) -> Result<u64> {
        let (mut count, mut last) = (0, None::<Vec<u8>>);
        for (key, value) in rows {
            let is_next = K::with_bytes(key, |key| {
                let is_next = last.as_ref().is_none_or(|last| K::compare(last, key).is_lt());
                let kept = last.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(key);
                is_next
            });
            let written = if is_next { self.put(table, key, value) } else { Err(Error::Unsorted) };
            written.map_err(|error| error.of_row(count))?;
            count += 1;
        }
        Ok(count)
    }
}

/// The same rows, some of them looked at together before the first is used: those that lie far apart in memory are on their way at the
/// same time, instead of one after the other.
fn fetched<'r, K: Key + ?Sized, V: Value + ?Sized>(
    mut rows: impl Iterator<Item = (K::Ref<'r>, V::Ref<'r>)>,
) -> impl Iterator<Item = (K::Ref<'r>, V::Ref<'r>)> {
    let mut ahead = Vec::with_capacity(FETCHED_ROWS);
    let mut next = 0;
    std::iter::from_fn(move || {
        if next == ahead.len() {
            (ahead, next) = (std::mem::take(&mut ahead), 0);
            ahead.clear();
            ahead.extend(rows.by_ref().take(FETCHED_ROWS));
            let first_byte = |bytes: &[u8]| bytes.first().copied().unwrap_or(0);
            let touched = ahead
                .iter()
                .fold(0, |all, (key, value)| all ^ K::with_bytes(*key, first_byte) ^ V::with_bytes(*value, first_byte));
            std::hint::black_box(touched);
        }
        next += 1;
        ahead.get(next - 1).copied()
    })
}

/// Adds a row to the tree, and to the log.
#[inline]
fn push<O: btree::Order>(state: &mut State, loader: &mut Loader<O>, key: &[u8], value: &[u8]) -> Result<()> {
    check_key(key, state.page_bytes)?;
    if btree::fits(state.page_bytes, key.len(), value.len()) {
        loader.push(&mut state.pager, key, node::Value::Inline(value))?;
    } else {
        let reference = overflow::write(&mut state.pager, state.page_bytes, value)?.encode();
        loader.push(&mut state.pager, key, node::Value::Overflow(&reference))?;
    }
    if let Some(turn) = &mut state.turn {
        match loader.pages() < LOGGED_PAGES_MAX {
            true => turn.body.put(key, value),
            false => turn.body.set_unfit(),
        }
    }
    Ok(())
}
