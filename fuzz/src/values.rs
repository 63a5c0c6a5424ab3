//! Values of the wire's types, built from a fuzzer's bytes.

use arbitrary::{Result, Unstructured};
use kauri_wire::{Flags, Message, MessageId, MessageKind, Route, Timestamp, TraceId, WorkerId};

/// A message; the more bytes, the larger its parts.
pub fn message(input: &mut Unstructured<'_>) -> Result<Message> {
    let kind = MessageKind::try_from(input.int_in_range(0..=2)?).expect("one of three kinds");
    let flags = Flags::from_bits(input.int_in_range(0..=0x0f)?).expect("one of sixteen sets");
    let mut id: Vec<u8> = input.arbitrary()?;
    id.push(b'.');
    let trace: Option<Vec<u8>> = input.arbitrary()?;
    Ok(Message {
        kind,
        flags,
        to: WorkerId(input.arbitrary()?),
        route: Route { worker: WorkerId(input.arbitrary()?), timestamp: Timestamp(input.arbitrary()?) },
        from: input.arbitrary::<Option<i64>>()?.map(WorkerId),
        id: MessageId::new(id).expect("at least one byte"),
        trace: trace.map(TraceId::new),
        payload: input.arbitrary()?,
    })
}
