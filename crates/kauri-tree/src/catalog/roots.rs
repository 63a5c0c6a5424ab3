//! The roots of all tables by their places, in a tree of groups: a version shares with the one before every group in which no root changed.
//!
//! ```text
//! up to 16 tables:    | 16 roots |
//! up to 256:          | 16 groups | ──> | 16 roots | ...
//! up to 4096:         | 16 groups | ──> | 16 groups | ──> | 16 roots | ...
//! ```
//!
//! So a copy costs the same for any number of tables, and a change copies one group of each level.

use std::sync::Arc;

use crate::btree::Root;

const GROUP: usize = 16;

/// The roots of the tables of one version.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    top: Group,
    /// How many places there are.
    places: usize,
}

#[derive(Clone, Debug)]
enum Group {
    Roots(Arc<[Root; GROUP]>),
    /// Those that are there are full but the last, and of one height.
    Groups(Arc<Vec<Group>>),
}

impl Default for Roots {
    fn default() -> Self {
        Self { top: Group::Roots(Arc::default()), places: GROUP }
    }
}

impl Roots {
    /// The root at a place.
    #[inline]
    pub(super) fn root(&self, place: usize) -> Root {
        let (mut group, mut span) = (&self.top, self.places);
        let mut rest = place;
        loop {
            match group {
                Group::Roots(roots) => return roots[rest],
                Group::Groups(groups) => {
                    span /= GROUP;
                    (group, rest) = (&groups[rest / span], rest % span);
                }
            }
        }
    }

    /// Makes room for a place, which has no root yet. Places are made one after the other.
    pub(super) fn reach(&mut self, place: usize) {
        while place >= self.places {
            let below = std::mem::replace(&mut self.top, Group::Roots(Arc::default()));
            self.top = Group::Groups(Arc::new(vec![below]));
            self.places *= GROUP;
        }
        self.top.reach(place, self.places);
    }

    pub(super) fn set(&mut self, place: usize, root: Root) {
        *self.top.root_mut(place, self.places) = root;
    }
}

impl Group {
    /// A group of `places` places, the first of which is there.
    fn first(places: usize) -> Self {
        match places {
            GROUP => Self::Roots(Arc::default()),
            _ => Self::Groups(Arc::new(vec![Self::first(places / GROUP)])),
        }
    }

    fn reach(&mut self, place: usize, places: usize) {
        let Self::Groups(groups) = self else { return };
        let span = places / GROUP;
        match groups.get(place / span) {
            // The last has room, as a rule; where it has, nothing is copied.
            Some(group) if group.has(place % span, span) => {}
            Some(_) => Arc::make_mut(groups)[place / span].reach(place % span, span),
            None => Arc::make_mut(groups).push(Self::first(span)),
        }
    }

    /// Whether there is such a place.
    fn has(&self, place: usize, places: usize) -> bool {
        match self {
            Self::Roots(_) => true,
            Self::Groups(groups) => {
                let span = places / GROUP;
                groups.get(place / span).is_some_and(|group| group.has(place % span, span))
            }
        }
    }

    fn root_mut(&mut self, place: usize, places: usize) -> &mut Root {
        match self {
            Self::Roots(roots) => &mut Arc::make_mut(roots)[place],
            Self::Groups(groups) => {
                let span = places / GROUP;
                Arc::make_mut(groups)[place / span].root_mut(place % span, span)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(number: usize) -> Root {
        Root { page: u32::try_from(number).unwrap() + 1, rows: number as u64 * 3 }
    }

    #[test]
    fn roots_are_found_at_their_places() {
        let (mut roots, mut model) = (Roots::default(), Vec::new());
        for place in 0..GROUP * GROUP * GROUP + 17 {
            roots.reach(place);
            assert_eq!(roots.root(place), Root::default());
            roots.set(place, root(place));
            model.push(root(place));
            // Some place that was there before.
            let other = place * 7 % (place + 1);
            roots.set(other, root(place + other));
            model[other] = root(place + other);
        }
        for (place, expected) in model.iter().enumerate() {
            assert_eq!(roots.root(place), *expected, "at {place}");
        }
    }

    #[test]
    fn copy_keeps_what_it_has_and_shares_what_did_not_change() {
        let mut roots = Roots::default();
        for place in 0..10_000 {
            roots.reach(place);
            roots.set(place, root(place));
        }
        let before = roots.clone();
        roots.set(4321, root(1));
        assert_eq!((before.root(4321), roots.root(4321)), (root(4321), root(1)));
        let (mut shared, mut own) = (0, 0);
        compare(&before.top, &roots.top, &mut |is_same| if is_same { shared += 1 } else { own += 1 });
        // One group of each of the four levels is new; the others of theirs are shared, and nothing below them was looked at.
        assert_eq!((shared, own), (2 + 15 + 15, 4));
    }

    fn compare(before: &Group, after: &Group, see: &mut dyn FnMut(bool)) {
        match (before, after) {
            (Group::Roots(before), Group::Roots(after)) => see(Arc::ptr_eq(before, after)),
            (Group::Groups(before), Group::Groups(after)) => {
                see(Arc::ptr_eq(before, after));
                if !Arc::ptr_eq(before, after) {
                    before.iter().zip(after.iter()).for_each(|(before, after)| compare(before, after, see));
                }
            }
            _ => panic!("groups of different heights"),
        }
    }
}
