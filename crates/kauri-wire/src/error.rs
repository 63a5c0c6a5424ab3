//! One error for every decoder: where, what was expected, what was found, and which kind of fault it is.

use core::fmt;

/// Why some bytes are not a frame, or some fields cannot become one.
///
/// ```
/// use kauri_wire::{MessageRef, WireErrorKind};
///
/// let error = MessageRef::decode(b"LMSG").unwrap_err();
/// assert_eq!(error.kind, WireErrorKind::Truncated);
/// assert_eq!(error.to_string(), "at byte 4: expected a 60-byte LMSG header, found 4 bytes");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireError {
    /// Offset of the first byte at fault, from the start of the buffer that was given.
    pub at: usize,
    /// What had to stand there.
    pub expected: &'static str,
    /// What stood there instead.
    pub found: Found,
    /// The class of fault.
    pub kind: WireErrorKind,
}

/// The class of a fault, one for each status code that the frame contract names.
///
/// ```
/// use kauri_wire::{MessageRef, WireErrorKind};
///
/// let kind = |bytes: &[u8]| MessageRef::decode(bytes).unwrap_err().kind;
/// assert_eq!(kind(b"LMSG"), WireErrorKind::Truncated); // a pipe would wait for more
/// assert_eq!(kind(&[b'x'; 60]), WireErrorKind::Format); // more would not help
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WireErrorKind {
    /// A field that was to be encoded is not allowed (`EINVAL`, -1).
    Invalid,
    /// The result does not fit: the destination is too short, or a limit is passed (`E2BIG`, -2).
    TooBig,
    /// The bytes break the format (`EFORMAT`, -3).
    Format,
    /// The frame has another version (`EVERSION`, -4).
    Version,
    /// The buffer ends before the frame does (`ETRUNC`, -5).
    Truncated,
}

impl WireErrorKind {
    /// The contract's name for this kind.
    ///
    /// ```
    /// use kauri_wire::MessageId;
    ///
    /// assert_eq!(MessageId::new("").unwrap_err().kind.name(), "EINVAL");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "EINVAL",
            Self::TooBig => "E2BIG",
            Self::Format => "EFORMAT",
            Self::Version => "EVERSION",
            Self::Truncated => "ETRUNC",
        }
    }

    /// The contract's number for this kind.
    ///
    /// ```
    /// use kauri_wire::{MessageRef, WireErrorKind};
    ///
    /// let error = MessageRef::decode(b"").unwrap_err();
    /// assert_eq!(error.kind.code(), -5); // what the C implementation returns
    /// assert_eq!(WireErrorKind::Invalid.code(), -1);
    /// ```
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Invalid => -1,
            Self::TooBig => -2,
            Self::Format => -3,
            Self::Version => -4,
            Self::Truncated => -5,
        }
    }
}

/// What a decoder met where it expected something else.
///
/// ```
/// use kauri_wire::{Found, SchemaVersion};
///
/// assert_eq!(SchemaVersion::decode(b"LMSG\0\0\0\0").unwrap_err().found, Found::Magic(*b"LMSG"));
/// assert_eq!(Found::Length(1).to_string(), "1 byte");
/// assert_eq!(Found::Version(2, 0).to_string(), "version 2.0");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Found {
    /// A number.
    Number(i128),
    /// Four bytes, shown as text: the place of a magic.
    Magic([u8; 4]),
    /// A version, major and minor.
    Version(u16, u16),
    /// So many bytes.
    Length(u64),
    /// A value of another type, by its name.
    Type(&'static str),
    /// Nothing at all.
    Nothing,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: expected {}, found {}", self.at, self.expected, self.found)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Magic(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Version(major, minor) => write!(f, "version {major}.{minor}"),
            Self::Length(1) => write!(f, "1 byte"),
            Self::Length(bytes) => write!(f, "{bytes} bytes"),
            Self::Type(name) => f.write_str(name),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl fmt::Display for WireErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for WireError {}

impl WireError {
    /// The same fault seen from a buffer in which ours starts at `offset`.
    pub(crate) fn shifted(self, offset: usize) -> Self {
        Self { at: self.at + offset, ..self }
    }
}

// Errors are cold, so that they are built off the hot path. They may still be inlined there: behind a call, the whole
// `Result` would have to live in memory, and decoding a good message would take nearly twice as long.

#[cold]
pub(crate) fn format(at: usize, expected: &'static str, found: Found) -> WireError {
    WireError { at, expected, found, kind: WireErrorKind::Format }
}

#[cold]
pub(crate) fn truncated(at: usize, expected: &'static str, bytes: usize) -> WireError {
    WireError { at, expected, found: length(bytes), kind: WireErrorKind::Truncated }
}

#[cold]
pub(crate) fn invalid(expected: &'static str, found: Found) -> WireError {
    WireError { at: 0, expected, found, kind: WireErrorKind::Invalid }
}

#[cold]
pub(crate) fn too_big(at: usize, expected: &'static str, bytes: usize) -> WireError {
    WireError { at, expected, found: length(bytes), kind: WireErrorKind::TooBig }
}

pub(crate) const fn length(bytes: usize) -> Found {
    Found::Length(bytes as u64)
}

pub(crate) const fn number(value: u64) -> Found {
    Found::Number(value as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_kind_has_the_contracts_name_and_code() {
        let kinds = [
            (WireErrorKind::Invalid, "EINVAL", -1),
            (WireErrorKind::TooBig, "E2BIG", -2),
            (WireErrorKind::Format, "EFORMAT", -3),
            (WireErrorKind::Version, "EVERSION", -4),
            (WireErrorKind::Truncated, "ETRUNC", -5),
        ];
        for (kind, name, code) in kinds {
            assert_eq!((kind.name(), kind.code()), (name, code));
        }
    }

    #[test]
    fn a_shifted_error_points_into_the_outer_buffer() {
        let inner = format(12, "message kind 0, 1 or 2", number(9));
        assert_eq!(inner.shifted(28).to_string(), "at byte 40: expected message kind 0, 1 or 2, found 9");
    }
}
