//! Bounds-checked input: a slice and how far it was read.

use crate::error::{self, WireError};

/// Reads from the front of a slice and knows the offset of what it reads.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self::starting_at(bytes, 0)
    }

    /// A reader of `bytes`, which stand at offset `at` of a larger input.
    pub(crate) const fn starting_at(bytes: &'a [u8], at: usize) -> Self {
        Self { rest: bytes, at }
    }

    /// The offset of the next byte.
    #[must_use]
    #[inline]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What was not read yet.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// `Truncated` if there are fewer; `expected` says what they would have been.
    #[inline]
    pub fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(error::truncated(self.at, expected, self.rest.len()));
        };
        self.rest = rest;
        self.at += count;
        Ok(taken)
    }

    /// The next `N` bytes, as an array.
    ///
    /// # Errors
    /// `Truncated` if there are fewer; `expected` says what they would have been.
    #[inline]
    pub fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], WireError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(error::truncated(self.at, expected, self.rest.len()));
        };
        self.rest = rest;
        self.at += N;
        Ok(*taken)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `Format` if bytes are left; `expected` says what ended before them.
    pub fn end(&self, expected: &'static str) -> Result<(), WireError> {
        match self.rest {
            [] => Ok(()),
            rest => Err(error::format(self.at, expected, error::length(rest.len()))),
        }
    }
}
