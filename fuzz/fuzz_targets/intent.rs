//! Intent frames: what is accepted has one byte form, and every intent survives the trip.
#![no_main]

use arbitrary::{Result, Unstructured};
use kauri_fuzz::{allocation, values};
use kauri_wire::{Intent, IntentRef, Timestamp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match allocation::without(|| IntentRef::decode(bytes)) {
        Ok(view) => {
            assert_eq!(view.to_intent().encode().expect("it was a frame"), bytes);
        }
        Err(error) => assert!(error.at <= bytes.len(), "{error}"),
    }
    if let Ok(intent) = intent(&mut Unstructured::new(bytes)) {
        let frame = intent.encode().expect("smaller than 4 GiB");
        assert_eq!(allocation::without(|| IntentRef::decode(&frame)).expect("our frame").to_intent(), intent);
    }
});

fn intent(input: &mut Unstructured<'_>) -> Result<Intent> {
    Ok(match input.arbitrary::<Option<i64>>()? {
        None => Intent::Emit { message: values::message(input)? },
        Some(due) => Intent::Arm { due: Timestamp(due), message: values::message(input)? },
    })
}
