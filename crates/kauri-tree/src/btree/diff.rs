//! Whether two versions of a tree agree: on a key, or on a range of keys.
//!
//! Both versions are of one store, and the older is held by a snapshot while they are compared. So **a page that is in both is the
//! same page, and everything below it is the same too**: the arena empties a frame only when no version of its page's life is
//! held, and until then its number is not given to another page; and a page that a sealed version has does not change. Nothing else
//! of it need be looked at. What two versions do not share is what was written between them, so comparing them costs that, and a
//! way down.
//!
//! The converse does not hold: rows that were written again as they were, or moved by a split or a merge, lie in other pages. There
//! the rows themselves are compared.

use std::ops::Bound;

use super::search::{child_index, get, row_index};
use super::{Order, Root};
use crate::error::{Error, Fault, Result};
use crate::node::{Node, Value};
use crate::overflow::Reference;
use crate::read::{Access, resolve};

/// Keys from one bound to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between<'k> {
    pub(crate) from: Bound<&'k [u8]>,
    pub(crate) until: Bound<&'k [u8]>,
}

/// Whether a key has the same value in both trees, or is missing from both.
pub(crate) fn is_same<O: Order>(pages: Access<'_>, old: Root, new: Root, key: &[u8]) -> Result<bool> {
    match (old.page, new.page) {
        (left, right) if left == right => return Ok(true),
        (0, _) => return Ok(get::<O>(&pages, new, key)?.is_none()),
        (_, 0) => return Ok(get::<O>(&pages, old, key)?.is_none()),
        _ => {}
    }
    let (mut left, mut right) = (Below::root(pages, old)?, Below::root(pages, new)?);
    while left.page != right.page {
        let (left_node, right_node) = (left.node(pages)?, right.node(pages)?);
        let (left_level, right_level) = (left.level, right.level);
        if left_level == 0 && right_level == 0 {
            return is_same_value(pages, row::<O>(left_node, key), row::<O>(right_node, key));
        }
        if left_level >= right_level {
            left = Below::child(left_node, child_index::<O>(left_node, key));
        }
        if right_level >= left_level {
            right = Below::child(right_node, child_index::<O>(right_node, key));
        }
    }
    Ok(true)
}

fn row<'a, O: Order>(leaf: Node<'a>, key: &[u8]) -> Option<Value<'a>> {
    let (index, found) = row_index::<O>(leaf, key);
    found.then(|| leaf.value(index))
}

/// The least key in a range that does not have the same value in both trees.
pub(crate) fn first_difference<O: Order>(
    pages: Access<'_>,
    old: Root,
    new: Root,
    range: Between<'_>,
) -> Result<Option<Vec<u8>>> {
    let mut first = None;
    differences::<O>(pages, old, new, range, &mut |key, _| {
        first = Some(key.to_vec());
        Ok(false)
    })?;
    Ok(first)
}

/// Is shown a key, and what it has in the newer of two trees; tells whether it wants to see more.
pub(crate) type See<'s> = dyn FnMut(&[u8], Option<Value<'_>>) -> Result<bool> + 's;

/// Shows the keys in a range that do not have the same value in both trees, in order.
pub(crate) fn differences<O: Order>(
    pages: Access<'_>,
    old: Root,
    new: Root,
    range: Between<'_>,
    see: &mut See<'_>,
) -> Result<()> {
    if old.page == new.page {
        return Ok(());
    }
    // Invariant: the rows of the range before the one cursor are those before the other, with the same values, but for those that
    // were shown.
    let mut left = Cursor::new(pages, old, range.from)?;
    let mut right = Cursor::new(pages, new, range.from)?;
    loop {
        let which = match (left.place, right.place) {
            (Place::Before(old), Place::Before(new)) if old.page == new.page => {
                // The same rows follow, and of those the same are in the range.
                left.pass();
                right.pass();
                continue;
            }
            (Place::Before(old), Place::Before(new)) => {
                // A page has its level for ever: what is shared is met at the same level.
                if old.level >= new.level {
                    left.open::<O>(old)?;
                }
                if new.level >= old.level {
                    right.open::<O>(new)?;
                }
                continue;
            }
            (Place::Before(old), _) => {
                left.open::<O>(old)?;
                continue;
            }
            (_, Place::Before(new)) => {
                right.open::<O>(new)?;
                continue;
            }
            (Place::End, Place::End) => return Ok(()),
            (Place::At(..), Place::End) => Which::Old,
            (Place::End, Place::At(..)) => Which::New,
            (Place::At(old, old_index), Place::At(new, new_index)) => {
                Which::of::<O>((old, old_index), (new, new_index))
            }
        };
        if !show::<O>(pages, (left.place, right.place), which, range.until, see)? {
            return Ok(());
        }
        if which != Which::New {
            left.step();
        }
        if which != Which::Old {
            right.step();
        }
    }
}

/// In which of two trees a key comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Old,
    New,
    Both,
}

impl Which {
    fn of<O: Order>(old: (Node<'_>, usize), new: (Node<'_>, usize)) -> Self {
        if is_same_key(old.0, old.1, new.0, new.1) {
            return Self::Both;
        }
        match O::compare(&key(old.0, old.1), &key(new.0, new.1)).is_lt() {
            true => Self::Old,
            false => Self::New,
        }
    }
}

/// Shows the key that comes next, unless it has the same value in both trees. Tells whether to go on.
fn show<O: Order>(
    pages: Access<'_>,
    places: (Place<'_>, Place<'_>),
    which: Which,
    until: Bound<&[u8]>,
    see: &mut See<'_>,
) -> Result<bool> {
    let (leaf, index, value) = match (places, which) {
        ((Place::At(old, index), _), Which::Old) => (old, index, None),
        ((_, Place::At(new, index)), Which::New) => (new, index, Some(new.value(index))),
        ((Place::At(old, old_index), Place::At(new, index)), Which::Both) => {
            let value = new.value(index);
            if is_same_value(pages, Some(old.value(old_index)), Some(value))? {
                return Ok(until == Bound::Unbounded || !is_past::<O>(until, &key(new, index)));
            }
            (new, index, Some(value))
        }
        _ => unreachable!("a key that comes next is in a leaf"),
    };
    let key = key(leaf, index);
    if is_past::<O>(until, &key) { Ok(false) } else { see(&key, value) }
}

fn key(leaf: Node<'_>, index: usize) -> Vec<u8> {
    let mut key = Vec::new();
    leaf.key_into(index, &mut key);
    key
}

/// Whether two rows have the same key, which may be cut differently in their pages.
fn is_same_key(old: Node<'_>, old_index: usize, new: Node<'_>, new_index: usize) -> bool {
    let (old_prefix, new_prefix) = (old.prefix(), new.prefix());
    let (old, new) = (old.suffix(old_index), new.suffix(new_index));
    match old_prefix == new_prefix {
        true => old == new,
        false => old_prefix.iter().chain(old).eq(new_prefix.iter().chain(new)),
    }
}

fn is_past<O: Order>(until: Bound<&[u8]>, key: &[u8]) -> bool {
    match until {
        Bound::Unbounded => false,
        Bound::Included(last) => O::compare(key, last).is_gt(),
        Bound::Excluded(end) => O::compare(key, end).is_ge(),
    }
}

fn is_same_value(pages: Access<'_>, old: Option<Value<'_>>, new: Option<Value<'_>>) -> Result<bool> {
    Ok(match (old, new) {
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
        (Some(Value::Overflow(old)), Some(Value::Overflow(new))) if old == new => true,
        (Some(Value::Overflow(old)), Some(Value::Overflow(new)))
            if Reference::decode(old)?.len() != Reference::decode(new)?.len() =>
        {
            false
        }
        (Some(old), Some(new)) => resolve(pages, old)? == resolve(pages, new)?,
    })
}

/// A page and everything below it.
#[derive(Clone, Copy)]
struct Below {
    page: u32,
    level: u8,
}

impl Below {
    fn root(pages: Access<'_>, root: Root) -> Result<Self> {
        Ok(Self { page: root.page, level: Node::new(pages.page(root.page)?).level() })
    }

    /// A child of a branch.
    fn child(branch: Node<'_>, index: usize) -> Self {
        Self { page: branch.child(index), level: branch.level() - 1 }
    }

    fn node(self, pages: Access<'_>) -> Result<Node<'_>> {
        let node = Node::new(pages.page(self.page)?);
        // Levels fall on the way down, so every walk ends, whatever the pages say.
        match node.level() == self.level {
            true => Ok(node),
            false => {
                let fault = Fault::new("the level below its parent's", node.level().into());
                Err(Error::Corrupt { page: self.page, fault })
            }
        }
    }
}

/// Where a cursor is.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// Before everything in and below a page, of which nothing was looked at.
    Before(Below),
    /// Before a row of a leaf.
    At(Node<'a>, usize),
    /// Behind all rows.
    End,
}

/// A place between two rows of a tree that moves forward, by rows or by whole pages.
struct Cursor<'a, 'k> {
    pages: Access<'a>,
    /// The branches on the way down, and the child that comes after in each.
    branches: Vec<(Node<'a>, usize)>,
    place: Place<'a>,
    /// On its way to here; then everything before it in the opened pages is left out.
    from: Bound<&'k [u8]>,
}

impl<'a, 'k> Cursor<'a, 'k> {
    fn new(pages: Access<'a>, root: Root, from: Bound<&'k [u8]>) -> Result<Self> {
        let place = if root.page == 0 { Place::End } else { Place::Before(Below::root(pages, root)?) };
        Ok(Self { pages, branches: Vec::new(), place, from })
    }

    /// Goes one level down.
    fn open<O: Order>(&mut self, below: Below) -> Result<()> {
        let node = below.node(self.pages)?;
        if below.level > 0 {
            let child = match self.from {
                Bound::Unbounded => 0,
                Bound::Included(key) | Bound::Excluded(key) => child_index::<O>(node, key),
            };
            self.branches.push((node, child + 1));
            self.place = Place::Before(Below::child(node, child));
            return Ok(());
        }
        let index = match std::mem::replace(&mut self.from, Bound::Unbounded) {
            Bound::Unbounded => 0,
            Bound::Included(key) => row_index::<O>(node, key).0,
            Bound::Excluded(key) => {
                let (index, found) = row_index::<O>(node, key);
                index + usize::from(found)
            }
        };
        self.go_to(node, index);
        Ok(())
    }

    /// Leaves the page behind, with everything below it.
    fn pass(&mut self) {
        // What comes now is behind the bound.
        self.from = Bound::Unbounded;
        self.place = Place::End;
        while let Some((node, next)) = self.branches.last_mut() {
            if *next < node.count() {
                self.place = Place::Before(Below::child(*node, *next));
                *next += 1;
                return;
            }
            self.branches.pop();
        }
    }

    /// Goes behind the row.
    fn step(&mut self) {
        if let Place::At(leaf, index) = self.place {
            self.go_to(leaf, index + 1);
        }
    }

    fn go_to(&mut self, leaf: Node<'a>, index: usize) {
        match index < leaf.count() {
            true => self.place = Place::At(leaf, index),
            false => self.pass(),
        }
    }
}
