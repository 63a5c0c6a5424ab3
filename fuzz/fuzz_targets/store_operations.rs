//! Operations on a store of the smallest pages, in a file that is closed and opened again, beside plain maps: every byte is a choice.
#![no_main]

use kauri_fuzz::Choices;
use kauri_sim::{Twin, TwinShape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(what) = Twin::new(TwinShape::tiny(), Choices::new(bytes)).work(OPERATIONS_MAX) {
        panic!("{what}");
    }
});

/// More than any input has choices for.
const OPERATIONS_MAX: u64 = 1 << 40;
