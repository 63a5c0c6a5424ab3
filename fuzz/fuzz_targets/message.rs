//! Message frames: what is accepted has one byte form, and every message survives the trip.
#![no_main]

use arbitrary::Unstructured;
use kauri_fuzz::{allocation, values};
use kauri_wire::MessageRef;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match allocation::without(|| MessageRef::decode(bytes)) {
        Ok(view) => {
            assert_eq!((view.frame(), view.parts().encoded_len()), (bytes, bytes.len()));
            assert_eq!(view.to_message().encode().expect("it was a frame"), bytes);
        }
        Err(error) => assert!(error.at <= bytes.len(), "{error}"),
    }
    if let Ok(message) = values::message(&mut Unstructured::new(bytes)) {
        let frame = message.encode().expect("smaller than 4 GiB");
        assert_eq!(allocation::without(|| MessageRef::decode(&frame)).expect("our frame").to_message(), message);
    }
});
