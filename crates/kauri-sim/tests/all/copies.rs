//! Stores made from streams and from versions of others, crashed at every operation: each is there whole under its name, or not at all.

use kauri_disk::Disk;
use kauri_sim::{Acks, Engine, Explorer, Failure, Fault, Progress, SimDisk};
use kauri_tree::{Checkpoint, Error, Options, Store};

/// Restores a store from a stream, pins it, brings it up to date by a second one, and forks it: things that are acknowledged one after the other.
struct Copies {
    whole: (Vec<u8>, Checkpoint),
    changes: (Vec<u8>, Checkpoint),
    page_bytes: usize,
    way: Way,
}

/// How the fork is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It shares the bytes of the file.
    Shares,
    /// Its pages have another size: rows are copied, as of each pin.
    Copies,
    /// Of one version, without pins.
    OfVersion,
}

const NAMES: [&str; 2] = ["store", "fork"];
const PIN: &str = "restored";

impl Copies {
    fn new(page_bytes: usize, rows: u32, way: Way) -> Self {
        let store = Store::in_memory().expect("memory");
        let mut txn = store.begin();
        for row in 0..rows {
            txn.put_raw("rows", &row.to_be_bytes(), &vec![7; (row as usize * 37) % 600]).expect("memory");
        }
        txn.put_raw("other", b"a", b"b").expect("memory");
        txn.commit().expect("memory");
        let (mut whole, mut changes) = (Vec::new(), Vec::new());
        let before = store.snapshot();
        let base = before.checkpoint_to(&mut whole).expect("memory");
        let mut txn = store.begin();
        for row in (0..rows).step_by(3) {
            txn.remove_raw("rows", &row.to_be_bytes()).expect("memory");
        }
        txn.put_raw("other", b"a", b"c").expect("memory");
        txn.commit().expect("memory");
        let now = store.snapshot().checkpoint_since(&before, base.content, &mut changes).expect("memory");
        Self { whole: (whole, base), changes: (changes, now), page_bytes, way }
    }

    fn options(&self) -> Options {
        Options::new().page_bytes(self.page_bytes).log_bytes(1).keeper(false)
    }

    fn fork_options(&self) -> Options {
        if self.way == Way::Copies { self.options().page_bytes(2 * self.page_bytes) } else { self.options() }
    }

    fn open(&self, disk: &dyn Disk, name: &str) -> Result<Option<Store>, String> {
        match self.options().read_only(true).open(disk, name) {
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| format!("{name}: {error}")),
        }
    }

    /// How far the store is: not there, restored, pinned, up to date. Whatever it is, it is whole.
    fn progress(&self, disk: &dyn Disk) -> Result<u64, String> {
        let Some(store) = self.open(disk, NAMES[0])? else { return Ok(0) };
        store.verify().map_err(words)?;
        let content = store.snapshot().content_hash().map_err(words)?;
        match (self.is_pinned(&store)?, content) {
            (false, content) if content == self.whole.1.content => Ok(1),
            (true, content) if content == self.whole.1.content => Ok(2),
            (true, content) if content == self.changes.1.content => Ok(3),
            (is_pinned, content) => Err(format!("the store holds {content}, pinned: {is_pinned}")),
        }
    }

    /// Whether there is the pin; if so, it shows what was restored.
    fn is_pinned(&self, store: &Store) -> Result<bool, String> {
        let Some(pinned) = store.as_of(PIN).map_err(words)? else { return Ok(false) };
        match pinned.content_hash().map_err(words)? {
            content if content == self.whole.1.content => Ok(true),
            content => Err(format!("the pin shows {content}")),
        }
    }

    /// Whether there is a fork; if so, it is whole.
    fn is_forked(&self, disk: &dyn Disk) -> Result<bool, String> {
        let Some(fork) = self.open(disk, NAMES[1])? else { return Ok(false) };
        fork.verify().map_err(|error| format!("the fork: {error}"))?;
        let content = fork.snapshot().content_hash().map_err(words)?;
        match (self.is_pinned(&fork)?, content) {
            (is_pinned, content) if content == self.changes.1.content && is_pinned == (self.way != Way::OfVersion) => {
                Ok(true)
            }
            (is_pinned, content) => Err(format!("the fork holds {content}, pinned: {is_pinned}")),
        }
    }

    /// Does the next thing.
    fn go_on(&self, disk: &SimDisk, done: u64) -> Result<(), Error> {
        if done == 0 {
            return self.options().restore(disk, NAMES[0], &mut &self.whole.0[..]).map(drop);
        }
        let store = self.options().open(disk, NAMES[0])?;
        match (done, self.way) {
            (1, _) => store.pin(PIN, 1).map(drop),
            (2, _) => store.restore_from(&mut &self.changes.0[..]).map(drop),
            (_, Way::OfVersion) => store.snapshot().fork(&self.fork_options(), disk, NAMES[1]).map(drop),
            (_, Way::Shares | Way::Copies) => store.fork(&self.fork_options(), disk, NAMES[1]).map(drop),
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Engine for Copies {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        for done in self.check(disk, acks.progress())?..4 {
            acks.started(done + 1);
            self.go_on(disk, done).map_err(words)?;
            acks.acked(done + 1);
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        match (self.progress(disk)?, self.is_forked(disk)?) {
            (done, false) => Ok(done),
            (3, true) => Ok(4),
            (done, true) => Err(format!("a fork of a store that is at {done}")),
        }
    }
}

const WAYS: [Way; 3] = [Way::Shares, Way::Copies, Way::OfVersion];

/// Crashes stores while they are restored, pinned, brought up to date and forked, at so many points each; counts the points.
pub(crate) fn crash(points: u64, tried: &mut u64) -> Result<(), String> {
    for (seed, page_bytes, rows) in [(1, 256, 40), (2, 512, 10), (3, 256, 0)] {
        for way in WAYS {
            let report = Explorer::new(seed).points(points).lives(3).explore(&Copies::new(page_bytes, rows, way));
            *tried += report.points;
            if let Some(violation) = report.violation {
                return Err(format!("seed {seed}, {way:?}: {violation}"));
            }
            assert!(report.points > 100, "only {} points", report.points);
        }
    }
    Ok(())
}

#[test]
fn restored_pinned_and_forked_stores_are_whole_or_not_there_after_a_crash() {
    let mut points = 0;
    assert_eq!(crash(5_000, &mut points), Ok(()));
    assert!(points >= 30_000, "only {points} points");
}

/// Fails one call after the other, and crashes what comes of it; counts the points.
pub(crate) fn fail_every_call(tried: &mut u64) -> Result<(), String> {
    for (nth, way) in (1..200).flat_map(|nth| WAYS.map(|way| (nth, way))) {
        let fault = Fault::nth_of_any(nth, Failure::Io);
        let report = Explorer::new(nth).points(15).fault(fault).explore(&Copies::new(256, 10, way));
        *tried += report.points;
        if let Some(violation) = report.violation {
            return Err(format!("call {nth}, {way:?}: {violation}"));
        }
    }
    Ok(())
}

#[test]
fn every_failing_call_leaves_no_half_of_a_copy() {
    assert_eq!(fail_every_call(&mut 0), Ok(()));
}
