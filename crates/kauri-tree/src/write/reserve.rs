//! Values that are made where they lie.

use kauri_wire::Key;

use super::{WriteTxn, check_key};
use crate::btree::{self, Of, Root};
use crate::catalog::{Catalog, Types};
use crate::error::{Error, Result};
use crate::node;
use crate::overflow::{self, VALUE_BYTES_MAX};
use crate::pager::Pager;
use crate::read::{Access, resolve};

impl WriteTxn<'_> {
    /// Writes a row of so many bytes, made by `fill`.
    pub(super) fn reserve_bytes<K: Key + ?Sized>(
        &mut self,
        table: &str,
        types: Types,
        key: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let page_bytes = self.turn.state().page_bytes;
        check_key(key, page_bytes)?;
        // Before anything is made: a table of other types, or with too long a name, is refused.
        self.turn.state().catalog.check(table, types, page_bytes)?;
        if bytes > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { most: VALUE_BYTES_MAX, found: bytes });
        }
        if btree::fits(page_bytes, key.len(), bytes) || bytes > overflow::run_value_bytes_max(page_bytes) {
            // It lies among others, or in several pieces.
            let mut value = vec![0; bytes];
            fill(&mut value);
            return self.put_bytes::<K>(table, types, key, &value);
        }
        self.fill_run::<K>(table, types, key, bytes, fill)
    }

    /// Makes a value in a run of its own.
    fn fill_run<K: Key + ?Sized>(
        &mut self,
        table: &str,
        types: Types,
        key: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let state = self.turn.state_mut();
        let page_bytes = state.page_bytes;
        let reference = overflow::fill(&mut state.pager, page_bytes, bytes, fill)?.encode();
        let place = state.catalog.find_or_make(table, types, page_bytes)?;
        let value = node::Value::Overflow(&reference);
        if let Some(turn) = &mut state.turn {
            turn.body.table(place, || state.catalog.types(table), table);
            turn.body.put(key, &resolve(Access::Turn(&state.pager), value)?);
        }
        let change = |pages: &mut Pager<Catalog>, root: &mut Root| btree::put::<Of<K>>(pages, root, key, value);
        let put = self.change::<K>(table, types, change, |_, _| ());
        if let (Err(_), Some(turn)) = (&put, &mut self.turn.state_mut().turn) {
            // The log has a row that the table may not have.
            turn.body.set_unfit();
        }
        put.map(|_| ())
    }
}
