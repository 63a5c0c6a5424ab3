//! The same message as each peer would have it declared, and the settings under which each peer is fastest.
//!
//! | peer | its form | why that one |
//! |---|---|---|
//! | prost | numbers as `sfixed64`; parts as `Bytes` where it may borrow | no varint to read, no copy of the parts |
//! | rmp-serde | a struct as an array, parts as `bin` | no field names, no integer for each byte |
//! | bincode | integers of fixed size | no varint to read |
//!
//! None of them checks that kind, flags and fields agree, or that the bytes end where the message does; we do.

use bincode::config::{BigEndian, Configuration, Fixint, LittleEndian};
use kauri_wire::{Message, Timestamp, TraceId};
use prost::bytes::Bytes;

/// bincode's settings for messages: integers of fixed size.
pub(crate) const FIXED: Configuration<LittleEndian, Fixint> = bincode::config::standard().with_fixed_int_encoding();
/// The same for keys, whose bytes must sort like their values.
pub(crate) const FIXED_BE: Configuration<BigEndian, Fixint> = FIXED.with_big_endian();

/// A message that owns its parts, for bincode and rmp-serde.
#[derive(Clone, PartialEq, Debug, bincode::Encode, bincode::Decode, serde::Serialize, serde::Deserialize)]
pub(crate) struct Owned {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) to: i64,
    pub(crate) route_worker: i64,
    pub(crate) route_timestamp: i64,
    pub(crate) sender: Option<i64>,
    #[serde(with = "serde_bytes")]
    pub(crate) id: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub(crate) trace: Option<Vec<u8>>,
    #[serde(with = "serde_bytes")]
    pub(crate) payload: Vec<u8>,
}

/// A message that borrows its parts, for bincode and rmp-serde.
#[derive(Clone, PartialEq, Debug, bincode::Encode, bincode::BorrowDecode, serde::Serialize, serde::Deserialize)]
pub(crate) struct Borrowed<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) to: i64,
    pub(crate) route_worker: i64,
    pub(crate) route_timestamp: i64,
    pub(crate) sender: Option<i64>,
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) id: &'a [u8],
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) trace: Option<&'a [u8]>,
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) payload: &'a [u8],
}

/// An armed timer, for bincode and rmp-serde.
#[derive(Clone, PartialEq, Debug, bincode::Encode, bincode::BorrowDecode, serde::Serialize, serde::Deserialize)]
pub(crate) struct BorrowedArm<'a> {
    pub(crate) due: Option<i64>,
    #[serde(borrow)]
    pub(crate) message: Borrowed<'a>,
}

/// A message for prost, with parts of one type.
macro_rules! prost_message {
    ($(#[$doc:meta])* $name:ident, $bytes:tt, $part:ty) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name {
            #[prost(uint32, tag = "1")]
            pub(crate) kind: u32,
            #[prost(uint32, tag = "2")]
            pub(crate) flags: u32,
            #[prost(sfixed64, tag = "3")]
            pub(crate) to: i64,
            #[prost(sfixed64, tag = "4")]
            pub(crate) route_worker: i64,
            #[prost(sfixed64, tag = "5")]
            pub(crate) route_timestamp: i64,
            #[prost(sfixed64, optional, tag = "6")]
            pub(crate) sender: Option<i64>,
            #[prost(bytes = $bytes, tag = "7")]
            pub(crate) id: $part,
            #[prost(bytes = $bytes, optional, tag = "8")]
            pub(crate) trace: Option<$part>,
            #[prost(bytes = $bytes, tag = "9")]
            pub(crate) payload: $part,
        }

        impl From<&Message> for $name {
            fn from(message: &Message) -> Self {
                let Owned { kind, flags, to, route_worker, route_timestamp, sender, id, trace, payload } = message.into();
                let (kind, flags) = (kind.into(), flags.into());
                let (id, trace, payload) = (id.into(), trace.map(<$part>::from), payload.into());
                Self { kind, flags, to, route_worker, route_timestamp, sender, id, trace, payload }
            }
        }
    };
}

prost_message! {
    /// A message that owns its parts, for prost.
    ProstOwned, "vec", Vec<u8>
}
prost_message! {
    /// A message that shares its parts with the buffer it came from, for prost.
    ProstShared, "bytes", Bytes
}

/// An armed timer, for prost.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProstArm {
    #[prost(sfixed64, optional, tag = "1")]
    pub(crate) due: Option<i64>,
    #[prost(message, optional, tag = "2")]
    pub(crate) message: Option<ProstShared>,
}

impl From<&Message> for Owned {
    fn from(message: &Message) -> Self {
        Self {
            kind: message.kind as u8,
            flags: message.flags.bits(),
            to: message.to.0,
            route_worker: message.route.worker.0,
            route_timestamp: message.route.timestamp.0,
            sender: message.from.map(|worker| worker.0),
            id: message.id.as_bytes().into(),
            trace: message.trace.as_ref().map(|trace| trace.as_bytes().into()),
            payload: message.payload.clone(),
        }
    }
}

impl<'a> From<&'a Message> for Borrowed<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            kind: message.kind as u8,
            flags: message.flags.bits(),
            to: message.to.0,
            route_worker: message.route.worker.0,
            route_timestamp: message.route.timestamp.0,
            sender: message.from.map(|worker| worker.0),
            id: message.id.as_bytes(),
            trace: message.trace.as_ref().map(TraceId::as_bytes),
            payload: &message.payload,
        }
    }
}

impl<'a> BorrowedArm<'a> {
    pub(crate) fn new(due: Timestamp, message: &'a Message) -> Self {
        Self { due: Some(due.0), message: message.into() }
    }
}

impl ProstArm {
    pub(crate) fn new(due: Timestamp, message: &Message) -> Self {
        Self { due: Some(due.0), message: Some(message.into()) }
    }
}
