//! Messages, intents, and bytes that look like them.

use kauri_wire::run::{Frames, RunFrame};
use kauri_wire::{
    Flags, Intent, IntentRef, Message, MessageId, MessageKind, MessageRef, Route, SchemaVersion, Timestamp, TraceId,
    WireError, WorkerId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

prop_compose! {
    fn messages()(
        kind in 0..3_u8,
        flags in 0..16_u8,
        workers in any::<(i64, i64, i64)>(),
        from in option::of(any::<i64>()),
        id in vec(any::<u8>(), 1..40),
        trace in option::of(vec(any::<u8>(), 0..40)),
        payload in vec(any::<u8>(), 0..200),
    ) -> Message {
        Message {
            kind: MessageKind::try_from(kind).unwrap(),
            flags: Flags::from_bits(flags).unwrap(),
            to: WorkerId(workers.0),
            route: Route { worker: WorkerId(workers.1), timestamp: Timestamp(workers.2) },
            from: from.map(WorkerId),
            id: MessageId::new(id).unwrap(),
            trace: trace.map(TraceId::new),
            payload,
        }
    }
}

fn intents() -> impl Strategy<Value = Intent> {
    (messages(), option::of(any::<i64>())).prop_map(|(message, due)| match due {
        None => Intent::Emit { message },
        Some(due) => Intent::Arm { due: Timestamp(due), message },
    })
}

/// Bytes behind a header that is right as far as the length, so that the rest of it is looked at.
fn dressed(magic: &'static [u8; 4]) -> impl Strategy<Value = Vec<u8>> {
    // Lengths are mostly small: a random one is seldom near the size of the buffer.
    let byte = prop_oneof![3 => Just(0_u8), 1 => 0..48_u8, 1 => any::<u8>()];
    vec(byte, 12..140).prop_map(move |mut bytes| {
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(magic);
        bytes[4..8].fill(0);
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes
    })
}

/// What is accepted is written as the same bytes; what is refused is refused inside the buffer.
fn check(bytes: &[u8], decoded: Result<Vec<u8>, WireError>) -> Result<(), TestCaseError> {
    match decoded {
        Ok(again) => prop_assert_eq!(again, bytes),
        Err(error) => prop_assert!(error.at <= bytes.len(), "{}", error),
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn messages_survive_the_trip(message in messages()) {
        let frame = message.encode().unwrap();
        let view = MessageRef::decode(&frame).unwrap();
        prop_assert_eq!(view.frame(), &frame[..]);
        prop_assert_eq!(view.parts(), message.parts());
        prop_assert_eq!(view.to_message(), message);
        prop_assert_eq!(view.parts().encoded_len(), frame.len());
        let mut buffer = vec![0xaa; frame.len() + 3];
        prop_assert_eq!(view.parts().encode_into(&mut buffer), Ok(frame.len()));
        prop_assert_eq!(&buffer[..frame.len()], &frame[..]);
        prop_assert_eq!(&buffer[frame.len()..], [0xaa; 3]);
    }

    #[test]
    fn intents_survive_the_trip(intent in intents()) {
        let frame = intent.encode().unwrap();
        let view = IntentRef::decode(&frame).unwrap();
        prop_assert_eq!(intent.encoded_len(), frame.len());
        prop_assert_eq!(view.to_intent(), intent);
    }

    #[test]
    fn bytes_behind_a_good_start_are_a_message_in_one_form_or_refused(bytes in dressed(b"LMSG")) {
        check(&bytes, MessageRef::decode(&bytes).map(|view| view.to_message().encode().unwrap()))?;
    }

    #[test]
    fn bytes_behind_a_good_start_are_an_intent_in_one_form_or_refused(bytes in dressed(b"LINT")) {
        check(&bytes, IntentRef::decode(&bytes).map(|view| view.to_intent().encode().unwrap()))?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        check(&bytes, MessageRef::decode(&bytes).map(|view| view.to_message().encode().unwrap()))?;
        check(&bytes, IntentRef::decode(&bytes).map(|view| view.to_intent().encode().unwrap()))?;
        check(&bytes, SchemaVersion::decode(&bytes).map(|version| version.encode().to_vec()))?;
        prop_assert!(RunFrame::decode(&bytes).is_err(), "random bytes have no type");
        for frame in Frames::new(&bytes) {
            prop_assert!(frame.unwrap_err().at <= bytes.len());
        }
    }

    #[test]
    fn markers_survive_the_trip(major: u16, minor: u16) {
        let version = SchemaVersion { major, minor };
        prop_assert_eq!(SchemaVersion::decode(&version.encode()), Ok(version));
    }
}
