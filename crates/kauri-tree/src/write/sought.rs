//! Rows that are read and then written: the way to them is looked for once.

use std::borrow::Cow;

use kauri_wire::Key;

use super::{WriteTxn, check_key};
use crate::btree::{self, Located, Of, Root};
use crate::catalog::{Catalog, Types};
use crate::error::Result;
use crate::node;
use crate::pager::Pager;
use crate::read::{Access, Write, resolve};
use crate::table::Table;
use crate::update::{AsValue, Compared};
use crate::value::Value;

/// Where a row is, or would be, in a table that is there. Nothing was changed since it was looked for.
struct Sought {
    /// Of the table, in the catalog.
    place: usize,
    row: Located,
}

impl WriteTxn<'_> {
    /// Replaces the value of a row if it is the one that is expected.
    pub(super) fn replace_sought<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        key: &[u8],
        expected: &[u8],
        (table, value): (&Table<K, V>, V::Ref<'_>),
    ) -> Result<Compared> {
        let types: Types = Table::<K, V>::types;
        let Some(sought) = self.seek::<K>(table.name(), types, key)? else { return Ok(Compared::Missing) };
        match self.sought_value(&sought)? {
            None => return Ok(Compared::Missing),
            Some(found) if *found != *expected => return Ok(Compared::Differs),
            Some(_) => {}
        }
        V::with_bytes(value, |value| self.put_sought::<K>(table.name(), types, sought, key, value))?;
        Ok(Compared::Matches)
    }

    /// Makes the value of a row from the one that it has.
    pub(super) fn update_sought<K: Key + ?Sized, V: Value + ?Sized, N: AsValue<V>>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        make: impl FnOnce(Option<V::View<'_>>) -> Option<N>,
    ) -> Result<Option<N>> {
        let types: Types = Table::<K, V>::types;
        let sought = K::with_bytes(key, |key| self.seek::<K>(table.name(), types, key))?;
        let old = sought.as_ref().map(|sought| self.sought_value(sought)).transpose()?.flatten();
        let was_there = old.is_some();
        let made = make(old.map(V::decode).transpose()?);
        match (&made, sought) {
            (Some(value), Some(sought)) => K::with_bytes(key, |key| {
                V::with_bytes(value.as_value(), |value| self.put_sought::<K>(table.name(), types, sought, key, value))
            })?,
            (Some(value), None) => self.put(table, key, value.as_value())?,
            (None, _) if was_there => self.remove(table, key).map(drop)?,
            (None, _) => {}
        }
        Ok(made)
    }

    /// Looks for a row of a table; `None` if there is no such table, or nothing in it.
    fn seek<K: Key + ?Sized>(&self, table: &str, types: Types, key: &[u8]) -> Result<Option<Sought>> {
        let state = self.turn.state();
        let Some(place) = state.catalog.find(table, types)? else { return Ok(None) };
        let row = btree::locate::<Of<K>>(&state.pager, state.catalog.root(place), key)?;
        Ok(row.map(|row| Sought { place, row }))
    }

    fn sought_value(&self, sought: &Sought) -> Result<Option<Cow<'_, [u8]>>> {
        let pager = &self.turn.state().pager;
        sought.row.value(pager)?.map(|value| resolve(Access::Turn(pager), value)).transpose()
    }

    /// Writes the row that was looked for.
    fn put_sought<K: Key + ?Sized>(
        &mut self,
        table: &str,
        types: Types,
        Sought { place, row }: Sought,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let page_bytes = self.turn.state().page_bytes;
        check_key(key, page_bytes)?;
        if !btree::fits(page_bytes, key.len(), value.len()) {
            return self.put_bytes::<K>(table, types, key, value);
        }
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| {
            btree::put_located::<Of<K>>(pages, root, row, (key, node::Value::Inline(value)))
        };
        self.change_at::<K>(place, table, change, |body, _| body.put(key, value))?;
        Ok(())
    }
}
