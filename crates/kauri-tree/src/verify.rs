//! Whether a store is whole: every tree is one, and every page is used once, free, or waiting for a reader.

use std::collections::BTreeSet;

use crate::btree::{self, Of, Root, Seen, Unknown};
use crate::error::{Error, Fault, Result};
use crate::overflow::{self, Reference};
use crate::store::{State, Store};
use crate::table;

/// What [`Store::verify`] found in order.
///
/// ```
/// use kauri_tree::{Report, Store};
///
/// assert_eq!(Store::in_memory()?.verify()?, Report::default());
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How many tables there are.
    pub tables: usize,
    /// How many rows they have.
    pub rows: u64,
    /// How many pages hold them.
    pub pages: usize,
}

impl Store {
    /// Looks at every page: whether each tree is one, and whether every page is used once, free, or waiting for a reader.
    ///
    /// # Errors
    /// The first fault found.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// let report = store.verify()?;
    /// assert_eq!((report.tables, report.rows, report.pages), (1, 1, 1));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn verify(&self) -> Result<Report> {
        let mut state = self.turn();
        // As a transaction that writes nothing: only in one are pages held.
        state.pager.begin();
        let report = verify(&state);
        state.pager.abort();
        report
    }
}

fn verify(state: &State) -> Result<Report> {
    let mut seen = BTreeSet::new();
    let mut report = Report::default();
    let mut own = Vec::new();
    for (_, types, root) in state.catalog.iter() {
        report.tables += 1;
        report.rows += root.rows;
        verify_table(state, types, root, &mut seen)?;
    }
    report.pages = seen.len();
    for page in state.pager.free().iter().chain(state.pager.waiting()) {
        claim(&mut seen, page)?;
    }
    if let Some(turn) = &state.turn {
        btree::verify::<Of<[u8]>>(&state.pager, turn.catalog, &mut |what| {
            if let Seen::Page(page) = what {
                own.push(page);
            }
        })?;
        own.extend(turn.bitmap.into_iter().flat_map(crate::pager::Run::iter));
    }
    for page in own {
        claim(&mut seen, page)?;
    }
    match (state.first_page()..state.pager.end()).find(|page| !seen.contains(page)) {
        Some(page) => {
            Err(Error::Corrupt { page, fault: Fault::new("a page that is used, free or waiting", page.into()) })
        }
        None => Ok(report),
    }
}

/// Checks one tree and notes its pages.
fn verify_table(state: &State, types: &str, root: Root, seen: &mut BTreeSet<u32>) -> Result<()> {
    let mut pages = Vec::new();
    let mut references = Vec::new();
    let mut see = |what: Seen<'_>| match what {
        Seen::Page(page) => pages.push(page),
        Seen::Overflow(reference) => references.push(Reference::decode(reference)),
    };
    // An order other than that of bytes is known only to the key's type, which is not here.
    match table::is_bytewise(types) {
        true => btree::verify::<Of<[u8]>>(&state.pager, root, &mut see)?,
        false => btree::verify::<Unknown>(&state.pager, root, &mut see)?,
    }
    for page in pages {
        claim(seen, page)?;
    }
    for reference in references {
        let mut runs = Vec::new();
        overflow::each(&state.pager, state.page_bytes, reference?, |run| runs.push(run))?;
        for page in runs.into_iter().flat_map(crate::pager::Run::iter) {
            claim(seen, page)?;
        }
    }
    Ok(())
}

fn claim(seen: &mut BTreeSet<u32>, page: u32) -> Result<()> {
    match seen.insert(page) {
        true => Ok(()),
        false => Err(Error::Corrupt { page, fault: Fault::new("a page used once", page.into()) }),
    }
}
