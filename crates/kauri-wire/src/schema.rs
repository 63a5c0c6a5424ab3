//! The schema marker: which layout of tables a store was made with.
//!
//! ```text
//!  0      4           6           8
//!  | RSV0 | major u16 | minor u16 |   little-endian
//! ```

use crate::error::{self, Found, WireError};
use crate::header::{field, put};

/// The version of the runtime's tables, as it is stored under [`SchemaVersion::KEY`].
///
/// ```
/// use kauri_wire::SchemaVersion;
///
/// let version = SchemaVersion { major: 1, minor: 2 };
/// assert_eq!(version.encode(), *b"RSV0\x01\x00\x02\x00");
/// assert_eq!(SchemaVersion::decode(&version.encode()), Ok(version));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SchemaVersion {
    /// Changes when old code cannot work on the tables.
    pub major: u16,
    /// Changes when it can.
    pub minor: u16,
}

impl SchemaVersion {
    /// The key of the marker in table 0, `app_state`.
    ///
    /// ```
    /// use kauri_wire::SchemaVersion;
    ///
    /// let is_marker = |key: &[u8]| key == SchemaVersion::KEY;
    /// assert!(is_marker(b"runner.schema.version") && !is_marker(b"runner.schema"));
    /// ```
    pub const KEY: &'static [u8] = b"runner.schema.version";
    /// How many bytes a marker has.
    ///
    /// ```
    /// use kauri_wire::SchemaVersion;
    ///
    /// assert!(SchemaVersion::decode(&[0; SchemaVersion::BYTES + 1]).is_err_and(|error| error.at == SchemaVersion::BYTES));
    /// ```
    pub const BYTES: usize = 8;

    const MAGIC: [u8; 4] = *b"RSV0";

    /// The marker's bytes.
    ///
    /// ```
    /// use kauri_wire::SchemaVersion;
    ///
    /// assert_eq!(SchemaVersion { major: 0x0102, minor: 3 }.encode(), *b"RSV0\x02\x01\x03\x00");
    /// ```
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut marker = [0; Self::BYTES];
        put::<0, 4, _>(&mut marker, Self::MAGIC);
        put::<4, 2, _>(&mut marker, self.major.to_le_bytes());
        put::<6, 2, _>(&mut marker, self.minor.to_le_bytes());
        marker
    }

    /// Reads a marker that fills `bytes` exactly.
    ///
    /// ```
    /// use kauri_wire::SchemaVersion;
    ///
    /// let found = SchemaVersion::decode(b"RSV0\x01\0\x05\0")?;
    /// assert!(found.major == 1 && found > SchemaVersion { major: 1, minor: 4 });
    /// let error = SchemaVersion::decode(b"LMSG\0\0\0\0").unwrap_err();
    /// assert_eq!(error.to_string(), r#"at byte 0: expected the magic RSV0, found "LMSG""#);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Truncated` or `Format` if it has not eight bytes, `Format` if it does not begin with `RSV0`.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Some((marker, rest)) = bytes.split_first_chunk::<{ Self::BYTES }>() else {
            return Err(error::truncated(bytes.len(), "a schema marker of 8 bytes", bytes.len()));
        };
        if !rest.is_empty() {
            return Err(error::format(Self::BYTES, "the end of a schema marker", error::length(rest.len())));
        }
        let magic = field::<0, 4, _>(marker);
        if magic != Self::MAGIC {
            return Err(error::format(0, "the magic RSV0", Found::Magic(magic)));
        }
        let major = u16::from_le_bytes(field::<4, 2, _>(marker));
        let minor = u16::from_le_bytes(field::<6, 2, _>(marker));
        Ok(Self { major, minor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_another_length_or_magic_are_refused() {
        let good = SchemaVersion { major: 0xabcd, minor: 0x1234 }.encode();
        assert_eq!(SchemaVersion::decode(&good[..7]).unwrap_err().at, 7);
        assert_eq!(SchemaVersion::decode(&[&good[..], b"x"].concat()).unwrap_err().at, 8);
        assert_eq!(SchemaVersion::decode(b"RSV1\0\0\0\0").unwrap_err().at, 0);
    }
}
