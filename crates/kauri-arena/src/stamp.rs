//! Stamps: when a page was made, and what a version of the store is called.

use std::fmt;

/// A moment in the life of a store: one more at every commit and at every nested transaction.
///
/// The stamp of a commit is its version. Stamps of pages born by then are not greater, so whether a page belongs to a version is
/// one comparison. At a billion stamps a second they last for five hundred years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp(u64);

impl Stamp {
    /// The first stamp. Zero is what an empty frame says.
    pub const FIRST: Self = Self(1);
    /// Later than every moment: the death of a page that lives.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The stamp with this number, if it can be one: not zero, and before the end of time.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match number {
            0 | u64::MAX => None,
            number => Some(Self(number)),
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The stamp after this one.
    ///
    /// # Panics
    /// At the end of time.
    #[must_use]
    pub fn next(self) -> Self {
        Self::new(self.0 + 1).expect("five hundred years have not passed")
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
