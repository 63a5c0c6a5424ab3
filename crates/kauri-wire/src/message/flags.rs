//! How a message wants to be treated.

use core::fmt;
use core::ops::BitOr;

use crate::error::{self, WireError};

/// How a message wants to be treated; a set of four wishes.
///
/// The two other bits of the frame's flag byte say which fields are present. They are not here, because
/// the fields themselves say it.
///
/// ```
/// use kauri_wire::Flags;
///
/// let flags = Flags::DURABLE | Flags::REQUIRES_ACK;
/// assert!(flags.contains(Flags::DURABLE) && !flags.contains(Flags::HIGH_PRIORITY));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub(super) u8);

impl Flags {
    /// No wish.
    pub const NONE: Self = Self(0);
    /// Synced before it is acknowledged.
    pub const DURABLE: Self = Self(0x01);
    /// Claimed before others.
    pub const HIGH_PRIORITY: Self = Self(0x02);
    /// Handled once per message id.
    pub const DEDUPE_REQUIRED: Self = Self(0x04);
    /// Answered with an acknowledgement message.
    pub const REQUIRES_ACK: Self = Self(0x08);

    pub(super) const HAS_FROM_WORKER: u8 = 0x10;
    pub(super) const HAS_TRACE_ID: u8 = 0x20;
    pub(super) const WISHES: u8 = 0x0f;
    pub(super) const KNOWN: u8 = Self::WISHES | Self::HAS_FROM_WORKER | Self::HAS_TRACE_ID;

    /// The wishes in this byte.
    ///
    /// # Errors
    /// `Invalid` if it has any other bit.
    pub fn from_bits(bits: u8) -> Result<Self, WireError> {
        match bits & !Self::WISHES {
            0 => Ok(Self(bits)),
            _ => Err(error::invalid("flags of 0x0f at most", error::number(bits.into()))),
        }
    }

    /// The wishes as bits of the frame's flag byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::DURABLE, "durable"),
            (Self::HIGH_PRIORITY, "high-priority"),
            (Self::DEDUPE_REQUIRED, "dedupe-required"),
            (Self::REQUIRES_ACK, "requires-ack"),
        ];
        f.debug_set().entries(names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name)).finish()
    }
}
