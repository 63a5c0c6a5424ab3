//! Pages that go through to the file while the transaction that makes them goes on.
//!
//! A page that is written once, and a run of a long value, would only fill memory until a checkpoint copies them. They are built in a
//! buffer that is used again and again instead, and written where they belong; who reads them later brings them like any other.
//!
//! ```text
//!            built, sealed          the buffer is full, somebody reads, or the commit
//! free page ───────────────> buffer ────────────────────────────────────────────────> file
//! ```
//!
//! Nothing points to such a page before the commit: it was free, in the last checkpoint too, and a crash leaves it free. It is born before the
//! transaction's first stamp, so that nobody takes it for one that can be changed in place. The next checkpoint syncs it with all others.

use crate::error::Result;
use crate::file::StoreFile;
use crate::pager::Run;

/// So much is written at once.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Sealed pages that lie side by side, and are not in the file yet.
#[derive(Debug, Default)]
pub(crate) struct Through {
    first: u32,
    /// How much of the buffer is to be written.
    used: usize,
    buffer: Vec<u8>,
}

impl Through {
    /// Builds a run behind those in the buffer, and tells its checksum. What was in the buffer before stays there if it cannot be written.
    pub(crate) fn add(
        &mut self,
        file: &StoreFile,
        run: Run,
        birth: kauri_arena::Stamp,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64> {
        let bytes = run.pages as usize * file.page_bytes();
        let goes_on = file.offset(self.first) + self.used as u64 == file.offset(run.first);
        if !goes_on || self.used + bytes > BUFFER_BYTES {
            self.flush(file)?;
            self.first = run.first;
        }
        self.buffer.resize(BUFFER_BYTES.max(bytes), 0);
        let place = &mut self.buffer[self.used..self.used + bytes];
        fill(place);
        self.used += bytes;
        Ok(StoreFile::seal(run.first, birth, place))
    }

    /// Writes what is in the buffer.
    pub(crate) fn flush(&mut self, file: &StoreFile) -> Result<()> {
        file.write_through(self.first, &self.buffer[..self.used])?;
        self.clear();
        Ok(())
    }

    /// Forgets what is in the buffer.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}
