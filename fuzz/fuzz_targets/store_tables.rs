//! Tables of every kind in one store, with cursors, ranges, loads, changes and watches, pinned, forked, streamed and compacted, beside plain maps:
//! every byte is a choice.
#![no_main]

use kauri_fuzz::Choices;
use kauri_sim::Medley;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(what) = Medley::new(Choices::new(bytes)).work(COMMITS_MAX) {
        panic!("{what}");
    }
});

/// More than any input has choices for.
const COMMITS_MAX: u64 = 1 << 40;
