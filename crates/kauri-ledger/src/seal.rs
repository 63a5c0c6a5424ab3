//! The end of a journal line: its place among the others, and a sum over everything before it.
//!
//! ```text
//! {...,"seq":7,"batch":6,"checksum":"0123456789abcdef"}      xxh3, against accidents
//! {...,"seq":7,"batch":6,"prev_hash":"...","hash":"..."}     SHA-256, also against edits
//! ```

use std::io::Write as _;

use sha2::{Digest as _, Sha256};

use crate::journal::Head;

/// SHA-256 of something.
pub(crate) type Hash = [u8; 32];

const CHECKSUM: &[u8] = b",\"checksum\":\"";
const HASH: &[u8] = b",\"hash\":\"";

/// Ends the JSON object that begins at `start` with its checksum.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize) {
    open_brace(out);
    let sum = checksum(&out[start..]);
    out.extend_from_slice(CHECKSUM);
    write!(out, "{sum:016x}\"}}").expect("memory takes it");
}

/// Ends the JSON object that begins at `start` with its hash.
pub(crate) fn seal_with_hash(out: &mut Vec<u8>, start: usize) -> Hash {
    open_brace(out);
    let hash = Hash::from(Sha256::digest(&out[start..]));
    out.extend_from_slice(HASH);
    write!(out, "{}\"}}", hex::encode(hash)).expect("memory takes it");
    hash
}

fn open_brace(out: &mut Vec<u8>) {
    let brace = out.pop();
    assert_eq!(brace, Some(b'}'), "an object is sealed");
}

/// Where a line stands, if its checksum is right.
pub(crate) fn check(line: &[u8]) -> Result<Head, String> {
    let (covered, found) = split::<8>(line, CHECKSUM)?;
    match u64::from_be_bytes(found) == checksum(covered) {
        true => head(covered),
        false => Err("a line with a wrong checksum".to_owned()),
    }
}

/// Where a line stands and its hash, if the hash is right.
pub(crate) fn check_hash(line: &[u8]) -> Result<(Head, Hash), String> {
    let (covered, found) = split::<32>(line, HASH)?;
    match found == Hash::from(Sha256::digest(covered)) {
        true => Ok((head(covered)?, found)),
        false => Err("a line with a wrong hash".to_owned()),
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// What is covered, and the sum that follows it.
fn split<'a, const BYTES: usize>(line: &'a [u8], name: &[u8]) -> Result<(&'a [u8], [u8; BYTES]), String> {
    let absent =
        || format!("a line that does not end with {}", String::from_utf8_lossy(name).trim_matches([',', '"', ':']));
    let at = line.len().checked_sub(name.len() + 2 * BYTES + 2).ok_or_else(absent)?;
    let (covered, tail) = line.split_at(at);
    let digits = tail.strip_prefix(name).and_then(|tail| tail.strip_suffix(b"\"}")).ok_or_else(absent)?;
    let mut sum = [0; BYTES];
    // Only small letters: one value has one form, so that no byte of a line can change unseen.
    let is_ours = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    hex::decode_to_slice(digits, &mut sum).ok().filter(|()| is_ours).ok_or_else(absent)?;
    Ok((covered, sum))
}

/// The numbers stand at the end of what is covered: `,"seq":7,"batch":6`, and in the audit the hash of the line before follows. They
/// are read backwards, because this is asked of every line of a journal.
fn head(covered: &[u8]) -> Result<Head, String> {
    const PREV_HASH: &[u8] = b",\"prev_hash\":\"";
    let prev_hash = covered.len().checked_sub(PREV_HASH.len() + 64 + 1).map(|at| covered.split_at(at));
    let numbers = match prev_hash {
        Some((before, hash)) if hash.starts_with(PREV_HASH) => before,
        _ => covered,
    };
    let read = || {
        let (before, batch) = number_at_end(numbers)?;
        let (before, seq) = number_at_end(before.strip_suffix(b",\"batch\":")?)?;
        before.ends_with(b",\"seq\":").then_some(Head { seq, batch })
    };
    read().ok_or_else(|| "a line without a seq and a batch".to_owned())
}

/// A number in the one form that it has, and what stands before it.
fn number_at_end(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).take(21).count();
    let (before, digits) = bytes.split_at(bytes.len() - digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (digits.len() == 1 || digits.first() != Some(&b'0')).then_some((before, number))
}

/// Whether a line that is not sealed rightly is a whole object all the same. A crash leaves holes, which are none: such a line
/// was changed by somebody.
pub(crate) fn is_object(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).ok().filter(|text| text.starts_with('{'));
    text.is_some_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Vec<u8> {
        let mut out = b"before".to_vec();
        out.extend_from_slice(br#"{"a":"x,\"seq\":9","seq":7,"batch":6}"#);
        seal(&mut out, 6);
        out.split_off(6)
    }

    #[test]
    fn a_sealed_line_says_where_it_stands() {
        assert_eq!(check(&line()), Ok(Head { seq: 7, batch: 6 }));
        assert!(is_object(&line()));
        let mut out = br#"{"seq":7,"batch":6}"#.to_vec();
        assert!(check(&out).is_err() && is_object(&out));
        for bad in [r#"{"a":1}"#, r#"{"a":1,"seq":7}"#, r#"{"a":1,"seq":07,"batch":6}"#, r#"{"a":1,"batch":6,"seq":7}"#]
        {
            let mut out = bad.as_bytes().to_vec();
            seal(&mut out, 0);
            assert!(check(&out).unwrap_err().contains("without a seq"), "{bad}");
        }
        out = format!(r#"{{"a":1,"seq":{},"batch":0}}"#, u64::MAX).into_bytes();
        seal(&mut out, 0);
        assert_eq!(check(&out), Ok(Head { seq: u64::MAX, batch: 0 }));
        out = br#"{"a":1,"seq":7,"batch":6,"prev_hash":"0000000000000000000000000000000000000000000000000000000000000000"}"#.to_vec();
        let hash = seal_with_hash(&mut out, 0);
        assert_eq!(check_hash(&out), Ok((Head { seq: 7, batch: 6 }, hash)));
        out = br#"{"a":1,"seq":7,"batch":6}"#.to_vec();
        let hash = seal_with_hash(&mut out, 0);
        assert_eq!(check_hash(&out), Ok((Head { seq: 7, batch: 6 }, hash)));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_seen() {
        let line = line();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                assert!(check(&changed).is_err(), "bit {bit} of byte {at}");
            }
            assert!(check(&line[..at]).is_err(), "{at}");
        }
    }
}
