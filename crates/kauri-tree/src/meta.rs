//! The meta pages: where everything else is found after a restart.
//!
//! ```text
//!   0  checksum u64     of the bytes 8 to 256, keyed by the page number
//!   8  magic            "KauriDB\0"
//!  16  format u32       1, or 2 if there are pins or pages kept for them
//!  20  page size u32
//!  24  checkpoint u64   one more at every checkpoint
//!  32  version u64      the version that the checkpoint holds
//!  40  end u32          the first page that was never used
//!  44  log pages u32    the log begins at page 2; so many are kept for it
//!  48  log offset u64   where in the ring the first record after the checkpoint stands, or will
//!  56  log number u64   the number of that record
//!  64  log chain u64    the checksum of the record before it
//!  72  catalog page u32, rows u64 at 76
//!  84  bitmap page u32, pages u32 at 88
//!  92  pins page u32, rows u64 at 96             format 2
//! 104  kept pages: page u32, rows u64 at 108     format 2
//! 116  log ring u32      the pages of the log that are in use and zeroed, from its first on; 0 for all
//! 120  zero to 256
//! ```
//!
//! There are two, in pages 0 and 1. A checkpoint writes the one that is not the newest, after everything it points to is
//! durable; so a crash at any moment leaves one of them whole.

use twox_hash::XxHash3_64;

use crate::btree::Root;

/// The bytes of a meta page that count, whatever the size of a page.
pub(crate) const META_BYTES: usize = 256;
/// The first page of the log.
pub(crate) const LOG_PAGE: u32 = 2;

const MAGIC: [u8; 8] = *b"KauriDB\0";
/// The newest format that this code reads. It writes the oldest in which everything can be said, so that a store without pins is
/// read by programs that know of none.
pub(crate) const FORMAT: u32 = 2;
const FORMAT_WITHOUT_PINS: u32 = 1;

/// What a meta page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) page_bytes: u32,
    pub(crate) checkpoint: u64,
    pub(crate) version: u64,
    pub(crate) end: u32,
    pub(crate) log_pages: u32,
    /// How many of them the ring has: it grows with the store.
    pub(crate) ring_pages: u32,
    pub(crate) log: LogStart,
    pub(crate) catalog: Root,
    pub(crate) bitmap_page: u32,
    pub(crate) bitmap_pages: u32,
    pub(crate) pins: Root,
    pub(crate) kept: Root,
}

/// Where the log goes on after a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogStart {
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) chain: u64,
}

/// Why a meta page cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// It is not a meta page, or not a whole one.
    Broken,
    /// It was written by a later program.
    Newer(u32),
}

impl Meta {
    fn format(&self) -> u32 {
        let has_pins = self.pins != Root::default() || self.kept != Root::default();
        if has_pins { FORMAT } else { FORMAT_WITHOUT_PINS }
    }

    pub(crate) fn encode(&self, page: u32) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[8..16].copy_from_slice(&MAGIC);
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(16, &self.format().to_le_bytes());
        put(20, &self.page_bytes.to_le_bytes());
        put(24, &self.checkpoint.to_le_bytes());
        put(32, &self.version.to_le_bytes());
        put(40, &self.end.to_le_bytes());
        put(44, &self.log_pages.to_le_bytes());
        put(48, &self.log.offset.to_le_bytes());
        put(56, &self.log.number.to_le_bytes());
        put(64, &self.log.chain.to_le_bytes());
        put(72, &self.catalog.page.to_le_bytes());
        put(76, &self.catalog.rows.to_le_bytes());
        put(84, &self.bitmap_page.to_le_bytes());
        put(88, &self.bitmap_pages.to_le_bytes());
        put(92, &self.pins.page.to_le_bytes());
        put(96, &self.pins.rows.to_le_bytes());
        put(104, &self.kept.page.to_le_bytes());
        put(108, &self.kept.rows.to_le_bytes());
        put(116, &self.ring_pages.to_le_bytes());
        let sum = checksum(&bytes, page);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; META_BYTES], page: u32) -> Result<Self, Unusable> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let whole = word(0) == checksum(bytes, page) || planted!(TrustTornMeta);
        if bytes[8..16] != MAGIC || !whole {
            return Err(Unusable::Broken);
        }
        if !(FORMAT_WITHOUT_PINS..=FORMAT).contains(&half(16)) {
            return Err(Unusable::Newer(half(16)));
        }
        // What the older format has there is zero, which is a tree without rows.
        Ok(Self {
            page_bytes: half(20),
            checkpoint: word(24),
            version: word(32),
            end: half(40),
            log_pages: half(44),
            ring_pages: if half(116) == 0 { half(44) } else { half(116) },
            log: LogStart { offset: word(48), number: word(56), chain: word(64) },
            catalog: Root { page: half(72), rows: word(76) },
            bitmap_page: half(84),
            bitmap_pages: half(88),
            pins: Root { page: half(92), rows: word(96) },
            kept: Root { page: half(104), rows: word(108) },
        })
    }
}

/// The checksum of a page or run, keyed by the number of its first page: a page in the wrong place is a broken page.
pub(crate) fn checksum(bytes: &[u8], page: u32) -> u64 {
    XxHash3_64::oneshot_with_seed(page.into(), &bytes[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            page_bytes: 4096,
            checkpoint: 7,
            version: 99,
            end: 5000,
            log_pages: 16,
            ring_pages: 8,
            log: LogStart { offset: 512, number: 3, chain: 4 },
            catalog: Root { page: 77, rows: 2 },
            bitmap_page: 78,
            bitmap_pages: 1,
            pins: Root { page: 79, rows: 1 },
            kept: Root { page: 80, rows: 5 },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Meta::decode(&meta().encode(1), 1), Ok(meta()));
    }

    #[test]
    fn a_store_without_pins_has_the_format_from_before_there_were_any() {
        let without = Meta { pins: Root::default(), kept: Root::default(), ..meta() };
        let format = |meta: Meta| meta.encode(0)[16];
        assert_eq!((format(without), format(meta())), (1, 2));
        assert_eq!(Meta::decode(&without.encode(0), 0), Ok(without));
    }

    #[test]
    fn a_meta_page_in_the_wrong_place_or_with_a_wrong_bit_is_broken() {
        let mut bytes = meta().encode(1);
        assert_eq!(Meta::decode(&bytes, 0), Err(Unusable::Broken));
        for at in 0..META_BYTES {
            bytes[at] ^= 4;
            assert_eq!(Meta::decode(&bytes, 1), Err(Unusable::Broken), "byte {at}");
            bytes[at] ^= 4;
        }
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let mut bytes = meta().encode(0);
        bytes[16] = 3;
        let sum = checksum(&bytes, 0);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Meta::decode(&bytes, 0), Err(Unusable::Newer(3)));
    }
}
