//! A simulated disk that lets somebody else work in the middle of a write.
//!
//! One thread cannot show what happens while another is writing. But code that holds no lock while it writes may just as well
//! meet the other's work inside the write: whatever order two threads could have had there, this has too, and it is the same
//! each time.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::testing::{Call, TwistedDisk};

use crate::disk::SimDisk;

type Work = Box<dyn FnMut() + Send>;

/// The work that interrupts the writes of a disk.
#[derive(Clone, Default)]
pub struct Interruption(Arc<Mutex<Option<Work>>>);

impl Interruption {
    /// This disk, and what its writes are interrupted by; those that begin in `quiet` are left alone.
    #[must_use]
    pub fn of(disk: &SimDisk, quiet: Range<u64>) -> (TwistedDisk<SimDisk>, Self) {
        let interruption = Self::default();
        let comes = interruption.clone();
        let disk = TwistedDisk::new(disk.clone(), move |call, go| {
            let at = match call {
                Call::WriteAt(_, at, _) | Call::WriteDurableAt(_, at, _) => Some(at),
                Call::Discard(_, bytes) => Some(bytes.start),
                _ => None,
            };
            if at.is_some_and(|at| !quiet.contains(&at)) {
                comes.come();
            }
            go()
        });
        (disk, interruption)
    }

    /// What is done before each such write. It is not interrupted itself.
    pub fn set_work(&self, work: impl FnMut() + Send + 'static) {
        *self.lock() = Some(Box::new(work));
    }

    /// From now on nothing is done.
    pub fn clear_work(&self) {
        drop(self.take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Work> {
        self.lock().take()
    }

    fn come(&self) {
        if let Some(mut work) = self.take() {
            work();
            self.lock().get_or_insert(work);
        }
    }
}

impl fmt::Debug for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruption").finish_non_exhaustive()
    }
}
