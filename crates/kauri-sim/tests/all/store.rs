//! Kauri's own store, crashed at every operation: after each crash it holds exactly the commits up to some number, all that were
//! acknowledged among them, and no page is lost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use kauri_sim::{Acks, Call, Engine, Explorer, Failure, Fault, FaultKind, Image, Progress, Rng, SimDisk};
use kauri_tree::{Durability, Error, Options, Read, Snapshot, Store, Table, Write, WriteTxn};

const NAME: &str = "store";
const COMMITS: Table<u8, u64> = Table::new("commits");
const TABLES: [&str; 3] = ["one", "two", "three"];

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 3];

/// A store under random work; the work of each commit is drawn from the seed and the commit's number.
struct Trial {
    seed: u64,
    page_bytes: usize,
    commits: u64,
    /// What the tables hold after each commit.
    models: Mutex<Vec<Model>>,
}

/// One thing that a commit does.
enum Step {
    Put(usize, Vec<u8>, Vec<u8>),
    Remove(usize, Vec<u8>),
    Drop(usize),
    Nest { vanishes: bool, steps: Vec<Step> },
}

impl Trial {
    fn new(seed: u64, page_bytes: usize, commits: u64) -> Self {
        Self { seed, page_bytes, commits, models: Mutex::new(vec![Model::default()]) }
    }

    fn open(&self, disk: &SimDisk) -> Result<Store, String> {
        // A log of sixteen pages is half full after a few commits.
        Options::new().page_bytes(self.page_bytes).log_bytes(1).open(disk, NAME).map_err(words)
    }

    fn rng(&self, commit: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(commit))
    }

    fn steps(&self, rng: &mut Rng, depth: u32) -> Vec<Step> {
        let count = if rng.below(8) == 0 { rng.below(30) } else { rng.below(6) };
        (0..count).map(|_| self.step(rng, depth)).collect()
    }

    fn step(&self, rng: &mut Rng, depth: u32) -> Step {
        let table = rng.index(3);
        let key = format!("{:0width$}", rng.below(25), width = rng.index(12)).into_bytes();
        match rng.below(20) {
            0..11 => {
                let most = if rng.below(10) == 0 { self.page_bytes * 4 } else { 60 };
                let value = vec![b'a' + u8::try_from(rng.below(26)).expect("a letter"); rng.index(most)];
                Step::Put(table, key, value)
            }
            11..18 => Step::Remove(table, key),
            18 if rng.below(6) == 0 => Step::Drop(table),
            _ if depth > 0 => Step::Nest { vanishes: rng.below(3) == 0, steps: self.steps(rng, depth - 1) },
            _ => Step::Remove(table, key),
        }
    }

    /// What the tables hold after so many commits.
    fn model(&self, commit: u64) -> Model {
        let mut models = self.models.lock().expect("no test panics with it");
        while models.len() as u64 <= commit {
            let mut model = models.last().expect("the first is there").clone();
            let next = models.len() as u64;
            for step in self.steps(&mut self.rng(next), 2) {
                apply_to_model(&mut model, step);
            }
            models.push(model);
        }
        models[usize::try_from(commit).expect("a small number")].clone()
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn table(which: usize) -> Table<[u8], [u8]> {
    Table::new(TABLES[which])
}

fn apply_to_model(model: &mut Model, step: Step) {
    match step {
        Step::Put(table, key, value) => {
            model[table].insert(key, value);
        }
        Step::Remove(table, key) => {
            model[table].remove(&key);
        }
        Step::Drop(table) => model[table].clear(),
        Step::Nest { vanishes, steps } => {
            let mut child = model.clone();
            steps.into_iter().for_each(|step| apply_to_model(&mut child, step));
            if !vanishes {
                *model = child;
            }
        }
    }
}

fn apply(txn: &mut WriteTxn<'_>, step: Step) -> Result<(), Error> {
    match step {
        Step::Put(which, key, value) => txn.put(&table(which), &key, &value),
        Step::Remove(which, key) => txn.remove(&table(which), &key).map(drop),
        Step::Drop(which) => txn.drop_table(TABLES[which]).map(drop),
        Step::Nest { vanishes, steps } => {
            let mut child = txn.nest();
            for step in steps {
                apply(&mut child, step)?;
            }
            if vanishes { Ok(()) } else { child.commit() }
        }
    }
}

impl Engine for Trial {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let store = self.open(disk)?;
        let held = store.snapshot().get(&COMMITS, 0).map_err(words)?.unwrap_or(0);
        // A snapshot that is held over everything must not change what is kept.
        let snapshot = store.snapshot();
        for commit in held + 1..=held + self.commits {
            acks.started(commit);
            let mut rng = self.rng(commit);
            let mut txn = store.begin();
            for step in self.steps(&mut rng, 2) {
                apply(&mut txn, step).map_err(words)?;
            }
            txn.put(&COMMITS, 0, commit).map_err(words)?;
            if rng.below(5) == 0 {
                txn.commit_with(Durability::None).map_err(words)?;
            } else {
                txn.commit().map_err(words)?;
                acks.acked(commit);
            }
            if rng.below(9) == 0 {
                store.checkpoint().map_err(words)?;
                if acks.progress().acked < commit {
                    acks.acked(commit);
                }
            }
        }
        compare(&snapshot, &self.model(held))
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        let store = self.open(disk)?;
        let commit = store.snapshot().get(&COMMITS, 0).map_err(words)?.unwrap_or(0);
        compare(&store.snapshot(), &self.model(commit))?;
        store.verify().map_err(words)?;
        Ok(commit)
    }
}

/// Whether the tables hold what they should, all of it and nothing else.
fn compare(snapshot: &Snapshot<'_>, model: &Model) -> Result<(), String> {
    for (which, model) in model.iter().enumerate() {
        let rows = snapshot.scan(&table(which)).map_err(words)?;
        let rows: Result<BTreeMap<_, _>, _> =
            rows.map(|key, value: Cow<'_, [u8]>| (key.to_vec(), value.into_owned())).collect();
        let rows = rows.map_err(words)?;
        if rows != *model {
            return Err(format!(
                "table {}: expected {} rows, found {}, or others",
                TABLES[which],
                model.len(),
                rows.len()
            ));
        }
    }
    Ok(())
}

fn check(seed: u64, page_bytes: usize, commits: u64, points: u64) {
    let trial = Trial::new(seed, page_bytes, commits);
    let report = Explorer::new(seed).points(points).lives(3).explore(&trial);
    if let Some(violation) = report.violation {
        panic!("seed {seed}, pages of {page_bytes}: {violation:?}");
    }
    assert!(report.points >= points, "only {} points", report.points);
}

/// Crashes stores of ten seeds, ten thousand times each.
fn check_seeds(first: u64, page_bytes: usize) {
    for seed in first..first + 10 {
        check(seed, page_bytes, 12, 10_000);
    }
}

/// Tests of their own, so that they run side by side: a million crashes in all.
macro_rules! crashes {
    ($($name:ident: $first:expr, $page_bytes:expr;)*) => {$(
        #[test]
        fn $name() {
            check_seeds($first, $page_bytes);
        }
    )*};
}

crashes! {
    store_survives_crashes_0: 0, 256;
    store_survives_crashes_1: 100, 256;
    store_survives_crashes_2: 200, 256;
    store_survives_crashes_3: 300, 256;
    store_survives_crashes_4: 400, 256;
    store_survives_crashes_5: 500, 256;
    store_survives_crashes_6: 600, 512;
    store_survives_crashes_7: 700, 512;
    store_survives_crashes_8: 800, 1024;
    store_survives_crashes_9: 900, 4096;
}

#[test]
fn every_failing_call_is_survived() {
    let kinds = [Failure::Io, Failure::NoSpace, Failure::Short];
    for (failure, lasts) in kinds.iter().flat_map(|failure| [(*failure, false), (*failure, true)]) {
        for nth in 1.. {
            let fault = Fault::nth_of_any(nth, failure);
            let fault = if lasts { fault.lasting() } else { fault };
            let report = Explorer::new(nth).points(60).fault(fault).explore(&Trial::new(nth % 7, 256, 10));
            if let Some(violation) = report.violation {
                panic!("call {nth} failed with {failure:?}, {lasts}: {violation:?}");
            }
            let struck = |kind: &FaultKind| *kind >= FaultKind::SyncFailed && report.hits.of(*kind) > 0;
            if !FaultKind::ALL.iter().any(struck) {
                assert!(nth > 20, "a life makes more calls than {nth}");
                break;
            }
        }
    }
}

/// The file of a store after some commits, some of them only in its log.
fn file(trial: &Trial) -> Vec<u8> {
    let disk = SimDisk::new();
    trial.live(&disk, &Acks::of(&disk)).expect("no fault");
    // Life goes on without a clean end: the log is in use.
    let store = trial.open(&disk).expect("no fault");
    let held = store.snapshot().get(&COMMITS, 0).expect("no fault").expect("a commit");
    for commit in held + 1..held + 4 {
        let mut txn = store.begin();
        for step in trial.steps(&mut trial.rng(commit), 2) {
            apply(&mut txn, step).expect("no fault");
        }
        txn.put(&COMMITS, 0, commit).expect("no fault");
        txn.commit().expect("no fault");
    }
    let bytes = disk.image().bytes(NAME).expect("the store's file");
    drop(store);
    bytes
}

/// Opens a damaged file: either the damage is told, or what is read is what some commit left.
fn check_damaged(trial: &Trial, bytes: &[u8]) -> Result<(), String> {
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let disk = SimDisk::from_image(Image::new().with_file(NAME, bytes));
        let Ok(store) = trial.open(&disk) else { return Ok(()) };
        let snapshot = store.snapshot();
        let Ok(commit) = snapshot.get(&COMMITS, 0) else { return Ok(()) };
        let model = trial.model(commit.unwrap_or(0));
        (0..3).try_for_each(|which| check_damaged_table(&snapshot, which, &model[which]))
    }));
    read.unwrap_or_else(|_| Err("a panic".into()))
}

fn check_damaged_table(
    snapshot: &Snapshot<'_>,
    which: usize,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(), String> {
    let Ok(rows) = snapshot.scan(&table(which)) else { return Ok(()) };
    let rows: Result<BTreeMap<_, _>, _> =
        rows.map(|key, value: Cow<'_, [u8]>| (key.to_vec(), value.into_owned())).collect();
    match rows {
        Err(_) => Ok(()),
        Ok(rows) if rows == *model => Ok(()),
        Ok(rows) => Err(format!("table {}: {} rows that nobody wrote", TABLES[which], rows.len())),
    }
}

#[test]
fn every_flipped_bit_is_told_or_does_not_matter() {
    let trial = Trial::new(5, 256, 30);
    let mut bytes = file(&trial);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if let Err(what) = check_damaged(&trial, &bytes) {
                panic!("bit {bit} of byte {at} of {}: {what}", bytes.len());
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_cut_swapped_and_zeroed_page_is_told_or_does_not_matter() {
    let trial = Trial::new(6, 256, 30);
    let bytes = file(&trial);
    let pages = bytes.len() / 256;
    for page in 0..pages {
        check_damaged(&trial, &bytes[..page * 256]).unwrap();
        let mut zeroed = bytes.clone();
        zeroed[page * 256..][..256].fill(0);
        check_damaged(&trial, &zeroed).unwrap();
        for other in 0..pages {
            let mut misplaced = bytes.clone();
            misplaced.copy_within(other * 256..(other + 1) * 256, page * 256);
            check_damaged(&trial, &misplaced).unwrap();
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_and_can_be_used_again() {
    let trial = Trial::new(8, 256, 20);
    let disk = SimDisk::new();
    drop(trial.open(&disk).unwrap());
    for nth in 1..60 {
        let acks = Acks::of(&disk);
        disk.inject(Fault::nth(Call::Write, nth, Failure::NoSpace).lasting());
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let store = trial.open(&disk)?;
            let held = store.snapshot().get(&COMMITS, 0).map_err(words)?.unwrap_or(0);
            let mut txn = store.begin();
            for step in trial.steps(&mut trial.rng(held + 1), 2) {
                apply(&mut txn, step).map_err(words)?;
            }
            txn.put(&COMMITS, 0, held + 1).map_err(words)?;
            txn.commit().map_err(words)?;
            store.checkpoint().map_err(words)
        }));
        assert!(lived.is_ok(), "no panic");
        disk.heal();
        trial.check(&disk, acks.progress()).unwrap();
    }
}
