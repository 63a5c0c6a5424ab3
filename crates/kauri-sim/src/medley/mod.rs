//! A medley: tables of every kind in one store, beside plain maps, and every way to change them.
//!
//! Rows with cursors among them, ranges removed, rows loaded in order, values compared, merged and filled in place; several values per
//! key; rows that expire; in transactions, nested ones, and changes that conflict or do not. Somebody watches the rows. Versions are
//! pinned, compared, forked, written out as streams and restored, and the file is made shorter. All of it in the smallest pages, in a file
//! that is closed and opened again. A [`Twin`](crate::Twin) tries fewer things with more rows.

mod pairs;
mod rows;
mod timed;
mod whole;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Change, Errand, Options, Outcome as Done, Read, Store, Write, WriteTxn};

use crate::twin::{Chance, Outcome, same, words};
use pairs::Pairs;
use rows::{Mirror, Rows};
use timed::Timed;
use whole::Pins;

const PAGE_BYTES: usize = 256;
const NAME: &str = "store";
/// How deep transactions nest.
const DEPTH_MAX: u32 = 2;

/// What the tables should hold.
#[derive(Clone, Debug, Default)]
struct Model {
    rows: Rows,
    pairs: Pairs,
    timed: Timed,
}

impl Model {
    fn compare(&self, from: &impl Read) -> Outcome {
        self.rows.compare(from)?;
        self.pairs.compare(from)?;
        self.timed.compare(from)
    }

    /// Something that every writer can do.
    fn write(&mut self, to: &mut impl Write, chance: &mut impl Chance) -> Outcome {
        match chance.below(3) {
            0 => self.rows.write(to, chance),
            1 => self.pairs.write(to, chance),
            _ => self.timed.write(to, chance),
        }
    }

    /// Something that only a transaction can do.
    fn change(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        match chance.below(6) {
            0..2 => self.rows.wander(txn, chance),
            2 => self.rows.load(txn, chance),
            3 => self.rows.remove_range(txn, chance),
            4 => self.pairs.change(txn, chance),
            _ => self.pairs.walk(txn, chance),
        }
    }
}

/// A store with tables of every kind, and the maps that say what they should hold.
///
/// ```
/// use kauri_sim::{Medley, Rng};
///
/// assert_eq!(Medley::new(Rng::new(7)).work(200), Ok(()));
/// ```
#[derive(Debug)]
pub struct Medley<C> {
    chance: C,
    disk: MemoryDisk,
    model: Model,
    pins: Pins,
}

impl<C: Chance> Medley<C> {
    /// An empty store.
    #[must_use]
    pub fn new(chance: C) -> Self {
        Self { chance, disk: MemoryDisk::new(), model: Model::default(), pins: Pins::default() }
    }

    /// Makes so many commits, or fewer if there is nothing left to choose from.
    ///
    /// # Errors
    /// Says where store and maps first disagreed, or what the store said.
    pub fn work(&mut self, commits: u64) -> Outcome {
        let mut made = 0;
        while made < commits && !self.chance.is_spent() {
            let store = self.open()?;
            self.check(&store)?;
            self.pins.check(&store)?;
            let mut mirror = Mirror::new(&store, &self.model.rows)?;
            while made < commits && !self.chance.is_spent() {
                made += 1;
                self.commit(&store).map_err(|what| format!("commit {made}: {what}"))?;
                self.check(&store).map_err(|what| format!("after commit {made}: {what}"))?;
                mirror.follow(&store, &self.model.rows).map_err(|what| format!("watched commit {made}: {what}"))?;
                let whole = |what| format!("the whole store after commit {made}: {what}");
                match self.chance.below(16) {
                    0 => break,
                    1 => store.checkpoint().map_err(words)?,
                    2..4 => self.pins.step(&store, &self.model, &mut self.chance).map_err(whole)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<Store, String> {
        Options::new().page_bytes(PAGE_BYTES).log_bytes(1).keeper(false).open(&self.disk, NAME).map_err(words)
    }

    fn check(&self, store: &Store) -> Outcome {
        self.model.compare(&store.snapshot())?;
        store.verify().map(drop).map_err(|error| format!("verify: {error}"))
    }

    fn commit(&mut self, store: &Store) -> Outcome {
        match self.chance.below(10) {
            0..2 => self.one_change(store),
            2..4 => self.two_changes(store),
            4 => self.errands(store),
            _ => self.transaction(store),
        }
    }

    fn transaction(&mut self, store: &Store) -> Outcome {
        let before = self.model.clone();
        let mut txn = store.begin();
        changes(&mut txn, &mut self.model, &mut self.chance, DEPTH_MAX)?;
        if self.chance.below(8) == 0 {
            self.model = before;
            return Ok(());
        }
        txn.commit().map_err(words)
    }

    /// A change that nobody disturbs.
    fn one_change(&mut self, store: &Store) -> Outcome {
        let change = self.staged(store)?;
        same("whether a change commits", store.commit(change).map_err(words)?.is_committed(), true)
    }

    fn staged<'a>(&mut self, store: &'a Store) -> Result<Change<'a>, String> {
        let mut change = Change::new(store.snapshot());
        for _ in 0..self.chance.below(12) {
            match self.chance.below(8) {
                0 => self.model.rows.wander_staged(&mut change, &mut self.chance)?,
                1 => self.model.pairs.walk_staged(&mut change, &mut self.chance)?,
                _ => self.model.write(&mut change, &mut self.chance)?,
            }
        }
        self.model.compare(&change)?;
        Ok(change)
    }

    /// Errands that are done together, some of which find at their end that they were not to be.
    fn errands(&mut self, store: &Store) -> Outcome {
        let mut posted = Vec::new();
        for _ in 0..=self.chance.below(5) {
            let rows: Vec<_> = (0..self.chance.below(4))
                .map(|_| (rows::key(&mut self.chance), rows::value(&mut self.chance)))
                .collect();
            let stays = self.chance.below(4) > 0;
            if stays {
                rows.iter().for_each(|(key, value)| self.model.rows.put(key.clone(), value.clone()));
            }
            let errand = Errand::new(move |txn| {
                rows.iter().try_for_each(|(key, value)| rows::put(txn, key, value))?;
                Ok(match stays {
                    true => Done::Committed { sequences: Vec::new() },
                    false => Done::Conflict { table: "rows".into(), key: Box::default() },
                })
            });
            posted.push((store.post(errand), stays));
        }
        for (posted, stays) in posted {
            same("whether an errand stays", posted.settle().map_err(words)?.is_committed(), stays)?;
        }
        Ok(())
    }

    /// A change that has looked at rows, and another that commits before it: they are in conflict if it wrote where that looked.
    fn two_changes(&mut self, store: &Store) -> Outcome {
        let [read, written] = [(); 2].map(|()| rows::key(&mut self.chance));
        let (mut early, mut late) = (Change::new(store.snapshot()), Change::new(store.snapshot()));
        let looks = match self.chance.below(2) {
            0 => self.model.rows.get(&late, &read).map(|()| read == written)?,
            _ => self.model.rows.looks_at(&late, &read, &written)?,
        };
        let longer = self.model.rows.longer(&written);
        rows::put(&mut early, &written, &longer).map_err(words)?;
        rows::put(&mut late, b"late", &longer).map_err(words)?;
        same("whether the first commits", store.commit(early).map_err(words)?.is_committed(), true)?;
        let is_committed = store.commit(late).map_err(words)?.is_committed();
        same("whether a change commits that had looked at rows", is_committed, !looks)?;
        self.model.rows.put(written, longer.clone());
        if is_committed {
            self.model.rows.put(b"late".to_vec(), longer);
        }
        Ok(())
    }
}

/// Random changes of a transaction, in nested ones too, of which some vanish.
fn changes(txn: &mut WriteTxn<'_>, model: &mut Model, chance: &mut impl Chance, depth: u32) -> Outcome {
    for _ in 0..chance.below(24) {
        match chance.below(10) {
            0..6 => model.write(txn, chance)?,
            6..9 => model.change(txn, chance)?,
            _ if depth > 0 => {
                let before = model.clone();
                let mut child = txn.nest();
                changes(&mut child, model, chance, depth - 1)?;
                if chance.below(3) > 0 {
                    child.commit().map_err(words)?;
                } else {
                    drop(child);
                    *model = before;
                }
            }
            _ => model.compare(txn)?,
        }
    }
    Ok(())
}
