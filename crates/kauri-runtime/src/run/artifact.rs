//! Artifacts: bytes that runs produced, kept under the hash of their content.
//!
//! ```text
//! .tmp-N     being written; cleared when the directory is opened
//! SHA-256    whole and durable: written aside, synced, renamed, directory synced
//! ```
//!
//! The bytes go to the disk as they come, so that an artifact of any length needs the memory of one chunk. What makes an artifact part of a run
//! is the event that names it, committed when its bytes are durable. Bytes that no event names are orphans: [`Artifacts::collect`] takes them
//! away, but never those of an artifact whose event is still on its way. These are guarded by a [`KeptArtifact`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::{Disk, File, Open};
use kauri_wire::pack::{Map, Value};
use sha2::{Digest as _, Sha256};

const TEMPORARY: &str = ".tmp-";
const READ_BYTES: usize = 64 << 10;

/// The longest artifact, unless something else is said: 1 GiB.
pub const ARTIFACT_BYTES_MAX: u64 = 1 << 30;

/// The key under which an artifact event names the bytes.
pub const DIGEST_KEY: &str = "sha256";

/// The SHA-256 of an artifact's bytes: its name on the disk, and in its event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest that an artifact event's payload names.
    #[must_use]
    pub fn named_in(payload: Map<'_>) -> Option<Self> {
        match payload.get(DIGEST_KEY)? {
            Value::Str(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = KeepError;

    /// Reads 64 hexadecimal digits, in lower case as they are written.
    fn from_str(text: &str) -> Result<Self, KeepError> {
        let mut bytes = [0; 32];
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        if is_lower && hex::decode_to_slice(text, &mut bytes).is_ok() {
            return Ok(Self(bytes));
        }
        Err(KeepError::Name { expected: "64 hexadecimal digits", found: text.chars().take(80).collect() })
    }
}

/// Why bytes were not kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeepError {
    /// The disk failed.
    Io(io::Error),
    /// A chunk is not the next one.
    Order {
        /// The place that had to come.
        expected: u64,
        /// The place that came.
        found: u64,
    },
    /// A chunk came after the last.
    AfterLast,
    /// The last chunk has not come.
    NotEnded,
    /// There are too many bytes.
    TooLong {
        /// How many are allowed.
        most: u64,
    },
    /// There are more or fewer bytes than was said.
    Size {
        /// How many were said to be.
        said: u64,
        /// How many came.
        found: u64,
    },
    /// A name or a type is not one.
    Name {
        /// What it had to be.
        expected: &'static str,
        /// What it was.
        found: String,
    },
    /// A file of this name and with other content is kept already.
    Exists {
        /// The name.
        filename: String,
    },
}

impl fmt::Display for KeepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the disk failed: {error}"),
            Self::Order { expected, found } => write!(f, "expected chunk {expected}, found chunk {found}"),
            Self::AfterLast => f.write_str("expected nothing after the last chunk, found another"),
            Self::NotEnded => f.write_str("expected the last chunk before the end, found none"),
            Self::TooLong { most } => write!(f, "expected {most} bytes at most, found more"),
            Self::Size { said, found } => write!(f, "expected {said} bytes, found {found}"),
            Self::Name { expected, found } => write!(f, "expected {expected}, found {found:?}"),
            Self::Exists { filename } => write!(f, "expected a new file, found {filename:?} kept with other content"),
        }
    }
}

impl std::error::Error for KeepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for KeepError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A directory of artifacts. Clones are the same directory.
///
/// ```
/// use std::sync::Arc;
///
/// use kauri_disk::MemoryDisk;
/// use kauri_runtime::run::Artifacts;
///
/// let artifacts = Artifacts::open(Arc::new(MemoryDisk::new()))?;
/// let mut writer = artifacts.begin()?;
/// writer.write(b"twelve ")?;
/// writer.write(b"apples")?;
/// let kept = writer.finish()?; // durable from here on
/// assert_eq!(kept.size_bytes(), 13);
/// assert!(artifacts.is_whole(kept.digest())?);
/// # Ok::<(), kauri_runtime::run::KeepError>(())
/// ```
#[derive(Clone)]
pub struct Artifacts {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    /// Names temporary files.
    count: AtomicU64,
    /// Counts those that were finished.
    written: AtomicU64,
    bytes_max: u64,
    guards: Mutex<Guards>,
}

/// Which bytes must stay although no event names them yet.
#[derive(Default)]
struct Guards {
    held: BTreeMap<Digest, usize>,
    /// All that were guarded since a collection began, even if they are not any more: their events may have been committed after the collection
    /// asked for them.
    since: Option<BTreeSet<Digest>>,
}

impl Artifacts {
    /// Opens a directory and clears it of what a crash left half-written. Nobody else may be at work there.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, KeepError> {
        Self::open_with(disk, ARTIFACT_BYTES_MAX)
    }

    /// As `open`, with another limit for each artifact.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn open_with(disk: Arc<dyn Disk>, bytes_max: u64) -> Result<Self, KeepError> {
        for name in disk.names()?.iter().filter(|name| name.starts_with(TEMPORARY)) {
            disk.remove(name)?;
        }
        let (count, written, guards) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { disk, count, written, bytes_max, guards }) })
    }

    /// Begins an artifact.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn begin(&self) -> Result<ArtifactWriter, KeepError> {
        let aside = self.aside();
        let file = self.shared.disk.open(&aside, Open::CreateNew)?;
        let (hasher, artifacts) = (Sha256::new(), self.clone());
        Ok(ArtifactWriter { artifacts, aside, file: Some(file), hasher, size_bytes: 0, chunks: 0, has_ended: false })
    }

    /// A name for something that is being written.
    pub(crate) fn aside(&self) -> String {
        format!("{TEMPORARY}{}", self.shared.count.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    /// Whether the bytes are there and are those of the digest: reads all of them.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn is_whole(&self, digest: Digest) -> Result<bool, KeepError> {
        let Some(mut reader) = self.read(digest)? else { return Ok(false) };
        let (mut hasher, mut bytes) = (Sha256::new(), vec![0; READ_BYTES]);
        loop {
            match reader.read(&mut bytes)? {
                0 => return Ok(Digest(hasher.finalize().into()) == digest),
                read => hasher.update(&bytes[..read]),
            }
        }
    }

    /// How many artifacts were written since the directory was opened. While it stays the same there are no new orphans.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// How many bytes an artifact has, if it is there.
    pub(super) fn size(&self, digest: Digest) -> io::Result<Option<u64>> {
        match self.shared.disk.open(&digest.to_string(), Open::ReadOnly) {
            Ok(file) => file.len().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The bytes of an artifact, if they are there.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn read(&self, digest: Digest) -> Result<Option<ArtifactReader>, KeepError> {
        match self.shared.disk.open(&digest.to_string(), Open::ReadOnly) {
            Ok(file) => Ok(Some(ArtifactReader { file, at: 0 })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the bytes that are not live, and tells how many artifacts that were. `is_live` says whether a committed event, or a file kept beside a
    /// run, names them; it is not asked about guarded ones. Writers may go on meanwhile.
    ///
    /// # Errors
    /// If the disk fails, if another collection is going on, or what `is_live` says.
    pub fn collect(&self, mut is_live: impl FnMut(Digest) -> Result<bool, KeepError>) -> Result<u64, KeepError> {
        let collection = Collection::begin(self)?;
        let mut removed = 0;
        for name in self.shared.disk.names()? {
            let Ok(digest) = name.parse::<Digest>() else { continue };
            if !collection.keeps(digest) && !is_live(digest)? {
                removed += u64::from(collection.remove(digest)?);
            }
        }
        if removed > 0 {
            self.shared.disk.sync_dir()?;
        }
        Ok(removed)
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.shared.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts").field("guarded", &self.guards().held.len()).finish_non_exhaustive()
    }
}

/// A collection that is going on.
#[derive(Debug)]
pub(super) struct Collection(Artifacts);

impl Collection {
    pub(super) fn begin(artifacts: &Artifacts) -> Result<Self, KeepError> {
        let mut guards = artifacts.guards();
        if guards.since.is_some() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "orphans are being collected already").into());
        }
        guards.since = Some(guards.held.keys().copied().collect());
        Ok(Self(artifacts.clone()))
    }

    pub(super) fn keeps(&self, digest: Digest) -> bool {
        self.0.guards().since.as_ref().is_some_and(|since| since.contains(&digest))
    }

    /// Looks again and removes, so that nobody can guard in between.
    pub(super) fn remove(&self, digest: Digest) -> io::Result<bool> {
        let guards = self.0.guards();
        if guards.since.as_ref().is_some_and(|since| since.contains(&digest)) {
            return Ok(false);
        }
        self.0.shared.disk.remove(&digest.to_string()).map(|()| true)
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.0.guards().since = None;
    }
}

/// An artifact that is being written. Dropped, it leaves nothing.
///
/// ```
/// use std::sync::Arc;
///
/// use kauri_disk::MemoryDisk;
/// use kauri_runtime::run::{Artifacts, KeepError};
///
/// let artifacts = Artifacts::open(Arc::new(MemoryDisk::new()))?;
/// let mut writer = artifacts.begin()?;
/// writer.chunk(1, false, b"twelve ")?;
/// assert!(matches!(writer.chunk(3, true, b"pears"), Err(KeepError::Order { expected: 2, found: 3 })));
/// writer.chunk(2, true, b"apples")?;
/// assert_eq!(writer.commit(13)?.size_bytes(), 13);
/// # Ok::<(), KeepError>(())
/// ```
#[must_use = "an artifact that is not finished is not kept"]
pub struct ArtifactWriter {
    artifacts: Artifacts,
    aside: String,
    /// Open until everything is written.
    file: Option<Box<dyn File>>,
    hasher: Sha256,
    size_bytes: u64,
    chunks: u64,
    has_ended: bool,
}

impl ArtifactWriter {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// `TooLong` if there would be too many; if the disk fails. The artifact can then not be finished.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), KeepError> {
        let most = self.artifacts.shared.bytes_max;
        let end = self.size_bytes.saturating_add(bytes.len() as u64);
        let Some(file) = &self.file else { return Err(KeepError::AfterLast) };
        if end > most {
            self.file = None;
            return Err(KeepError::TooLong { most });
        }
        if let Err(error) = file.write_at(self.size_bytes, bytes) {
            self.file = None;
            return Err(error.into());
        }
        self.hasher.update(bytes);
        self.size_bytes = end;
        Ok(())
    }

    /// Adds a chunk, which must be the next one: chunks have places from 1, and one is the last.
    ///
    /// # Errors
    /// `Order` and `AfterLast` if it is not; as for `write`.
    pub fn chunk(&mut self, seq: u64, is_last: bool, data: &[u8]) -> Result<(), KeepError> {
        if self.has_ended {
            return Err(KeepError::AfterLast);
        }
        if seq != self.chunks + 1 {
            return Err(KeepError::Order { expected: self.chunks + 1, found: seq });
        }
        self.write(data)?;
        (self.chunks, self.has_ended) = (seq, is_last);
        Ok(())
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Checks that the last chunk has come and that there are so many bytes, and finishes.
    ///
    /// # Errors
    /// `NotEnded` or `Size` if not; as for `finish`.
    pub fn commit(self, size_bytes: u64) -> Result<KeptArtifact, KeepError> {
        match self.size_bytes {
            _ if !self.has_ended => Err(KeepError::NotEnded),
            found if found != size_bytes => Err(KeepError::Size { said: size_bytes, found }),
            _ => self.finish(),
        }
    }

    /// Makes the bytes durable under their digest. They are guarded until the answer is dropped: keep it until an event that names them is
    /// committed.
    ///
    /// # Errors
    /// If the disk fails, now or earlier.
    pub fn finish(mut self) -> Result<KeptArtifact, KeepError> {
        let Some(file) = self.file.take() else {
            return Err(io::Error::other("an earlier write of the artifact failed").into());
        };
        file.sync()?;
        drop(file);
        let digest = Digest(std::mem::take(&mut self.hasher).finalize().into());
        let guarded = self.rename(digest)?;
        self.artifacts.shared.written.fetch_add(1, Ordering::Relaxed);
        self.artifacts.shared.disk.sync_dir()?;
        Ok(guarded)
    }

    /// Guards and renames in one: a collection sees both or neither.
    fn rename(&mut self, digest: Digest) -> io::Result<KeptArtifact> {
        let mut guards = self.artifacts.guards();
        self.artifacts.shared.disk.rename(&self.aside, &digest.to_string())?;
        self.aside.clear();
        *guards.held.entry(digest).or_default() += 1;
        if let Some(since) = &mut guards.since {
            since.insert(digest);
        }
        Ok(KeptArtifact { artifacts: self.artifacts.clone(), digest, size_bytes: self.size_bytes })
    }
}

impl Drop for ArtifactWriter {
    fn drop(&mut self) {
        drop(self.file.take());
        if !self.aside.is_empty() {
            // What stays is cleared when the directory is opened again.
            let _half = self.artifacts.shared.disk.remove(&self.aside);
        }
    }
}

impl fmt::Debug for ArtifactWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactWriter").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// An artifact that is durable, and that no collection takes away while this is there.
#[must_use = "bytes that are neither guarded nor named by an event are orphans"]
pub struct KeptArtifact {
    artifacts: Artifacts,
    digest: Digest,
    size_bytes: u64,
}

impl KeptArtifact {
    /// What the bytes are called.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// How many there are.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for KeptArtifact {
    fn drop(&mut self) {
        let mut guards = self.artifacts.guards();
        if let Some(count) = guards.held.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                guards.held.remove(&self.digest);
            }
        }
    }
}

impl fmt::Debug for KeptArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptArtifact").field("digest", &self.digest).field("size_bytes", &self.size_bytes).finish()
    }
}

/// Reads an artifact from its beginning to its end.
#[derive(Debug)]
pub struct ArtifactReader {
    file: Box<dyn File>,
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
