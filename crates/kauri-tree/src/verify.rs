//! Whether a store is whole: every tree is one, and every page is used once, kept for a pin, free, or waiting for a reader.

use std::collections::{BTreeMap, BTreeSet};

use kauri_arena::Stamp;

use crate::btree::{self, Of, Root, Seen, Unknown};
use crate::error::{Error, Fault, Result};
use crate::kept;
use crate::overflow::{self, Reference};
use crate::pager::Run;
use crate::read::Access;
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
    /// How many pins there are.
    pub pins: usize,
    /// How many pages only they see.
    pub kept_pages: usize,
}

impl Store {
    /// Looks at every page: whether each tree is one, and whether every page is used once,
    /// kept for a pin, free, or waiting for a reader. The trees of pins are looked at too, each whole. It has the writer's turn: others
    /// read meanwhile, and nobody writes.
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
    let mut report = Report::default();
    // The pages of the newest version; those of the catalog's tree, which a pin may see too, among them.
    let mut live = BTreeSet::new();
    for (_, types, root) in state.catalog.iter() {
        report.tables += 1;
        report.rows += root.rows;
        verify_table(state, types, root, &mut live)?;
    }
    report.pages = live.len();
    let kept = kept_pages(state)?;
    if let Some(turn) = &state.turn {
        verify_tree(state, turn.catalog, &mut live)?;
    }
    let mut seen = live.clone();
    for page in state.pager.free().iter().chain(state.pager.waiting()).chain(kept.keys().copied()) {
        claim(&mut seen, page)?;
    }
    if let Some(turn) = &state.turn {
        verify_tree(state, turn.pins, &mut seen)?;
        verify_tree(state, turn.kept, &mut seen)?;
        for page in turn.bitmap.into_iter().flat_map(Run::iter) {
            claim(&mut seen, page)?;
        }
    }
    if let Some(page) = (state.first_page()..state.pager.end()).find(|page| !seen.contains(page)) {
        return Err(corrupt(page, "a page that is used, kept, free or waiting", page.into()));
    }
    verify_pins(state, &live, &kept)?;
    report.pins = state.catalog.pins().len();
    report.kept_pages = kept.len();
    Ok(report)
}

/// For whom a page is kept.
#[derive(Clone, Copy)]
struct Keeping {
    /// The newest pin that sees it.
    pin: Stamp,
    /// When it was born; the first of all stamps if that is not known: then it is kept longer than anybody sees it.
    birth: Stamp,
}

/// The pages that are kept for pins, each named once.
fn kept_pages(state: &State) -> Result<BTreeMap<u32, Keeping>> {
    let listed = match &state.turn {
        Some(turn) => kept::list(Access::Turn(&state.pager), turn.kept, None)?,
        None => Vec::new(),
    };
    let mut pages = BTreeMap::new();
    for (pin, dead) in listed.into_iter().chain(state.pager.kept()) {
        let keeping = Keeping { pin, birth: dead.birth };
        // Before the pages are noted one by one: there may be no more of them than the store has.
        if dead.run.first.checked_add(dead.run.pages).is_none_or(|end| end > state.pager.end()) {
            return Err(corrupt(dead.run.first, "kept pages inside the store", dead.run.pages.into()));
        }
        if dead.birth > pin || state.pager.birth(dead.run.first).is_some_and(|birth| birth < dead.birth) {
            return Err(corrupt(dead.run.first, "a kept page that was born before its pin", dead.birth.number()));
        }
        for page in dead.run.iter() {
            if pages.insert(page, keeping).is_some() {
                return Err(corrupt(page, "a page kept once", page.into()));
            }
        }
    }
    Ok(pages)
}

/// Checks the trees of each pin: its pages are those of the newest version, or kept for it or for a newer one; and what is kept for it, or is
/// in use since before it, it sees.
fn verify_pins(state: &State, live: &BTreeSet<u32>, kept: &BTreeMap<u32, Keeping>) -> Result<()> {
    let mut unreached: BTreeMap<u32, Stamp> = kept
        .iter()
        .filter(|(_, keeping)| keeping.birth > Stamp::FIRST)
        .map(|(page, keeping)| (*page, keeping.pin))
        .collect();
    let births: Vec<(u32, Stamp)> = live
        .iter()
        .filter_map(|page| Some((*page, state.pager.birth(*page).filter(|birth| *birth > Stamp::FIRST)?)))
        .collect();
    for pinned in state.catalog.pins().values() {
        let mut reached = BTreeSet::new();
        for (_, types, root) in pinned.catalog(Access::Turn(&state.pager))?.iter() {
            verify_table(state, types, root, &mut reached)?;
        }
        verify_tree(state, pinned.root(), &mut reached)?;
        // Else it would be kept for a pin that does not see it, when it dies.
        if let Some((page, birth)) =
            births.iter().find(|(page, birth)| *birth <= pinned.version && !reached.contains(page))
        {
            return Err(corrupt(
                *page,
                "a page in use that was born after the pins that do not see it",
                birth.number(),
            ));
        }
        for page in reached {
            let keeps = |keeping: &Keeping| keeping.birth <= pinned.version && pinned.version <= keeping.pin;
            if !kept.get(&page).map_or(live.contains(&page), keeps) {
                return Err(corrupt(page, "a page of a pin that is in use or kept", page.into()));
            }
            // What is in use is kept when it dies, by its birth.
            if let Some(birth) = state.pager.birth(page).filter(|birth| *birth > pinned.version) {
                return Err(corrupt(page, "a page that was born before its pin", birth.number()));
            }
            if unreached.get(&page) == Some(&pinned.version) {
                unreached.remove(&page);
            }
        }
    }
    match unreached.into_iter().next() {
        Some((page, pin)) => Err(corrupt(page, "a page that is seen by the pin it is kept for", pin.number())),
        None => Ok(()),
    }
}

/// Checks a tree of the store's own and notes its pages.
fn verify_tree(state: &State, root: Root, seen: &mut BTreeSet<u32>) -> Result<()> {
    verify_table(state, "bytes to bytes", root, seen)
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
        for page in runs.into_iter().flat_map(Run::iter) {
            claim(seen, page)?;
        }
    }
    Ok(())
}

fn claim(seen: &mut BTreeSet<u32>, page: u32) -> Result<()> {
    match seen.insert(page) {
        true => Ok(()),
        false => Err(corrupt(page, "a page used once", page.into())),
    }
}

fn corrupt(page: u32, expected: &'static str, found: u64) -> Error {
    Error::Corrupt { page, fault: Fault::new(expected, found) }
}
