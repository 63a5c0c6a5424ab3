//! A message and its frame, `LMSG`: the addressed unit of work, as it is sent and as it is stored.
//!
//! ```text
//!  0      4       6       8              12     13      14           16
//!  | LMSG | major | minor | frame length | kind | flags | reserved 0 |
//!  16          24             32                40            48               52              56            60
//!  | to_worker | route_worker | route_timestamp | from_worker | message_id_len | trace_id_len | payload_len |
//!  60
//!  | message_id | trace_id, if any | payload |
//! ```
//!
//! All integers are little-endian; workers and the timestamp are signed. `trace_id_len` is `0xFFFFFFFF` where there
//! is no trace id, and `from_worker` is zero where there is no sender: each flag and its field must agree, so one
//! message has one byte form. (The C implementation accepts a stray sender without its flag; we refuse it.)

mod flags;
mod parts;

use alloc::vec::Vec;
use core::fmt;

use crate::error::{self, Found, WireError};
use crate::header::{self, field};
use crate::id::{MessageId, Timestamp, TraceId, WorkerId};

pub use flags::Flags;
pub use parts::MessageParts;

/// The first four bytes of a message frame.
///
/// ```
/// use kauri_wire::{MESSAGE_MAGIC, MessageRef};
///
/// let mut bytes = [0; 60];
/// assert_eq!(MessageRef::decode(&bytes).unwrap_err().at, 0); // no magic
/// bytes[..4].copy_from_slice(&MESSAGE_MAGIC);
/// assert!(MessageRef::decode(&bytes).unwrap_err().at > 0); // something else
/// ```
pub const MESSAGE_MAGIC: [u8; 4] = *b"LMSG";
/// The bytes before a message's id.
///
/// ```
/// use kauri_wire::{MESSAGE_HEADER_BYTES, Message, MessageId, WorkerId};
///
/// let frame = Message::event(WorkerId(7), MessageId::new("order-1")?, "12").encode()?;
/// assert_eq!(&frame[MESSAGE_HEADER_BYTES..], b"order-112"); // the id, then the payload
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub const MESSAGE_HEADER_BYTES: usize = 60;

const NO_TRACE: u32 = u32::MAX;

/// What a message is.
///
/// ```
/// use kauri_wire::MessageKind;
///
/// assert_eq!(MessageKind::try_from(2), Ok(MessageKind::Timer));
/// assert_eq!(MessageKind::try_from(3).unwrap_err().to_string(), "at byte 0: expected message kind 0, 1 or 2, found 3");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MessageKind {
    /// A request that somebody do something.
    Command = 0,
    /// News that something happened.
    Event = 1,
    /// A timer that came due.
    Timer = 2,
}

impl TryFrom<u8> for MessageKind {
    type Error = WireError;

    fn try_from(byte: u8) -> Result<Self, WireError> {
        match byte {
            0 => Ok(Self::Command),
            1 => Ok(Self::Event),
            2 => Ok(Self::Timer),
            _ => Err(error::invalid("message kind 0, 1 or 2", error::number(byte.into()))),
        }
    }
}

/// Where an answer to a message goes, and since when it is under way.
///
/// ```
/// use kauri_wire::{Message, MessageId, MessageRef, Route, Timestamp, WorkerId};
///
/// let ask = Message::command(WorkerId(7), MessageId::new("ask")?, "").routed(WorkerId(3), Timestamp(5)).encode()?;
/// let Route { worker, timestamp } = MessageRef::decode(&ask)?.route();
/// let answer = Message::event(worker, MessageId::new("answer")?, "").routed(worker, timestamp);
/// assert_eq!(answer.to, WorkerId(3));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Route {
    /// The worker that an answer is sent to.
    pub worker: WorkerId,
    /// When the first message of this route was sent.
    pub timestamp: Timestamp,
}

/// A message that owns its parts.
///
/// Every value of this type can be encoded, unless it is larger than a frame can be.
///
/// ```
/// use kauri_wire::{Flags, Message, MessageId, MessageRef, WorkerId};
///
/// let order = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples")
///     .sent_by(WorkerId(3))
///     .with(Flags::DURABLE | Flags::DEDUPE_REQUIRED);
///
/// let frame = order.encode()?;
/// let view = MessageRef::decode(&frame)?;
/// assert_eq!(view.payload(), b"12 apples");
/// assert_eq!(view.to_message(), order);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is.
    pub kind: MessageKind,
    /// How it wants to be treated.
    pub flags: Flags,
    /// The worker whose inbox it goes to.
    pub to: WorkerId,
    /// Where an answer goes.
    pub route: Route,
    /// The worker that sent it, if one did.
    pub from: Option<WorkerId>,
    /// Its id.
    pub id: MessageId,
    /// The trace it belongs to, if any.
    pub trace: Option<TraceId>,
    /// What it says.
    pub payload: Vec<u8>,
}

impl Message {
    /// A message of this kind, with no flags, no sender, no trace and an empty route.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, MessageKind, WorkerId};
    ///
    /// let message = Message::new(MessageKind::Event, WorkerId(7), MessageId::new("m")?, [1, 2, 3]);
    /// assert_eq!((message.flags, message.from, message.trace), (Flags::NONE, None, None));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub fn new(kind: MessageKind, to: WorkerId, id: MessageId, payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        Self { kind, flags: Flags::NONE, to, route: Route::default(), from: None, id, trace: None, payload }
    }

    /// A command to a worker.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageKind, WorkerId};
    ///
    /// let order = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples");
    /// assert_eq!((order.kind, order.to), (MessageKind::Command, WorkerId(7)));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub fn command(to: WorkerId, id: MessageId, payload: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Command, to, id, payload)
    }

    /// An event for a worker.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageKind, WorkerId};
    ///
    /// let shipped = Message::event(WorkerId(8), MessageId::new("order-1/shipped")?, "");
    /// assert_eq!(shipped.kind, MessageKind::Event);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub fn event(to: WorkerId, id: MessageId, payload: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Event, to, id, payload)
    }

    /// A timer of a worker.
    ///
    /// ```
    /// use kauri_wire::{Intent, Message, MessageId, MessageKind, Timestamp, WorkerId};
    ///
    /// let remind = Message::timer(WorkerId(7), MessageId::new("remind-1")?, "ship it");
    /// assert_eq!(remind.kind, MessageKind::Timer);
    /// let _when = Intent::Arm { due: Timestamp(1_000), message: remind }; // it does not say when by itself
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub fn timer(to: WorkerId, id: MessageId, payload: impl Into<Vec<u8>>) -> Self {
        Self::new(MessageKind::Timer, to, id, payload)
    }

    /// The same message with these flags besides those it has.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, WorkerId};
    ///
    /// let order = Message::command(WorkerId(7), MessageId::new("order-1")?, "").with(Flags::DURABLE).with(Flags::REQUIRES_ACK);
    /// assert_eq!(order.flags, Flags::DURABLE | Flags::REQUIRES_ACK);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn with(mut self, flags: Flags) -> Self {
        self.flags = self.flags | flags;
        self
    }

    /// The same message from this sender.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let message = Message::event(WorkerId(7), MessageId::new("m")?, "");
    /// assert_eq!(MessageRef::decode(&message.encode()?)?.from(), None);
    /// assert_eq!(MessageRef::decode(&message.sent_by(WorkerId(0)).encode()?)?.from(), Some(WorkerId(0)));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn sent_by(mut self, from: WorkerId) -> Self {
        self.from = Some(from);
        self
    }

    /// The same message in this trace.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, TraceId, WorkerId};
    ///
    /// let message = Message::event(WorkerId(7), MessageId::new("m")?, "").traced(TraceId::new("checkout"));
    /// assert_eq!(message.trace.as_ref().map(TraceId::as_bytes), Some(&b"checkout"[..]));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn traced(mut self, trace: TraceId) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The same message on this route.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, Route, Timestamp, WorkerId};
    ///
    /// let message = Message::command(WorkerId(7), MessageId::new("m")?, "").routed(WorkerId(3), Timestamp(5));
    /// assert_eq!(message.route, Route { worker: WorkerId(3), timestamp: Timestamp(5) });
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn routed(mut self, worker: WorkerId, timestamp: Timestamp) -> Self {
        self.route = Route { worker, timestamp };
        self
    }

    /// The message, borrowed.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, MessageRef, WorkerId};
    ///
    /// let order = Message::command(WorkerId(7), MessageId::new("order-1")?, vec![7; 1 << 20]);
    /// let mut frame = Vec::new();
    /// order.parts().with(Flags::DURABLE).append_to(&mut frame)?; // changed on its way, the payload copied once
    /// assert_eq!(MessageRef::decode(&frame)?.flags(), Flags::DURABLE);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn parts(&self) -> MessageParts<'_> {
        MessageParts {
            kind: self.kind,
            flags: self.flags,
            to: self.to,
            route: self.route,
            from: self.from,
            id: self.id.as_bytes(),
            trace: self.trace.as_ref().map(TraceId::as_bytes),
            payload: &self.payload,
        }
    }

    /// The message's frame.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, WorkerId};
    ///
    /// let frame = Message::command(WorkerId(7), MessageId::new("m")?, "hi").encode()?;
    /// assert_eq!((&frame[..4], frame.len()), (&b"LMSG"[..], 60 + 1 + 2));
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

    /// As [`MessageParts::encode_into`].
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let mut buffer = [0; 128]; // no allocation
    /// let length = Message::command(WorkerId(7), MessageId::new("m")?, "hi").encode_into(&mut buffer)?;
    /// assert_eq!(MessageRef::decode(&buffer[..length])?.payload(), b"hi");
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn encode_into(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        self.parts().encode_into(buffer)
    }

    /// As [`MessageParts::append_to`].
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, WorkerId};
    ///
    /// let message = Message::command(WorkerId(7), MessageId::new("m")?, "hi");
    /// let mut out = Vec::new();
    /// message.append_to(&mut out)?;
    /// message.append_to(&mut out)?;
    /// assert_eq!(out, [message.encode()?, message.encode()?].concat());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.parts().append_to(out)
    }

    /// How many bytes the frame has.
    ///
    /// ```
    /// use kauri_wire::{MESSAGE_HEADER_BYTES, Message, MessageId, WorkerId};
    ///
    /// let message = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples");
    /// assert_eq!(message.encoded_len(), MESSAGE_HEADER_BYTES + 7 + 9); // known before it is encoded
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.parts().encoded_len()
    }
}

/// A message frame that was checked, read where it lies.
///
/// One message has one frame, so two of these are equal if and only if their messages are.
///
/// ```
/// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
///
/// let frame = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples").encode()?;
/// let message = MessageRef::decode(&frame)?; // checked once; reading cannot fail after that
/// assert_eq!((message.to(), message.id(), message.payload()), (WorkerId(7), &b"order-1"[..], &b"12 apples"[..]));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'a> {
    frame: &'a [u8],
    /// Where the id ends and the trace id, or the payload, begins.
    id_end: u32,
    /// Where the payload begins.
    payload_at: u32,
}

impl<'a> MessageRef<'a> {
    /// Checks one frame that fills `frame` exactly. Nothing is copied.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WireErrorKind, WorkerId};
    ///
    /// let mut frame = Message::command(WorkerId(7), MessageId::new("m")?, "hi").encode()?;
    /// assert_eq!(MessageRef::decode(&frame[..62]).unwrap_err().kind, WireErrorKind::Truncated);
    /// frame.push(0);
    /// assert_eq!(MessageRef::decode(&frame).unwrap_err().kind, WireErrorKind::Format); // too long
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// The first fault in the contract's order: a buffer shorter than the header (`Truncated`), magic, version,
    /// frame length (`Truncated` if the buffer is too short, `Format` if it is too long), reserved bytes, kind, flags,
    /// then the lengths of the parts.
    #[inline]
    pub fn decode(frame: &'a [u8]) -> Result<Self, WireError> {
        let Some(header) = frame.first_chunk::<MESSAGE_HEADER_BYTES>() else {
            return Err(error::truncated(frame.len(), "a 60-byte LMSG header", frame.len()));
        };
        header::check(header, MESSAGE_MAGIC, "the magic LMSG", frame.len())?;
        let [kind, flags] = field::<12, 2, _>(header);
        if kind > MessageKind::Timer as u8 {
            return Err(error::format(12, "message kind 0, 1 or 2", error::number(kind.into())));
        }
        if flags & !Flags::KNOWN != 0 {
            return Err(error::format(13, "message flags of 0x3f at most", error::number(flags.into())));
        }
        check_from(header, flags)?;
        let (id_end, payload_at) = check_parts(header, flags, frame.len())?;
        Ok(Self { frame, id_end, payload_at })
    }

    /// The frame.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::command(WorkerId(7), MessageId::new("m")?, "hi").encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.frame(), frame); // to be stored or sent as it came
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// The message's parts, to send it on with others.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::command(WorkerId(7), MessageId::new("m")?, "hi").encode()?;
    /// let mut onward = Vec::new();
    /// MessageRef::decode(&frame)?.parts().sent_by(WorkerId(7)).append_to(&mut onward)?;
    /// let onward = MessageRef::decode(&onward)?;
    /// assert_eq!((onward.from(), onward.payload()), (Some(WorkerId(7)), &b"hi"[..]));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn parts(&self) -> MessageParts<'a> {
        MessageParts {
            kind: self.kind(),
            flags: self.flags(),
            to: self.to(),
            route: self.route(),
            from: self.from(),
            id: self.id(),
            trace: self.trace(),
            payload: self.payload(),
        }
    }

    /// The same message, owning its parts.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let sent = Message::command(WorkerId(7), MessageId::new("m")?, "hi");
    /// let kept = {
    ///     let frame = sent.encode()?;
    ///     MessageRef::decode(&frame)?.to_message() // it outlives the frame
    /// };
    /// assert_eq!(kept, sent);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn to_message(&self) -> Message {
        Message {
            kind: self.kind(),
            flags: self.flags(),
            to: self.to(),
            route: self.route(),
            from: self.from(),
            id: MessageId::new(self.id()).expect(CHECKED),
            trace: self.trace().map(TraceId::new),
            payload: self.payload().into(),
        }
    }

    /// What it is.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageKind, MessageRef, WorkerId};
    ///
    /// let frame = Message::timer(WorkerId(7), MessageId::new("m")?, "").encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.kind(), MessageKind::Timer);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> MessageKind {
        MessageKind::try_from(self.header()[12]).expect(CHECKED)
    }

    /// How it wants to be treated.
    ///
    /// ```
    /// use kauri_wire::{Flags, Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new("m")?, "").with(Flags::DURABLE).sent_by(WorkerId(3)).encode()?;
    /// assert_eq!(frame[13], 0x11);
    /// assert_eq!(MessageRef::decode(&frame)?.flags(), Flags::DURABLE); // without the bit that says there is a sender
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.header()[13] & Flags::WISHES)
    }

    /// The worker whose inbox it goes to.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(-7), MessageId::new("m")?, "").encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.to(), WorkerId(-7));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn to(&self) -> WorkerId {
        WorkerId(i64::from_le_bytes(field::<16, 8, _>(self.header())))
    }

    /// Where an answer goes.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, Route, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new("m")?, "").encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.route(), Route::default()); // nobody said where an answer goes
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn route(&self) -> Route {
        Route {
            worker: WorkerId(i64::from_le_bytes(field::<24, 8, _>(self.header()))),
            timestamp: Timestamp(i64::from_le_bytes(field::<32, 8, _>(self.header()))),
        }
    }

    /// The worker that sent it, if one did.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new("m")?, "").sent_by(WorkerId(3)).encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.from(), Some(WorkerId(3)));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn from(&self) -> Option<WorkerId> {
        let from = WorkerId(i64::from_le_bytes(field::<40, 8, _>(self.header())));
        (self.header()[13] & Flags::HAS_FROM_WORKER != 0).then_some(from)
    }

    /// Its id, at least one byte.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new([0, 255])?, "").encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.id(), [0, 255]);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &'a [u8] {
        &self.frame[MESSAGE_HEADER_BYTES..self.id_end as usize]
    }

    /// The trace it belongs to, if any.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, TraceId, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new("m")?, "").traced(TraceId::new("checkout")).encode()?;
    /// assert_eq!(MessageRef::decode(&frame)?.trace(), Some(&b"checkout"[..]));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn trace(&self) -> Option<&'a [u8]> {
        let trace = &self.frame[self.id_end as usize..self.payload_at as usize];
        (self.header()[13] & Flags::HAS_TRACE_ID != 0).then_some(trace)
    }

    /// What it says.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
    ///
    /// let frame = Message::event(WorkerId(7), MessageId::new("m")?, "12 apples").encode()?;
    /// let payload = MessageRef::decode(&frame)?.payload();
    /// assert_eq!(payload.as_ptr_range().end, frame.as_ptr_range().end); // where it lies in the frame
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.frame[self.payload_at as usize..]
    }

    #[inline]
    fn header(&self) -> &'a [u8; MESSAGE_HEADER_BYTES] {
        self.frame.first_chunk().expect(CHECKED)
    }
}

const CHECKED: &str = "decode checked the frame";

impl fmt::Debug for MessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().fmt(f)
    }
}

#[inline]
fn check_from(header: &[u8; MESSAGE_HEADER_BYTES], flags: u8) -> Result<(), WireError> {
    let from = i64::from_le_bytes(field::<40, 8, _>(header));
    if from != 0 && flags & Flags::HAS_FROM_WORKER == 0 {
        let expected = "from_worker 0, as the flag has-from-worker is clear";
        return Err(error::format(40, expected, Found::Number(from.into())));
    }
    Ok(())
}

/// Where the id ends and where the payload begins.
#[inline]
fn check_parts(header: &[u8; MESSAGE_HEADER_BYTES], flags: u8, frame_bytes: usize) -> Result<(u32, u32), WireError> {
    let id_bytes = u32::from_le_bytes(field::<48, 4, _>(header));
    let trace_bytes = u32::from_le_bytes(field::<52, 4, _>(header));
    let payload_bytes = u32::from_le_bytes(field::<56, 4, _>(header));
    if id_bytes == 0 {
        return Err(error::format(48, "a message id of at least one byte", Found::Nothing));
    }
    let trace_bytes = match (flags & Flags::HAS_TRACE_ID != 0, trace_bytes) {
        (true, NO_TRACE) => {
            let expected = "a trace id length, as the flag has-trace-id is set";
            return Err(error::format(52, expected, error::number(NO_TRACE.into())));
        }
        (false, NO_TRACE) => 0,
        (true, bytes) => bytes,
        (false, bytes) => {
            let expected = "trace id length 4294967295 (absent), as the flag has-trace-id is clear";
            return Err(error::format(52, expected, error::number(bytes.into())));
        }
    };
    // Sums of three 32-bit lengths do not wrap in 64 bits.
    let parts = u64::from(id_bytes) + u64::from(trace_bytes) + u64::from(payload_bytes);
    if parts + MESSAGE_HEADER_BYTES as u64 != frame_bytes as u64 {
        return Err(error::format(48, "id, trace and payload lengths that fill the frame", Found::Length(parts)));
    }
    // All three fit into the frame, whose length fits 32 bits.
    const BODY_AT: u32 = 60;
    const { assert!(BODY_AT as usize == MESSAGE_HEADER_BYTES) };
    let id_end = BODY_AT + id_bytes;
    Ok((id_end, id_end + trace_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WireErrorKind;
    use alloc::vec;

    fn order() -> Message {
        Message::event(WorkerId(7), MessageId::new("msg-1").unwrap(), "hello")
            .sent_by(WorkerId(-3))
            .traced(TraceId::new("tr"))
            .routed(WorkerId(9), Timestamp(11))
            .with(Flags::DURABLE | Flags::HIGH_PRIORITY | Flags::DEDUPE_REQUIRED | Flags::REQUIRES_ACK)
    }

    fn check(change: impl FnOnce(&mut Vec<u8>), at: usize, kind: WireErrorKind) {
        let mut frame = order().encode().unwrap();
        change(&mut frame);
        let error = MessageRef::decode(&frame).unwrap_err();
        assert_eq!((error.at, error.kind), (at, kind), "{error}");
    }

    #[test]
    fn frame_is_the_bytes_of_the_contract() {
        let mut expected = b"LMSG\0\0\0\0".to_vec();
        expected.extend([72, 0, 0, 0, 1, 0x3f, 0, 0]);
        for number in [7_i64, 9, 11, -3] {
            expected.extend(number.to_le_bytes());
        }
        for length in [5_u32, 2, 5] {
            expected.extend(length.to_le_bytes());
        }
        expected.extend(b"msg-1trhello");
        assert_eq!(order().encode().unwrap(), expected);
    }

    #[test]
    fn absent_and_empty_trace_are_two_things() {
        let absent = Message { trace: None, ..order() };
        let empty = Message { trace: Some(TraceId::new("")), ..order() };
        for (message, stated) in [(absent, u32::MAX), (empty, 0)] {
            let frame = message.encode().unwrap();
            assert_eq!(MessageRef::decode(&frame).unwrap().to_message(), message);
            // The lengths of id, trace and payload end the fixed part.
            let fixed = frame.len() - message.id.as_bytes().len() - message.payload.len();
            assert_eq!(frame[fixed - 8..fixed - 4], stated.to_le_bytes());
        }
    }

    #[test]
    fn sender_without_its_flag_is_refused() {
        check(|frame| frame[13] &= !0x10, 40, WireErrorKind::Format);
    }

    #[test]
    fn sender_zero_with_its_flag_is_a_sender() {
        let message = order().sent_by(WorkerId(0));
        assert_eq!(MessageRef::decode(&message.encode().unwrap()).unwrap().from(), Some(WorkerId(0)));
    }

    #[test]
    fn errors_point_at_the_first_field_at_fault() {
        check(|frame| frame.truncate(59), 59, WireErrorKind::Truncated);
        check(|frame| frame[0] = b'l', 0, WireErrorKind::Format);
        check(|frame| frame[6] = 1, 4, WireErrorKind::Version);
        check(|frame| frame[..8].fill(1), 0, WireErrorKind::Format);
        check(|frame| frame[8] = 59, 8, WireErrorKind::Format);
        check(|frame| frame.truncate(71), 71, WireErrorKind::Truncated);
        check(|frame| frame.push(0), 72, WireErrorKind::Format);
        check(|frame| frame[15] = 1, 14, WireErrorKind::Format);
        check(|frame| frame[12] = 3, 12, WireErrorKind::Format);
        check(|frame| frame[13] |= 0x40, 13, WireErrorKind::Format);
        check(|frame| frame[48..52].fill(0), 48, WireErrorKind::Format);
        check(|frame| frame[52..56].fill(0xff), 52, WireErrorKind::Format);
        check(|frame| frame[13] &= !0x20, 52, WireErrorKind::Format);
        check(|frame| frame[56] += 1, 48, WireErrorKind::Format);
    }

    #[test]
    fn short_destination_is_left_alone_and_named() {
        let message = order();
        let mut buffer = vec![0xaa; message.encoded_len() - 1];
        let error = message.encode_into(&mut buffer).unwrap_err();
        assert_eq!((error.kind, error.found), (WireErrorKind::TooBig, Found::Length(71)));
        assert!(buffer.iter().all(|&byte| byte == 0xaa));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_message_over_4_gib_is_refused() {
        // One third of it, borrowed three times; refused before a page of it is touched.
        let third = vec![0; (u32::MAX / 3) as usize];
        let message = MessageParts::new(MessageKind::Command, WorkerId(0), &third, &third).unwrap().traced(&third);
        let error = message.encode_into(&mut []).unwrap_err();
        assert_eq!(error.kind, WireErrorKind::Invalid, "{error}");
        assert_eq!(message.append_to(&mut Vec::new()), Err(error));
    }

    #[test]
    fn both_ways_to_encode_agree_and_leave_the_rest_of_the_buffer() {
        let message = order();
        let mut buffer = [0xaa; 100];
        let written = message.encode_into(&mut buffer).unwrap();
        assert_eq!(buffer[..written], message.encode().unwrap());
        assert!(buffer[written..].iter().all(|&byte| byte == 0xaa));
    }

    #[test]
    fn borrowed_parts_encode_as_owned_ones() {
        let view = MessageParts::new(MessageKind::Event, WorkerId(7), b"msg-1", b"hello")
            .unwrap()
            .with(order().flags)
            .sent_by(WorkerId(-3))
            .traced(b"tr")
            .routed(WorkerId(9), Timestamp(11));
        assert_eq!(view, order().parts());
        assert!(MessageParts::new(MessageKind::Event, WorkerId(7), b"", b"").is_err());
    }

    #[test]
    fn flags_show_their_names() {
        assert_eq!(alloc::format!("{:?}", Flags::DURABLE | Flags::REQUIRES_ACK), r#"{"durable", "requires-ack"}"#);
        assert!(Flags::from_bits(0x10).is_err());
    }
}
