//! Whether two versions of a tree agree, on a key or on a range of keys; and on which rows they do not.
//!
//! Both versions are of one store, and are held while they are compared. So **a page that is in both is the
//! same page, and everything below it is the same too**: the arena empties a frame only when no version of its page's life is
//! held, and until then its number is not given to another page; and a page that a sealed version has does not change. Nothing else
//! of it need be looked at. What two versions do not share is what was written between them, so comparing them costs that, and a
//! way down.
//!
//! The converse does not hold: rows that were written again as they were, or moved by a split or a merge, lie in other pages. There
//! the rows themselves are compared.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::search::{child_index, get, row_index};
use super::{Order, Root, Row, topmost};
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
            return is_same_value((pages, row::<O>(left_node, key)), (pages, row::<O>(right_node, key)));
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
    let differing = Differ::new((pages, old), (pages, new), range)?.next::<O>()?;
    Ok(differing.map(|differing| differing.key()))
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
    let mut differ = Differ::new((pages, old), (pages, new), range)?;
    while let Some(differing) = differ.next::<O>()? {
        let value = differing.new.map(|row| row.node.value(row.index));
        if !see(&differing.key(), value)? {
            break;
        }
    }
    Ok(())
}

/// What two versions of a tree have not in common, in order.
pub(crate) struct Differ<'a, 'k> {
    left: Cursor<'a, 'k>,
    right: Cursor<'a, 'k>,
    until: Bound<&'k [u8]>,
}

/// A row that is in one of two versions, or in both with different values.
pub(crate) struct Differing<'a> {
    pub(crate) old: Option<Row<'a>>,
    pub(crate) new: Option<Row<'a>>,
}

impl<'a> Differing<'a> {
    /// Whether it is the same row after all, with the same value.
    pub(crate) fn is_same(&self, old: Access<'a>, new: Access<'a>) -> Result<bool> {
        let value = |row: Option<Row<'a>>| row.map(|row| row.node.value(row.index));
        is_same_value((old, value(self.old)), (new, value(self.new)))
    }

    /// Adds the key to some bytes.
    pub(crate) fn key_into(&self, bytes: &mut Vec<u8>) {
        if let Some(Row { node, index }) = self.old.or(self.new) {
            node.key_into(index, bytes);
        }
    }

    fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(&mut key);
        key
    }
}

impl<'a, 'k> Differ<'a, 'k> {
    /// Compares two versions within a range, each by its own pages.
    pub(crate) fn new(old: (Access<'a>, Root), new: (Access<'a>, Root), range: Between<'k>) -> Result<Self> {
        let (mut left, mut right) = (Cursor::new(old.0, old.1, range.from)?, Cursor::new(new.0, new.1, range.from)?);
        if old.1.page == new.1.page {
            (left.place, right.place) = (Place::End, Place::End);
        }
        Ok(Self { left, right, until: range.until })
    }

    /// The next row that differs.
    pub(crate) fn next<O: Order>(&mut self) -> Result<Option<Differing<'a>>> {
        let differing = self.find::<O>()?;
        if self.until != Bound::Unbounded
            && differing.as_ref().is_some_and(|differing| is_past::<O>(self.until, &differing.key()))
        {
            return Ok(self.end());
        }
        Ok(differing)
    }

    /// Nothing that comes is in the range.
    fn end(&mut self) -> Option<Differing<'a>> {
        (self.left.place, self.right.place) = (Place::End, Place::End);
        None
    }

    fn find<O: Order>(&mut self) -> Result<Option<Differing<'a>>> {
        let (left, right) = (&mut self.left, &mut self.right);
        // Invariant: of the rows before the one cursor and before the other, all that differ were told.
        loop {
            match (left.place, right.place) {
                (Place::Before(old), Place::Before(new)) if old.page == new.page => {
                    // The same rows follow, and of those the same are in the range.
                    left.pass_shared(right);
                }
                (Place::Before(old), Place::Before(new)) => {
                    // A page has its level for ever: what is shared is met at the same level.
                    if old.level >= new.level {
                        left.open::<O>(old)?;
                    }
                    if new.level >= old.level {
                        right.open::<O>(new)?;
                    }
                }
                (Place::Before(old), _) => left.open::<O>(old)?,
                (_, Place::Before(new)) => right.open::<O>(new)?,
                (Place::End, Place::End) => return Ok(None),
                (Place::At(..), Place::End) => return Ok(Some(Differing { old: left.take(), new: None })),
                (Place::End, Place::At(..)) => return Ok(Some(Differing { old: None, new: right.take() })),
                (Place::At(old, old_index), Place::At(new, new_index)) => {
                    let same = old.same_rows(old_index, new, new_index);
                    if same > 0 {
                        // Maybe past the range: then nothing that differs there is told.
                        left.go_to(old, old_index + same);
                        right.go_to(new, new_index + same);
                        continue;
                    }
                    if !is_same_key(old, old_index, new, new_index) {
                        let is_old_first = O::compare(&key(old, old_index), &key(new, new_index)).is_lt();
                        return Ok(Some(match is_old_first {
                            true => Differing { old: left.take(), new: None },
                            false => Differing { old: None, new: right.take() },
                        }));
                    }
                    if self.until != Bound::Unbounded && is_past::<O>(self.until, &key(old, old_index)) {
                        return Ok(self.end());
                    }
                    let values = (old.value(old_index), new.value(new_index));
                    let is_same = is_same_value((left.pages, Some(values.0)), (right.pages, Some(values.1)))?;
                    let differing = Differing { old: left.take(), new: right.take() };
                    if !is_same {
                        return Ok(Some(differing));
                    }
                }
            }
        }
    }
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

/// Whether two values are the same, each read through its own pages.
fn is_same_value<'a>(
    (old_pages, old): (Access<'a>, Option<Value<'a>>),
    (new_pages, new): (Access<'a>, Option<Value<'a>>),
) -> Result<bool> {
    Ok(match (old, new) {
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
        (Some(Value::Overflow(old)), Some(Value::Overflow(new))) if old == new => true,
        (Some(Value::Overflow(old)), Some(Value::Overflow(new)))
            if Reference::decode(old)?.len() != Reference::decode(new)?.len() =>
        {
            false
        }
        (Some(old), Some(new)) => resolve(old_pages, old)? == resolve(new_pages, new)?,
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
        Ok(Self { page: root.page, level: topmost(&pages, root.page)?.level() })
    }

    /// A child of a branch.
    fn child(branch: Node<'_>, index: usize) -> Self {
        Self { page: branch.child(index), level: branch.level() - 1 }
    }

    fn node(self, pages: Access<'_>) -> Result<Node<'_>> {
        let node = Node::new(pages.page(self.page)?);
        // Levels fall on the way down, so every walk ends, whatever the pages say.
        match node.is_node() && node.level() == self.level {
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
        if self.from == Bound::Unbounded {
            node.fetch();
        }
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

    /// Leaves a page behind that both have, and the pages after it that both have too.
    fn pass_shared(&mut self, other: &mut Self) {
        if let (Some((node, next)), Some((other, other_next))) = (self.branches.last_mut(), other.branches.last_mut()) {
            let same = node.same_children(*next, *other, *other_next);
            (*next, *other_next) = (*next + same, *other_next + same);
        }
        self.pass();
        other.pass();
    }

    /// The row behind the place, which moves behind it.
    fn take(&mut self) -> Option<Row<'a>> {
        let Place::At(node, index) = self.place else { return None };
        self.go_to(node, index + 1);
        Some(Row { node, index })
    }

    fn go_to(&mut self, leaf: Node<'a>, index: usize) {
        match index < leaf.count() {
            true => self.place = Place::At(leaf, index),
            false => self.pass(),
        }
    }
}

/// The leaves that only one of two versions has, when nothing is known of the order of their keys.
///
/// Level by level, from the top: what both have on a level is the same, with everything below.
pub(crate) fn unshared_leaves(old: (Access<'_>, Root), new: (Access<'_>, Root)) -> Result<[Vec<u32>; 2]> {
    let top = |(pages, root): (Access<'_>, Root)| -> Result<Option<Below>> {
        if root.page == 0 { Ok(None) } else { Below::root(pages, root).map(Some) }
    };
    let tops = [top(old)?, top(new)?];
    let mut sides = [BTreeSet::new(), BTreeSet::new()];
    for level in (0..=tops.iter().flatten().map(|top| top.level).max().unwrap_or(0)).rev() {
        for (side, top) in sides.iter_mut().zip(tops) {
            side.extend(top.filter(|top| top.level == level).map(|top| top.page));
        }
        let shared: Vec<u32> = sides[0].intersection(&sides[1]).copied().collect();
        for page in shared {
            sides.iter_mut().for_each(|side| _ = side.remove(&page));
        }
        if level > 0 {
            for (side, (pages, _)) in sides.iter_mut().zip([old, new]) {
                *side = children(pages, side, level)?;
            }
        }
    }
    Ok(sides.map(|side| side.into_iter().collect()))
}

/// The children of branches of a level.
fn children(pages: Access<'_>, branches: &BTreeSet<u32>, level: u8) -> Result<BTreeSet<u32>> {
    let mut below = BTreeSet::new();
    for &page in branches {
        let node = Below { page, level }.node(pages)?;
        below.extend((0..node.count()).map(|index| node.child(index)));
    }
    Ok(below)
}
