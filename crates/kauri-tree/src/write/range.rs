//! Ranges of rows, removed at once.

use std::ops::{Bound, RangeBounds};

use kauri_wire::Key;

use super::WriteTxn;
use crate::btree::{self, Cut, Edge, Of, Root};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::pager::Pager;
use crate::read::{Access, Source};
use crate::table::Table;
use crate::value::Value;

/// The most rows that are removed by name in the log. More are committed by their pages, which are few then.
const LOGGED_MAX: usize = 1000;

impl WriteTxn<'_> {
    /// Removes all rows whose keys are in a range, and tells how many there were.
    ///
    /// It costs the same for any number of rows, but for looking at the pages that they were in.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.load_sorted(&SQUARES, (0..1000).map(|number| (number, number * number)))?;
    /// assert_eq!(txn.remove_range(&SQUARES, 10..990)?, 980);
    /// assert_eq!(txn.remove_range(&SQUARES, ..=9)?, 10);
    /// assert_eq!(txn.len(&SQUARES)?, 10);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is full or damaged: then the table is as it was.
    pub fn remove_range<'r, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: impl RangeBounds<K::Ref<'r>>,
    ) -> Result<u64> {
        // A table that is missing is not made for this.
        if self.root(table.name(), Table::<K, V>::types)?.is_none() {
            return Ok(0);
        }
        let encode = |bound: Bound<&K::Ref<'r>>| bound.map(|key| K::encode(*key));
        let (from, until) = (encode(range.start_bound()), encode(range.end_bound()));
        if let (Some(from), Some(until)) = (key(&from), key(&until))
            && K::compare(from, until).is_gt()
        {
            return Ok(0);
        }
        let from = match &from {
            Bound::Included(key) => Some(Edge::Before(key)),
            Bound::Excluded(key) => Some(Edge::Behind(key)),
            Bound::Unbounded => None,
        };
        let until = match &until {
            Bound::Included(key) => Some(Edge::Behind(key)),
            Bound::Excluded(key) => Some(Edge::Before(key)),
            Bound::Unbounded => None,
        };
        self.remove_cut(table, Cut { from, until })
    }

    /// Removes the rows of a range of a table that is there.
    pub(super) fn remove_cut<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        cut: Cut<'_>,
    ) -> Result<u64> {
        // What is nested vanishes as a whole.
        let mut nest = self.nest();
        let removed = nest.cut(table, cut)?;
        nest.commit()?;
        Ok(removed)
    }

    fn cut<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, cut: Cut<'_>) -> Result<u64> {
        let state = self.turn.state_mut();
        let place = state.catalog.find_or_make(table.name(), Table::<K, V>::types, state.page_bytes)?;
        let mut root = state.catalog.root(place);
        if let Some(turn) = &mut state.turn {
            let keys = if K::BYTEWISE { keys_in::<Of<K>>(&state.pager, root, cut)? } else { None };
            match keys {
                Some(keys) => {
                    turn.body.table(place, || state.catalog.types(table.name()), table.name());
                    keys.iter().for_each(|key| turn.body.remove(key));
                }
                None => turn.body.set_unfit(),
            }
        }
        let removed = btree::remove_range::<Of<K>>(&mut state.pager, &mut root, cut)?;
        state.catalog.set_root(place, root);
        Ok(removed)
    }
}

fn key(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The keys of a range, unless there are many.
fn keys_in<O: btree::Order>(pages: &Pager<Catalog>, root: Root, cut: Cut<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let mut scan = btree::Scan::new(Access::Turn(pages));
    match cut.from {
        Some(Edge::Before(key) | Edge::Behind(key)) => scan.go_to::<O>(root, key)?,
        None => scan.go_first(root)?,
    }
    let mut keys = Vec::new();
    while let Some(btree::Row { node, index, .. }) = scan.next()? {
        let mut key = Vec::new();
        node.key_into(index, &mut key);
        let is_past = match cut.until {
            Some(Edge::Before(until)) => O::compare(&key, until).is_ge(),
            Some(Edge::Behind(until)) => O::compare(&key, until).is_gt(),
            None => false,
        };
        if is_past {
            break;
        }
        if keys.len() == LOGGED_MAX {
            return Ok(None);
        }
        if !matches!(cut.from, Some(Edge::Behind(from)) if O::compare(&key, from).is_eq()) {
            keys.push(key);
        }
    }
    Ok(Some(keys))
}
