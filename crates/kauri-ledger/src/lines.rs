//! The lines of a file, one after the other, in constant memory however long the file is.

use std::io;
use std::ops::ControlFlow;

use kauri_disk::File;

/// A longer line is none of ours. Lines are held in memory whole, so there must be some bound.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 20;

/// How much is read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// What stands between two ends of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    /// A line and its end, which is not part of the bytes.
    Whole(&'a [u8]),
    /// Too long to be ours, or without an end.
    Broken,
}

/// Calls `each` with the position of every line and the line.
pub(crate) fn each_line<B>(
    file: &dyn File,
    mut each: impl FnMut(u64, Line<'_>) -> ControlFlow<B>,
) -> io::Result<ControlFlow<B>> {
    let len = file.len()?;
    // Most journals are short: no more is read at once than there is.
    let chunk_bytes = usize::try_from(len).unwrap_or(usize::MAX).min(CHUNK_BYTES);
    let (mut buffer, mut held, mut read) = (vec![0; chunk_bytes], 0, 0);
    // Whether the beginning of this line was thrown away, and where it was.
    let mut overlong: Option<u64> = None;
    while read < len {
        if held + chunk_bytes > buffer.len() {
            buffer.resize((buffer.len() * 2).max(held + chunk_bytes), 0);
        }
        let chunk = usize::try_from(len - read).unwrap_or(usize::MAX).min(chunk_bytes);
        file.read_at(read, &mut buffer[held..held + chunk])?;
        let (base, filled) = (read - held as u64, held + chunk);
        let (mut start, mut searched) = (0, held);
        while let Some(end) = memchr::memchr(b'\n', &buffer[searched..filled]).map(|end| searched + end) {
            let (at, line) = match overlong.take() {
                Some(at) => (at, Line::Broken),
                None => (base + start as u64, Line::Whole(&buffer[start..end])),
            };
            if let ControlFlow::Break(answer) = each(at, line) {
                return Ok(ControlFlow::Break(answer));
            }
            (start, searched) = (end + 1, end + 1);
        }
        read += chunk as u64;
        held = filled - start;
        buffer.copy_within(start..filled, 0);
        if held > LINE_BYTES_MAX {
            overlong = overlong.or(Some(base + start as u64));
            held = 0;
        }
    }
    match overlong.or((held > 0).then(|| read - held as u64)) {
        Some(at) => Ok(each(at, Line::Broken)),
        None => Ok(ControlFlow::Continue(())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_disk::{Disk, MemoryDisk, Open};

    fn lines_of(bytes: &[u8]) -> Vec<(u64, Option<usize>)> {
        let file = MemoryDisk::new().open("a", Open::CreateNew).unwrap();
        file.write_at(0, bytes).unwrap();
        let mut found = Vec::new();
        let ended = each_line(&*file, |at, line| {
            found.push((at, if let Line::Whole(line) = line { Some(line.len()) } else { None }));
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(ended.unwrap(), ControlFlow::Continue(()));
        found
    }

    #[test]
    fn lines_are_found_with_their_places() {
        assert_eq!(lines_of(b""), []);
        assert_eq!(lines_of(b"\n"), [(0, Some(0))]);
        assert_eq!(lines_of(b"ab\n\ncd"), [(0, Some(2)), (3, Some(0)), (4, None)]);
    }

    #[test]
    fn lines_of_every_length_around_the_chunk_are_whole() {
        for len in [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 5 * CHUNK_BYTES + 7] {
            let mut bytes = b"x\n".to_vec();
            bytes.resize(len + 2, b'y');
            bytes.extend_from_slice(b"\nz\n");
            assert_eq!(lines_of(&bytes), [(0, Some(1)), (2, Some(len)), (len as u64 + 3, Some(1))], "{len}");
        }
    }

    #[test]
    fn an_endless_line_does_not_fill_the_memory() {
        let mut bytes = vec![0; LINE_BYTES_MAX + 3 * CHUNK_BYTES];
        bytes.extend_from_slice(b"\nab\n");
        let after = bytes.len() as u64 - 3;
        assert_eq!(lines_of(&bytes), [(0, None), (after, Some(2))]);
    }
}
