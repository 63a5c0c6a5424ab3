//! Bytes of rows, written and read one field after the other. Numbers are little-endian; what has no fixed length follows its
//! length, which is checked against the bytes that are there.

use kauri_wire::{RunId, Timestamp};

/// A row being written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(magic: [u8; 4]) -> Self {
        // Most rows fit without growing.
        Self::sized(magic, 256)
    }

    /// For a row of so many bytes, which is not moved when it is done.
    pub(super) fn sized(magic: [u8; 4], bytes: usize) -> Self {
        let mut row = Vec::with_capacity(bytes);
        row.extend_from_slice(&magic);
        Self(row)
    }

    pub(super) fn byte(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(super) fn short(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn long(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn moment(&mut self, value: Timestamp) -> &mut Self {
        self.raw(&value.0.to_le_bytes())
    }

    /// A moment that may not have come: the least number stands for none.
    pub(super) fn moment_some(&mut self, value: Option<Timestamp>) -> &mut Self {
        self.moment(value.unwrap_or(NO_MOMENT))
    }

    pub(super) fn run(&mut self, value: RunId) -> &mut Self {
        self.raw(value.as_bytes())
    }

    /// A run, or sixteen zeros, which are none.
    pub(super) fn run_some(&mut self, value: Option<RunId>) -> &mut Self {
        match value {
            Some(run) => self.run(run),
            None => self.raw(&[0; RunId::BYTES]),
        }
    }

    /// Bytes after their length.
    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.short(u32::try_from(value.len()).expect("rows are far shorter than 4 GiB")).raw(value)
    }

    pub(super) fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

const NO_MOMENT: Timestamp = Timestamp(i64::MIN);

/// A row being read. Every answer is `None` when the bytes are not such a field; the caller knows the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], magic: [u8; 4]) -> Option<Self> {
        bytes.strip_prefix(&magic).map(Self)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn short(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn moment(&mut self) -> Option<Timestamp> {
        self.array().map(i64::from_le_bytes).map(Timestamp)
    }

    pub(super) fn moment_some(&mut self) -> Option<Option<Timestamp>> {
        Some(Some(self.moment()?).filter(|moment| *moment != NO_MOMENT))
    }

    pub(super) fn run(&mut self) -> Option<RunId> {
        RunId::from_bytes(self.array()?).ok()
    }

    pub(super) fn run_some(&mut self) -> Option<Option<RunId>> {
        let bytes: [u8; RunId::BYTES] = self.array()?;
        if bytes == [0; RunId::BYTES] { Some(None) } else { RunId::from_bytes(bytes).ok().map(Some) }
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.short()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Whether nothing follows: what later versions added at the end is not there.
    pub(super) const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// That nothing follows.
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_the_trip_and_no_length_is_believed() {
        let run = RunId::from_parts(Timestamp(5), [3; 10]);
        let mut writer = Writer::new(*b"TEST");
        writer.byte(7).short(8).long(9).moment_some(None).moment_some(Some(Timestamp(-1))).run_some(None);
        let bytes = writer.run_some(Some(run)).bytes(b"word").finish();
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes, *b"TEST")?;
            let numbers = (reader.byte()?, reader.short()?, reader.long()?);
            let moments = (reader.moment_some()?, reader.moment_some()?);
            let all = (numbers, moments, reader.run_some()?, reader.run_some()?, reader.text()?.to_owned());
            reader.end().map(|()| all)
        };
        let expected = ((7, 8, 9), (None, Some(Timestamp(-1))), None, Some(run), "word".to_owned());
        assert_eq!(read(&bytes), Some(expected));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), None);
        let mut endless = Reader::new(b"TEST\xff\xff\xff\xffx", *b"TEST").unwrap();
        assert_eq!(endless.bytes(), None);
    }
}
