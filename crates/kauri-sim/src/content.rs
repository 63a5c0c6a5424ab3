//! The bytes of one file, in chunks that images share until one of them writes.

use std::sync::Arc;

const CHUNK_BYTES: usize = 4096;

type Chunk = [u8; CHUNK_BYTES];

/// A file's bytes and length. A clone costs one count; a write copies the chunks it touches and no others.
///
/// A chunk that is absent is zero. Between [`put`](Self::put) and [`cut`](Self::cut) there may be bytes beyond the length:
/// that is how a crash image is built from bytes and lengths that persist apart. Otherwise those bytes are zero.
#[derive(Clone, Default)]
pub(crate) struct Content {
    len: u64,
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `bytes` from `at`, or says that the file ends before.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Option<()> {
        let end = at.checked_add(bytes.len() as u64)?;
        if end > self.len {
            return None;
        }
        let mut done = 0;
        while done < bytes.len() {
            let (index, from) = place(at + done as u64);
            let count = (CHUNK_BYTES - from).min(bytes.len() - done);
            let into = &mut bytes[done..done + count];
            match self.chunks.get(index) {
                Some(Some(chunk)) => into.copy_from_slice(&chunk[from..from + count]),
                Some(None) | None => into.fill(0),
            }
            done += count;
        }
        Some(())
    }

    /// All bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a simulated file fits into memory")];
        self.read(0, &mut bytes).expect("the range is the file's");
        bytes
    }

    /// Writes, and makes the file longer if need be.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.put(at, bytes);
        self.len = self.len.max(at + bytes.len() as u64);
    }

    /// Puts bytes in their place and leaves the length as it is. [`cut`](Self::cut) must follow.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, from) = place(at + done as u64);
            let count = (CHUNK_BYTES - from).min(bytes.len() - done);
            self.chunk(index)[from..from + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Sets the length; what lies beyond it is gone.
    pub(crate) fn set_len(&mut self, len: u64) {
        let shrinks = len < self.len;
        self.len = len;
        if shrinks {
            self.cut();
        }
    }

    /// Sets the length; bytes that were put beyond it wait for the cut, or for a growth that reaches them.
    pub(crate) fn set_len_over_puts(&mut self, len: u64) {
        if len < self.len {
            self.set_len(len);
        }
        self.len = len;
    }

    /// Makes every byte beyond the length zero.
    pub(crate) fn cut(&mut self) {
        let (index, from) = place(self.len);
        let whole = index + usize::from(from > 0);
        if self.chunks.len() > whole {
            Arc::make_mut(&mut self.chunks).truncate(whole);
        }
        let tail = self.chunks.get(index).and_then(Option::as_ref);
        if from > 0 && tail.is_some_and(|chunk| chunk[from..].iter().any(|byte| *byte != 0)) {
            self.chunk(index)[from..].fill(0);
        }
    }

    fn chunk(&mut self, index: usize) -> &mut Chunk {
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.len() <= index {
            chunks.resize(index + 1, None);
        }
        Arc::make_mut(chunks[index].get_or_insert_with(|| Arc::new([0; CHUNK_BYTES])))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        const ZEROS: Chunk = [0; CHUNK_BYTES];
        let same = |index: usize| match (chunk_at(self, index), chunk_at(other, index)) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs) || ours == theirs,
            (Some(only), None) | (None, Some(only)) => **only == ZEROS,
            (None, None) => true,
        };
        self.len == other.len
            && (Arc::ptr_eq(&self.chunks, &other.chunks) || (0..self.chunks.len().max(other.chunks.len())).all(same))
    }
}

fn chunk_at(content: &Content, index: usize) -> Option<&Arc<Chunk>> {
    content.chunks.get(index).and_then(Option::as_ref)
}

/// In which chunk a position lies, and where in it.
fn place(at: u64) -> (usize, usize) {
    let at = usize::try_from(at).expect("a simulated file fits into memory");
    (at / CHUNK_BYTES, at % CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn content_does_what_a_vector_does() {
        let mut rng = Rng::new(3);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for _ in 0..2_000 {
            let at = rng.index(20_000);
            if rng.chance(1, 8) {
                content.set_len(at as u64);
                model.resize(at, 0);
            } else {
                let mut bytes = vec![0; rng.index(6_000)];
                rng.fill(&mut bytes);
                content.write(at as u64, &bytes);
                model.resize(model.len().max(at + bytes.len()), 0);
                model[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            assert!(content.to_vec() == model);
        }
    }

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let mut content = Content::default();
        content.write(4_000, &[1; 200]);
        let before = content.clone();
        content.write(4_100, &[2]);
        assert_eq!(before.to_vec()[4_100], 1);
        assert!(before != content && before == before.clone());
    }

    #[test]
    fn bytes_beyond_the_length_are_gone_after_the_cut() {
        let mut content = Content::default();
        content.write(0, &[1; 10]);
        content.put(8, &[7; 9_000]);
        content.cut();
        content.set_len(9_000);
        let bytes = content.to_vec();
        assert!(bytes[..10] == [1, 1, 1, 1, 1, 1, 1, 1, 7, 7] && bytes[10..].iter().all(|byte| *byte == 0));
    }
}
