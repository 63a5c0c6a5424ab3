//! What the fuzz targets share: an allocator that counts, checksums made right, and values and choices made of a fuzzer's bytes.

pub mod allocation;
mod choices;
pub mod reseal;
pub mod values;

pub use choices::Choices;
