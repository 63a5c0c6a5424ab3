//! The catalog: which tables a version of the store has, and where their trees begin.
//!
//! A version is immutable and shares with the one before what did not change: names and types change when a table is made or
//! dropped, roots in groups of sixteen.

mod names;
mod roots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::btree::{self, Root};
use crate::error::{Error, Result};
use crate::pins::Pins;
use names::Named;
use roots::Roots;

/// How many bytes of a root stand before the types in a row of the catalog's tree.
pub(crate) const ROOT_BYTES: usize = 12;

/// Whether a table of this name and these types can be a row of the catalog's tree, which a checkpoint writes.
pub(crate) fn check_name(name: &str, types: &str, page_bytes: usize) -> Result<()> {
    let fits = |bytes: usize| btree::fits(page_bytes, bytes, ROOT_BYTES + types.len());
    let key_bytes_max = btree::key_bytes_max(page_bytes);
    if name.len() <= key_bytes_max && fits(name.len()) {
        return Ok(());
    }
    let most = (0..=key_bytes_max).rev().find(|bytes| fits(*bytes)).unwrap_or(0);
    Err(Error::NameTooLong { most, found: name.len() })
}

/// All tables of one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    names: Arc<Named<Entry>>,
    roots: Roots,
    /// Places of dropped tables.
    vacant: Arc<Vec<usize>>,
    /// The pins that there are in this version.
    pins: Arc<Pins>,
}

/// The names of the tables that there are in some versions, to know those versions by.
#[derive(Debug)]
pub(crate) struct Names(Arc<Named<Entry>>);

impl Names {
    /// Whether a version has these names, at the same places.
    pub(crate) fn are_of(&self, catalog: &Catalog) -> bool {
        Arc::ptr_eq(&self.0, &catalog.names)
    }
}

/// The names of a table's types, made when they are asked for. Two of these are the same function only if they make the same
/// names.
pub(crate) type Types = fn() -> String;

#[derive(Debug)]
struct Entry {
    place: usize,
    types: Box<str>,
    /// The function whose answer was compared last and found right, so that it need not be asked for every row.
    right: AtomicUsize,
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        let right = AtomicUsize::new(self.right.load(Ordering::Relaxed));
        Self { place: self.place, types: self.types.clone(), right }
    }
}

impl Entry {
    #[inline]
    fn check(&self, name: &str, types: Types) -> Result<()> {
        if self.right.load(Ordering::Relaxed) == types as usize { Ok(()) } else { self.compare(name, types) }
    }

    #[cold]
    fn compare(&self, name: &str, types: Types) -> Result<()> {
        let expected = types();
        if *self.types != *expected {
            let (table, expected, found) = (name.into(), expected.into(), self.types.clone());
            return Err(Error::OtherTypes { table, expected, found });
        }
        self.right.store(types as usize, Ordering::Relaxed);
        Ok(())
    }
}

impl Catalog {
    /// The place of a table's root, if there is such a table and it was made for these types.
    #[inline]
    pub(crate) fn find(&self, name: &str, types: Types) -> Result<Option<usize>> {
        let Some(entry) = self.names.get(name) else { return Ok(None) };
        entry.check(name, types)?;
        Ok(Some(entry.place))
    }

    /// The place of a table's root; the table is made if it is missing and a page has room for its name.
    pub(crate) fn find_or_make(&mut self, name: &str, types: Types, page_bytes: usize) -> Result<usize> {
        if let Some(place) = self.find(name, types)? {
            return Ok(place);
        }
        let named = types();
        check_name(name, &named, page_bytes)?;
        Ok(self.make(name, named.into(), AtomicUsize::new(types as usize)))
    }

    /// Whether a table is there for these types, or could be made.
    pub(crate) fn check(&self, name: &str, types: Types, page_bytes: usize) -> Result<()> {
        match self.find(name, types)? {
            Some(_) => Ok(()),
            None => check_name(name, &types(), page_bytes),
        }
    }

    /// The place of a table's root, by the names of its types; the table is made if it is missing. `None` if it was made for
    /// others.
    pub(crate) fn find_or_make_named(&mut self, name: &str, types: &str) -> Option<usize> {
        match self.names.get(name) {
            Some(entry) => (*entry.types == *types).then_some(entry.place),
            None => Some(self.make(name, types.into(), AtomicUsize::new(0))),
        }
    }

    fn make(&mut self, name: &str, types: Box<str>, right: AtomicUsize) -> usize {
        let place = Arc::make_mut(&mut self.vacant).pop().unwrap_or_else(|| self.names.len());
        self.roots.reach(place);
        Arc::make_mut(&mut self.names).insert(name.into(), Entry { place, types, right });
        place
    }

    /// The place of a table's root, whatever its types.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.names.get(name).map(|entry| entry.place)
    }

    /// The names of the types of a table that is there.
    pub(crate) fn types(&self, name: &str) -> &str {
        self.names.get(name).map(|entry| &*entry.types).expect("the table is there")
    }

    /// The name, the types and the root of a table.
    pub(crate) fn entry(&self, name: &str) -> Option<(&str, &str, Root)> {
        let (name, entry) = self.names.get_named(name)?;
        Some((name, &entry.types, self.root(entry.place)))
    }

    /// Which names there are, and at which places.
    pub(crate) fn names(&self) -> Names {
        Names(Arc::clone(&self.names))
    }

    /// Whether a table is the same in another version, as far as its root tells: made for the same types, with the same pages.
    pub(crate) fn has_same(&self, other: &Self, name: &str) -> bool {
        self.entry(name) == other.entry(name)
    }

    /// Forgets a table whose tree is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        let entry = Arc::make_mut(&mut self.names).remove(name).expect("the table was found before");
        assert_eq!(self.root(entry.place), Root::default(), "a table is forgotten after its rows");
        Arc::make_mut(&mut self.vacant).push(entry.place);
    }

    #[inline]
    pub(crate) fn root(&self, place: usize) -> Root {
        self.roots.root(place)
    }

    pub(crate) fn set_root(&mut self, place: usize, root: Root) {
        if self.root(place) != root {
            self.roots.set(place, root);
        }
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    pub(crate) fn pins_mut(&mut self) -> &mut Pins {
        Arc::make_mut(&mut self.pins)
    }

    /// The tables alone.
    pub(crate) fn without_pins(&self) -> Self {
        Self { pins: Arc::default(), ..self.clone() }
    }

    /// The tables with their types and roots, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, Root)> {
        self.names.iter().map(|(name, entry)| (name, &*entry.types, self.root(entry.place)))
    }
}
