//! Putting and removing rows.

use super::search::{self, child_index, row_index};
use super::{Order, Pages, PagesMut, Root, Way, below, stray, topmost};
use crate::error::Result;
use crate::node::{Item, Node, NodeMut, Source, Value, build, split_point};
use crate::overflow::{self, Reference, RunsMut};

/// What a key had before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Old {
    /// No row.
    Missing,
    /// A value in the leaf.
    Inline,
    /// A value elsewhere, by its reference.
    Overflow(Vec<u8>),
}

impl Old {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Inline(_) => Self::Inline,
            Value::Overflow(reference) => Self::Overflow(reference.to_vec()),
        }
    }
}

/// The way from the root to a leaf, all pages of it the transaction's own.
struct Path {
    way: Way,
    leaf: u32,
}

impl Path {
    /// Whether the way goes through the last child of every branch.
    fn is_rightmost(&self, pages: &impl Pages) -> Result<bool> {
        for (page, child) in self.way.iter() {
            if child + 1 != Node::new(pages.page(page)?).count() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Makes all pages on the way to a key fresh.
fn descend<O: Order>(pages: &mut impl PagesMut, root: &mut Root, key: &[u8]) -> Result<Path> {
    let mut way = Way::new();
    root.page = pages.fresh(root.page)?;
    let mut page = root.page;
    topmost(pages, page)?;
    loop {
        let node = Node::new(pages.page(page)?);
        if node.is_leaf() {
            return Ok(Path { way, leaf: page });
        }
        let index = child_index::<O>(node, key);
        let child = node.child(index);
        below(pages, node, child)?;
        let fresh = pages.fresh(child)?;
        if fresh != child {
            NodeMut::new(pages.page_mut(page)).set_child(index, fresh);
        }
        way.push(page, index);
        page = fresh;
    }
}

/// Writes a row, new or not, and tells what its key had before.
pub(crate) fn put<O: Order>(pages: &mut impl PagesMut, root: &mut Root, key: &[u8], value: Value<'_>) -> Result<Old> {
    if root.page == 0 {
        root.page = pages.make()?;
        NodeMut::new(pages.page_mut(root.page)).clear();
    }
    let path = descend::<O>(pages, root, key)?;
    let (index, found) = row_index::<O>(Node::new(pages.page(path.leaf)?), key);
    write::<O>(pages, root, &path, Place { index, found }, (key, value))
}

/// Writes a row unless there is one with its key, and tells whether it did. The way down is looked for once.
pub(crate) fn insert<O: Order>(
    pages: &mut impl PagesMut,
    root: &mut Root,
    key: &[u8],
    value: Value<'_>,
) -> Result<bool> {
    let Some(row) = locate::<O>(pages, *root, key)? else {
        return put::<O>(pages, root, key, value).map(|_| true);
    };
    if row.place.found {
        return Ok(false);
    }
    put_located::<O>(pages, root, row, (key, value))?;
    Ok(true)
}

/// Writes a row, new or not, where its key was looked for, and tells what that had before.
pub(crate) fn put_located<O: Order>(
    pages: &mut impl PagesMut,
    root: &mut Root,
    Located { mut path, place }: Located,
    row: (&[u8], Value<'_>),
) -> Result<Old> {
    freshen(pages, root, &mut path)?;
    write::<O>(pages, root, &path, place, row)
}

/// The way to a row and its place in the leaf, while nothing in the tree is changed.
pub(crate) struct Located {
    path: Path,
    place: Place,
}

impl Located {
    /// The value of the row, if there is one.
    pub(crate) fn value<'a>(&self, pages: &'a impl Pages) -> Result<Option<Value<'a>>> {
        let leaf = Node::new(pages.page(self.path.leaf)?);
        Ok(self.place.found.then(|| leaf.value(self.place.index)))
    }
}

/// Where in a leaf a row is, or would be.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    found: bool,
}

/// Writes a row at its place, at the end of a way that is fresh, and tells what its key had before.
fn write<O: Order>(
    pages: &mut impl PagesMut,
    root: &mut Root,
    path: &Path,
    Place { index, found }: Place,
    (key, value): (&[u8], Value<'_>),
) -> Result<Old> {
    let mut leaf = NodeMut::new(pages.page_mut(path.leaf));
    let (old, room) = match found {
        true => (Old::of(leaf.node().value(index)), leaf.replace(index, value, O::BYTEWISE)),
        false => (Old::Missing, leaf.insert_row(index, key, value, O::BYTEWISE)),
    };
    let is_last = index == leaf.node().count();
    if !found {
        root.rows += 1;
        count(pages, path, 1);
    }
    if !room {
        let appended = !found && is_last && path.is_rightmost(pages)?;
        let change = Change { index, item: Item::row(key, value), replaces: found, appended };
        rebuild::<O>(pages, root, path, path.way.len(), change)?;
    } else if !found {
        cut_prefix::<O>(pages, path.leaf)?;
    }
    Ok(old)
}

/// Makes a page anew that has grown, if a prefix makes it quicker to search.
fn cut_prefix<O: Order>(pages: &mut impl PagesMut, page: u32) -> Result<()> {
    if !O::BYTEWISE || !Node::new(pages.page(page)?).wants_prefix() {
        return Ok(());
    }
    let mut scratch = pages.scratch();
    scratch.extend_from_slice(pages.page(page)?);
    let source = Source::Whole(Node::new(&scratch));
    build(&source, 0, source.len(), O::BYTEWISE, pages.page_mut(page));
    pages.return_scratch(scratch);
    Ok(())
}

/// Adds to the rows below each child on the way.
fn count(pages: &mut impl PagesMut, path: &Path, more: i64) {
    for (page, child) in path.way.iter().skip(usize::from(planted!(CountBelowRoot))) {
        NodeMut::new(pages.page_mut(page)).add_rows(child, more);
    }
}

/// A change of a page for which there was no room where things lie.
#[derive(Clone, Copy)]
struct Change<'a> {
    index: usize,
    item: Item<'a>,
    replaces: bool,
    /// The item comes behind all others of the tree.
    appended: bool,
}

/// Makes a page anew with a change, or two pages if one does not hold it. `depth` tells which page of the way: its length is
/// the leaf's.
fn rebuild<O: Order>(
    pages: &mut impl PagesMut,
    root: &mut Root,
    path: &Path,
    depth: usize,
    change: Change<'_>,
) -> Result<()> {
    let page = if depth == path.way.len() { path.leaf } else { path.way.step(depth).0 };
    let mut scratch = pages.scratch();
    scratch.extend_from_slice(pages.page(page)?);
    let node = Node::new(&scratch);
    let source = match change.replaces {
        true => Source::Replaced(node, change.index, change.item),
        false => Source::Inserted(node, change.index, change.item),
    };
    let count = source.len();
    if source.fits(pages.page_bytes(), O::BYTEWISE) {
        build(&source, 0, count, O::BYTEWISE, pages.page_mut(page));
        pages.return_scratch(scratch);
        return Ok(());
    }
    let cut = split_point(&source, pages.page_bytes(), O::BYTEWISE, change.appended);
    let right = pages.make()?;
    build(&source, 0, cut, O::BYTEWISE, pages.page_mut(page));
    build(&source, cut, count, O::BYTEWISE, pages.page_mut(right));
    let mut separator = Vec::new();
    separate::<O>(&source, cut, &mut separator);
    pages.return_scratch(scratch);
    let halves = Halves { left: page, right, separator: &separator, appended: change.appended };
    adopt::<O>(pages, root, path, depth, &halves)
}

/// The shortest key that tells the items before the cut from those behind it.
fn separate<O: Order>(source: &Source<'_>, cut: usize, out: &mut Vec<u8>) {
    let (left, right) = (source.item(cut - 1), source.item(cut));
    right.key_into(out);
    // A branch's own key was made short when it was made.
    if O::BYTEWISE && source.level() == 0 {
        out.truncate(left.common_bytes(&right) + usize::from(!planted!(ShortSeparator)));
    }
}

/// A page that became two.
struct Halves<'a> {
    left: u32,
    right: u32,
    separator: &'a [u8],
    appended: bool,
}

/// Tells the parent of a page, or a new root, that the page became two.
fn adopt<O: Order>(
    pages: &mut impl PagesMut,
    root: &mut Root,
    path: &Path,
    depth: usize,
    halves: &Halves<'_>,
) -> Result<()> {
    let (left_rows, right_rows) =
        (Node::new(pages.page(halves.left)?).rows(), Node::new(pages.page(halves.right)?).rows());
    let right = Item::child(halves.separator, halves.right, right_rows);
    let Some(depth) = depth.checked_sub(1) else {
        let level = Node::new(pages.page(halves.left)?).level() + 1;
        root.page = pages.make()?;
        let mut node = NodeMut::new(pages.page_mut(root.page));
        node.clear();
        node.set_level(level);
        let first = Item::child(&[], halves.left, left_rows);
        let room = node.insert(0, &[], &first, O::BYTEWISE) && node.insert(1, halves.separator, &right, O::BYTEWISE);
        assert!(room, "an empty page holds two children");
        return Ok(());
    };
    let (parent, child) = path.way.step(depth);
    if !planted!(KeepRowsOfSplitPage) {
        NodeMut::new(pages.page_mut(parent)).set_rows(child, left_rows);
    }
    let prefix = Node::new(pages.page(parent)?).prefix().len();
    let shared = halves.separator.starts_with(Node::new(pages.page(parent)?).prefix());
    let mut node = NodeMut::new(pages.page_mut(parent));
    if shared && node.insert(child + 1, &halves.separator[prefix..], &right, O::BYTEWISE) {
        return cut_prefix::<O>(pages, parent);
    }
    let change = Change { index: child + 1, item: right, replaces: false, appended: halves.appended };
    rebuild::<O>(pages, root, path, depth, change)
}

/// Removes a row and tells what its key had.
pub(crate) fn remove<O: Order>(pages: &mut impl PagesMut, root: &mut Root, key: &[u8]) -> Result<Old> {
    // A key without a row changes nothing, so nothing is made fresh for it.
    let Some(Located { mut path, place: Place { index, found: true } }) = locate::<O>(pages, *root, key)? else {
        return Ok(Old::Missing);
    };
    freshen(pages, root, &mut path)?;
    let mut leaf = NodeMut::new(pages.page_mut(path.leaf));
    let old = Old::of(leaf.node().value(index));
    leaf.remove(index);
    root.rows -= 1;
    count(pages, &path, -1);
    thin_out::<O>(pages, root, &path)?;
    Ok(old)
}

/// The way to a row, and its place in the leaf; `None` if there is no leaf.
pub(crate) fn locate<O: Order>(pages: &impl Pages, root: Root, key: &[u8]) -> Result<Option<Located>> {
    if root.page == 0 {
        return Ok(None);
    }
    let (mut way, mut page) = (Way::new(), root.page);
    let mut node = topmost(pages, page)?;
    while !node.is_leaf() {
        let index = child_index::<O>(node, key);
        way.push(page, index);
        page = node.child(index);
        node = search::below(pages, node, index)?;
    }
    let (index, found) = row_index::<O>(node, key);
    Ok(Some(Located { path: Path { way, leaf: page }, place: Place { index, found } }))
}

/// Makes all pages of a path fresh.
fn freshen(pages: &mut impl PagesMut, root: &mut Root, path: &mut Path) -> Result<()> {
    let mut parent: Option<(u32, usize)> = None;
    for depth in 0..=path.way.len() {
        let (page, child) = if depth < path.way.len() { path.way.step(depth) } else { (path.leaf, 0) };
        let fresh = pages.fresh(page)?;
        match parent {
            _ if fresh == page => {}
            Some((parent, child)) => NodeMut::new(pages.page_mut(parent)).set_child(child, fresh),
            None => root.page = fresh,
        }
        match depth < path.way.len() {
            true => path.way.set_page(depth, fresh),
            false => path.leaf = fresh,
        }
        parent = Some((fresh, child));
    }
    Ok(())
}

/// Merges pages on the way that hold little with a neighbour, from the leaf up, and drops a root of one child.
fn thin_out<O: Order>(pages: &mut impl PagesMut, root: &mut Root, path: &Path) -> Result<()> {
    let mut page = path.leaf;
    for (parent, child) in path.way.iter().rev() {
        let node = Node::new(pages.page(page)?);
        if node.count() == 0 {
            if !planted!(KeepEmptyPage) {
                pages.retire(page);
            }
            NodeMut::new(pages.page_mut(parent)).remove_items(child, child + 1);
        } else if node.used_bytes() < pages.page_bytes() / 4 {
            merge::<O>(pages, parent, child)?;
        } else {
            break;
        }
        page = parent;
    }
    shorten(pages, root)
}

/// Merges a child with the neighbour before or behind it, if both fit into one page.
pub(super) fn merge<O: Order>(pages: &mut impl PagesMut, parent: u32, child: usize) -> Result<()> {
    let branch = Node::new(pages.page(parent)?);
    if branch.count() < 2 {
        return Ok(());
    }
    let left = child.saturating_sub(1);
    let right = left + 1;
    let (left_page, right_page) = (branch.child(left), branch.child(right));
    let rows = branch.rows_below(left) + branch.rows_below(right);
    below(pages, branch, left_page)?;
    below(pages, branch, right_page)?;
    let mut separator = Vec::new();
    branch.key_into(right, &mut separator);
    let mut scratch = pages.scratch();
    scratch.extend_from_slice(pages.page(left_page)?);
    let middle = scratch.len();
    scratch.extend_from_slice(pages.page(right_page)?);
    let source = Source::Two(Node::new(&scratch[..middle]), Node::new(&scratch[middle..]), &separator);
    if source.fits(pages.page_bytes(), O::BYTEWISE) {
        let fresh = pages.fresh(left_page)?;
        build(&source, 0, source.len(), O::BYTEWISE, pages.page_mut(fresh));
        if !planted!(KeepMergedPage) {
            pages.retire(right_page);
        }
        let mut branch = NodeMut::new(pages.page_mut(parent));
        branch.set_child(left, fresh);
        if !planted!(LoseRowsOfMergedPage) {
            branch.set_rows(left, rows);
        }
        branch.remove_items(right, right + 1);
    }
    pages.return_scratch(scratch);
    Ok(())
}

/// A root of one child is not needed, nor one without rows.
pub(super) fn shorten(pages: &mut impl PagesMut, root: &mut Root) -> Result<()> {
    loop {
        let node = Node::new(pages.page(root.page)?);
        let child = match (node.is_leaf(), node.count()) {
            (_, 0) => 0,
            (false, 1) => node.child(0),
            _ => return Ok(()),
        };
        if child != 0 {
            below(pages, node, child)?;
        }
        pages.retire(root.page);
        root.page = child;
        if child == 0 {
            return Ok(());
        }
    }
}

/// Gives up all pages of a tree, and the values that lie elsewhere.
pub(crate) fn retire_all(pages: &mut (impl PagesMut + RunsMut), root: Root) -> Result<()> {
    if root.page == 0 { Ok(()) } else { retire_below(pages, root.page) }
}

/// Gives up a page and everything below it.
pub(super) fn retire_below(pages: &mut (impl PagesMut + RunsMut), page: u32) -> Result<()> {
    // Pages, and the levels that they must have: so that the way down has an end whatever a file says.
    let mut waiting = vec![(page, topmost(pages, page)?.level())];
    let mut references = Vec::new();
    while let Some((page, level)) = waiting.pop() {
        let node = topmost(pages, page)?;
        if node.level() != level {
            return Err(stray(page));
        }
        if node.is_leaf() {
            for index in (0..node.count()).filter(|index| node.is_overflow(*index)) {
                references.push(Reference::decode(node.value(index).bytes())?);
            }
        } else {
            waiting.extend((0..node.count()).map(|index| (node.child(index), level - 1)));
        }
        let page_bytes = pages.page_bytes();
        for reference in references.drain(..).filter(|_| !planted!(KeepValuesOfDroppedTable)) {
            overflow::retire(pages, page_bytes, reference)?;
        }
        pages.retire(page);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Read, Write};
    use crate::store::{Options, Store};
    use crate::table::Table;

    const ROWS: Table<str, u64> = Table::new("rows");

    /// Whether the last page of each level has a prefix, from the root down.
    fn prefixes_at_the_end(store: &Store) -> Vec<bool> {
        let state = store.turn();
        let place = state.catalog.find("rows", Table::<str, u64>::types).unwrap().unwrap();
        let (mut page, mut found) = (state.catalog.root(place).page, Vec::new());
        loop {
            let node = Node::new(state.pager.page(page).unwrap());
            found.push(!node.prefix().is_empty());
            if node.is_leaf() {
                return found;
            }
            page = node.child(node.count() - 1);
        }
    }

    #[test]
    fn pages_that_grow_at_the_end_of_a_tree_have_prefixes_before_they_are_full() {
        let store = Options::new().page_bytes(1024).in_memory().unwrap();
        let key = |number: u64| format!("all keys begin like this {number:05}");
        // The last page of a level is short now and then: it has none then.
        let mut with = [0_u32; 2];
        for number in 0..2_000 {
            let mut txn = store.begin();
            txn.put(&ROWS, &key(number), number).unwrap();
            txn.commit().unwrap();
            let found = prefixes_at_the_end(&store);
            for (count, has) in with.iter_mut().zip(found.iter().rev()) {
                *count += u32::from(*has);
            }
        }
        assert!(with.iter().all(|count| *count > 1_500), "{with:?}");
        store.verify().unwrap();
        // One that begins otherwise takes the prefix away, and everything is found.
        let mut txn = store.begin();
        txn.put(&ROWS, "zzz", 0).unwrap();
        txn.put(&ROWS, "a", 0).unwrap();
        txn.commit().unwrap();
        let snapshot = store.snapshot();
        assert!((0..2_000).all(|number| snapshot.get(&ROWS, &key(number)).unwrap() == Some(number)));
        assert_eq!((snapshot.len(&ROWS).unwrap(), snapshot.get(&ROWS, "zzz").unwrap()), (2_002, Some(0)));
        store.verify().unwrap();
    }
}
