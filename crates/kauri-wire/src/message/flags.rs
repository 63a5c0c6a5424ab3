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
    ///
    /// ```
    /// use kauri_wire::Flags;
    ///
    /// assert_eq!((Flags::NONE, Flags::NONE.bits()), (Flags::default(), 0));
    /// assert!(!Flags::NONE.contains(Flags::DURABLE));
    /// ```
    pub const NONE: Self = Self(0);
    /// Synced before it is acknowledged.
    ///
    /// ```
    /// use kauri_wire::Flags;
    ///
    /// assert_eq!(format!("{:?}", Flags::DURABLE), r#"{"durable"}"#);
    /// ```
    pub const DURABLE: Self = Self(0x01);
    /// Claimed before others.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, WorkerId};
    ///
    /// let alarm = Message::event(WorkerId(7), MessageId::new("fire")?, "").with(Flags::HIGH_PRIORITY);
    /// assert_eq!(alarm.encode()?[13], 0x02);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub const HIGH_PRIORITY: Self = Self(0x02);
    /// Handled once per message id.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, WorkerId};
    ///
    /// // However often it is sent, it is paid once.
    /// let payment = Message::command(WorkerId(7), MessageId::new("pay-1")?, "").with(Flags::DEDUPE_REQUIRED);
    /// assert!(payment.flags.contains(Flags::DEDUPE_REQUIRED) && !payment.flags.contains(Flags::DURABLE));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub const DEDUPE_REQUIRED: Self = Self(0x04);
    /// Answered with an acknowledgement message.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, Timestamp, WorkerId};
    ///
    /// // The answer goes along the route.
    /// let ask = Message::command(WorkerId(7), MessageId::new("ask")?, "").with(Flags::REQUIRES_ACK).routed(WorkerId(3), Timestamp(5));
    /// assert_eq!((ask.flags, ask.route.worker), (Flags::REQUIRES_ACK, WorkerId(3)));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub const REQUIRES_ACK: Self = Self(0x08);

    pub(super) const HAS_FROM_WORKER: u8 = 0x10;
    pub(super) const HAS_TRACE_ID: u8 = 0x20;
    pub(super) const WISHES: u8 = 0x0f;
    pub(super) const KNOWN: u8 = Self::WISHES | Self::HAS_FROM_WORKER | Self::HAS_TRACE_ID;

    /// The wishes in this byte.
    ///
    /// ```
    /// use kauri_wire::Flags;
    ///
    /// assert_eq!(Flags::from_bits(0x09), Ok(Flags::DURABLE | Flags::REQUIRES_ACK));
    /// assert!(Flags::from_bits(0x10).is_err(), "the sender says that");
    /// ```
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
    ///
    /// ```
    /// use kauri_wire::Flags;
    ///
    /// assert_eq!((Flags::DURABLE | Flags::DEDUPE_REQUIRED).bits(), 0x05);
    /// ```
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `others` are among these.
    ///
    /// ```
    /// use kauri_wire::Flags;
    ///
    /// let flags = Flags::DURABLE | Flags::REQUIRES_ACK;
    /// assert!(flags.contains(flags) && flags.contains(Flags::NONE));
    /// assert!(!flags.contains(Flags::DURABLE | Flags::HIGH_PRIORITY), "all of them, not one");
    /// ```
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
