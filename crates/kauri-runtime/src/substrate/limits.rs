//! How long keys, values and names of tables may be.

use std::borrow::Cow;

use super::Change;
use crate::error::{Error, Result};

/// The longest that a substrate takes. Whatever is longer is refused before it is staged, so that no commit fails for it.
///
/// ```
/// use kauri_runtime::substrate::{Limits, Substrate, TreeSubstrate};
///
/// let substrate = TreeSubstrate::new(kauri_tree::Store::in_memory()?);
/// assert_eq!(substrate.limits().key_bytes_max, 1016); // in pages of 4 KiB
/// assert!(Limits::KEY_BYTES_MIN <= 1016);
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a key.
    pub key_bytes_max: usize,
    /// Bytes of a value.
    pub value_bytes_max: usize,
    /// Bytes of the name of a table.
    pub name_bytes_max: usize,
}

impl Limits {
    /// None.
    pub const NONE: Self = Self { key_bytes_max: usize::MAX, value_bytes_max: usize::MAX, name_bytes_max: usize::MAX };

    /// What a runtime needs of keys at least, and finds in the store's smallest pages.
    pub const KEY_BYTES_MIN: usize = 56;

    /// Whether a row of this table can have this key, and this value if it is put.
    ///
    /// # Errors
    /// `Limit`, which says what is too long.
    #[inline]
    pub fn check_row(&self, table: &str, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        at_most("bytes of a key", self.key_bytes_max, key.len())?;
        at_most("bytes of a value", self.value_bytes_max, value.map_or(0, <[u8]>::len))?;
        at_most("bytes of a table's name", self.name_bytes_max, table.len())
    }

    /// Whether all that a change puts can be put.
    ///
    /// # Errors
    /// As for `check_row`, of the first row that cannot.
    pub fn check_change(&self, change: &Change) -> Result<()> {
        for (table, writes) in &change.writes {
            for (key, value) in writes.iter().filter(|(_, value)| value.is_some()) {
                self.check_row(table, key, value.as_deref())?;
            }
        }
        for append in &change.appends {
            let key = [&append.prefix[..], &[0; 8]].concat();
            self.check_row(&append.table, &key, Some(&append.value))?;
            self.check_row(&append.table, &append.sequence, None)?;
            append.also.iter().try_for_each(|(table, value)| self.check_row(table, &key, Some(value)))?;
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::NONE
    }
}

/// Whether there are at most so many.
#[inline]
pub(crate) fn at_most(of: &'static str, most: usize, found: usize) -> Result<()> {
    if found > most { Err(Error::Limit { of, most: most as u64, found: found as u64 }) } else { Ok(()) }
}

/// The beginning of a text that has so many bytes at most, with a sign that it is not all.
pub(crate) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    const SIGN: &str = " ...";
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most.saturating_sub(SIGN.len()));
    if most < SIGN.len() { "".into() } else { [&text[..end], SIGN].concat().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipped_text_is_never_longer_than_it_may_be() {
        let text = "größer als erlaubt";
        for most in 0..40 {
            let clipped = clip(text, most);
            assert!(clipped.len() <= most.min(text.len()), "{clipped:?} in {most}");
        }
        assert_eq!(clip(text, text.len()), text);
        assert_eq!(clip(text, 7), "gr ...");
    }
}
