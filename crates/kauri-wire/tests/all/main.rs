//! What the crate promises about bytes, asked from outside: vectors that others made, and every small mutation of a
//! frame.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod conformance;
mod mutation;
mod samples;
