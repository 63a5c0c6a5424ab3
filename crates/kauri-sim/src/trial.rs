//! A trial of the store: random work, drawn from a seed, whose outcome after each commit is known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kauri_disk::Disk;
use kauri_tree::{
    Change, Durability, Error, MultiTable, Options, Outcome, Read, ReadTtl, Snapshot, Store, Table, TtlTable, Write,
    WriteMulti, WriteTtl, WriteTxn,
};

use crate::acks::{Acks, Progress};
use crate::disk::SimDisk;
use crate::explore::Engine;
use crate::interruption::Interruption;
use crate::rng::Rng;

/// The name of the store's file.
pub const STORE_NAME: &str = "store";
/// Where the store says how many commits it has: in all, and of those that did some work.
const COMMITS: Table<u8, u64> = Table::new("commits");
const ALL: u8 = 0;
const WORKS: u8 = 1;
/// And the number of the last of those.
const LAST_WORK: u8 = 2;
/// A log of so many pages is half full after a few commits.
const LOG_PAGES: u64 = 16;
const TABLES: [&str; 3] = ["one", "two", "three"];

const PAIRS: MultiTable<[u8], [u8]> = MultiTable::new("pairs");
const EXPIRING: TtlTable<[u8], u64> = TtlTable::new("expiring");

/// Where each commit says which pins there were, and what is to be done with them when it has landed.
const PINS: Table<u8, [u8]> = Table::new("pins");
const PIN_NAMES: [&str; 3] = ["first", "second", "third"];

/// Pins, and the numbers under which they were made.
type Pins = BTreeMap<String, u64>;

/// What is done with the pins when a commit has landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PinStep {
    None,
    Make(usize),
    Drop(usize),
}

/// What the tables hold.
#[derive(Clone, Default, Debug)]
struct Model {
    tables: [BTreeMap<Vec<u8>, Vec<u8>>; 3],
    pairs: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// When rows expire.
    expiring: BTreeMap<Vec<u8>, u64>,
}

/// A store under random work: puts, removals, updates, cursors, ranges removed, rows loaded in order, values of multi-tables, rows that expire,
/// dropped tables, nested transactions that merge or vanish, changes, long values, commits with and without a sync, checkpoints, pins made,
/// read and dropped, files made shorter, and commits in the middle of them. The work of each commit is drawn from the seed and the commit's number, so what the
/// tables hold after it is known.
#[derive(Clone, Debug)]
pub struct StoreTrial {
    seed: u64,
    page_bytes: usize,
    commits: u64,
    /// What the tables hold after each work.
    models: Arc<Mutex<Vec<Model>>>,
    /// How often each thing was done.
    met: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

/// One thing that a commit does.
enum Step {
    Put(usize, Vec<u8>, Vec<u8>),
    Remove(usize, Vec<u8>),
    Drop(usize),
    /// Makes a value longer.
    Grow(usize, Vec<u8>, Vec<u8>),
    /// Removes so many rows from a key on.
    RemoveOn(usize, Vec<u8>, usize),
    /// Removes the rows from one key up to another.
    RemoveRange(usize, Vec<u8>, Vec<u8>),
    /// Loads rows in order.
    Load(usize, BTreeMap<Vec<u8>, Vec<u8>>),
    /// Drops a table, and loads so many rows: some of the pages go through to the file.
    Refill(usize, BTreeMap<Vec<u8>, Vec<u8>>),
    PutValue(Vec<u8>, Vec<u8>),
    RemoveValues(Vec<u8>),
    /// Loads pairs in order.
    LoadValues(BTreeSet<(Vec<u8>, Vec<u8>)>),
    PutUntil(Vec<u8>, u64),
    Sweep(u64, usize),
    Nest {
        vanishes: bool,
        steps: Vec<Step>,
    },
}

impl StoreTrial {
    /// A trial with pages of this size and so many commits in each life.
    #[must_use]
    pub fn new(seed: u64, page_bytes: usize, commits: u64) -> Self {
        let models = Arc::new(Mutex::new(vec![Model::default()]));
        Self { seed, page_bytes, commits, models, met: Arc::default() }
    }

    /// What was done so far, and how often: the kinds of steps, and what is done with the store as a whole.
    #[must_use]
    pub fn met(&self) -> BTreeMap<&'static str, u64> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn meet(&self, what: &'static str) {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    /// Opens the store, or makes it.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(&self, disk: &dyn Disk) -> Result<Store, String> {
        let log_bytes = usize::try_from(self.log_pages()).expect("a few") * self.page_bytes;
        let options = Options::new().page_bytes(self.page_bytes).log_bytes(log_bytes).keeper(false);
        // With some seeds as few pages stay in memory as can be.
        let options = if self.seed % 5 == 3 { options.cache_bytes(0) } else { options };
        options.open(disk, STORE_NAME).map_err(words)
    }

    /// The shortest log there is has LOG_PAGES; with some seeds it begins so and grows.
    fn log_pages(&self) -> u64 {
        if self.seed % 2 == 1 { 4 * LOG_PAGES } else { LOG_PAGES }
    }

    fn rng(&self, work: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(work))
    }

    /// How many of five commits need not be synced when they return. With some seeds most are: many records are pending then, in any combination.
    fn unsynced(&self) -> u64 {
        [1, 4, 1, 0][usize::try_from(self.seed % 4).expect("less than four")]
    }

    fn durability(&self, rng: &mut Rng) -> Durability {
        match (rng.chance(self.unsynced(), 5), rng.below(2)) {
            (true, 0) => Durability::None,
            (true, _) => Durability::Flush(1),
            (false, _) => Durability::Sync,
        }
    }

    fn steps(&self, rng: &mut Rng, depth: u32) -> Vec<Step> {
        let count = if rng.below(8) == 0 { rng.below(30) } else { rng.below(6) };
        (0..count).map(|_| self.step(rng, depth)).collect()
    }

    fn step(&self, rng: &mut Rng, depth: u32) -> Step {
        let table = rng.index(3);
        let key = self.key(rng);
        match rng.below(32) {
            28 | 29 => Step::RemoveRange(table, key, self.key(rng)),
            30 => Step::Load(table, (0..rng.below(12)).map(|_| (self.key(rng), vec![b'l'; rng.index(60)])).collect()),
            31 => Step::LoadValues((0..rng.below(12)).map(|_| (vec![b'a'; rng.index(3)], self.key(rng))).collect()),
            20 => Step::Grow(table, key, vec![b'+'; rng.index(60)]),
            21 => Step::RemoveOn(table, key, rng.index(8)),
            22 | 23 => Step::PutValue(vec![b'a'; rng.index(3)], key),
            24 => Step::RemoveValues(vec![b'a'; rng.index(3)]),
            25 | 26 => Step::PutUntil(key, rng.below(100)),
            27 => Step::Sweep(rng.below(100), rng.index(6)),
            0..11 => {
                let most = if rng.below(10) == 0 { self.page_bytes * 4 } else { 60 };
                let value = vec![b'a' + u8::try_from(rng.below(26)).expect("a letter"); rng.index(most)];
                Step::Put(table, key, value)
            }
            11..18 => Step::Remove(table, key),
            18 if rng.below(6) == 0 => Step::Drop(table),
            19 if self.seed % 3 == 1 => Step::Refill(table, self.many_rows(rng)),
            _ if depth > 0 => Step::Nest { vanishes: rng.below(3) == 0, steps: self.steps(rng, depth - 1) },
            _ => Step::Remove(table, key),
        }
    }

    /// Rows for some more pages, or a few less, than a load writes to the log.
    fn many_rows(&self, rng: &mut Rng) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pages = 60 + rng.index(20);
        let rows = pages * self.page_bytes / 80;
        (0..rows).map(|row| (format!("{row:05}").into_bytes(), vec![b'r'; 60 + rng.index(4)])).collect()
    }

    #[expect(clippy::unused_self, reason = "what is drawn is the trial's")]
    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        format!("{:0width$}", rng.below(25), width = rng.index(12)).into_bytes()
    }

    /// What the tables hold after so many works.
    fn model(&self, work: u64) -> Model {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        while models.len() as u64 <= work {
            let mut model = models.last().expect("the first is there").clone();
            let next = models.len() as u64;
            for step in self.steps(&mut self.rng(next), 2) {
                apply_to_model(&mut model, step);
            }
            models.push(model);
        }
        models[usize::try_from(work).expect("a small number")].clone()
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
            model.tables[table].insert(key, value);
        }
        Step::Remove(table, key) => {
            model.tables[table].remove(&key);
        }
        Step::Drop(table) => model.tables[table].clear(),
        Step::Grow(table, key, more) => model.tables[table].entry(key).or_default().extend(more),
        Step::RemoveOn(table, key, rows) => {
            let gone: Vec<_> = model.tables[table].range(key..).take(rows).map(|(key, _)| key.clone()).collect();
            model.tables[table].retain(|key, _| !gone.contains(key));
        }
        Step::RemoveRange(table, from, until) => model.tables[table].retain(|key, _| *key < from || *key >= until),
        Step::Load(table, rows) => model.tables[table].extend(rows),
        Step::Refill(table, rows) => model.tables[table] = rows,
        Step::PutValue(key, value) => {
            model.pairs.insert((key, value));
        }
        Step::LoadValues(pairs) => model.pairs.extend(pairs),
        Step::RemoveValues(key) => model.pairs.retain(|(other, _)| *other != key),
        Step::PutUntil(key, expires) => {
            model.expiring.insert(key, expires);
        }
        Step::Sweep(now, rows) => {
            let mut due: Vec<_> = model.expiring.iter().map(|(key, expires)| (*expires, key.clone())).collect();
            due.retain(|(expires, _)| *expires <= now);
            due.sort();
            for (_, key) in due.into_iter().take(rows) {
                model.expiring.remove(&key);
            }
        }
        Step::Nest { vanishes, steps } => {
            let mut child = model.clone();
            steps.into_iter().for_each(|step| apply_to_model(&mut child, step));
            if !vanishes {
                *model = child;
            }
        }
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Put(..) => "put",
            Self::Remove(..) => "remove",
            Self::Drop(..) => "drop a table",
            Self::Grow(..) => "update",
            Self::RemoveOn(..) => "remove at a cursor",
            Self::RemoveRange(..) => "remove a range",
            Self::Load(..) => "load rows",
            Self::Refill(..) => "load many rows",
            Self::PutValue(..) => "put a value",
            Self::RemoveValues(..) => "remove values",
            Self::LoadValues(..) => "load values",
            Self::PutUntil(..) => "put until",
            Self::Sweep(..) => "sweep",
            Self::Nest { vanishes: true, .. } => "vanish",
            Self::Nest { .. } => "nest",
        }
    }

    /// Whether a change can do it, or only a transaction.
    fn can_be_staged(&self) -> bool {
        use Step::{Grow, Put, PutUntil, PutValue, Remove, RemoveValues, Sweep};
        matches!(self, Put(..) | Remove(..) | Grow(..) | PutValue(..) | RemoveValues(..) | PutUntil(..) | Sweep(..))
    }
}

/// What a change can do too.
fn apply_anywhere(to: &mut impl Write, step: Step) -> Result<(), Error> {
    match step {
        Step::Put(which, key, value) => to.put(&table(which), &key, &value),
        Step::Remove(which, key) => to.remove(&table(which), &key).map(drop),
        Step::Grow(which, key, more) => {
            let grow = |old: Option<Cow<'_, [u8]>>| Some([&*old.unwrap_or_default(), &more].concat());
            to.update(&table(which), &key, grow).map(drop)
        }
        Step::PutValue(key, value) => to.put_value(&PAIRS, &key, &value).map(drop),
        Step::RemoveValues(key) => to.remove_values(&PAIRS, &key).map(drop),
        Step::PutUntil(key, expires) => to.put_until(&EXPIRING, &key, !expires, expires),
        Step::Sweep(now, rows) => to.sweep(&EXPIRING, now, rows).map(drop),
        other => unreachable!("{} is for transactions", other.name()),
    }
}

fn apply(txn: &mut WriteTxn<'_>, step: Step) -> Result<(), Error> {
    match step {
        step if step.can_be_staged() => apply_anywhere(txn, step),
        Step::Drop(which) => txn.drop_table(TABLES[which]).map(drop),
        Step::RemoveRange(which, from, until) => txn.remove_range(&table(which), &from[..]..&until[..]).map(drop),
        Step::Load(which, rows) => {
            txn.load_sorted(&table(which), rows.iter().map(|(key, value)| (&key[..], &value[..]))).map(drop)
        }
        Step::Refill(which, rows) => {
            txn.drop_table(TABLES[which])?;
            apply(txn, Step::Load(which, rows))
        }
        Step::LoadValues(pairs) => {
            txn.load_sorted_values(&PAIRS, pairs.iter().map(|(key, value)| (&key[..], &value[..]))).map(drop)
        }
        Step::RemoveOn(which, key, rows) => {
            let mut cursor = txn.cursor_mut(&table(which))?;
            cursor.seek(&key)?;
            (0..rows).try_for_each(|_| cursor.remove().map(drop))
        }
        Step::Nest { vanishes, steps } => {
            let mut child = txn.nest();
            for step in steps {
                apply(&mut child, step)?;
            }
            if vanishes { Ok(()) } else { child.commit() }
        }
        other => unreachable!("{} can be staged", other.name()),
    }
}

impl StoreTrial {
    /// Does the work of one commit, and commits it.
    ///
    /// # Errors
    /// What the store says.
    pub fn commit(&self, store: &Store, commit: u64, durability: Durability) -> Result<(), String> {
        let work = store.snapshot().get(&COMMITS, WORKS).map_err(words)?.unwrap_or(0) + 1;
        let steps = self.steps(&mut self.rng(work), 2);
        steps.iter().for_each(|step| self.meet(step.name()));
        // Some are changes, if they can be.
        if work % 3 == 1 && steps.iter().all(Step::can_be_staged) {
            self.meet("change");
            return self.commit_change(store, steps, work, commit, durability);
        }
        let mut txn = store.begin();
        for step in steps {
            apply(&mut txn, step).map_err(words)?;
        }
        self.note(&mut txn, &pins(store), work, commit)?;
        txn.commit_with(durability).map_err(words)
    }

    fn commit_change(
        &self,
        store: &Store,
        steps: Vec<Step>,
        work: u64,
        commit: u64,
        durability: Durability,
    ) -> Result<(), String> {
        let mut change = Change::new(store.snapshot());
        for step in steps {
            apply_anywhere(&mut change, step).map_err(words)?;
        }
        self.note(&mut change, &pins(store), work, commit)?;
        match store.commit_with(change, durability).map_err(words)? {
            Outcome::Committed { .. } => Ok(()),
            // Only the number of the last commit is written by others.
            Outcome::Conflict { table, key } => {
                Err(format!("a conflict at {key:?} of {table}, which nobody else writes"))
            }
        }
    }

    /// Writes down which commit this is, and what is to be done with the pins after it.
    fn note(&self, to: &mut impl Write, pins: &Pins, work: u64, commit: u64) -> Result<(), String> {
        to.put(&COMMITS, WORKS, work).map_err(words)?;
        to.put(&COMMITS, LAST_WORK, commit).map_err(words)?;
        to.put(&COMMITS, ALL, commit).map_err(words)?;
        to.put(&PINS, 0, &encode_pins(pins, self.pin_step(commit, pins))).map_err(words)
    }

    /// What is done with the pins after a commit. Some seeds have none.
    fn pin_step(&self, commit: u64, pins: &Pins) -> PinStep {
        let mut rng = Rng::new(self.seed.rotate_left(17) ^ commit);
        let (which, chance) = (rng.index(3), rng.below(3));
        let is_there = pins.contains_key(PIN_NAMES[which]);
        match (chance, is_there) {
            _ if self.seed.is_multiple_of(3) => PinStep::None,
            (0, false) => PinStep::Make(which),
            (0, true) => PinStep::Drop(which),
            _ => PinStep::None,
        }
    }

    /// Whether the pins are those that the last commit found, or those and what was done after it; and whether each shows what was there
    /// when it was made.
    fn check_pins(&self, store: &Store) -> Result<(), String> {
        let found = pins(store);
        let row = store.snapshot().get(&PINS, 0).map_err(words)?.map(Cow::into_owned).unwrap_or_default();
        let last = Self::last_work(&store.snapshot())?;
        if !is_expected(&found, &row, last) {
            return Err(format!("pins {found:?}; the last commit said {:?}", String::from_utf8_lossy(&row)));
        }
        for (name, when) in found {
            let pinned = store.as_of(&name).map_err(words)?.ok_or("a pin that is listed and not there")?;
            compare(&pinned, &self.model_of(&pinned)?).map_err(|what| format!("as of {name}: {what}"))?;
            let commit = Self::last_commit(&pinned)?;
            if commit >= when {
                return Err(format!("pin {name} of number {when} has commit {commit}"));
            }
        }
        Ok(())
    }

    /// Whether each pin that can be read shows what was there when it was made.
    ///
    /// # Errors
    /// Says which table holds something that nobody wrote.
    pub fn check_readable_pins(&self, store: &Store) -> Result<(), String> {
        store.pins().iter().try_for_each(|pin| match store.as_of(&pin.name) {
            Ok(Some(pinned)) => self.check_readable(&pinned),
            _ => Ok(()),
        })
    }

    /// The last commit, or pin, that there is.
    fn last(store: &Store) -> Result<u64, String> {
        let commit = Self::last_commit(&store.snapshot())?;
        // A pin goes only after a later commit.
        Ok(pins(store).into_values().fold(commit, u64::max))
    }

    /// Which commit was the last that did some work.
    fn last_work(snapshot: &Snapshot<'_>) -> Result<u64, String> {
        Ok(snapshot.get(&COMMITS, LAST_WORK).map_err(words)?.unwrap_or(0))
    }

    /// Which commit was the store's last.
    ///
    /// # Errors
    /// What the store says.
    pub fn last_commit(snapshot: &Snapshot<'_>) -> Result<u64, String> {
        Ok(snapshot.get(&COMMITS, ALL).map_err(words)?.unwrap_or(0))
    }

    /// What the tables of a version hold.
    fn model_of(&self, snapshot: &Snapshot<'_>) -> Result<Model, String> {
        Ok(self.model(snapshot.get(&COMMITS, WORKS).map_err(words)?.unwrap_or(0)))
    }

    /// Whether each table that can be read holds what it should after the last commit: damage may be told, never read.
    ///
    /// # Errors
    /// Says which table holds something that nobody wrote.
    pub fn check_readable(&self, snapshot: &Snapshot<'_>) -> Result<(), String> {
        let Ok(model) = self.model_of(snapshot) else { return Ok(()) };
        if let Ok(false) = has_others(snapshot, &model) {
            return Err("pairs or rows that expire that nobody wrote".to_owned());
        }
        model.tables.iter().enumerate().try_for_each(|(which, model)| match rows(snapshot, which) {
            Ok(rows) if rows != *model => Err(format!("table {}: rows that nobody wrote", TABLES[which])),
            _ => Ok(()),
        })
    }
}

fn pins(store: &Store) -> Pins {
    store.pins().into_iter().map(|pin| (pin.name, pin.when)).collect()
}

/// `first=3 third=9 +second`: the pins, and what is to be done.
fn encode_pins(pins: &Pins, step: PinStep) -> Vec<u8> {
    let mut text: String = pins.iter().map(|(name, when)| format!("{name}={when} ")).collect();
    match step {
        PinStep::None => {}
        PinStep::Make(which) => text += &format!("+{}", PIN_NAMES[which]),
        PinStep::Drop(which) => text += &format!("-{}", PIN_NAMES[which]),
    }
    text.into_bytes()
}

fn decode_pins(row: &[u8]) -> Option<(Pins, PinStep)> {
    let (mut pins, mut step) = (Pins::new(), PinStep::None);
    for word in std::str::from_utf8(row).ok()?.split_whitespace() {
        let which = PIN_NAMES.iter().position(|name| word.get(1..) == Some(name));
        match (word.split_once('='), which) {
            (Some((name, when)), _) => drop(pins.insert(name.to_owned(), when.parse().ok()?)),
            (None, Some(which)) if word.starts_with('+') => step = PinStep::Make(which),
            (None, Some(which)) => step = PinStep::Drop(which),
            (None, None) => return None,
        }
    }
    Some((pins, step))
}

/// Whether these are the pins that a commit found, or those after what was done when it had landed.
fn is_expected(found: &Pins, row: &[u8], commit: u64) -> bool {
    let Some((mut pins, step)) = decode_pins(row) else { return false };
    if *found == pins {
        return true;
    }
    match step {
        PinStep::None => return false,
        PinStep::Make(which) => {
            let made = found.get(PIN_NAMES[which]).filter(|when| **when > commit);
            pins.extend(made.map(|when| (PIN_NAMES[which].to_owned(), *when)));
        }
        PinStep::Drop(which) => drop(pins.remove(PIN_NAMES[which])),
    }
    *found == pins
}

/// The rows of a table.
fn rows(snapshot: &Snapshot<'_>, which: usize) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let rows = snapshot.scan(&table(which))?;
    rows.map(|key, value: Cow<'_, [u8]>| (key.to_vec(), value.into_owned())).collect()
}

/// Whether the pairs and the rows that expire are those of the model.
fn has_others(snapshot: &Snapshot<'_>, model: &Model) -> Result<bool, Error> {
    let pairs = snapshot.scan(&PAIRS)?.map(|(key, value), ()| (key.into_owned(), value.to_vec()));
    let is_same = pairs.collect::<Result<BTreeSet<_>, _>>()? == model.pairs;
    // The value says when it expires, and so do the row and its place among those that are due.
    let mut live = BTreeMap::new();
    for row in snapshot.scan_live(&EXPIRING, 0)?.map(|key, value| (key.to_vec(), !value)) {
        let (key, expires) = row?;
        live.insert(key, expires);
    }
    let expected: BTreeMap<_, _> = model.expiring.clone().into_iter().filter(|(_, expires)| *expires > 0).collect();
    let first = snapshot.first_expiry(&EXPIRING)? == model.expiring.values().copied().min();
    Ok(is_same && first && live == expected && snapshot.count_live(&EXPIRING, 0)? == live.len() as u64)
}

/// One life of a store, with a commit now and then while a checkpoint writes.
#[derive(Clone)]
struct Life {
    trial: StoreTrial,
    store: Store,
    acks: Acks,
    /// The last commit that was begun.
    begun: Arc<Mutex<u64>>,
    /// It has not returned.
    landing: Arc<AtomicBool>,
}

impl Life {
    fn begin(&self) -> u64 {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        self.acks.started(*begun);
        *begun
    }

    /// The next commit.
    fn commit(&self) -> Result<(), String> {
        let commit = self.begin();
        let step = self.trial.pin_step(commit, &pins(&self.store));
        let mut rng = Rng::new(self.trial.seed ^ commit << 32);
        let durability = self.trial.durability(&mut rng);
        // Once more, if it failed. A store that is broken says no; one that says yes must keep everything.
        let work = || self.trial.commit(&self.store, commit, durability);
        self.landing.store(true, Ordering::Relaxed);
        let landed = work().or_else(|_| work());
        self.landing.store(false, Ordering::Relaxed);
        landed?;
        if durability == Durability::Sync {
            self.ack(commit);
        }
        self.change_pins(step)?;
        match rng.below(18) {
            0 | 1 => {
                self.trial.meet("checkpoint");
                self.store.checkpoint().map_err(words)?;
            }
            2 | 3 => {
                self.trial.meet("sync");
                self.store.sync().map_err(words)?;
            }
            // It takes many operations, so only some seeds do it.
            4 if self.trial.seed.is_multiple_of(4) => {
                self.trial.meet("compact");
                self.store.compact().map_err(words)?;
            }
            _ => return Ok(()),
        }
        self.ack(commit);
        Ok(())
    }

    /// Makes or drops a pin. One that was made is durable, and so is everything before.
    fn change_pins(&self, step: PinStep) -> Result<(), String> {
        match step {
            PinStep::None => {}
            PinStep::Make(which) => {
                self.trial.meet("pin");
                let number = self.begin();
                self.store.pin(PIN_NAMES[which], number).map_err(words)?;
                self.ack(number);
            }
            PinStep::Drop(which) => {
                self.trial.meet("unpin");
                let held =
                    self.store.as_of(PIN_NAMES[which]).map_err(words)?.ok_or("a pin that is listed and not there")?;
                if !self.store.unpin(PIN_NAMES[which]).map_err(words)? {
                    return Err("a pin that was there and is not".to_owned());
                }
                // Whoever reads as of it goes on.
                compare(&held, &self.trial.model_of(&held)?)?;
            }
        }
        Ok(())
    }

    /// A commit of nothing but its number, if the turn is free and the log has room: who waits here waits for himself.
    fn commit_between(&self) -> Result<(), String> {
        if self.store.try_begin().is_none() {
            if !self.landing.load(Ordering::Relaxed) {
                return Ok(());
            }
            // The commit that was begun last is being written, and is not to be seen before it is durable.
            let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = StoreTrial::last_commit(&self.store.snapshot())?;
            assert!(seen < begun, "commit {seen} is seen before it is durable");
            return Ok(());
        }
        let stat = self.store.stat();
        if stat.log_used_bytes + 3 * self.trial.page_bytes.max(512) as u64 > stat.log_bytes {
            return Ok(());
        }
        let commit = self.begin();
        let durability = self.trial.durability(&mut Rng::new(self.trial.seed ^ commit << 32));
        let mut txn = self.store.begin();
        txn.put(&COMMITS, ALL, commit).map_err(words)?;
        txn.commit_with(durability).map_err(words)?;
        if durability == Durability::Sync {
            self.ack(commit);
        }
        Ok(())
    }

    /// Says that a commit is durable. A later one may have said so while this one was still returning.
    fn ack(&self, commit: u64) {
        if self.acks.progress().acked < commit {
            self.acks.acked(commit);
        }
    }

    /// Lets some commits happen in the middle of one write of pages in three.
    fn interrupt(&self, interruption: &Interruption) {
        let life = self.clone();
        let mut rng = Rng::new(self.trial.seed);
        interruption.set_work(move || {
            // Some at once now and then, so that the log comes round.
            let commits = if rng.chance(1, 3) { rng.below(6) } else { 0 };
            for _ in 0..commits {
                // What fails here is a fault that was injected, and breaks the store: the one who is interrupted meets it too.
                let _ = life.commit_between();
            }
        });
    }
}

impl Engine for StoreTrial {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let page_bytes = self.page_bytes as u64;
        let (disk, interruption) = Interruption::of(disk, 2 * page_bytes..(2 + self.log_pages()) * page_bytes);
        let store = self.open(&disk)?;
        // A snapshot that is held over everything must not change what is kept.
        let snapshot = store.snapshot();
        let held = Self::last(&store)?;
        let begun = Arc::new(Mutex::new(held));
        let landing = Arc::default();
        let life = Life { trial: self.clone(), store: store.clone(), acks: acks.clone(), begun, landing };
        life.interrupt(&interruption);
        let lived = (0..self.commits).try_for_each(|_| life.commit());
        interruption.clear_work();
        lived?;
        compare(&snapshot, &self.model_of(&snapshot)?)
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        let store = self.open(disk)?;
        let last = Self::last(&store)?;
        let snapshot = store.snapshot();
        compare(&snapshot, &self.model_of(&snapshot)?)?;
        self.check_pins(&store)?;
        store.verify().map_err(words)?;
        // Opening a file writes nothing: what was recovered is in memory until a checkpoint has written it down. With some seeds
        // that belongs to recovery, and is crashed with it.
        if !self.seed.is_multiple_of(8) {
            store.checkpoint().map_err(words)?;
            store.verify().map_err(words)?;
        }
        Ok(last)
    }
}

/// Whether the tables hold what they should, all of it and nothing else.
fn compare(snapshot: &Snapshot<'_>, model: &Model) -> Result<(), String> {
    if !has_others(snapshot, model).map_err(words)? {
        return Err("pairs or rows that expire are others than expected".to_owned());
    }
    for (which, model) in model.tables.iter().enumerate() {
        let rows = rows(snapshot, which).map_err(words)?;
        if rows != *model {
            let (expected, found) = (model.len(), rows.len());
            return Err(format!("table {}: expected {expected} rows, found {found}, or others", TABLES[which]));
        }
    }
    Ok(())
}
