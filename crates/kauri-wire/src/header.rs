//! What the two frames have in common: the first sixteen bytes, and fields at fixed places.
//!
//! ```text
//! | magic 4 | major 2 | minor 2 | frame length 4 | kind 1 | flags 1 | reserved 2 = 0 | ...
//! ```
//!
//! All integers are little-endian.

use crate::error::{self, Found, WireError, WireErrorKind};

/// The one version of the frames, major and minor.
///
/// ```
/// use kauri_wire::{Message, MessageId, MessageRef, WIRE_VERSION, WireErrorKind, WorkerId};
///
/// let mut frame = Message::event(WorkerId(7), MessageId::new("m")?, "").encode()?;
/// assert_eq!(frame[4..6], WIRE_VERSION.0.to_le_bytes());
/// frame[4] += 1; // from a later one
/// assert_eq!(MessageRef::decode(&frame).unwrap_err().kind, WireErrorKind::Version);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub const WIRE_VERSION: (u16, u16) = (0, 0);

/// `N` bytes of a header at `AT`; that they are inside is checked at compile time.
pub(crate) fn field<const AT: usize, const N: usize, const H: usize>(header: &[u8; H]) -> [u8; N] {
    const { assert!(AT + N <= H, "the field lies outside its header") };
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[AT..AT + N]);
    bytes
}

/// Writes `N` bytes of a header at `AT`; that they are inside is checked at compile time.
pub(crate) fn put<const AT: usize, const N: usize, const H: usize>(header: &mut [u8; H], bytes: [u8; N]) {
    const { assert!(AT + N <= H, "the field lies outside its header") };
    header[AT..AT + N].copy_from_slice(&bytes);
}

/// A header with its common fields set and the rest zero.
pub(crate) fn start<const H: usize>(magic: [u8; 4], frame_bytes: u32, kind: u8, flags: u8) -> [u8; H] {
    let mut header = [0; H];
    put::<0, 4, H>(&mut header, magic);
    put::<4, 2, H>(&mut header, WIRE_VERSION.0.to_le_bytes());
    put::<6, 2, H>(&mut header, WIRE_VERSION.1.to_le_bytes());
    put::<8, 4, H>(&mut header, frame_bytes.to_le_bytes());
    put::<12, 2, H>(&mut header, [kind, flags]);
    header
}

/// Checks the common fields against the buffer they came from, in the contract's order:
/// magic, version, frame length, reserved. Kind and flags mean different things in the two frames.
pub(crate) fn check<const H: usize>(
    header: &[u8; H],
    magic: [u8; 4],
    expected: &'static str,
    buffer_bytes: usize,
) -> Result<(), WireError> {
    let [a, b, c, d] = magic;
    if field::<0, 8, H>(header) != [a, b, c, d, 0, 0, 0, 0] {
        return Err(magic_or_version(header, magic, expected));
    }
    let frame_bytes = u32::from_le_bytes(field::<8, 4, H>(header));
    if frame_bytes as usize != buffer_bytes {
        return Err(frame_length(frame_bytes, H, buffer_bytes));
    }
    let reserved = u16::from_le_bytes(field::<14, 2, H>(header));
    if reserved != 0 {
        return Err(error::format(14, "reserved bytes of zero", error::number(reserved.into())));
    }
    Ok(())
}

const _: () = assert!(WIRE_VERSION.0 == 0 && WIRE_VERSION.1 == 0, "check() compares the version with zero bytes");

/// Magic and version are compared at once; which of them is at fault is asked only then.
#[cold]
fn magic_or_version<const H: usize>(header: &[u8; H], magic: [u8; 4], expected: &'static str) -> WireError {
    let found = field::<0, 4, H>(header);
    if found != magic {
        return error::format(0, expected, Found::Magic(found));
    }
    let major = u16::from_le_bytes(field::<4, 2, H>(header));
    let minor = u16::from_le_bytes(field::<6, 2, H>(header));
    WireError {
        at: 4,
        expected: "frame version 0.0",
        found: Found::Version(major, minor),
        kind: WireErrorKind::Version,
    }
}

/// A frame length that is not the buffer's is one of three faults.
#[cold]
fn frame_length(frame_bytes: u32, header_bytes: usize, buffer_bytes: usize) -> WireError {
    let stated = frame_bytes as usize;
    if stated < header_bytes {
        error::format(8, "a frame length of at least the header's", error::number(frame_bytes.into()))
    } else if stated > buffer_bytes {
        error::truncated(buffer_bytes, "as many bytes as the frame length says", buffer_bytes)
    } else {
        error::format(stated, "the end of the frame, as its length says", error::length(buffer_bytes - stated))
    }
}
