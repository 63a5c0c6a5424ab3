//! Artifacts: named by the hash of their bytes, written aside and then given their name.
//!
//! ```text
//! write .tmp-7, sync it, rename to <SHA-256>, sync the directory
//! ```
//!
//! When a name is there its bytes are whole, whatever happened in between. The temporary file lies in the same directory, so the
//! rename never has to cross to another device.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kauri_disk::{Disk, Open};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// What a `result_ref` to an artifact begins with.
const PREFIX: &str = "artifacts/";
const TEMPORARY: &str = ".tmp-";
const CHUNK_BYTES: usize = 64 << 10;

/// The bytes of a result, in memory or wherever they come from.
pub struct Artifact<'a> {
    source: Box<dyn Read + 'a>,
}

impl<'a> Artifact<'a> {
    /// These bytes.
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self { source: Box::new(bytes) }
    }

    /// Everything that can be read from here. It is never held in memory as a whole.
    #[must_use]
    pub fn reader(source: impl Read + 'a) -> Self {
        Self { source: Box::new(source) }
    }
}

/// A directory of artifacts.
pub(crate) struct Artifacts {
    disk: Arc<dyn Disk>,
    /// Names temporary files.
    count: AtomicU64,
}

impl Artifacts {
    /// Takes away what a crash left half-written. Nobody else may be at work here.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Self> {
        let failed = || Error::io("clear the artifacts of temporary files");
        for name in disk.names().map_err(failed())?.iter().filter(|name| name.starts_with(TEMPORARY)) {
            disk.remove(name).map_err(failed())?;
        }
        Ok(Self { disk, count: AtomicU64::new(0) })
    }

    /// Writes an artifact, and returns its `result_ref` when it is durable.
    pub(crate) fn put(&self, mut artifact: Artifact<'_>) -> Result<String> {
        let aside = format!("{TEMPORARY}{}", self.count.fetch_add(1, Ordering::Relaxed));
        let written = self.write(&aside, &mut *artifact.source);
        let written = written.and_then(|hash| {
            self.disk.rename(&aside, &hash)?;
            self.disk.sync_dir()?;
            Ok(format!("{PREFIX}{hash}"))
        });
        written.map_err(|error| {
            // What is left of it is cleared when the ledger is opened again, if not now.
            let _half = self.disk.remove(&aside);
            Error::io("write an artifact")(error)
        })
    }

    fn write(&self, aside: &str, source: &mut dyn Read) -> io::Result<String> {
        let file = self.disk.open(aside, Open::Create)?;
        file.set_len(0)?;
        let (mut hasher, mut chunk, mut at) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
        loop {
            let read = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&chunk[..read]);
            file.write_at(at, &chunk[..read])?;
            at += read as u64;
        }
        file.sync()?;
        Ok(hex::encode(hasher.finalize()))
    }

    /// Whether the artifact of a `result_ref` is there and whole. A reference to something else is nothing that can be missing.
    pub(crate) fn holds(&self, result_ref: &str) -> Result<bool> {
        holds(&*self.disk, result_ref)
    }

    /// The bytes of an artifact, to be read.
    pub(crate) fn reader(&self, result_ref: &str) -> Result<Option<ArtifactReader>> {
        let Some(name) = name_of(result_ref) else { return Ok(None) };
        match self.disk.open(name, Open::ReadOnly) {
            Ok(file) => Ok(Some(ArtifactReader { file, at: 0 })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open an artifact")(error)),
        }
    }
}

/// Reads an artifact from its beginning to its end.
#[derive(Debug)]
pub struct ArtifactReader {
    file: Box<dyn kauri_disk::File>,
    at: u64,
}

impl Read for ArtifactReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.file.len()?.saturating_sub(self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.file.read_at(self.at, &mut bytes[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Whether the artifact of a `result_ref` is there, whatever its bytes.
pub(crate) fn is_there(disk: &dyn Disk, result_ref: &str) -> bool {
    name_of(result_ref).is_none_or(|name| disk.open(name, Open::ReadOnly).is_ok())
}

pub(crate) fn holds(disk: &dyn Disk, result_ref: &str) -> Result<bool> {
    let Some(name) = name_of(result_ref) else { return Ok(true) };
    let failed = || Error::io("read an artifact");
    let file = match disk.open(name, Open::ReadOnly) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed()(error)),
    };
    let len = usize::try_from(file.len().map_err(failed())?).unwrap_or(usize::MAX);
    let chunk_bytes = len.clamp(1, CHUNK_BYTES);
    let (mut reader, mut hasher, mut chunk) = (ArtifactReader { file, at: 0 }, Sha256::new(), vec![0; chunk_bytes]);
    loop {
        match reader.read(&mut chunk).map_err(failed())? {
            0 => return Ok(hex::encode(hasher.finalize()) == name),
            read => hasher.update(&chunk[..read]),
        }
    }
}

/// The file's name, if this refers to an artifact of ours.
fn name_of(result_ref: &str) -> Option<&str> {
    let name = result_ref.strip_prefix(PREFIX)?;
    let is_hash = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hash.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_disk::MemoryDisk;

    #[test]
    fn what_is_put_can_be_read_and_is_known_to_be_whole() {
        let disk = MemoryDisk::new();
        let artifacts = Artifacts::open(Arc::new(disk.clone())).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES + 5).collect();
        let found = artifacts.put(Artifact::reader(&bytes[..])).unwrap();
        let mut back = Vec::new();
        artifacts.reader(&found).unwrap().unwrap().read_to_end(&mut back).unwrap();
        assert!(back == bytes && artifacts.holds(&found).unwrap());
        assert_eq!(artifacts.put(Artifact::bytes(&bytes)).unwrap(), found, "the same bytes have the same name");
        assert_eq!(disk.names().unwrap().len(), 1);

        disk.open(&found[PREFIX.len()..], Open::ReadWrite).unwrap().write_at(7, b"x").unwrap();
        assert!(!artifacts.holds(&found).unwrap(), "changed");
        disk.remove(&found[PREFIX.len()..]).unwrap();
        assert!(!artifacts.holds(&found).unwrap() && artifacts.reader(&found).unwrap().is_none(), "gone");
    }

    #[test]
    fn other_references_are_left_alone_and_lead_nowhere() {
        let artifacts = Artifacts::open(Arc::new(MemoryDisk::new())).unwrap();
        for other in ["mail-17", "artifacts/", "artifacts/../../x", &format!("artifacts/{}", "g".repeat(64))] {
            assert!(artifacts.holds(other).unwrap() && artifacts.reader(other).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn what_was_left_half_written_is_cleared_at_the_next_start() {
        let disk = MemoryDisk::new();
        disk.open(".tmp-3", Open::CreateNew).unwrap();
        disk.open("kept", Open::CreateNew).unwrap();
        Artifacts::open(Arc::new(disk.clone())).unwrap();
        assert_eq!(disk.names().unwrap(), ["kept"]);
    }

    #[test]
    fn a_source_that_fails_leaves_nothing() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no more"))
            }
        }
        let disk = MemoryDisk::new();
        let artifacts = Artifacts::open(Arc::new(disk.clone())).unwrap();
        assert!(artifacts.put(Artifact::reader(Failing)).is_err());
        assert!(disk.names().unwrap().is_empty());
    }
}
