//! An intent and its frame, `LINT`: what a block wants sent or armed once it commits.
//!
//! ```text
//!  0      4       6       8              12     13      14           16       24            28
//!  | LINT | major | minor | frame length | kind | flags | reserved 0 | due_ts | message_len | LMSG frame |
//! ```
//!
//! An emit has no due time and a timer always has one, so the two kinds are the two cases of a type and the flag
//! cannot disagree with them. The message inside is checked with the intent. (The C implementation passes any bytes
//! there and meets the fault only when the intent is carried out, after the commit; we refuse it here.)

use alloc::vec::Vec;

use crate::error::{self, Found, WireError};
use crate::header::{self, field, put};
use crate::id::Timestamp;
use crate::message::{Message, MessageRef};

/// The first four bytes of an intent frame.
///
/// ```
/// use kauri_wire::{INTENT_MAGIC, Intent, Message, MessageId, WorkerId};
///
/// let message = Message::event(WorkerId(7), MessageId::new("m")?, "");
/// assert!(Intent::Emit { message }.encode()?.starts_with(&INTENT_MAGIC));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub const INTENT_MAGIC: [u8; 4] = *b"LINT";
/// The bytes before an intent's message.
///
/// ```
/// use kauri_wire::{INTENT_HEADER_BYTES, Intent, Message, MessageId, WorkerId};
///
/// let message = Message::event(WorkerId(7), MessageId::new("m")?, "");
/// let frame = Intent::Emit { message: message.clone() }.encode()?;
/// assert_eq!(frame[INTENT_HEADER_BYTES..], message.encode()?);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub const INTENT_HEADER_BYTES: usize = 28;

const EMIT: u8 = 0;
const ARM: u8 = 1;
const HAS_DUE: u8 = 0x01;

/// An intent that owns its message.
///
/// ```
/// use kauri_wire::{Intent, IntentRef, Message, MessageId, Timestamp, WorkerId};
///
/// let reminder = Message::timer(WorkerId(7), MessageId::new("remind-1")?, "ship it");
/// let intent = Intent::Arm { due: Timestamp(1_700_000_000_000), message: reminder };
/// let frame = intent.encode()?;
/// assert_eq!(IntentRef::decode(&frame)?.to_intent(), intent);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Send a message.
    Emit {
        /// The message.
        message: Message,
    },
    /// Send a message when its time has come.
    Arm {
        /// The moment from which on it is due.
        due: Timestamp,
        /// The message.
        message: Message,
    },
}

impl Intent {
    /// The message.
    ///
    /// ```
    /// use kauri_wire::{Intent, Message, MessageId, Timestamp, WorkerId};
    ///
    /// let message = Message::timer(WorkerId(7), MessageId::new("remind-1")?, "ship it");
    /// for intent in [Intent::Emit { message: message.clone() }, Intent::Arm { due: Timestamp(5), message: message.clone() }] {
    ///     assert_eq!(*intent.message(), message); // whichever it is
    /// }
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn message(&self) -> &Message {
        match self {
            Self::Emit { message } | Self::Arm { message, .. } => message,
        }
    }

    /// The intent's frame.
    ///
    /// ```
    /// use kauri_wire::{Intent, Message, MessageId, Timestamp, WorkerId};
    ///
    /// let message = Message::timer(WorkerId(7), MessageId::new("remind-1")?, "");
    /// let frame = Intent::Arm { due: Timestamp(5), message }.encode()?;
    /// assert_eq!((frame[12], &frame[16..24]), (1, &5_i64.to_le_bytes()[..])); // a timer, and its moment
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if it would be longer than a frame can be (4 GiB).
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut frame = Vec::new();
        self.append_to(&mut frame)?;
        Ok(frame)
    }

    /// Writes the frame to the start of `buffer` and returns how many bytes it took.
    ///
    /// ```
    /// use kauri_wire::{Intent, Message, MessageId, WireErrorKind, WorkerId};
    ///
    /// let intent = Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "hi") };
    /// let mut buffer = [0; 128];
    /// let length = intent.encode_into(&mut buffer)?;
    /// assert_eq!(buffer[..length], intent.encode()?);
    /// assert_eq!(intent.encode_into(&mut buffer[..length - 1]).unwrap_err().kind, WireErrorKind::TooBig);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `TooBig` if the buffer is shorter than [`encoded_len`](Self::encoded_len); `Invalid` if the frame would be
    /// longer than a frame can be. The buffer is unchanged then.
    pub fn encode_into(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let header = self.header()?;
        let room = buffer.len();
        let Some(frame) = buffer.get_mut(..self.encoded_len()) else {
            return Err(error::too_big(room, "room for the whole frame", room));
        };
        let (head, body) = frame.split_at_mut(INTENT_HEADER_BYTES);
        self.message().encode_into(body)?;
        head.copy_from_slice(&header);
        Ok(self.encoded_len())
    }

    /// Writes the frame to the end of `out`.
    ///
    /// ```
    /// use kauri_wire::{Intent, IntentRef, Message, MessageId, WorkerId};
    ///
    /// let mut out = b"before".to_vec();
    /// Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "") }.append_to(&mut out)?;
    /// assert!(IntentRef::decode(&out[b"before".len()..]).is_ok());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the frame would be longer than a frame can be. Nothing is written then.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let header = self.header()?;
        out.reserve(self.encoded_len());
        out.extend_from_slice(&header);
        self.message().append_to(out)
    }

    /// How many bytes the frame has.
    ///
    /// ```
    /// use kauri_wire::{Intent, Message, MessageId, WorkerId};
    ///
    /// let intent = Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "hi") };
    /// assert_eq!(intent.encoded_len(), intent.encode()?.len());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.message().encoded_len().saturating_add(INTENT_HEADER_BYTES)
    }

    fn header(&self) -> Result<[u8; INTENT_HEADER_BYTES], WireError> {
        let message_bytes = self.message().parts().frame_bytes()?;
        let frame_bytes = u32::try_from(self.encoded_len())
            .map_err(|_| error::invalid("a frame of 4294967295 bytes at most", error::length(self.encoded_len())))?;
        let (kind, flags, due) = match self {
            Self::Emit { .. } => (EMIT, 0, Timestamp(0)),
            Self::Arm { due, .. } => (ARM, HAS_DUE, *due),
        };
        let mut header = header::start(INTENT_MAGIC, frame_bytes, kind, flags);
        put::<16, 8, _>(&mut header, due.0.to_le_bytes());
        put::<24, 4, _>(&mut header, message_bytes.to_le_bytes());
        Ok(header)
    }
}

/// An intent whose message lies in a frame that was checked.
///
/// ```
/// use kauri_wire::{Intent, IntentRef, Message, MessageId, Timestamp, WorkerId};
///
/// let message = Message::timer(WorkerId(7), MessageId::new("remind-1")?, "ship it");
/// let frame = Intent::Arm { due: Timestamp(5), message }.encode()?;
/// match IntentRef::decode(&frame)? {
///     IntentRef::Emit { .. } => unreachable!("a timer was armed"),
///     IntentRef::Arm { due, message } => assert_eq!((due, message.payload()), (Timestamp(5), &b"ship it"[..])),
/// }
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntentRef<'a> {
    /// Send a message.
    Emit {
        /// The message.
        message: MessageRef<'a>,
    },
    /// Send a message when its time has come.
    Arm {
        /// The moment from which on it is due.
        due: Timestamp,
        /// The message.
        message: MessageRef<'a>,
    },
}

impl<'a> IntentRef<'a> {
    /// Reads one frame that fills `frame` exactly, and the message in it. Nothing is copied.
    ///
    /// ```
    /// use kauri_wire::{Intent, IntentRef, Message, MessageId, WorkerId};
    ///
    /// let mut frame = Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "") }.encode()?;
    /// assert!(IntentRef::decode(&frame).is_ok());
    /// frame[28] = b'X'; // the first byte of the message in it
    /// let error = IntentRef::decode(&frame).unwrap_err();
    /// assert_eq!(error.to_string(), r#"at byte 28: expected the magic LMSG, found "XMSG""#);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// The first fault in the contract's order: as for a message up to kind and flags, then whether flag, kind and due
    /// time agree, then the message's length, then the message itself, at its place in this frame.
    pub fn decode(frame: &'a [u8]) -> Result<Self, WireError> {
        let Some((header, body)) = frame.split_first_chunk::<INTENT_HEADER_BYTES>() else {
            return Err(error::truncated(frame.len(), "a 28-byte LINT header", frame.len()));
        };
        header::check(header, INTENT_MAGIC, "the magic LINT", frame.len())?;
        let due = decode_due(header)?;
        let message_bytes = u32::from_le_bytes(field::<24, 4, _>(header));
        if message_bytes == 0 || message_bytes as usize != body.len() {
            let expected = "a message length that fills the frame";
            return Err(error::format(24, expected, error::number(message_bytes.into())));
        }
        let message = MessageRef::decode(body).map_err(|error| error.shifted(INTENT_HEADER_BYTES))?;
        Ok(match due {
            None => Self::Emit { message },
            Some(due) => Self::Arm { due, message },
        })
    }

    /// The same intent, owning its message.
    ///
    /// ```
    /// use kauri_wire::{Intent, IntentRef, Message, MessageId, WorkerId};
    ///
    /// let intent = {
    ///     let frame = Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "hi") }.encode()?;
    ///     IntentRef::decode(&frame)?.to_intent() // it outlives the frame
    /// };
    /// assert_eq!(intent.message().payload, b"hi");
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn to_intent(&self) -> Intent {
        match self {
            Self::Emit { message } => Intent::Emit { message: message.to_message() },
            Self::Arm { due, message } => Intent::Arm { due: *due, message: message.to_message() },
        }
    }

    /// The message.
    ///
    /// ```
    /// use kauri_wire::{Intent, IntentRef, Message, MessageId, WorkerId};
    ///
    /// let frame = Intent::Emit { message: Message::event(WorkerId(7), MessageId::new("m")?, "hi") }.encode()?;
    /// assert_eq!(IntentRef::decode(&frame)?.message().to(), WorkerId(7));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub const fn message(&self) -> &MessageRef<'a> {
        match self {
            Self::Emit { message } | Self::Arm { message, .. } => message,
        }
    }
}

/// The due time if kind, flags and field agree that there is one.
fn decode_due(header: &[u8; INTENT_HEADER_BYTES]) -> Result<Option<Timestamp>, WireError> {
    let due = i64::from_le_bytes(field::<16, 8, _>(header));
    match (field::<12, 2, _>(header), due) {
        ([EMIT, 0], 0) => Ok(None),
        ([ARM, HAS_DUE], _) => Ok(Some(Timestamp(due))),
        ([kind @ 2..=u8::MAX, _], _) => Err(error::format(12, "intent kind 0 or 1", error::number(kind.into()))),
        ([_, flags @ 2..=u8::MAX], _) => {
            Err(error::format(13, "intent flags 0x00 or 0x01", error::number(flags.into())))
        }
        ([EMIT, 0], _) => Err(error::format(16, "no due time for an emit", Found::Number(due.into()))),
        ([EMIT, flags], _) => Err(error::format(13, "flag has-due-ts clear for an emit", error::number(flags.into()))),
        ([ARM, flags], _) => Err(error::format(13, "flag has-due-ts set for a timer", error::number(flags.into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WireErrorKind;
    use crate::id::{MessageId, WorkerId};

    fn message() -> Message {
        Message::command(WorkerId(5), MessageId::new("m").unwrap(), "hi")
    }

    fn emit() -> Intent {
        Intent::Emit { message: message() }
    }

    fn arm(due: i64) -> Intent {
        Intent::Arm { due: Timestamp(due), message: message() }
    }

    fn check(intent: &Intent, change: impl FnOnce(&mut Vec<u8>), at: usize, kind: WireErrorKind) {
        let mut frame = intent.encode().unwrap();
        change(&mut frame);
        let error = IntentRef::decode(&frame).unwrap_err();
        assert_eq!((error.at, error.kind), (at, kind), "{error}");
    }

    #[test]
    fn frame_is_the_bytes_of_the_contract() {
        let inner = message().encode().unwrap();
        let mut expected = b"LINT\0\0\0\0".to_vec();
        expected.extend([91, 0, 0, 0, 1, 1, 0, 0]);
        expected.extend((-2_i64).to_le_bytes());
        expected.extend(63_u32.to_le_bytes());
        expected.extend(inner);
        assert_eq!(arm(-2).encode().unwrap(), expected);
    }

    #[test]
    fn intents_survive_the_trip() {
        for intent in [emit(), arm(0), arm(5), arm(i64::MIN), arm(i64::MAX)] {
            let frame = intent.encode().unwrap();
            assert_eq!(IntentRef::decode(&frame).unwrap().to_intent(), intent);
            let mut buffer = alloc::vec![0; frame.len()];
            assert_eq!(intent.encode_into(&mut buffer), Ok(frame.len()));
            assert_eq!(buffer, frame);
            assert_eq!(intent.encode_into(&mut buffer[1..]).unwrap_err().kind, WireErrorKind::TooBig);
        }
    }

    #[test]
    fn kind_flag_and_due_time_must_agree() {
        check(&emit(), |frame| frame[13] = 1, 13, WireErrorKind::Format);
        check(&emit(), |frame| frame[16] = 1, 16, WireErrorKind::Format);
        check(&arm(5), |frame| frame[13] = 0, 13, WireErrorKind::Format);
        check(&arm(5), |frame| frame[13] = 2, 13, WireErrorKind::Format);
        check(&arm(5), |frame| frame[12] = 2, 12, WireErrorKind::Format);
    }

    #[test]
    fn faults_of_the_inner_message_are_reported_where_they_stand() {
        check(&emit(), |frame| frame[28] = b'X', 28, WireErrorKind::Format);
        check(&emit(), |frame| frame[32] = 1, 32, WireErrorKind::Version);
        check(&emit(), |frame| frame[40] = 3, 40, WireErrorKind::Format);
        check(&emit(), |frame| frame[24] += 1, 24, WireErrorKind::Format);
    }
}
