//! A disk that does one thing otherwise, for tests: it fails a call, counts it, holds it up or leaves it out.

use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

use crate::{Disk, File, Open};

/// A call of a disk, or of a file of it.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use kauri_disk::testing::{Call, TwistedDisk};
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// let written = Arc::new(AtomicU64::new(0));
/// let count = Arc::clone(&written);
/// let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| {
///     if let Call::WriteAt(_, _, bytes) = call {
///         count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
///     }
///     go()
/// });
/// disk.open("notes", Open::Create)?.write_at(7, b"apples")?;
/// assert_eq!(written.load(Ordering::Relaxed), 6);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "they are the calls of `Disk` and `File`, with what was given to them")]
pub enum Call<'a> {
    Open(&'a str, Open),
    Rename(&'a str, &'a str),
    Remove(&'a str),
    Names,
    SyncDir,
    ReadAt(&'a Opened, u64),
    WriteAt(&'a Opened, u64, &'a [u8]),
    WriteDurableAt(&'a Opened, u64, &'a [u8]),
    Len(&'a Opened),
    SetLen(&'a Opened, u64),
    Sync(&'a Opened),
    SyncName(&'a Opened),
    Discard(&'a Opened, &'a Range<u64>),
}

/// The file that a call is for.
///
/// ```
/// use kauri_disk::testing::{Call, TwistedDisk};
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// // One file cannot be synced, and is cut short instead.
/// let disk = TwistedDisk::new(MemoryDisk::new(), |call, go| match call {
///     Call::Sync(opened) if opened.name == "notes" => opened.file.set_len(3),
///     _ => go(),
/// });
/// let [notes, others] = ["notes", "others"].map(|name| disk.open(name, Open::Create).expect("it can be made"));
/// for file in [&notes, &others] {
///     file.write_at(0, b"apples")?;
///     file.sync()?;
/// }
/// assert_eq!((notes.len()?, others.len()?), (3, 6));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Opened {
    /// The name by which it was opened.
    pub name: String,
    /// The file beneath. What is done with it is no call of the disk above.
    pub file: Box<dyn File>,
}

/// Makes the call, as the disk beneath would.
///
/// ```
/// use kauri_disk::testing::{Call, Go, TwistedDisk};
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// /// Does everything, and tells of nothing that went well.
/// fn pessimist(_: Call<'_>, go: Go<'_>) -> std::io::Result<()> {
///     go()?;
///     Err(std::io::Error::other("who knows"))
/// }
///
/// let memory = MemoryDisk::new();
/// let disk = TwistedDisk::new(memory.clone(), pessimist);
/// assert!(disk.open("notes", Open::Create).is_err());
/// assert_eq!(memory.names()?, ["notes"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub type Go<'a> = &'a mut dyn FnMut() -> io::Result<()>;

type Twist = dyn Fn(Call<'_>, Go<'_>) -> io::Result<()> + Send + Sync;

/// A disk on another, whose calls all go through one function: it is told the call, and goes on with it or does not.
///
/// A call that is left out, and has something to tell, is an error. Files of such a disk do not share their bytes, and have no descriptor.
///
/// ```
/// use kauri_disk::testing::{Call, TwistedDisk};
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// // A disk that is full.
/// let disk = TwistedDisk::new(MemoryDisk::new(), |call, go| match call {
///     Call::WriteAt(..) | Call::WriteDurableAt(..) => Err(std::io::ErrorKind::StorageFull.into()),
///     _ => go(),
/// });
/// let file = disk.open("notes", Open::Create)?;
/// assert!(file.write_at(0, b"no").is_err());
/// assert_eq!(file.len()?, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct TwistedDisk<D> {
    disk: D,
    twist: Arc<Twist>,
}

struct TwistedFile {
    opened: Opened,
    twist: Arc<Twist>,
}

impl<D> TwistedDisk<D> {
    /// A disk on this one, with this twist.
    ///
    /// ```
    /// use kauri_disk::testing::TwistedDisk;
    /// use kauri_disk::{Disk, MemoryDisk};
    ///
    /// assert!(TwistedDisk::new(MemoryDisk::new(), |_, go| go()).names()?.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(disk: D, twist: impl Fn(Call<'_>, Go<'_>) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { disk, twist: Arc::new(twist) }
    }
}

/// Calls through the twist, and answers what the call found.
fn through<T>(twist: &Twist, call: Call<'_>, mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut found = None;
    twist(call, &mut || {
        found = Some(make()?);
        Ok(())
    })?;
    found.ok_or_else(|| io::Error::other(format!("{call:?} was left out, and nothing was found")))
}

impl<D: Disk> Disk for TwistedDisk<D> {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        let file = through(&*self.twist, Call::Open(name, how), || self.disk.open(name, how))?;
        Ok(Box::new(TwistedFile { opened: Opened { name: name.to_owned(), file }, twist: Arc::clone(&self.twist) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.twist)(Call::Rename(from, to), &mut || self.disk.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (self.twist)(Call::Remove(name), &mut || self.disk.remove(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        through(&*self.twist, Call::Names, || self.disk.names())
    }

    fn sync_dir(&self) -> io::Result<()> {
        (self.twist)(Call::SyncDir, &mut || self.disk.sync_dir())
    }
}

impl File for TwistedFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        (self.twist)(Call::ReadAt(&self.opened, at), &mut || self.opened.file.read_at(at, bytes))
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (self.twist)(Call::WriteAt(&self.opened, at, bytes), &mut || self.opened.file.write_at(at, bytes))
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (self.twist)(Call::WriteDurableAt(&self.opened, at, bytes), &mut || {
            self.opened.file.write_durable_at(at, bytes)
        })
    }

    fn len(&self) -> io::Result<u64> {
        through(&*self.twist, Call::Len(&self.opened), || self.opened.file.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        (self.twist)(Call::SetLen(&self.opened, len), &mut || self.opened.file.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        (self.twist)(Call::Sync(&self.opened), &mut || self.opened.file.sync())
    }

    fn sync_name(&self) -> io::Result<()> {
        (self.twist)(Call::SyncName(&self.opened), &mut || self.opened.file.sync_name())
    }

    fn discard(&self, bytes: Range<u64>) -> io::Result<()> {
        (self.twist)(Call::Discard(&self.opened, &bytes), &mut || self.opened.file.discard(bytes.clone()))
    }
}

impl<D: fmt::Debug> fmt::Debug for TwistedDisk<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwistedDisk").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl fmt::Debug for TwistedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TwistedFile").field(&self.opened).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::MemoryDisk;

    #[test]
    fn every_call_is_told_once_and_does_what_the_disk_beneath_does() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let beneath = MemoryDisk::new();
        let disk = TwistedDisk::new(beneath.clone(), move |call, go| {
            tells.lock().unwrap().push(format!("{call:?}").split('(').next().unwrap().to_owned());
            go()
        });
        let file = disk.open("a", Open::Create).unwrap();
        file.set_len(2).unwrap();
        file.write_at(2, b"me").unwrap();
        file.write_durable_at(0, b"re").unwrap();
        let mut bytes = [0; 4];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes, file.len().unwrap()), (b"reme", 4));
        file.sync().unwrap();
        file.sync_name().unwrap();
        file.discard(0..1).unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!((disk.names().unwrap(), beneath.names().unwrap()), (vec!["b".to_owned()], vec!["b".to_owned()]));
        disk.remove("b").unwrap();
        assert!(beneath.names().unwrap().is_empty());
        let calls = "Open SetLen WriteAt WriteDurableAt ReadAt Len Sync SyncName Discard Rename SyncDir Names Remove";
        assert_eq!(*told.lock().unwrap(), calls.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn a_call_that_is_left_out_does_nothing_and_has_nothing_to_tell() {
        let beneath = MemoryDisk::new();
        let disk = TwistedDisk::new(beneath.clone(), |call, go| if let Call::Open(..) = call { go() } else { Ok(()) });
        let file = disk.open("a", Open::Create).unwrap();
        file.write_at(0, b"lost").unwrap();
        disk.remove("a").unwrap();
        assert!(file.len().unwrap_err().to_string().contains("was left out") && disk.names().is_err());
        assert_eq!(beneath.open("a", Open::ReadOnly).unwrap().len().unwrap(), 0);
    }
}
