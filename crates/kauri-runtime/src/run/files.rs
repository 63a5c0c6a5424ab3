//! Files kept beside a run: named by the script, immutable, and either there or not.
//!
//! ```text
//! SHA-256                   the bytes, as an artifact's
//! file-RUN-NAME             one line of JSON: filename, content_type, size_bytes, sha256
//! ```
//!
//! The second is the commit: written aside, synced, renamed, the directory synced, after the bytes are durable. A crash before leaves an orphan
//! and a name that can be put again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::{NAME_BYTES_MAX, Open};
use kauri_wire::RunId;
use serde_json::{Value, json};

use super::artifact::{Artifacts, Digest, KeepError};

const PREFIX: &str = "file-";
/// How many characters a run's id has.
const RUN_CHARS: usize = 36;
/// A line about a file is short; a longer one is not ours.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A file that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptFile {
    /// Its name.
    pub filename: String,
    /// Its media type.
    pub content_type: String,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// What they are called.
    pub digest: Digest,
}

impl KeptFile {
    fn to_line(&self) -> String {
        let Self { filename, content_type, size_bytes, digest } = self;
        json!({
            "filename": filename,
            "content_type": content_type,
            "size_bytes": size_bytes,
            "sha256": digest.to_string(),
        })
        .to_string()
    }

    fn from_line(line: &[u8]) -> Option<Self> {
        let line: Value = serde_json::from_slice(line).ok()?;
        Some(Self {
            filename: line["filename"].as_str()?.to_owned(),
            content_type: line["content_type"].as_str()?.to_owned(),
            size_bytes: line["size_bytes"].as_u64()?,
            digest: line["sha256"].as_str()?.parse().ok()?,
        })
    }
}

/// Files beside runs. Clones share one directory with its artifacts.
///
/// ```
/// use std::sync::Arc;
///
/// use kauri_disk::MemoryDisk;
/// use kauri_runtime::run::{Artifacts, Files};
/// use kauri_wire::{RunId, Timestamp};
///
/// let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new()))?);
/// let run = RunId::from_parts(Timestamp(1_780_000_000_000), [7; 10]);
/// files.put(run, "report.csv", "text/csv", b"apples,12")?;
/// assert_eq!(files.find(run, "report.csv")?.unwrap().size_bytes, 9);
/// assert!(files.put(run, "report.csv", "text/csv", b"something else").is_err());
/// # Ok::<(), kauri_runtime::run::KeepError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    artifacts: Artifacts,
    /// Two puts of one name must not both find it free.
    turn: Arc<Mutex<()>>,
    known: Arc<Mutex<Known>>,
}

/// Files that were put or read since the program began, by their run and the rest of their name on the disk: which bytes they name, and how
/// many. No line is read twice for that.
type Known = BTreeMap<(RunId, Box<str>), (Digest, u64)>;

impl Files {
    /// Files whose bytes are kept with these artifacts.
    #[must_use]
    pub fn new(artifacts: Artifacts) -> Self {
        Self { artifacts, turn: Arc::default(), known: Arc::default() }
    }

    /// The directory of the bytes.
    #[must_use]
    pub const fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Keeps a file, and returns when it is durable. To put the same content under the same name again is no fault.
    ///
    /// # Errors
    /// `Name` if the name or the type cannot be kept, `Exists` if the name is taken by other content, `TooLong`; if the disk fails. The file is not
    /// there then; after a failure of the disk a crash may bring it back, whole.
    pub fn put(&self, run: RunId, filename: &str, content_type: &str, data: &[u8]) -> Result<KeptFile, KeepError> {
        let name = disk_name(run, filename)?;
        check_type(content_type)?;
        let mut writer = self.artifacts.begin()?;
        writer.write(data)?;
        let bytes = writer.finish()?;
        let (digest, size_bytes) = (bytes.digest(), bytes.size_bytes());
        let file =
            KeptFile { filename: filename.to_owned(), content_type: content_type.to_owned(), size_bytes, digest };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.read(&name)? {
            Some(before) if before == file => {}
            Some(_) => return Err(KeepError::Exists { filename: filename.to_owned() }),
            None => self.write(&name, &file)?,
        }
        self.know(&name, &file);
        Ok(file)
    }

    /// The file of this name, if it is kept.
    ///
    /// # Errors
    /// `Name` if no file can have the name; if the disk fails.
    pub fn find(&self, run: RunId, filename: &str) -> Result<Option<KeptFile>, KeepError> {
        self.read(&disk_name(run, filename)?)
    }

    /// All files of a run, in the order of their names on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn list(&self, run: RunId) -> Result<Vec<KeptFile>, KeepError> {
        self.lines(&format!("{PREFIX}{run}-"))
    }

    /// The runs that have files.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn runs(&self) -> Result<BTreeSet<RunId>, KeepError> {
        let names = self.artifacts.disk().names()?;
        Ok(names.iter().filter_map(|name| parts_of(name)).map(|(run, _)| run).collect())
    }

    /// The bytes that files name: a collection must keep them.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn live(&self) -> Result<BTreeSet<Digest>, KeepError> {
        Ok(self.lines(PREFIX)?.into_iter().map(|file| file.digest).collect())
    }

    /// Forgets the files of a run, so that their bytes can be collected. Tells how many there were.
    ///
    /// # Errors
    /// If the disk fails; some may then be forgotten and others not.
    pub fn forget(&self, run: RunId) -> Result<u64, KeepError> {
        let (disk, prefix) = (self.artifacts.disk(), format!("{PREFIX}{run}-"));
        let mut forgotten = 0;
        for name in disk.names()?.iter().filter(|name| name.starts_with(&prefix)) {
            self.remove(name)?;
            forgotten += 1;
        }
        disk.sync_dir()?;
        Ok(forgotten)
    }

    /// Takes the name of a file away. Durable when the directory is synced.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        self.artifacts.disk().remove(name)?;
        if let Some((run, rest)) = parts_of(name) {
            self.known().remove(&(run, rest.into()));
        }
        Ok(())
    }

    /// The bytes that a file names, if it is there.
    pub(super) fn digest_in(&self, name: &str) -> Result<Option<Digest>, KeepError> {
        let known = parts_of(name).and_then(|(run, rest)| self.known().get(&(run, rest.into())).copied());
        if let Some((digest, _)) = known {
            return Ok(Some(digest));
        }
        let Some(file) = self.read(name)? else { return Ok(None) };
        self.know(name, &file);
        Ok(Some(file.digest))
    }

    /// How many bytes runs have in files, as far as that is known.
    pub(super) fn bytes_by_run(&self) -> BTreeMap<RunId, u64> {
        let mut bytes = BTreeMap::new();
        for ((run, _), (_, size_bytes)) in &*self.known() {
            let sum: &mut u64 = bytes.entry(*run).or_default();
            *sum = sum.saturating_add(*size_bytes);
        }
        bytes
    }

    /// Does not count the files of a run any more: they are about to be collected.
    pub(super) fn disregard(&self, run: RunId) {
        self.known().retain(|(of, _), _| *of != run);
    }

    fn know(&self, name: &str, file: &KeptFile) {
        if let Some((run, rest)) = parts_of(name) {
            self.known().insert((run, rest.into()), (file.digest, file.size_bytes));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self, prefix: &str) -> Result<Vec<KeptFile>, KeepError> {
        let names = self.artifacts.disk().names()?;
        let ours = names.iter().filter(|name| name.starts_with(prefix));
        ours.filter_map(|name| self.read(name).transpose()).collect()
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<KeptFile>, KeepError> {
        let file = match self.artifacts.disk().open(name, Open::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let damaged = || KeepError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged")));
        let len = file.len()?;
        if len > LINE_BYTES_MAX {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| damaged())?];
        file.read_at(0, &mut bytes)?;
        KeptFile::from_line(&bytes).map(Some).ok_or_else(damaged)
    }

    fn write(&self, name: &str, file: &KeptFile) -> Result<(), KeepError> {
        let line = file.to_line();
        let (disk, aside) = (self.artifacts.disk(), self.artifacts.aside());
        let write = || {
            let file = disk.open(&aside, Open::CreateNew)?;
            file.write_at(0, line.as_bytes())?;
            file.sync()?;
            drop(file);
            disk.rename(&aside, name)?;
            disk.sync_dir()
        };
        write().map_err(|error| {
            // Whichever of the two is there: who was told that it failed may put something else.
            let _halves = (disk.remove(&aside), disk.remove(name));
            error.into()
        })
    }
}

/// The run of a file, and the rest of its name on the disk; nothing if the name is not that of a file beside a run.
pub(super) fn parts_of(name: &str) -> Option<(RunId, &str)> {
    let (run, rest) = name.strip_prefix(PREFIX)?.split_at_checked(RUN_CHARS)?;
    Some((run.parse().ok()?, rest.strip_prefix('-')?))
}

/// The name on the disk: other characters than the plain ones as `%XX`, so that no two names become one.
fn disk_name(run: RunId, filename: &str) -> Result<String, KeepError> {
    let expected = "a file name of 1 to 213 characters of A-Z a-z 0-9 . _ -, three for each other byte";
    let refused = || KeepError::Name { expected, found: filename.chars().take(80).collect() };
    if filename.is_empty() || filename.len() > NAME_BYTES_MAX {
        return Err(refused());
    }
    let mut name = format!("{PREFIX}{run}-");
    for byte in filename.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(byte.into()),
            _ => write!(name, "%{byte:02X}").map_err(|_| refused())?,
        }
    }
    if name.len() > NAME_BYTES_MAX { Err(refused()) } else { Ok(name) }
}

fn check_type(content_type: &str) -> Result<(), KeepError> {
    if (1..=255).contains(&content_type.len()) {
        return Ok(());
    }
    let expected = "a media type of 1 to 255 bytes";
    Err(KeepError::Name { expected, found: content_type.chars().take(80).collect() })
}
