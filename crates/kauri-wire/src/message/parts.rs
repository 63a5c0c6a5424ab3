//! A message that is lent, and its bytes.

use alloc::vec::Vec;

use super::{Flags, MESSAGE_HEADER_BYTES, MESSAGE_MAGIC, MessageKind, NO_TRACE, Route};
use crate::error::{self, Found, WireError};
use crate::header::{self, put};
use crate::id::{Timestamp, WorkerId};

/// A message that borrows its parts, to be encoded without owning them.
///
/// ```
/// use kauri_wire::{MessageKind, MessageParts, MessageRef, WorkerId};
///
/// let payload = vec![7; 1 << 20]; // somebody else's
/// let mut frame = Vec::new();
/// MessageParts::new(MessageKind::Command, WorkerId(7), b"order-1", &payload)?.append_to(&mut frame)?;
/// assert_eq!(MessageRef::decode(&frame)?.payload(), payload);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageParts<'a> {
    pub(super) kind: MessageKind,
    pub(super) flags: Flags,
    pub(super) to: WorkerId,
    pub(super) route: Route,
    pub(super) from: Option<WorkerId>,
    pub(super) id: &'a [u8],
    pub(super) trace: Option<&'a [u8]>,
    pub(super) payload: &'a [u8],
}

impl<'a> MessageParts<'a> {
    /// A message of these parts, with no flags, no sender, no trace and an empty route.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, WorkerId};
    ///
    /// assert!(MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"").is_ok());
    /// let error = MessageParts::new(MessageKind::Event, WorkerId(7), b"", b"").unwrap_err();
    /// assert_eq!(error.expected, "a message id of at least one byte");
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the id is empty.
    pub fn new(kind: MessageKind, to: WorkerId, id: &'a [u8], payload: &'a [u8]) -> Result<Self, WireError> {
        if id.is_empty() {
            return Err(error::invalid("a message id of at least one byte", Found::Nothing));
        }
        Ok(Self { kind, flags: Flags::NONE, to, route: Route::default(), from: None, id, trace: None, payload })
    }

    /// The same message with these flags besides those it has.
    ///
    /// ```
    /// use kauri_wire::{Flags, MessageKind, MessageParts, WorkerId};
    ///
    /// let parts = MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"")?;
    /// assert_eq!(parts.with(Flags::DURABLE).with(Flags::DURABLE), parts.with(Flags::DURABLE)); // a set
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn with(self, flags: Flags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// The same message from this sender.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, MessageRef, WorkerId};
    ///
    /// let mut frame = Vec::new();
    /// MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"")?.sent_by(WorkerId(3)).append_to(&mut frame)?;
    /// assert_eq!(MessageRef::decode(&frame)?.from(), Some(WorkerId(3)));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn sent_by(self, from: WorkerId) -> Self {
        Self { from: Some(from), ..self }
    }

    /// The same message in this trace.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, WorkerId};
    ///
    /// let parts = MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"")?;
    /// assert_eq!(parts.traced(b"checkout").encoded_len(), parts.encoded_len() + 8);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn traced(self, trace: &'a [u8]) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// The same message on this route.
    ///
    /// ```
    /// use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};
    ///
    /// let frame = Message::command(WorkerId(7), MessageId::new("m")?, "").encode()?;
    /// let mut onward = Vec::new(); // the same message, and the answer comes here
    /// MessageRef::decode(&frame)?.parts().routed(WorkerId(3), Timestamp(5)).append_to(&mut onward)?;
    /// assert_eq!(MessageRef::decode(&onward)?.route().worker, WorkerId(3));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn routed(self, worker: WorkerId, timestamp: Timestamp) -> Self {
        Self { route: Route { worker, timestamp }, ..self }
    }

    /// Writes the frame to the start of `buffer` and returns how many bytes it took.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, WireErrorKind, WorkerId};
    ///
    /// let parts = MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"hi")?;
    /// let mut buffer = [0xee; 64];
    /// assert_eq!(parts.encode_into(&mut buffer[..62]).unwrap_err().kind, WireErrorKind::TooBig);
    /// assert_eq!(buffer, [0xee; 64]); // nothing was written
    /// assert_eq!(parts.encode_into(&mut buffer)?, 63);
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `TooBig` if the buffer is shorter than [`encoded_len`](Self::encoded_len); `Invalid` if the frame would be
    /// longer than a frame can be. The buffer is unchanged then.
    pub fn encode_into(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let header = self.header(self.frame_bytes()?);
        let room = buffer.len();
        let Some(frame) = buffer.get_mut(..self.encoded_len()) else {
            return Err(error::too_big(room, "room for the whole frame", room));
        };
        let (head, rest) = frame.split_at_mut(MESSAGE_HEADER_BYTES);
        let (id, rest) = rest.split_at_mut(self.id.len());
        let (trace, payload) = rest.split_at_mut(self.trace.map_or(0, <[u8]>::len));
        head.copy_from_slice(&header);
        id.copy_from_slice(self.id);
        trace.copy_from_slice(self.trace.unwrap_or_default());
        payload.copy_from_slice(self.payload);
        Ok(self.encoded_len())
    }

    /// Writes the frame to the end of `out`.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, WorkerId};
    ///
    /// let mut out = b"before".to_vec();
    /// MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"hi")?.append_to(&mut out)?;
    /// assert!(out.starts_with(b"beforeLMSG") && out.ends_with(b"mhi"));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the frame would be longer than a frame can be. Nothing is written then.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let header = self.header(self.frame_bytes()?);
        out.reserve(self.encoded_len());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.id);
        out.extend_from_slice(self.trace.unwrap_or_default());
        out.extend_from_slice(self.payload);
        Ok(())
    }

    /// How many bytes the frame has.
    ///
    /// ```
    /// use kauri_wire::{MessageKind, MessageParts, WorkerId};
    ///
    /// let parts = MessageParts::new(MessageKind::Event, WorkerId(7), b"m", b"hi")?;
    /// let mut buffer = vec![0; parts.encoded_len()]; // exactly enough
    /// assert_eq!(parts.encode_into(&mut buffer), Ok(buffer.len()));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let body = self.id.len().saturating_add(self.trace.map_or(0, <[u8]>::len)).saturating_add(self.payload.len());
        body.saturating_add(MESSAGE_HEADER_BYTES)
    }

    // Infallible on purpose: a header inside a `Result` is put together in memory, and read back in wider pieces than
    // it was written in, which costs more than all the rest.
    fn header(&self, frame_bytes: u32) -> [u8; MESSAGE_HEADER_BYTES] {
        // Each part is shorter than the whole, which fits.
        let part = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(frame_bytes).to_le_bytes();
        let mut flags = self.flags.0;
        if self.from.is_some() {
            flags |= Flags::HAS_FROM_WORKER;
        }
        if self.trace.is_some() {
            flags |= Flags::HAS_TRACE_ID;
        }
        let mut header = header::start(MESSAGE_MAGIC, frame_bytes, self.kind as u8, flags);
        put::<16, 8, _>(&mut header, self.to.0.to_le_bytes());
        put::<24, 8, _>(&mut header, self.route.worker.0.to_le_bytes());
        put::<32, 8, _>(&mut header, self.route.timestamp.0.to_le_bytes());
        put::<40, 8, _>(&mut header, self.from.unwrap_or_default().0.to_le_bytes());
        put::<48, 4, _>(&mut header, part(self.id));
        put::<52, 4, _>(&mut header, self.trace.map_or(NO_TRACE.to_le_bytes(), part));
        put::<56, 4, _>(&mut header, part(self.payload));
        header
    }

    /// The length of the frame as its header states it.
    pub(crate) fn frame_bytes(&self) -> Result<u32, WireError> {
        u32::try_from(self.encoded_len())
            .map_err(|_| error::invalid("a frame of 4294967295 bytes at most", error::length(self.encoded_len())))
    }
}
