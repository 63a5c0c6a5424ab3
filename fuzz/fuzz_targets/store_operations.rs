//! Operations on a store of the smallest pages, in a file that is closed and opened again, beside plain maps: every byte is a choice.
#![no_main]

use kauri_sim::{Chance, Twin, TwinShape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(what) = Twin::new(TwinShape::tiny(), Choices(bytes)).work(OPERATIONS_MAX) {
        panic!("{what}");
    }
});

/// More than any input has choices for.
const OPERATIONS_MAX: u64 = 1 << 40;

/// Choices, a byte each, or two where a byte is not enough.
struct Choices<'a>(&'a [u8]);

impl Chance for Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let (now, later) = self.0.split_at(self.0.len().min(if bound > 256 { 2 } else { 1 }));
        self.0 = later;
        now.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)) % bound
    }

    fn is_spent(&self) -> bool {
        self.0.is_empty()
    }
}
