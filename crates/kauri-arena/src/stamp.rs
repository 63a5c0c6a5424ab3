//! Stamps: when a page was made, and what a version of the store is called.

use std::fmt;

/// A moment in the life of a store: one more at every commit and at every nested transaction.
///
/// The stamp of a commit is its version. Stamps of pages born by then are not greater, so whether a page belongs to a version is
/// one comparison. Stamps end where the top bit begins, which says something else in a page's birth. At a billion stamps a
/// second they last for almost three hundred years.
///
/// ```
/// use kauri_arena::Stamp;
///
/// let (birth, death) = (Stamp::new(5), Stamp::new(9));
/// let is_seen = |version| birth <= version && version < death;
/// assert_eq!([4, 5, 8, 9].map(|version| is_seen(Stamp::new(version))), [false, true, true, false]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp(u64);

impl Stamp {
    /// The first stamp. Zero is what an empty frame says.
    ///
    /// ```
    /// use kauri_arena::Stamp;
    ///
    /// assert_eq!(Stamp::new(Stamp::FIRST.number() - 1), None);
    /// ```
    pub const FIRST: Self = Self(1);
    /// The last stamp.
    ///
    /// ```
    /// use kauri_arena::Stamp;
    ///
    /// assert_eq!(Stamp::new(Stamp::LAST.number() + 1), None);
    /// assert_eq!(Stamp::LAST.number().leading_zeros(), 1); // the bit that says something else
    /// ```
    pub const LAST: Self = Self(u64::MAX >> 1);
    /// Later than every moment: the death of a page that lives.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The stamp with this number, if there is one: from [`FIRST`](Self::FIRST) to [`LAST`](Self::LAST).
    ///
    /// ```
    /// use kauri_arena::Stamp;
    ///
    /// assert_eq!(Stamp::new(7).map(Stamp::number), Some(7));
    /// assert_eq!((Stamp::new(0), Stamp::new(u64::MAX)), (None, None)); // as a damaged file may say
    /// ```
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if Self::FIRST.0 <= number && number <= Self::LAST.0 { Some(Self(number)) } else { None }
    }

    /// Its number.
    ///
    /// ```
    /// use kauri_arena::Stamp;
    ///
    /// let written = Stamp::FIRST.next().number().to_le_bytes(); // as it stands in a page
    /// assert_eq!(written, [2, 0, 0, 0, 0, 0, 0, 0]);
    /// ```
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The stamp after this one.
    ///
    /// ```
    /// use kauri_arena::Stamp;
    ///
    /// let version = Stamp::FIRST;
    /// assert!(version.next() > version);
    /// assert_eq!(Some(version.next()), Stamp::new(2));
    /// ```
    ///
    /// # Panics
    /// After the last.
    #[must_use]
    pub fn next(self) -> Self {
        Self::new(self.0 + 1).expect("almost three hundred years have not passed")
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_has_neither_the_number_of_an_empty_frame_nor_the_top_bit() {
        let number = |number| Stamp::new(number).map(Stamp::number);
        assert_eq!([0, 1, u64::MAX >> 1].map(number), [None, Some(1), Some(u64::MAX >> 1)]);
        assert_eq!([1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX].map(number), [None; 4]);
    }

    #[test]
    #[should_panic(expected = "almost three hundred years")]
    fn no_stamp_comes_after_the_last() {
        let _ = Stamp::LAST.next();
    }
}
