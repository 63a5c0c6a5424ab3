//! Artifacts and the events that name them, crashed at every operation: whatever a committed event names is there, whole.

use std::sync::Arc;

use kauri_disk::Disk as _;
use kauri_runtime::run::{Artifacts, Digest, Files, KeepError};
use kauri_sim::{Acks, Engine, Explorer, Failure, Fault, Forgets, Progress, Report, SimDisk};
use kauri_tree::{Options, Read as _, Store, Table, Write as _};
use kauri_wire::{RunId, Timestamp};

/// Committed events: the number, and the artifact that it names.
const EVENTS: Table<u64, str> = Table::new("events");
const STORE: &str = "store";
/// How many artifacts and files there are.
const COUNT: u64 = 6;

/// Writes artifacts and files in turn; every second thing is an event of the store, the others are files. Orphans are made on the way, and collected.
struct Trial {
    forgets: Forgets,
}

/// An artifact directory and a store on one disk.
struct Opened {
    files: Files,
    store: Store,
}

impl Trial {
    fn open(&self, disk: &SimDisk) -> Result<Opened, String> {
        let artifacts = self.forgets.of(disk);
        let files = Files::new(Artifacts::open(Arc::new(artifacts)).map_err(words)?);
        let options = Options::new().page_bytes(256).log_bytes(1).keeper(false);
        let store = options.open(disk, STORE).map_err(|error| error.to_string())?;
        Ok(Opened { files, store })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn words(error: KeepError) -> String {
    error.to_string()
}

fn run_id() -> RunId {
    RunId::from_parts(Timestamp(7), [7; 10])
}

/// The bytes of the thing with this number; two neighbours share theirs.
fn content(number: u64) -> Vec<u8> {
    vec![u8::try_from(number / 2).expect("few"); 700 * usize::try_from(number / 2).expect("few")]
}

impl Opened {
    fn digest(&self, number: u64) -> Result<Option<Digest>, String> {
        if number.is_multiple_of(2) {
            return Ok(self.files.find(run_id(), &number.to_string()).map_err(words)?.map(|file| file.digest));
        }
        let snapshot = self.store.snapshot();
        let named = snapshot.get(&EVENTS, number).map_err(|error| error.to_string())?;
        named.map(|text| text.parse().map_err(words)).transpose()
    }

    /// How many of the things are there, one after the other; each is whole.
    fn count(&self) -> Result<u64, String> {
        let mut count = 0;
        for number in 1..=COUNT {
            let Some(digest) = self.digest(number)? else { continue };
            if count + 1 != number {
                return Err(format!("thing {number} is there and {} is not", count + 1));
            }
            if !self.files.artifacts().is_whole(digest).map_err(words)? {
                return Err(format!("thing {number} is committed and its bytes are not whole"));
            }
            count = number;
        }
        Ok(count)
    }

    fn put(&self, number: u64) -> Result<(), String> {
        if number.is_multiple_of(2) {
            return self.files.put(run_id(), &number.to_string(), "t", &content(number)).map(drop).map_err(words);
        }
        let mut writer = self.files.artifacts().begin().map_err(words)?;
        let bytes = content(number);
        for (chunk, seq) in bytes.chunks(512).zip(1..) {
            writer.chunk(seq, false, chunk).map_err(words)?;
        }
        let guarded = writer.finish().map_err(words)?;
        let mut txn = self.store.begin();
        txn.put(&EVENTS, number, &guarded.digest().to_string()).map_err(|error| error.to_string())?;
        txn.commit().map_err(|error| error.to_string())
    }

    /// Bytes that nobody names.
    fn orphan(&self, number: u64) -> Result<(), String> {
        let mut writer = self.files.artifacts().begin().map_err(words)?;
        writer.write(format!("orphan {number}").as_bytes()).map_err(words)?;
        writer.finish().map(drop).map_err(words)
    }

    fn collect(&self) -> Result<(), String> {
        let mut live = self.files.live().map_err(words)?;
        for number in (1..=COUNT).step_by(2) {
            live.extend(self.digest(number)?);
        }
        self.files.artifacts().collect(|digest| Ok(live.contains(&digest))).map(drop).map_err(words)
    }
}

impl Engine for Trial {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let opened = self.open(disk)?;
        for number in opened.count()? + 1..=COUNT {
            opened.orphan(number)?;
            acks.started(number);
            opened.put(number)?;
            acks.acked(number);
            if number.is_multiple_of(3) {
                opened.collect()?;
            }
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        let opened = self.open(disk)?;
        let count = opened.count()?;
        opened.collect()?;
        if opened.count()? != count {
            return Err("a collection took what is named".to_owned());
        }
        // What is left is named by somebody: no half file, no orphan.
        let digests = disk.names().map_err(|error| error.to_string())?;
        let digests = digests.iter().filter(|name| name.parse::<Digest>().is_ok()).count();
        let named: std::collections::BTreeSet<u64> = (1..=count).map(|number| number / 2).collect();
        if digests != named.len() || disk.names().is_ok_and(|names| names.iter().any(|it| it.starts_with(".tmp"))) {
            return Err(format!("{digests} artifacts are there, {} are named", named.len()));
        }
        Ok(count)
    }
}

fn explore(seed: u64, points: u64, forgets: Forgets) -> Report {
    Explorer::new(seed).points(points).lives(3).explore(&Trial { forgets })
}

#[test]
fn artifacts_that_are_named_are_whole_after_any_crash() {
    let mut points = 0;
    for seed in 1..=4 {
        let report = explore(seed, 3_000, Forgets::Nothing);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
        points += report.points;
    }
    println!("{points} crashes");
    assert!(points > 5_000, "only {points} crashes");
}

#[test]
fn every_forgotten_sync_of_artifacts_is_found() {
    for forgets in [Forgets::File(""), Forgets::Names] {
        let found = (1..=4).find_map(|seed| explore(seed, 3_000, forgets).violation);
        assert!(found.is_some(), "{forgets:?} was not found");
    }
}

#[test]
fn every_failing_call_leaves_no_half_artifact_that_is_named() {
    for nth in 1..120 {
        let fault = Fault::nth_of_any(nth, Failure::Io);
        let report = Explorer::new(nth).points(12).fault(fault).explore(&Trial { forgets: Forgets::Nothing });
        assert!(report.violation.is_none(), "call {nth}: {:?}", report.violation);
    }
}
