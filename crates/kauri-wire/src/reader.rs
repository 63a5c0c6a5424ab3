//! Bounds-checked input: a slice and how far it was read.

use crate::error::{self, WireError};

/// Reads from the front of a slice and knows the offset of what it reads.
///
/// ```
/// use kauri_wire::{Reader, WireError};
///
/// /// A pair of numbers, and nothing after it.
/// fn pair(bytes: &[u8]) -> Result<(u8, u16), WireError> {
///     let mut input = Reader::new(bytes);
///     let [first] = input.array("the first number")?;
///     let second = u16::from_be_bytes(input.array("the second number")?);
///     input.end("the end of a pair")?;
///     Ok((first, second))
/// }
/// assert_eq!(pair(&[7, 1, 0]), Ok((7, 256)));
/// assert_eq!(pair(&[7, 1]).unwrap_err().to_string(), "at byte 1: expected the second number, found 1 byte");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    ///
    /// ```
    /// use kauri_wire::Reader;
    ///
    /// let input = Reader::new(b"kauri");
    /// assert_eq!((input.at(), input.rest()), (0, &b"kauri"[..]));
    /// ```
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
    ///
    /// ```
    /// use kauri_wire::Reader;
    ///
    /// let mut input = Reader::new(b"kauri");
    /// input.take(3, "three bytes")?;
    /// assert_eq!(input.at(), 3);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What was not read yet.
    ///
    /// ```
    /// use kauri_wire::Reader;
    ///
    /// let mut input = Reader::new(b"id:order-1");
    /// input.take(3, "a prefix")?;
    /// assert_eq!(input.rest(), b"order-1"); // whatever length it has
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    ///
    /// ```
    /// use kauri_wire::{Reader, WireErrorKind};
    ///
    /// let mut input = Reader::new(b"kauri");
    /// assert_eq!(input.take(2, "two bytes")?, b"ka");
    /// assert_eq!(input.take(usize::MAX, "what a length field asks for").unwrap_err().kind, WireErrorKind::Truncated);
    /// assert_eq!(input.take(3, "the rest")?, b"uri"); // where it was
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
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
    /// ```
    /// use kauri_wire::Reader;
    ///
    /// let mut input = Reader::new(&[0, 0, 1, 0, 9]);
    /// assert_eq!(u32::from_be_bytes(input.array("a number of four bytes")?), 256);
    /// assert_eq!(input.array::<4>("another one").unwrap_err().at, 4);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
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
    /// ```
    /// use kauri_wire::Reader;
    ///
    /// let mut input = Reader::new(b"ab");
    /// input.take(1, "a byte")?;
    /// assert_eq!(input.end("the end of a letter").unwrap_err().to_string(), "at byte 1: expected the end of a letter, found 1 byte");
    /// input.take(1, "a byte")?;
    /// assert!(input.end("the end of a letter").is_ok());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
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
