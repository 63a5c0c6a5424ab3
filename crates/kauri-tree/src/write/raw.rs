//! Rows written as bytes, by whoever does not know the types of their table.

use super::{WriteTxn, check_key};
use crate::btree::{self, Loader, Of, Old, Root, Unknown};
use crate::catalog::{Catalog, check_name};
use crate::error::{Error, Result};
use crate::node;
use crate::overflow;
use crate::pager::Pager;
use crate::read::{Access, Source, resolve};
use crate::store::State;
use crate::table::{self, Table};

impl WriteTxn<'_> {
    /// Writes a row by its bytes, whatever the types of its table; nobody looks whether they are of those types. A table that is missing is
    /// made, of bytes.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.put_raw("stock", b"pears", &5_u64.to_le_bytes())?;
    /// assert_eq!(txn.get(&STOCK, "pears")?, Some(5));
    /// assert!(txn.remove_raw("stock", b"apples")?);
    /// assert_eq!(txn.len(&STOCK)?, 1);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OwnOrder`] if the table's keys are not in the order of their bytes; also if the key or the value is too long, or the
    /// store is full or damaged.
    pub fn put_raw(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let types = match self.turn.state().catalog.entry(table) {
            Some((_, types, _)) => types.to_owned(),
            None => Table::<[u8], [u8]>::types(),
        };
        check_order(table, &types)?;
        let page_bytes = self.turn.state().page_bytes;
        check_key(key, page_bytes)?;
        let place = self.make_raw(table, &types)?;
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| {
            if btree::fits(page_bytes, key.len(), value.len()) {
                return btree::put::<Of<[u8]>>(pages, root, key, node::Value::Inline(value));
            }
            let reference = overflow::write(pages, page_bytes, value)?.encode();
            btree::put::<Of<[u8]>>(pages, root, key, node::Value::Overflow(&reference))
        };
        self.change_at::<[u8]>(place, table, change, |body, _| body.put(key, value))?;
        Ok(())
    }

    /// Removes a row by its bytes, and tells whether there was one.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<u32, str> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, 7, "apples")?;
    /// assert!(txn.remove_raw("stock", &[0, 0, 0, 7])?);
    /// assert!(!txn.remove_raw("stock", &[0, 0, 0, 7])? && !txn.remove_raw("stick", b"")?); // nothing of that
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`put_raw`](Self::put_raw).
    pub fn remove_raw(&mut self, table: &str, key: &[u8]) -> Result<bool> {
        let Some((_, types, _)) = self.turn.state().catalog.entry(table) else { return Ok(false) };
        check_order(table, types)?;
        let types = types.to_owned();
        let place = self.make_raw(table, &types)?;
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| btree::remove::<Of<[u8]>>(pages, root, key);
        let log = |body: &mut crate::log::Body, old: &Old| {
            if *old != Old::Missing {
                body.remove(key);
            }
        };
        self.change_at::<[u8]>(place, table, change, log)
    }

    /// A copy of the value of a key in a table whose keys are in the order of their bytes.
    pub(crate) fn get_raw(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let state = self.turn.state();
        let Some((_, _, root)) = state.catalog.entry(table) else { return Ok(None) };
        let found = btree::get::<Of<[u8]>>(&state.pager, root, key)?;
        found.map(|value| Ok(resolve(Access::Turn(&state.pager), value)?.into_owned())).transpose()
    }

    /// The catalog as it is so far.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.turn.state().catalog
    }

    /// Shows all rows of a table to `see`.
    pub(crate) fn for_each_raw(&self, table: &str, see: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let root = self.catalog().entry(table).map_or(Root::default(), |(_, _, root)| root);
        crate::content::for_each(self.access(), root, see)
    }

    /// The place of a table; it is made if it is missing.
    pub(crate) fn make_raw(&mut self, table: &str, types: &str) -> Result<usize> {
        let State { catalog, page_bytes, .. } = self.turn.state_mut();
        match catalog.entry(table) {
            Some((_, found, _)) if found == types => {}
            Some((_, found, _)) => {
                let (table, expected, found) = (table.into(), types.into(), found.into());
                return Err(Error::OtherTypes { table, expected, found });
            }
            None => check_name(table, types, *page_bytes)?,
        }
        Ok(catalog.find_or_make_named(table, types).expect("its types were compared"))
    }

    /// Adds a row to a tree that is being made. It is nobody's until it is [ended](Self::end_load), though it may be committed.
    pub(crate) fn load_raw(&mut self, loader: &mut RawLoader, key: &[u8], value: &[u8]) -> Result<()> {
        let state = self.turn.state_mut();
        check_key(key, state.page_bytes)?;
        if let Some(turn) = &mut state.turn {
            turn.body.set_unfit();
        }
        if btree::fits(state.page_bytes, key.len(), value.len()) {
            return loader.push(&mut state.pager, key, node::Value::Inline(value));
        }
        let reference = overflow::write(&mut state.pager, state.page_bytes, value)?.encode();
        loader.push(&mut state.pager, key, node::Value::Overflow(&reference))
    }

    /// Gives a table, which is empty, the tree that was made for it.
    pub(crate) fn end_load(&mut self, place: usize, loader: RawLoader) -> Result<()> {
        let state = self.turn.state_mut();
        assert_eq!(state.catalog.root(place), Root::default(), "a tree is made for an empty table");
        let root = match loader {
            RawLoader::Bytes(loader) => loader.end(&mut state.pager)?,
            RawLoader::Own(loader) => loader.end(&mut state.pager)?,
        };
        state.catalog.set_root(place, root);
        if let Some(turn) = &mut state.turn {
            turn.body.set_unfit();
        }
        Ok(())
    }
}

/// A tree that is made of rows in order: that of their bytes, or one that nobody here knows.
pub(crate) enum RawLoader {
    Bytes(Loader<Of<[u8]>>),
    Own(Loader<Unknown>),
}

impl RawLoader {
    pub(crate) fn new(types: &str, page_bytes: usize) -> Self {
        match table::is_bytewise(types) {
            true => Self::Bytes(Loader::new(page_bytes)),
            false => Self::Own(Loader::new(page_bytes)),
        }
    }

    fn push(&mut self, pages: &mut Pager<Catalog>, key: &[u8], value: node::Value<'_>) -> Result<()> {
        match self {
            Self::Bytes(loader) => loader.push(pages, key, value),
            Self::Own(loader) => loader.push(pages, key, value),
        }
    }
}

fn check_order(table: &str, types: &str) -> Result<()> {
    if table::is_bytewise(types) { Ok(()) } else { Err(Error::OwnOrder { table: table.into() }) }
}
