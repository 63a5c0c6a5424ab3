//! What can go wrong with a disk: faults that are ordered for a disk, and the count of those that happened.

use std::fmt;
use std::io;

/// A kind of call to the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "named after the calls of Disk and File")]
pub enum Call {
    Open,
    Rename,
    Remove,
    SyncDir,
    Read,
    Write,
    WriteDurable,
    SetLen,
    Sync,
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// `EIO`. A sync that fails so loses a random part of what was pending for good, and the next one says Ok.
    Io,
    /// `ENOSPC`: nothing of a write is written.
    NoSpace,
    /// A write leaves its first half and then says `ENOSPC`. Other calls fail with `EIO`.
    Short,
}

/// An order to fail: the n-th call of some kind, once or from then on.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub(crate) call: Option<Call>,
    pub(crate) nth: u64,
    pub(crate) failure: Failure,
    pub(crate) lasts: bool,
}

impl Fault {
    /// Fails the `nth` call of this kind, counted from 1 and from the moment the fault is ordered.
    #[must_use]
    pub const fn nth(call: Call, nth: u64, failure: Failure) -> Self {
        Self { call: Some(call), nth, failure, lasts: false }
    }

    /// Fails the `nth` call of any kind.
    #[must_use]
    pub const fn nth_of_any(nth: u64, failure: Failure) -> Self {
        Self { call: None, nth, failure, lasts: false }
    }

    /// The same, and every such call after it: a disk that stays full, or dead.
    #[must_use]
    pub const fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// Counts a call and says whether it fails.
    pub(crate) fn strikes(&mut self, call: Call) -> bool {
        if self.call.is_some_and(|ours| ours != call) {
            return false;
        }
        match self.nth {
            0 => self.lasts,
            1 => {
                self.nth = 0;
                true
            }
            _ => {
                self.nth -= 1;
                false
            }
        }
    }
}

impl Failure {
    pub(crate) fn error(self) -> io::Error {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        match self {
            Self::Io => io::Error::from_raw_os_error(EIO),
            Self::NoSpace | Self::Short => io::Error::from_raw_os_error(ENOSPC),
        }
    }
}

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of trouble, counted when it happens.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The kind in words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

fault_kinds! {
    /// A crash lost a write.
    LostWrite = "lost write",
    /// A crash lost an earlier write of a file and kept a later one.
    Reordered = "reordered",
    /// A crash tore a write into sectors of 512 bytes or more.
    TornSectors = "torn sectors",
    /// A crash tore a write into pieces smaller than a sector.
    TornBytes = "torn bytes",
    /// A crash lost a change of a file's length.
    LostLength = "length lost",
    /// A crash kept a longer length and left garbage where the bytes were to be.
    Garbage = "garbage in growth",
    /// A crash lost a creation, renaming or removal.
    LostName = "name lost",
    /// A sync failed and lost what was pending.
    SyncFailed = "sync failed",
    /// A write failed.
    WriteFailed = "write failed",
    /// The disk was full.
    NoSpace = "no space",
    /// A write was cut short.
    ShortWrite = "short write",
    /// A read failed.
    ReadFailed = "read failed",
    /// Another call failed: open, rename, remove.
    CallFailed = "call failed",
    /// A bit was turned.
    BitFlip = "bit flip",
    /// A range was zeroed.
    Zeroed = "zeroed range",
    /// A range went back to an older version of itself.
    Stale = "stale range",
    /// Bytes landed in another place.
    Misdirected = "misdirected write",
    /// A file was cut off.
    Truncated = "truncated",
}

impl FaultKind {
    pub(crate) fn of(call: Call, failure: Failure) -> Self {
        match (call, failure) {
            (Call::Write | Call::WriteDurable, Failure::Short) => Self::ShortWrite,
            (_, Failure::NoSpace) => Self::NoSpace,
            (Call::Sync | Call::SyncDir, _) => Self::SyncFailed,
            (Call::Write | Call::WriteDurable | Call::SetLen, _) => Self::WriteFailed,
            (Call::Read, _) => Self::ReadFailed,
            (Call::Open | Call::Rename | Call::Remove, _) => Self::CallFailed,
        }
    }
}

/// How often each kind of trouble happened.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hits {
    counts: [u64; FaultKind::ALL.len()],
}

impl Hits {
    /// How often this kind happened.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Whether anything happened at all.
    #[must_use]
    pub fn any(&self) -> bool {
        self.counts.iter().any(|count| *count > 0)
    }

    /// Checks that each of these kinds happened: a simulator that quietly stopped injecting proves nothing.
    ///
    /// # Errors
    /// Names the kinds that never happened.
    pub fn require(&self, kinds: &[FaultKind]) -> Result<(), String> {
        let missing: Vec<_> = kinds.iter().filter(|kind| self.of(**kind) == 0).map(|kind| kind.name()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("these faults never happened: {}", missing.join(", "))) }
    }

    /// Counts one more.
    pub fn count(&mut self, kind: FaultKind) {
        self.counts[kind as usize] += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(other.counts) {
            *ours += theirs;
        }
    }
}

impl fmt::Debug for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hit = FaultKind::ALL.iter().filter(|kind| self.of(**kind) > 0);
        f.debug_map().entries(hit.map(|kind| (kind.name(), self.of(*kind)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(mut fault: Fault, calls: &[Call]) -> Vec<bool> {
        calls.iter().map(|call| fault.strikes(*call)).collect()
    }

    #[test]
    fn a_fault_strikes_the_nth_call_of_its_kind() {
        let calls = [Call::Sync, Call::Write, Call::Sync, Call::Sync, Call::Write];
        let once = Fault::nth(Call::Sync, 2, Failure::Io);
        assert_eq!(strikes(once, &calls), [false, false, true, false, false]);
        assert_eq!(strikes(once.lasting(), &calls), [false, false, true, true, false]);
        assert_eq!(strikes(Fault::nth_of_any(2, Failure::Io), &calls), [false, true, false, false, false]);
    }

    #[test]
    fn a_kind_that_never_happened_is_named() {
        let mut hits = Hits::default();
        hits.count(FaultKind::NoSpace);
        assert_eq!(hits.require(&[FaultKind::NoSpace]), Ok(()));
        let error = hits.require(&[FaultKind::NoSpace, FaultKind::BitFlip]).unwrap_err();
        assert_eq!(error, "these faults never happened: bit flip");
        assert_eq!(format!("{hits:?}"), r#"{"no space": 1}"#);
    }

    #[test]
    fn every_kind_is_counted_in_its_own_place() {
        for (at, kind) in FaultKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
    }

    #[test]
    fn a_full_disk_says_so() {
        assert_eq!(Failure::NoSpace.error().kind(), io::ErrorKind::StorageFull);
        assert_eq!(Failure::Io.error().raw_os_error(), Some(5));
    }
}
