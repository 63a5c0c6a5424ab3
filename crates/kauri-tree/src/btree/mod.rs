//! The copy-on-write B+ tree: rows in leaves, all at one depth, found by key, by range and by rank.
//!
//! A tree is a [`Root`]; its pages come from a [`Pages`]. Reading needs nothing else. Changing a tree makes the pages on the way
//! to the change fresh (a page of the transaction's own; one copy per page and transaction), so whoever holds the old root
//! goes on seeing the old tree.

mod cut;
mod diff;
mod edit;
mod load;
mod scan;
mod search;
mod verify;
mod way;

use std::cmp::Ordering;

pub(crate) use cut::{Cut, Edge, remove_range};
pub(crate) use diff::{Between, Differ, Differing, See, differences, first_difference, is_same, unshared_leaves};
pub(crate) use edit::{Located, Old, insert, locate, put, put_located, remove, retire_all};
pub(crate) use load::{LOGGED_PAGES_MAX, Loader};
pub(crate) use scan::{Row, Scan, Spot};
pub(crate) use search::{count_between, get, rank};
pub(crate) use verify::{Seen, verify};
use way::Way;

use crate::error::{Error, Fault, Result};
use crate::node::{HEADER_BYTES, LEVELS_MAX, Node, SLOT_BYTES};

/// The deepest tree.
pub(crate) const DEPTH_MAX: usize = LEVELS_MAX as usize;

/// Where a tree begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Root {
    /// The topmost page; 0 if there are no rows. (Page 0 is never a tree's.)
    pub(crate) page: u32,
    /// How many rows there are.
    pub(crate) rows: u64,
}

/// Pages to read.
pub(crate) trait Pages {
    fn page(&self, page: u32) -> Result<&[u8]>;
}

/// The topmost node of a tree. A file may say that it is any page, at any level.
#[inline]
fn topmost(pages: &impl Pages, page: u32) -> Result<Node<'_>> {
    let node = Node::new(pages.page(page)?);
    if node.is_node() && usize::from(node.level()) < DEPTH_MAX { Ok(node) } else { Err(stray(page)) }
}

/// A child of a node: one level below it, so that every way down has an end whatever a file says.
#[inline]
fn below<'a>(pages: &'a impl Pages, parent: Node<'_>, page: u32) -> Result<Node<'a>> {
    let node = Node::new(pages.page(page)?);
    if node.is_below(parent) { Ok(node) } else { Err(stray(page)) }
}

#[cold]
fn stray(page: u32) -> Error {
    Error::Corrupt { page, fault: Fault::new("a node of the tree that points to it", page.into()) }
}

/// Pages to read and to make.
pub(crate) trait PagesMut: Pages {
    /// The number of bytes of a page.
    fn page_bytes(&self) -> usize;
    /// An empty page of the transaction's own.
    fn make(&mut self) -> Result<u32>;
    /// A page that is filled now and not changed later by the transaction that makes it, unless a copy of it: it need not be in memory.
    fn write_once(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32>;
    /// A page of the transaction's own with the content of this one, which may be itself; else the old one is given up.
    fn fresh(&mut self, page: u32) -> Result<u32>;
    /// A page of the transaction's own, to change.
    fn page_mut(&mut self, page: u32) -> &mut [u8];
    /// Gives a page up.
    fn retire(&mut self, page: u32);
    /// A buffer that is used for one rebuilding of a page at a time.
    fn scratch(&mut self) -> Vec<u8>;
    /// Gives the buffer back.
    fn return_scratch(&mut self, scratch: Vec<u8>);
}

/// The order of a tree's keys.
pub(crate) trait Order {
    /// Whether it is the order of their bytes: then pages have prefixes and heads.
    const BYTEWISE: bool;
    fn compare(left: &[u8], right: &[u8]) -> Ordering;
}

/// The order of a type of keys.
pub(crate) struct Of<K: ?Sized>(std::marker::PhantomData<K>);

impl<K: kauri_wire::Key + ?Sized> Order for Of<K> {
    const BYTEWISE: bool = K::BYTEWISE;

    #[inline]
    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        K::compare(left, right)
    }
}

/// An order of which nothing is known: any keys may follow each other.
pub(crate) struct Unknown;

impl Order for Unknown {
    const BYTEWISE: bool = false;

    fn compare(_: &[u8], _: &[u8]) -> Ordering {
        Ordering::Less
    }
}

/// The longest key in pages of this size.
pub(crate) const fn key_bytes_max(page_bytes: usize) -> usize {
    page_bytes / 4 - SLOT_BYTES
}

/// The most bytes that a row may take in a page of this size, with its slot: two rows always fit, whatever their prefix.
pub(crate) const fn row_bytes_max(page_bytes: usize) -> usize {
    (page_bytes - HEADER_BYTES) / 2 - SLOT_BYTES
}

/// Whether a row of this key and value lies in a leaf whole.
pub(crate) const fn fits(page_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
    SLOT_BYTES + 2 + key_bytes + value_bytes <= row_bytes_max(page_bytes)
}
