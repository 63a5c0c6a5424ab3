//! Checkpoint streams: a version of a store, or what changed since another, as bytes for any pipe, file or machine.
//!
//! ```text
//! header   | magic "KauriCP\0" | format u32 | kind u32 | base: 16 bytes | checksum of these 32 bytes u64 |
//! chunk    | length u32, 1 to 2^20 | 0 u32 | checksum of the body, keyed by the chunk's number from 0, u64 | body |
//! end      | 0 u32 | 0 u32 | checksum of the rest, keyed by the number of chunks, u64 |
//!          | tables u64 | rows u64 | removed u64 | bytes before the end u64 | content: 16 bytes | checksum of all bytes before it u64 |
//! ```
//!
//! The bodies of all chunks, one behind the other, are records: a table, then its rows. Nothing in them says where pages begin or how long they are.
//!
//! ```text
//! 1 table     | types length u16 | name length u16 | types | name |   a new table, or one in place of what had its name
//! 2 put       | key length u32 | value length u32 | key | value |
//! 3 remove    | key length u32 | key |                                 only in what changed
//! 4 drop      | name length u16 | name |                               only in what changed
//! 5 changed   | types length u16 | name length u16 | types | name |   a table of the base; only in what changed
//! ```

mod read;
mod restore;
mod write;

use crate::content::ContentHash;

pub(crate) use restore::check_new;
pub use write::Checkpoint;

const MAGIC: [u8; 8] = *b"KauriCP\0";
/// The format that this code writes, and the only one it reads.
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 40;
const CHUNK_HEADER_BYTES: usize = 16;
const END_BYTES: usize = 56;
/// The longest body of a chunk.
const CHUNK_BYTES_MAX: usize = 1 << 20;

const TABLE: u8 = 1;
const PUT: u8 = 2;
const REMOVE: u8 = 3;
const DROP: u8 = 4;
const CHANGED: u8 = 5;

/// What a stream holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A version.
    Whole,
    /// What changed since a version with this content.
    Since(ContentHash),
}

/// What the end of a stream says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    /// How many tables were named.
    tables: u64,
    /// How many rows were put.
    rows: u64,
    /// How many rows were removed by name.
    removed: u64,
}

#[cfg(test)]
mod tests {
    use super::write::seal;
    use super::*;
    use crate::error::Error;
    use crate::store::Store;

    /// What is said to a stream with these records, whose checksums are right.
    fn refusal(kind: Kind, body: &[u8], totals: Totals) -> String {
        let store = Store::in_memory().expect("memory");
        let error = store.restore_from(&mut &seal(kind, body, totals)[..]).expect_err("it was believed");
        assert_eq!(store.snapshot().tables().count(), 0);
        assert!(matches!(error, Error::Stream { .. } | Error::Row { .. }), "{error:?}");
        error.to_string()
    }

    fn record(kind: u8, numbers: &[&[u8]], rest: &[u8]) -> Vec<u8> {
        [&[kind], numbers.concat().as_slice(), rest].concat()
    }

    #[test]
    fn records_that_lie_are_refused_in_words() {
        let table = record(TABLE, &[&14_u16.to_le_bytes(), &1_u16.to_le_bytes()], b"bytes to bytest");
        let row = |key: u8| record(PUT, &[&1_u32.to_le_bytes(), &0_u32.to_le_bytes()], &[key]);
        let huge = record(PUT, &[&1_u32.to_le_bytes(), &u32::MAX.to_le_bytes()], b"k and not 4 GiB");
        let since = Kind::Since(ContentHash::default());
        let whole = Kind::Whole;
        let cases: [(Kind, Vec<u8>, &str); 11] = [
            (whole, row(1), "expected a table before its rows"),
            (whole, vec![9], "expected a record of this kind of stream, found 9"),
            (whole, vec![REMOVE, 0, 0, 0, 0], "expected a record of this kind of stream, found 3"),
            (whole, [&table[..], &table].concat(), "expected each table once"),
            (whole, [&table[..], &row(2), &row(1)].concat(), "row 1: expected a key greater"),
            (whole, [&table[..], &huge].concat(), "expected the rest of a record"),
            (whole, table[..7].to_vec(), "expected the rest of a record"),
            (whole, [&table[..3], &[255, 255], &table[5..]].concat(), "expected the rest of a record"),
            (whole, table.clone(), "expected as many tables and rows as the end says"),
            (since, record(DROP, &[&1_u16.to_le_bytes()], b"t"), "expected a table to drop"),
            (since, record(CHANGED, &[&table[1..5]], &table[5..]), "expected a table of the base"),
        ];
        for (kind, body, expected) in cases {
            let found = refusal(kind, &body, Totals { tables: 7, ..Totals::default() });
            assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
        }
        let content = refusal(whole, &table, Totals { tables: 1, ..Totals::default() });
        assert!(content.contains("expected the content that the end says"), "{content}");
    }
}
