//! Reading a stream: its chunks checked, its records taken apart. No length is believed before the bytes are there.

use std::hash::Hasher;
use std::io::{self, Read as _};

use twox_hash::XxHash3_64;

use super::{CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, END_BYTES, FORMAT, HEADER_BYTES, Kind, MAGIC, Totals};
use crate::content::ContentHash;
use crate::error::{Error, Fault, Result};

/// A stream that is being read.
pub(super) struct Input<'r, R> {
    read: &'r mut R,
    /// The chunk that is being read, and how much of it was.
    body: Vec<u8>,
    at: usize,
    chunks: u64,
    /// How many bytes were read from the stream.
    bytes: u64,
    whole: XxHash3_64,
    end: Option<End>,
}

/// What the end says.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) totals: Totals,
    pub(super) content: ContentHash,
}

impl<'r, R: io::Read> Input<'r, R> {
    /// Reads the header.
    pub(super) fn begin(read: &'r mut R) -> Result<(Self, Kind)> {
        let whole = XxHash3_64::new();
        let mut input = Self { read, body: Vec::new(), at: 0, chunks: 0, bytes: 0, whole, end: None };
        let header: [u8; HEADER_BYTES] = input.exactly()?;
        let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let fault = |at, expected, found| Error::Stream { at, fault: Fault::new(expected, found) };
        if header[..8] != MAGIC {
            return Err(fault(0, "the beginning of a checkpoint stream", word(0)));
        }
        if XxHash3_64::oneshot(&header[..32]) != word(32) {
            return Err(fault(32, "the checksum of the header", word(32)));
        }
        if half(8) != FORMAT {
            return Err(Error::NewerFormat { most: FORMAT, found: half(8) });
        }
        let base = ContentHash::from_bytes(header[16..32].try_into().expect("sixteen bytes"));
        let kind = match half(12) {
            0 => Kind::Whole,
            1 => Kind::Since(base),
            other => return Err(fault(12, "a kind of stream, 0 or 1", other.into())),
        };
        Ok((input, kind))
    }

    /// What is wrong with the record that was just read.
    pub(super) fn fault(&self, expected: &'static str, found: u64) -> Error {
        let unread = self.body.len() - self.at;
        Error::Stream { at: self.bytes - unread as u64, fault: Fault::new(expected, found) }
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut(),
            _ => Error::Io(error),
        })?;
        self.note(&bytes);
        Ok(bytes)
    }

    fn cut(&self) -> Error {
        Error::Stream { at: self.bytes, fault: Fault::new("more of the stream, up to its end mark", 0) }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.whole.write(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Reads the next chunk, once all of this one is used. Says whether there was one.
    fn next_chunk(&mut self) -> Result<bool> {
        if self.end.is_some() {
            return Ok(false);
        }
        let (whole, before) = (self.whole.finish(), self.bytes);
        let header: [u8; CHUNK_HEADER_BYTES] = self.exactly()?;
        let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
        let sum = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let fault = |expected, found| Error::Stream { at: before, fault: Fault::new(expected, found) };
        if header[4..8] != [0; 4] {
            return Err(fault("four zeros behind the length of a chunk", u64::from(header[4])));
        }
        if length > CHUNK_BYTES_MAX {
            return Err(fault("a chunk of 1 MiB at most", length as u64));
        }
        if length == 0 {
            let end: [u8; END_BYTES] = self.exactly()?;
            if XxHash3_64::oneshot_with_seed(self.chunks, &end) != sum {
                return Err(fault("the checksum of the end", sum));
            }
            self.end = Some(read_end(&end, whole, before)?);
            return Ok(false);
        }
        self.body.clear();
        self.at = 0;
        // It grows by what arrives.
        let arrived = self.read.by_ref().take(length as u64).read_to_end(&mut self.body)?;
        let body = std::mem::take(&mut self.body);
        self.note(&body);
        self.body = body;
        if arrived < length {
            return Err(self.cut());
        }
        if XxHash3_64::oneshot_with_seed(self.chunks, &self.body) != sum {
            return Err(fault("the checksum of the chunk", sum));
        }
        self.chunks += 1;
        Ok(true)
    }

    /// The kind of the next record; `None` at the end of the stream.
    pub(super) fn record(&mut self) -> Result<Option<u8>> {
        while self.at == self.body.len() {
            if !self.next_chunk()? {
                return Ok(None);
            }
        }
        self.at += 1;
        Ok(Some(self.body[self.at - 1]))
    }

    /// Adds so many bytes of the record to some others.
    pub(super) fn append(&mut self, mut length: usize, to: &mut Vec<u8>) -> Result<()> {
        while length > 0 {
            if self.at == self.body.len() && !self.next_chunk()? {
                return Err(self.fault("the rest of a record", length as u64));
            }
            let part = length.min(self.body.len() - self.at);
            to.extend_from_slice(&self.body[self.at..self.at + part]);
            self.at += part;
            length -= part;
        }
        Ok(())
    }

    /// A number of so many bytes.
    pub(super) fn number(&mut self, length: usize) -> Result<usize> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let number = match self.body.get(self.at..self.at + length) {
            Some(bytes) => {
                self.at += length;
                number(bytes)
            }
            // It goes on in the next chunk.
            None => {
                let mut bytes = Vec::new();
                self.append(length, &mut bytes)?;
                number(&bytes)
            }
        };
        usize::try_from(number).map_err(|_| self.fault("a length that memory has", number))
    }

    /// Text of so many bytes.
    pub(super) fn text(&mut self, length: usize) -> Result<String> {
        let mut bytes = Vec::new();
        self.append(length, &mut bytes)?;
        String::from_utf8(bytes).map_err(|error| self.fault("a name in UTF-8", error.utf8_error().valid_up_to() as u64))
    }

    /// How many bytes were read from the stream.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the end says, once it was read.
    pub(super) fn end(&self) -> Result<End> {
        self.end.ok_or_else(|| self.cut())
    }
}

fn read_end(end: &[u8; END_BYTES], whole: u64, before: u64) -> Result<End> {
    let word = |at: usize| u64::from_le_bytes(end[at..at + 8].try_into().expect("eight bytes"));
    let fault = |expected, found| Err(Error::Stream { at: before, fault: Fault::new(expected, found) });
    if word(24) != before {
        return fault("as many bytes before the end as it says", word(24));
    }
    if word(48) != whole {
        return fault("the checksum of everything before the end", word(48));
    }
    let content = ContentHash::from_bytes(end[32..48].try_into().expect("sixteen bytes"));
    Ok(End { totals: Totals { tables: word(0), rows: word(8), removed: word(16) }, content })
}
