//! Versions that were sealed: what can be published, and what can be read before that.

use crate::ArenaId;
use crate::stamp::Stamp;

/// A version whose pages do not change any more: it can be published, once.
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
    #[must_use]
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// What it can be read by before it is published.
    #[must_use]
    pub fn early(&self) -> Early {
        Early { version: self.version, arena: self.arena }
    }

    pub(crate) fn is_of(&self, arena: ArenaId) -> bool {
        self.arena == arena
    }
}

/// A version that was sealed, to be [read](crate::Arena::read_early) before it is published.
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
