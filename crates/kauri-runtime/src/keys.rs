//! What people name becomes a part of keys: how long it may be, in one place.
//!
//! | what | its longest key | besides it |
//! |---|---|---|
//! | a message id | `dedupe_expiry`: expiry i64be, `seen:`, worker u64be, id | 21 bytes |
//! | a schedule's name | that of the message ids it makes: name, `@`, slot | 42 |
//! | a class's name | `run_index`: `e`, class, 0, ended i64be, run | 26 |
//! | a job id | `run_index`: `w`, job id, 0, run | 18 |
//! | a lease's name, and a key that a block writes | itself | none |
//!
//! Tags, idempotency and concurrency keys, names of steps and signals stand in values, or in keys by their hash.
//!
//! A message may be here all the same whose id is longer: a version that did not look took it, or it came from a runtime with
//! longer keys. It is remembered by the SHA-256 of its id, under prefixes of their own ([`folded`]).

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::error::Result;
use crate::substrate::{Limits, at_most};

const MESSAGE_ID_BESIDES: usize = 8 + 5 + 8;
/// `@`, a sign and nineteen digits.
const SLOT_BYTES_MAX: usize = 1 + 20;
const CLASS_BESIDES: usize = 1 + 1 + 8 + 16;
const JOB_BESIDES: usize = 1 + 1 + 16;
/// A hash stands where an id does not fit.
const HASH_BYTES: usize = 32;

const _: () = assert!(MESSAGE_ID_BESIDES + HASH_BYTES <= Limits::KEY_BYTES_MIN, "every message can be remembered");

/// Whether a message of this id can be sent.
#[inline]
pub(crate) fn check_message_id(limits: &Limits, id: &[u8]) -> Result<()> {
    at_most("bytes of a message id", limits.key_bytes_max.saturating_sub(MESSAGE_ID_BESIDES), id.len())
}

/// Whether a schedule can have this name.
pub(crate) fn check_schedule(limits: &Limits, name: &str) -> Result<()> {
    let besides = MESSAGE_ID_BESIDES + SLOT_BYTES_MAX;
    at_most("bytes of a schedule's name", limits.key_bytes_max.saturating_sub(besides), name.len())
}

/// Whether a class can have this name.
pub(crate) fn check_class(limits: &Limits, name: &str) -> Result<()> {
    at_most("bytes of a class's name", limits.key_bytes_max.saturating_sub(CLASS_BESIDES), name.len())
}

/// Whether somebody can wait for a job of this id.
pub(crate) fn check_job(limits: &Limits, id: &str) -> Result<()> {
    at_most("bytes of a job id", limits.key_bytes_max.saturating_sub(JOB_BESIDES), id.len())
}

/// What stands for a name behind a prefix of this length, and whether it is its hash because the name does not fit.
pub(crate) fn folded<'a>(limits: &Limits, besides: usize, name: &'a [u8]) -> (Cow<'a, [u8]>, bool) {
    if name.len() <= limits.key_bytes_max.saturating_sub(besides) {
        return (name.into(), false);
    }
    (Sha256::digest(name).to_vec().into(), true)
}
