//! The simulated disk: does what it is told, remembers what was done, fails when ordered to.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use kauri_tree::disk::{Disk, File, Open, check_name, end_of, locked, read_only};

use crate::fault::{Call, Failure, Fault, FaultKind, Hits};
use crate::image::{FileId, Image};
use crate::rng::Rng;
use crate::trace::{Bytes, NameChange, Op, Trace};

/// A disk in memory that records every change and can be made to fail.
///
/// Clones are handles to the same disk. What a crash may leave of it is found through its [`trace`](Self::trace); an image
/// that a crash left is the start of another `SimDisk`, which records again.
///
/// ```
/// use kauri_sim::{Call, Failure, Fault, FaultKind, SimDisk};
/// use kauri_tree::disk::{Disk, Open};
///
/// let disk = SimDisk::new();
/// let file = disk.open("store", Open::CreateNew)?;
/// file.write_at(0, b"tree")?;
/// disk.inject(Fault::nth(Call::Sync, 1, Failure::Io));
/// assert!(file.sync().is_err());
/// assert_eq!(disk.hits().of(FaultKind::SyncFailed), 1);
/// assert_eq!(disk.trace().ops(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    start: Image,
    /// What the running program sees: every write at once, as from the system's cache.
    live: Image,
    ops: Vec<Op>,
    locked: BTreeSet<FileId>,
    faults: Vec<Fault>,
    hits: Hits,
    rng: Rng,
}

struct SimFile {
    disk: SimDisk,
    name: String,
    file: FileId,
    how: Open,
}

/// Files of a simulation are small; a longer one is a mistake in a length.
const FILE_BYTES_MAX: u64 = 1 << 32;

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::from_image(Image::new())
    }

    /// A disk that holds this image, durably, and has recorded nothing.
    #[must_use]
    pub fn from_image(image: Image) -> Self {
        let start = image.visible();
        let live = start.clone();
        let (ops, locked, faults) = (Vec::new(), BTreeSet::new(), Vec::new());
        let state = State { start, live, ops, locked, faults, hits: Hits::default(), rng: Rng::new(0) };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Orders a fault. Several may be ordered; the first that strikes counts.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Takes back every order: the disk is well again.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// The seed of what a failed sync loses.
    pub fn reseed(&self, seed: u64) {
        self.state().rng = Rng::new(seed);
    }

    /// How often each kind of ordered fault struck.
    #[must_use]
    pub fn hits(&self) -> Hits {
        self.state().hits.clone()
    }

    /// How many operations are recorded.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.state().ops.len()
    }

    /// Everything recorded so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let state = self.state();
        Trace { start: state.start.clone(), ops: state.ops.clone() }
    }

    /// The disk as the running program sees it: what a clean shutdown would leave if all of it were synced.
    #[must_use]
    pub fn image(&self) -> Image {
        self.state().live.clone().visible()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // An engine under test may panic anywhere; the disk under it is whole between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Counts this call; an ordered fault may strike it.
    fn strike(&mut self, call: Call) -> Option<Failure> {
        let mut struck = None;
        for fault in &mut self.faults {
            // Every order counts every call, also those that another order fails.
            if fault.strikes(call) && struck.is_none() {
                struck = Some(fault.failure);
            }
        }
        if let Some(failure) = struck {
            self.hits.count(FaultKind::of(call, failure));
        }
        struck
    }

    fn strike_plainly(&mut self, call: Call) -> io::Result<()> {
        self.strike(call).map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.ops.push(Op::Name(change));
    }

    fn create(&mut self, name: &str) -> FileId {
        let file = FileId(self.live.files.len());
        let _ = self.live.file_mut(file);
        self.change_name(NameChange::Create { name: name.into(), file });
        file
    }

    /// Writes to what the program sees; says to which length the file grew, if it did.
    fn write_live(&mut self, file: FileId, at: u64, bytes: &[u8]) -> Option<u64> {
        let content = self.live.file_mut(file);
        let before = content.len();
        content.write(at, bytes);
        (content.len() > before).then_some(content.len())
    }

    fn write(&mut self, file: FileId, at: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            let grows_to = self.write_live(file, at, bytes);
            self.ops.push(Op::Write { file, at, bytes: bytes.into(), grows_to });
        }
    }

    fn write_durable(&mut self, file: FileId, at: u64, bytes: &[u8], failed: bool) {
        if bytes.is_empty() {
            return;
        }
        let grows_to = self.write_live(file, at, bytes);
        let bytes = Bytes::from(bytes);
        self.ops.push(if failed {
            Op::WriteDurableFailed { file, at, bytes, grows_to, seed: self.rng.next_u64() }
        } else {
            Op::WriteDurable { file, at, bytes, grows_to }
        });
    }
}

impl Disk for SimDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        check_name(name)?;
        let mut state = self.state();
        state.strike_plainly(Call::Open)?;
        let file = match (state.live.names.get(name).copied(), how) {
            (Some(_), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => file,
            (None, Open::ReadOnly | Open::ReadWrite) => return Err(io::ErrorKind::NotFound.into()),
            (None, Open::Create | Open::CreateNew) => state.create(name),
        };
        if how.writes() && !state.locked.insert(file) {
            return Err(locked(name));
        }
        Ok(Box::new(SimFile { disk: self.clone(), name: name.to_owned(), file, how }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.state();
        state.strike_plainly(Call::Rename)?;
        let file = *state.live.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_name(NameChange::Rename { from: from.into(), to: to.into(), file });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let mut state = self.state();
        state.strike_plainly(Call::Remove)?;
        if !state.live.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_name(NameChange::Remove { name: name.into() });
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().live.names.keys().map(ToString::to_string).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        let struck = state.strike(Call::SyncDir);
        let seed = state.rng.next_u64();
        state.ops.push(struck.map_or(Op::SyncDir, |_| Op::SyncDirFailed { seed }));
        struck.map_or(Ok(()), |failure| Err(failure.error()))
    }
}

impl SimFile {
    /// The state, if this file may be changed up to this position.
    fn changing(&self, end: u64) -> io::Result<MutexGuard<'_, State>> {
        if !self.how.writes() {
            return Err(read_only(&self.name));
        }
        if end > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(self.disk.state())
    }
}

impl File for SimFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        end_of(at, bytes.len())?;
        let mut state = self.disk.state();
        state.strike_plainly(Call::Read)?;
        state.live.file(self.file).read(at, bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.changing(end_of(at, bytes.len())?)?;
        let struck = state.strike(Call::Write);
        match struck {
            None => state.write(self.file, at, bytes),
            Some(Failure::Short) => state.write(self.file, at, &bytes[..bytes.len() / 2]),
            Some(Failure::Io | Failure::NoSpace) => {}
        }
        struck.map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.changing(end_of(at, bytes.len())?)?;
        let struck = state.strike(Call::WriteDurable);
        match struck {
            None => state.write_durable(self.file, at, bytes, false),
            // The cache took the bytes and the device did not: like a failed sync of this range alone.
            Some(Failure::Io) => state.write_durable(self.file, at, bytes, true),
            Some(Failure::NoSpace) => {}
            Some(Failure::Short) => state.write_durable(self.file, at, &bytes[..bytes.len() / 2], true),
        }
        struck.map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().live.file(self.file).len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.changing(end_of(len, 0)?)?;
        state.strike_plainly(Call::SetLen)?;
        let content = state.live.file_mut(self.file);
        let cuts = len < content.len();
        content.set_len(len);
        state.ops.push(Op::SetLen { file: self.file, len, cuts });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.changing(0)?;
        let struck = state.strike(Call::Sync);
        let (file, seed) = (self.file, state.rng.next_u64());
        state.ops.push(struck.map_or(Op::Sync { file }, |_| Op::SyncFailed { file, seed }));
        struck.map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn sync_name(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    /// As a write of zeros: a crash may leave any part of it.
    fn discard(&self, bytes: Range<u64>) -> io::Result<()> {
        let end = bytes.end.min(self.len()?);
        let zeros = vec![0; usize::try_from(end.saturating_sub(bytes.start)).map_err(|_| io::ErrorKind::FileTooLarge)?];
        self.write_at(bytes.start, &zeros)
    }

    /// As a length and a write: a crash may leave any part of it, and more than a disk that shares bytes leaves.
    fn share(&self, other: &dyn File) -> io::Result<bool> {
        let mut bytes = vec![0; usize::try_from(other.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?];
        other.read_at(0, &mut bytes)?;
        self.set_len(0)?;
        self.write_at(0, &bytes)?;
        Ok(true)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.how.writes() {
            let held = self.disk.state().locked.remove(&self.file);
            assert!(held, "a file open for writing holds its lock");
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({:?})", self.name)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk").field("live", &state.live).field("ops", &state.ops.len()).finish_non_exhaustive()
    }
}
