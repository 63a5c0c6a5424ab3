//! The substrates against their one suite.

use kauri_runtime::substrate::{Limits, ModelSubstrate, TreeSubstrate, conformance};
use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Options, Store};

#[test]
fn model_is_a_substrate() {
    assert_eq!(conformance(ModelSubstrate::new, 300), Ok(()));
}

#[test]
fn model_with_limits_is_a_substrate() {
    let limits = Limits { key_bytes_max: 60, value_bytes_max: 10_000, name_bytes_max: 70 };
    assert_eq!(conformance(|| ModelSubstrate::with_limits(limits), 100), Ok(()));
}

#[test]
fn stores_in_pages_of_any_size_tell_what_they_take() {
    for page_bytes in [256, 512, 1024, 4096, 16_384, 65_536] {
        let make = || TreeSubstrate::new(Options::new().page_bytes(page_bytes).in_memory().expect("a store"));
        assert_eq!(conformance(make, 0), Ok(()), "in pages of {page_bytes}");
    }
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

/// By that the substrate tells whether a commit waits for a disk.
#[test]
fn store_in_a_file_has_a_log_from_its_first_moment_and_one_in_memory_has_none() {
    let disk = MemoryDisk::new();
    let store = Options::new().keeper(false).open(&disk, "store").unwrap();
    assert!(store.stat().log_bytes > 0);
    assert_eq!(Store::in_memory().unwrap().stat().log_bytes, 0);
}
