//! Versions that were sealed: what can be published, and what can be read before that.

use crate::ArenaId;
use crate::stamp::Stamp;

/// A version whose pages do not change any more: it can be published, once.
///
/// ```
/// use kauri_arena::{Arena, Sealed, Stamp};
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
/// writer.tick();
/// let first: Sealed = writer.seal();
/// writer.tick();
/// let second = writer.seal(); // as the first is written to the file
/// arena.publish(first, ());
/// assert!(arena.read().version() < second.version());
/// arena.publish(second, ());
/// ```
#[must_use = "a sealed version that is never published is never seen"]
#[derive(PartialEq, Eq, Debug)]
pub struct Sealed {
    version: Stamp,
    arena: ArenaId,
}

impl Sealed {
    pub(crate) fn new(version: Stamp, arena: ArenaId) -> Self {
        Self { version, arena }
    }

    /// The version.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// let last = writer.tick(); // a nested transaction, say
    /// assert_eq!(writer.seal().version(), last);
    /// ```
    #[must_use]
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// What it can be read by before it is published.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, 0);
    /// writer.tick();
    /// let sealed = writer.seal();
    /// let early = sealed.early(); // can be copied: what it was made of can be published once
    /// arena.publish(sealed, 1);
    /// assert_eq!(arena.read_early(early, 1).map(|reader| *reader.root()), Some(1));
    /// ```
    #[must_use]
    pub fn early(&self) -> Early {
        Early { version: self.version, arena: self.arena }
    }

    pub(crate) fn is_of(&self, arena: ArenaId) -> bool {
        self.arena == arena
    }
}

/// A version that was sealed, to be [read](crate::Arena::read_early) before it is published.
///
/// ```
/// use kauri_arena::{Arena, Early, Stamp};
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, 0);
/// writer.tick();
/// let early: Early = writer.seal().early();
/// assert!(arena.read_early(early, 1).is_some());
/// writer.tick();
/// arena.publish(writer.seal(), 2);
/// assert!(arena.read_early(early, 1).is_none(), "a later one can be seen");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Early {
    pub(crate) version: Stamp,
    arena: ArenaId,
}

impl Early {
    pub(crate) fn is_of(self, arena: ArenaId) -> bool {
        self.arena == arena
    }
}
