//! Kauri's own store, crashed at every operation: after each crash it holds exactly the commits up to some number, all that were
//! acknowledged among them, and no page is lost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use kauri_sim::{Acks, Engine, Explorer, Progress, Rng, SimDisk};
use kauri_tree::{Durability, Error, Options, Read, Store, Table, Write, WriteTxn};

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
fn compare(snapshot: &kauri_tree::Snapshot<'_>, model: &Model) -> Result<(), String> {
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

#[test]
fn store_survives_crashes_on_tiny_pages() {
    for seed in 0..6 {
        check(seed, 256, 12, 5_000);
    }
}

#[test]
fn store_survives_crashes_on_larger_pages() {
    check(100, 512, 20, 5_000);
    check(101, 1024, 20, 4_000);
    check(102, 4096, 15, 2_000);
}
