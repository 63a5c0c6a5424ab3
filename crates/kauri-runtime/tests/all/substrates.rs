//! The substrates against their one suite.

use kauri_runtime::substrate::{ModelSubstrate, TreeSubstrate, conformance};
use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Options, Store};

#[test]
fn model_is_a_substrate() {
    assert_eq!(conformance(ModelSubstrate::new, 300), Ok(()));
}

#[test]
fn store_in_memory_is_a_substrate() {
    assert_eq!(conformance(|| TreeSubstrate::new(Store::in_memory().expect("a store")), 300), Ok(()));
}

#[test]
fn store_in_a_file_is_a_substrate() {
    let make =
        || TreeSubstrate::new(Options::new().page_bytes(512).open(&MemoryDisk::new(), "store").expect("a store"));
    assert_eq!(conformance(make, 100), Ok(()));
}
