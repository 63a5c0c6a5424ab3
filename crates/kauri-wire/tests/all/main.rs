//! What the crate promises about bytes, asked from outside: vectors that others made, every small mutation of a frame,
//! random values, and what decoding allocates.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod allocation;
mod conformance;
mod mutation;
mod properties;
mod samples;
