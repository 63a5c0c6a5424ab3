//! A store on a simulated disk, as the ground of a runtime's world: what a crash leaves of it is drawn from the seed.

use std::sync::{Arc, Mutex, PoisonError};

use kauri_runtime::substrate::{Change, Early, Limits, Posted, Rows, Signal, Substrate, TreeSubstrate, Verdict};
use kauri_runtime::testing::{FaultKind, Ground};
use kauri_runtime::{Error, Result};
use kauri_tree::Options;

use crate::disk::SimDisk;
use crate::fault::{Call, Failure, Fault, Hits};
use crate::point::{CrashPoint, Flight, Variant};
use crate::rng::Rng;

const NAME: &str = "store";

/// A store that is crashed at whatever operation of its disk.
#[derive(Debug)]
pub struct DiskGround {
    disk: SimDisk,
    page_bytes: usize,
    rng: Rng,
    hits: Hits,
    /// How many operations the disk had seen when the last commit began.
    began: Arc<Mutex<usize>>,
    /// One in so many lives meets a disk that fails.
    fails_one_in: u64,
}

impl DiskGround {
    /// An empty disk. One in `fails_one_in` lives meets a failing write or sync; 0 means none does.
    #[must_use]
    pub fn new(seed: u64, page_bytes: usize, fails_one_in: u64) -> Self {
        let (disk, rng) = (SimDisk::new(), Rng::new(seed));
        Self { disk, page_bytes, rng, hits: Hits::default(), began: Arc::default(), fails_one_in }
    }

    /// What happened to the disk so far.
    #[must_use]
    pub fn hits(&self) -> Hits {
        let mut hits = self.hits.clone();
        hits.merge(&self.disk.hits());
        hits
    }

    /// No more failing disks.
    pub fn heal(&mut self) {
        self.fails_one_in = 0;
        self.disk.heal();
    }

    /// The disk that a crash leaves. Whatever was acknowledged was synced, so the crash is now; but if nobody was told of the last
    /// commit, it may have come at any operation of it.
    fn crash(&mut self, after: FaultKind) {
        let now = self.disk.ops();
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = matches!(after, FaultKind::CrashAfter | FaultKind::Broken);
        let op = if is_open { began + self.rng.index(now - began + 1) } else { now };
        let flight = if op < now && self.rng.chance(1, 2) { Flight::During } else { Flight::Between };
        let tear_bytes = *self.rng.pick(&[512, 16]);
        let number = u32::try_from(self.rng.below(1 << 20)).expect("few bits");
        let random = Variant::Sample { number, tear_bytes };
        let variant = *self.rng.pick(&[Variant::None, Variant::All, random, random]);
        let point = CrashPoint { seed: self.rng.next_u64(), op, flight, variant };
        let image = self.disk.trace().image_at(&point).expect("the operation was made");
        self.hits.merge(&self.disk.hits());
        self.disk = SimDisk::from_image(image);
        self.disk.reseed(self.rng.next_u64());
    }
}

impl Ground for DiskGround {
    fn open(&mut self, after: Option<FaultKind>) -> Result<Arc<dyn Substrate>> {
        if let Some(after) = after {
            self.crash(after);
        }
        let options = Options::new().page_bytes(self.page_bytes).log_bytes(1).keeper(false);
        let store = options.open(&self.disk, NAME).map_err(Error::Store)?;
        if self.fails_one_in > 0 && self.rng.chance(1, self.fails_one_in) {
            let call = *self.rng.pick(&[Call::WriteDurable, Call::Write, Call::Sync]);
            let failure = *self.rng.pick(&[Failure::Io, Failure::NoSpace, Failure::Short]);
            self.disk.inject(Fault::nth(call, 3 + self.rng.below(40), failure));
        }
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = self.disk.ops();
        let (disk, began) = (self.disk.clone(), Arc::clone(&self.began));
        Ok(Arc::new(Watched { inner: TreeSubstrate::new(store), disk, began }))
    }
}

/// Notes when commits begin, and when somebody begins to wait for one.
struct Watched {
    inner: TreeSubstrate,
    disk: SimDisk,
    began: Arc<Mutex<usize>>,
}

impl Watched {
    fn begin(&self) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = self.disk.ops();
    }
}

impl Substrate for Watched {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        self.inner.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        self.begin();
        self.inner.commit(change)
    }

    fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        self.begin();
        self.inner.commit_early(change, after)
    }

    fn snapshot_with(&self, early: &Early) -> Result<Box<dyn Rows + '_>> {
        self.inner.snapshot_with(early)
    }

    fn wait(&self, early: &Early) -> Result<()> {
        self.begin();
        self.inner.wait(early)
    }

    fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        self.begin();
        self.inner.post(change)
    }

    fn settle(&self, posted: Posted) -> Result<Verdict> {
        self.begin();
        self.inner.settle(posted)
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.inner.watch(table, prefix, signal);
    }
}
