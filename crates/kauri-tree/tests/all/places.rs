//! Where stores live, and random work in each place: nested, dropped, committed, opened again.

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Options, Read, Store, WriteTxn};

use crate::random::Random;

/// A store, and how to open it again if that can be done.
pub(crate) struct Place {
    store: Option<Store>,
    file: Option<(MemoryDisk, Options)>,
    pub(crate) page_bytes: usize,
}

impl Place {
    /// In memory and in files, with tiny pages and normal ones, with all the memory there is and with next to none.
    pub(crate) fn all() -> Vec<Self> {
        let in_memory = [256, 4096].map(|page_bytes| Self {
            store: Some(Options::new().page_bytes(page_bytes).in_memory().unwrap()),
            file: None,
            page_bytes,
        });
        let file = |page_bytes: usize| Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false);
        let files =
            [(256, file(256)), (4096, file(4096)), (256, file(256).cache_bytes(0))].map(|(page_bytes, options)| {
                let disk = MemoryDisk::new();
                let store = Some(options.open(&disk, "store").unwrap());
                Self { store, file: Some((disk, options)), page_bytes }
            });
        in_memory.into_iter().chain(files).collect()
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Closes the store and opens it again, if it is in a file.
    pub(crate) fn reopen(&mut self) {
        if let Some((disk, options)) = &self.file {
            self.store = None;
            self.store = Some(options.open(disk, "store").unwrap());
        }
    }

    /// Forgets the store without closing it, as a crash does, and opens what its file holds.
    pub(crate) fn crash(&mut self) {
        if let Some((disk, options)) = &mut self.file {
            let copy = copy(disk);
            self.store = None;
            *disk = copy;
            self.store = Some(options.open(disk, "store").unwrap());
        }
    }
}

/// A disk that holds what this one holds now.
pub(crate) fn copy(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::new();
    let from = disk.open("store", Open::ReadOnly).unwrap();
    let mut bytes = vec![0; from.len().unwrap() as usize];
    from.read_at(0, &mut bytes).unwrap();
    copy.open("store", Open::Create).unwrap().write_at(0, &bytes).unwrap();
    copy
}

/// What is tried: one random change of a transaction and of a model of it, and the comparison of both.
pub(crate) trait Subject {
    type Model: Clone + Default;

    fn change(&self, txn: &mut WriteTxn<'_>, model: &mut Self::Model, random: &mut Random, page_bytes: usize);

    fn compare(&self, from: &impl Read, model: &Self::Model);
}

/// Random transactions everywhere, compared after each.
pub(crate) fn try_everywhere<S: Subject>(subject: &S, transactions: usize, seed: u64) {
    for (mut place, seed) in Place::all().into_iter().zip(seed * 100..) {
        let (mut model, mut random) = (S::Model::default(), Random(seed));
        for _ in 0..transactions {
            let before = model.clone();
            let mut txn = place.store().begin();
            work(subject, &mut txn, &mut model, &mut random, place.page_bytes, 2);
            subject.compare(&txn, &model);
            if random.below(8) == 0 {
                drop(txn);
                model = before;
            } else {
                txn.commit().unwrap();
            }
            match random.below(12) {
                0 => place.reopen(),
                1 => place.crash(),
                _ => {}
            }
            subject.compare(&place.store().snapshot(), &model);
            place.store().verify().unwrap();
        }
    }
}

/// Random changes in nested transactions, some of which vanish.
pub(crate) fn work<S: Subject>(
    subject: &S,
    txn: &mut WriteTxn<'_>,
    model: &mut S::Model,
    random: &mut Random,
    page_bytes: usize,
    depth: usize,
) {
    for _ in 0..random.below(25) {
        subject.change(txn, model, random, page_bytes);
    }
    if depth > 0 && random.below(2) == 0 {
        let before = model.clone();
        let mut child = txn.nest();
        work(subject, &mut child, model, random, page_bytes, depth - 1);
        if random.below(3) == 0 {
            drop(child);
            *model = before;
        } else {
            child.commit().unwrap();
        }
        work(subject, txn, model, random, page_bytes, depth - 1);
    }
}
