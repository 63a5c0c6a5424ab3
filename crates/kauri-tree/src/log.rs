//! The log: what commits did, in order, since the last checkpoint.
//!
//! ```text
//! record: | checksum u64 | number u64 | body length u32 | reserved 0 | body | zeros to a multiple of the sector |
//! body:   operations, one after the other
//!         | 1 | types length u16 | name length u16 | types | name |      the table of what follows
//!         | 2 | key length u32 | value length u32 | key | value |        put
//!         | 3 | key length u32 | key |                                   remove
//!         | 4 | name length u16 | name |                                 drop a table
//!         | 7 | key length u32 | value length u32 | first page u32 | checksum u64 | key |   put a value that went through to the file
//!         | 6 | meta 256 bytes | checksum u64 | ranges u32 | first page u32, pages u32, for each |   alone: what was done is in pages
//! ```
//!
//! The ring is written round and round. A record that would cross its end begins at its start instead. A checksum covers the
//! record and, as its key, the checksum of the record before: whatever lay in the ring from earlier rounds does not follow on
//! what is there now, so the first record that does not is the end.
//!
//! The ring grows with the store: a small store has a short log, and one that is large enough to make checkpoints dear a long one.
//! Where it ends is the writer's business alone. Who reads it looks for the next record where the last one ends, and at the start.

use std::ops::Range;

use twox_hash::XxHash3_64;

use crate::error::{Error, Fault, Result};
use crate::meta::{LogStart, META_BYTES};
use crate::overflow::Reference;

const HEADER_BYTES: usize = 24;

/// A record that is longer names the long values that follow instead of repeating them, or one of a shorter log that has this part of what
/// it may have. What is shorter is one durable write and waits for no pages.
const BY_VALUE_BYTES: usize = 64 << 10;
const BY_VALUE_SHARE: usize = 4;
/// A log names at most so many times as many bytes as it has itself: until the next checkpoint none of them is used for anything else.
const REFERRED_TIMES: u64 = 4;

const TABLE: u8 = 1;
const PUT: u8 = 2;
const REMOVE: u8 = 3;
const DROP: u8 = 4;
const PAGES: u8 = 6;
const REFER: u8 = 7;

/// One operation of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Table {
        types: &'a str,
        name: &'a str,
    },
    Put {
        key: &'a [u8],
        value: &'a [u8],
    },
    Remove {
        key: &'a [u8],
    },
    Drop {
        name: &'a str,
    },
    Pages,
    /// A put of a value that is in the file already.
    Refer {
        key: &'a [u8],
        run: Referred,
    },
}

/// Where a value is that went through to the file: in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Referred {
    pub(crate) reference: Reference,
    /// The checksum of its run.
    pub(crate) sum: u64,
}

/// What a transaction did so far.
#[derive(Debug, Default)]
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// The table that was named last: its place in the catalog.
    table: Option<usize>,
    /// The most bytes that a record may have; beyond them nothing is kept.
    most: usize,
    /// The transaction cannot be a record: it is too long, or its order is not known when it is read again.
    unfit: bool,
    /// The bytes of values that it names and does not repeat.
    referred: u64,
}

/// A moment to which a body can return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    bytes: usize,
    table: Option<usize>,
    referred: u64,
}

impl Body {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A record may have so many bytes from here on.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), table: self.table, referred: self.referred }
    }

    /// Forgets what was done since a mark.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.referred = mark.referred;
        if !planted!(LogToTableOfVanished) {
            self.table = mark.table;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.return_to(Mark { bytes: 0, table: None, referred: 0 });
        self.unfit = false;
    }

    /// The transaction is to be committed by its pages.
    pub(crate) fn set_unfit(&mut self) {
        self.unfit = true;
        self.bytes.clear();
        self.table = None;
        self.referred = 0;
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.unfit
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.unfit && self.bytes.is_empty()
    }

    /// What follows is done to the table at this place of the catalog.
    #[inline]
    pub(crate) fn table<'t>(&mut self, place: usize, types: impl FnOnce() -> &'t str, name: &str) {
        if !self.unfit && self.table != Some(place) {
            self.name_table(place, types(), name);
        }
    }

    fn name_table(&mut self, place: usize, types: &str, name: &str) {
        self.table = Some(place);
        self.bytes.push(TABLE);
        self.bytes.extend_from_slice(&short(types.len()));
        self.bytes.extend_from_slice(&short(name.len()));
        self.add(&[types.as_bytes(), name.as_bytes()]);
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        if self.unfit {
            return;
        }
        self.bytes.push(PUT);
        self.bytes.extend_from_slice(&long(key.len()));
        self.bytes.extend_from_slice(&long(value.len()));
        self.add(&[key, value]);
    }

    /// Whether a long value is better named than repeated: whoever commits waits for its pages then.
    pub(crate) fn prefers_references(&self) -> bool {
        !self.unfit && self.bytes.len() >= BY_VALUE_BYTES.min(self.most / BY_VALUE_SHARE)
    }

    /// Whether it names values that it does not repeat.
    pub(crate) fn refers(&self) -> bool {
        self.referred > 0
    }

    pub(crate) fn refer(&mut self, key: &[u8], run: Referred) {
        if self.unfit {
            return;
        }
        let [first, bytes] = [run.reference.first(), u32::try_from(run.reference.len()).expect("a value of one run")];
        self.bytes.push(REFER);
        self.bytes.extend_from_slice(&long(key.len()));
        self.bytes.extend_from_slice(&bytes.to_le_bytes());
        self.bytes.extend_from_slice(&first.to_le_bytes());
        self.bytes.extend_from_slice(&run.sum.to_le_bytes());
        self.referred += u64::from(bytes);
        self.add(&[key]);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.unfit || planted!(LogNoRemovals) {
            return;
        }
        self.bytes.push(REMOVE);
        self.bytes.extend_from_slice(&long(key.len()));
        self.add(&[key]);
    }

    pub(crate) fn drop_table(&mut self, name: &str) {
        if self.unfit {
            return;
        }
        self.table = None;
        self.bytes.push(DROP);
        self.bytes.extend_from_slice(&short(name.len()));
        self.add(&[name.as_bytes()]);
    }

    fn add(&mut self, parts: &[&[u8]]) {
        let more: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.len() + more > self.most {
            self.set_unfit();
            return;
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("names are shorter than 64 KiB").to_le_bytes()
}

fn long(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("keys and values are shorter than 4 GiB").to_le_bytes()
}

/// What a record says that has no operations: its transaction wrote the pages, and this is where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PagesRecord {
    /// The meta page of a checkpoint of it, whose log goes on behind the record.
    pub(crate) meta: [u8; META_BYTES],
    /// The sum of the checksums of all pages.
    pub(crate) checksum: u64,
    pub(crate) ranges: Vec<Range<u32>>,
}

impl PagesRecord {
    pub(crate) fn encode(&self) -> Body {
        let mut bytes = vec![PAGES];
        bytes.extend_from_slice(&self.meta);
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&long(self.ranges.len()));
        for range in &self.ranges {
            bytes.extend_from_slice(&range.start.to_le_bytes());
            bytes.extend_from_slice(&(range.end - range.start).to_le_bytes());
        }
        Body { bytes, ..Body::default() }
    }

    /// What a record says, if it is one of these.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut input = kauri_wire::Reader::new(body.strip_prefix(&[PAGES])?);
        const WHOLE: &str = "a whole record of pages";
        let meta = input.array(WHOLE).ok()?;
        let checksum = u64::from_le_bytes(input.array(WHOLE).ok()?);
        let count = u32::from_le_bytes(input.array(WHOLE).ok()?) as usize;
        let (words, []) = input.rest().as_chunks::<8>() else { return None };
        let range = |word: &[u8; 8]| {
            let [first, pages] =
                [&word[..4], &word[4..]].map(|half| u32::from_le_bytes(half.try_into().expect("four bytes")));
            Some(first..first.checked_add(pages)?)
        };
        let ranges = words.iter().map(range).collect::<Option<Vec<_>>>()?;
        (ranges.len() == count).then_some(Self { meta, checksum, ranges })
    }
}

/// The operations of a record's body, in order.
pub(crate) fn operations(body: &[u8]) -> impl Iterator<Item = Result<Operation<'_>>> {
    let mut input = kauri_wire::Reader::new(body);
    std::iter::from_fn(move || (!input.rest().is_empty()).then(|| operation(&mut input)))
}

fn operation<'a>(input: &mut kauri_wire::Reader<'a>) -> Result<Operation<'a>> {
    const WHOLE: &str = "a whole operation";
    let [kind] = input.array(WHOLE)?;
    let text = |bytes: &'a [u8]| <str as kauri_wire::Key>::decode(bytes);
    Ok(match kind {
        TABLE => {
            let types = u16::from_le_bytes(input.array(WHOLE)?);
            let name = u16::from_le_bytes(input.array(WHOLE)?);
            let types = text(input.take(types.into(), WHOLE)?)?;
            Operation::Table { types, name: text(input.take(name.into(), WHOLE)?)? }
        }
        PUT => {
            let key = u32::from_le_bytes(input.array(WHOLE)?) as usize;
            let value = u32::from_le_bytes(input.array(WHOLE)?) as usize;
            Operation::Put { key: input.take(key, WHOLE)?, value: input.take(value, WHOLE)? }
        }
        REFER => {
            let key = u32::from_le_bytes(input.array(WHOLE)?) as usize;
            let bytes = u32::from_le_bytes(input.array(WHOLE)?);
            let reference = Reference::new(bytes, u32::from_le_bytes(input.array(WHOLE)?));
            let sum = u64::from_le_bytes(input.array(WHOLE)?);
            Operation::Refer { key: input.take(key, WHOLE)?, run: Referred { reference, sum } }
        }
        REMOVE => {
            let key = u32::from_le_bytes(input.array(WHOLE)?) as usize;
            Operation::Remove { key: input.take(key, WHOLE)? }
        }
        PAGES => {
            input.take(input.rest().len(), WHOLE)?;
            Operation::Pages
        }
        DROP => {
            let name = u16::from_le_bytes(input.array(WHOLE)?);
            Operation::Drop { name: text(input.take(name.into(), WHOLE)?)? }
        }
        other => return Err(Error::Corrupt { page: 0, fault: Fault::new("a known operation", other.into()) }),
    })
}

/// Where the log's next record goes.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// How long the ring is now.
    bytes: u64,
    sector: u64,
    next: LogStart,
    /// How many bytes are in use, with those skipped at the ring's end.
    used: u64,
    /// How many bytes of values its records name.
    referred: u64,
}

/// How much of a ring is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Used {
    bytes: u64,
    referred: u64,
}

impl Used {
    /// How many bytes of the ring.
    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }
}

impl Ring {
    pub(crate) fn new(bytes: u64, sector: u64, next: LogStart) -> Self {
        assert!(bytes.is_multiple_of(sector) && next.offset < bytes);
        Self { bytes, sector, next, used: 0, referred: 0 }
    }

    /// Where the log goes on.
    pub(crate) fn next(&self) -> LogStart {
        self.next
    }

    /// The longest body of a record.
    pub(crate) fn body_bytes_max(&self) -> usize {
        usize::try_from(self.bytes / 4).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES)
    }

    /// Numbers the next record so that nothing that lies in the ring can follow it.
    pub(crate) fn skip_ahead(&mut self) {
        self.next.number += 1 << 32;
    }

    /// How long the ring is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the ring longer, unless what is in use goes round its end: then it waits for another time.
    pub(crate) fn grow(&mut self, bytes: u64) {
        let goes_round = self.used > self.next.offset;
        if bytes > self.bytes && !goes_round {
            self.bytes = bytes;
        }
    }

    /// How much of the ring is in use.
    pub(crate) fn used(&self) -> Used {
        Used { bytes: self.used, referred: self.referred }
    }

    /// The oldest part of the ring is in a checkpoint.
    pub(crate) fn release(&mut self, used: Used) {
        let less = |all: u64, part: u64| all.checked_sub(part).expect("a checkpoint sets free what was in use");
        (self.used, self.referred) = (less(self.used, used.bytes), less(self.referred, used.referred));
    }

    /// Whether it is time for a checkpoint.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used > self.bytes / 2 || self.referred > self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn record_bytes(&self, body: usize) -> u64 {
        ((HEADER_BYTES + body) as u64).next_multiple_of(self.sector)
    }

    /// Where a record of so many bytes goes, and how much of the ring it takes.
    fn place(&self, bytes: u64) -> (u64, u64) {
        match self.next.offset + bytes <= self.bytes {
            true => (self.next.offset, bytes),
            false => (0, self.bytes - self.next.offset + bytes),
        }
    }

    /// Whether a record of this body fits.
    pub(crate) fn has_room(&self, body: &Body) -> bool {
        let is_crowded = self.referred > self.bytes * REFERRED_TIMES;
        if body.bytes.len() > self.body_bytes_max() || is_crowded {
            return false;
        }
        let (_, taken) = self.place(self.record_bytes(body.bytes.len()));
        self.used + taken <= self.bytes
    }

    /// Makes the next record, and tells where in the ring it goes.
    pub(crate) fn append(&mut self, body: &Body) -> (u64, Vec<u8>) {
        assert!(!body.unfit && self.has_room(body), "a record is made only where there is room");
        let bytes = self.record_bytes(body.bytes.len());
        let (offset, taken) = self.place(bytes);
        let mut record = vec![0; usize::try_from(bytes).expect("a record fits memory")];
        record[8..16].copy_from_slice(&self.next.number.to_le_bytes());
        record[16..20].copy_from_slice(&long(body.bytes.len()));
        record[HEADER_BYTES..HEADER_BYTES + body.bytes.len()].copy_from_slice(&body.bytes);
        let sum = XxHash3_64::oneshot_with_seed(self.next.chain, &record[8..HEADER_BYTES + body.bytes.len()]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        self.advance(offset, bytes, taken, sum);
        self.referred += body.referred;
        (offset, record)
    }

    fn advance(&mut self, offset: u64, bytes: u64, taken: u64, sum: u64) {
        let end = offset + bytes;
        self.next =
            LogStart { offset: if end == self.bytes { 0 } else { end }, number: self.next.number + 1, chain: sum };
        self.used += if planted!(NeverFillLog) { 0 } else { taken };
    }

    /// Whether there can be a next record: whether its number stands at one of the places where it would begin.
    pub(crate) fn may_go_on(&self, mut read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<bool> {
        for offset in [self.next.offset, 0] {
            let mut header = [0; HEADER_BYTES];
            read(offset, &mut header)?;
            // A record says something: what was never written has the number 0 too, and no length.
            if header[8..16] == self.next.number.to_le_bytes() && header[16..20] != [0; 4] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The body of the next record in the ring's bytes, if there is one.
    pub(crate) fn read<'a>(&mut self, ring: &'a [u8]) -> Option<&'a [u8]> {
        // Here, or at the start of the ring if the record would have crossed its end, wherever that was then.
        [self.next.offset, 0].into_iter().find_map(|offset| {
            let (body, sum) = self.record_at(ring, offset)?;
            let bytes = self.record_bytes(body.len());
            let skipped = if offset == self.next.offset { 0 } else { self.bytes - self.next.offset };
            self.advance(offset, bytes, skipped + bytes, sum);
            Some(body)
        })
    }

    fn record_at<'a>(&self, ring: &'a [u8], offset: u64) -> Option<(&'a [u8], u64)> {
        let record = ring.get(usize::try_from(offset).ok()?..)?;
        let header = record.first_chunk::<HEADER_BYTES>()?;
        let [sum, number] =
            [&header[..8], &header[8..16]].map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        let length = u32::from_le_bytes(header[16..20].try_into().expect("four bytes")) as usize;
        let covered = record.get(8..HEADER_BYTES.checked_add(length)?)?;
        let whole = sum == XxHash3_64::oneshot_with_seed(self.next.chain, covered) || planted!(TrustTornRecord);
        let right = number == self.next.number && whole;
        right.then(|| (&covered[HEADER_BYTES - 8..], sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(key: u8, value_bytes: usize) -> Body {
        let mut body = Body::new(1 << 20);
        body.table(0, || "bytes to bytes", "rows");
        body.put(&[key], &vec![key; value_bytes]);
        body
    }

    #[test]
    fn operations_come_back_in_order_and_the_table_is_named_once() {
        let mut written = Body::new(1 << 20);
        let types = || "t";
        written.table(0, types, "one");
        written.put(b"k", b"v");
        written.table(0, types, "one");
        written.remove(b"k");
        let mark = written.mark();
        written.table(1, types, "two");
        written.put(b"x", b"");
        written.return_to(mark);
        written.table(2, types, "on");
        written.drop_table("one");
        written.table(2, types, "on");
        let read: Result<Vec<_>> = operations(&written.bytes).collect();
        let expected = [
            Operation::Table { types: "t", name: "one" },
            Operation::Put { key: b"k", value: b"v" },
            Operation::Remove { key: b"k" },
            Operation::Table { types: "t", name: "on" },
            Operation::Drop { name: "one" },
            Operation::Table { types: "t", name: "on" },
        ];
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn long_body_names_values_and_the_ring_counts_them_until_a_checkpoint() {
        let mut body = Body::new(4000);
        body.table(0, || "t", "n");
        body.put(b"k", &[0; 900]);
        assert!(!body.prefers_references());
        body.put(b"l", &[0; 100]);
        assert!(body.prefers_references() && !body.refers());
        let mark = body.mark();
        let run = Referred { reference: Reference::new(70_000, 9), sum: 5 };
        body.refer(b"key", run);
        body.return_to(mark);
        assert!(!body.refers());
        body.refer(b"key", run);
        let last = operations(&body.bytes).last().unwrap().unwrap();
        assert_eq!((last, body.refers()), (Operation::Refer { key: b"key", run }, true));

        let mut ring = Ring::new(16_384, 64, LogStart::default());
        ring.append(&body);
        assert!(ring.is_half_full(), "it names more than it has");
        assert!(!ring.has_room(&body), "and no more than four times as much");
        ring.release(ring.used());
        assert!(ring.is_empty() && ring.has_room(&body) && !ring.is_half_full());
        body.clear();
        assert!(!body.refers());
    }

    #[test]
    fn records_are_read_back_round_and_round_and_stale_ones_are_not() {
        let start = LogStart { offset: 512, number: 7, chain: 9 };
        let mut bytes = vec![0xaa; 4096];
        let mut writer = Ring::new(4096, 64, start);
        let mut from = start;
        for round in 0..60_u8 {
            let written: Vec<_> =
                (0..3).map(|index| body(round.wrapping_mul(3) + index, usize::from(round) * 5)).collect();
            for body in &written {
                let (offset, record) = writer.append(body);
                let offset = usize::try_from(offset).expect("inside the ring");
                bytes[offset..offset + record.len()].copy_from_slice(&record);
            }
            let mut reader = Ring::new(4096, 64, from);
            for body in &written {
                assert_eq!(reader.read(&bytes), Some(&body.bytes[..]));
            }
            assert_eq!(reader.read(&bytes), None);
            assert_eq!((reader.next(), reader.used), (writer.next(), writer.used));
            from = writer.next();
            writer.release(writer.used());
        }
    }

    #[test]
    fn a_ring_that_grows_loses_no_record_that_is_in_use() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut random = |most: u64| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (state >> 33) % most
            };
            let mut bytes = vec![0; 8192];
            let mut ring = Ring::new(1024, 64, LogStart::default());
            // Where each record in use is read from, how much of the ring it takes, and what it says.
            let mut in_use: std::collections::VecDeque<(LogStart, u64, Vec<u8>)> = [].into();
            for number in 0..300_u64 {
                let next = body(number.to_le_bytes()[0], usize::try_from(random(200)).expect("less than 200"));
                if random(40) == 0 {
                    ring.grow((ring.bytes() * 2).min(8192));
                }
                while !ring.has_room(&next) || (!in_use.is_empty() && random(4) == 0) {
                    let (_, taken, _) = in_use.pop_front().expect("an empty ring has room");
                    ring.release(Used { bytes: taken, referred: 0 });
                }
                let (from, used) = (ring.next(), ring.used);
                let (offset, record) = ring.append(&next);
                let offset = usize::try_from(offset).expect("inside the ring");
                bytes[offset..offset + record.len()].copy_from_slice(&record);
                in_use.push_back((from, ring.used - used, next.bytes));
                let mut reader = Ring::new(8192, 64, in_use[0].0);
                for (_, _, expected) in &in_use {
                    assert_eq!(reader.read(&bytes), Some(&expected[..]), "seed {seed}, record {number}");
                }
                assert_eq!(reader.read(&bytes), None);
            }
        }
    }

    #[test]
    fn pages_records_are_read_as_they_were_written_and_nothing_else_is_one() {
        let record = PagesRecord { meta: [7; META_BYTES], checksum: 8, ranges: vec![1..3, 9..10] };
        let written = record.encode().bytes;
        assert_eq!(PagesRecord::decode(&written), Some(record));
        for bytes in 0..written.len() {
            assert_eq!(PagesRecord::decode(&written[..bytes]), None, "{bytes} bytes");
        }
        assert_eq!(PagesRecord::decode(&body(1, 20).bytes), None);
    }

    #[test]
    fn a_record_with_any_wrong_byte_is_the_end() {
        let start = LogStart::default();
        let mut writer = Ring::new(1024, 64, start);
        let (_, record) = writer.append(&body(1, 20));
        let mut ring = vec![0; 1024];
        ring[..record.len()].copy_from_slice(&record);
        let covered = HEADER_BYTES + body(1, 20).bytes.len();
        for at in 0..covered {
            ring[at] ^= 1;
            assert_eq!(Ring::new(1024, 64, start).read(&ring), None, "byte {at}");
            ring[at] ^= 1;
        }
        assert!(Ring::new(1024, 64, start).read(&ring).is_some());
        assert!(Ring::new(1024, 64, LogStart { number: 1, ..start }).read(&ring).is_none());
        assert!(Ring::new(1024, 64, LogStart { chain: 1, ..start }).read(&ring).is_none());
    }

    #[test]
    fn a_body_that_is_too_long_is_unfit_and_keeps_nothing() {
        let mut body = Body::new(100);
        body.table(0, || "t", "n");
        body.put(b"key", &[0; 200]);
        assert!(body.is_unfit() && body.bytes.is_empty() && !body.is_empty());
        body.clear();
        assert!(body.is_empty());
    }
}
