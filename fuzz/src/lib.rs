//! What the fuzz targets share: an allocator that counts, and values built from a fuzzer's bytes.

pub mod allocation;
pub mod values;
