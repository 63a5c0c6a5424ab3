//! What the fuzz targets share: an allocator that counts, checksums made right, and values built from a fuzzer's bytes.

pub mod allocation;
pub mod reseal;
pub mod values;
