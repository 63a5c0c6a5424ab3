//! Stores made from streams and from versions of others, crashed at every operation: each is there whole under its name, or not at all.

use kauri_disk::Disk;
use kauri_sim::{Acks, Engine, Explorer, Failure, Fault, Progress, SimDisk};
use kauri_tree::{ContentHash, Error, Options, Store};

/// Restores a store from a stream, then forks it: two things that are acknowledged one after the other.
struct Copies {
    stream: Vec<u8>,
    content: ContentHash,
    page_bytes: usize,
    /// Whether the fork shares the bytes of the file; else its rows are copied.
    shares: bool,
}

const NAMES: [&str; 2] = ["store", "fork"];

impl Copies {
    fn new(page_bytes: usize, rows: u32, shares: bool) -> Self {
        let store = Store::in_memory().expect("memory");
        let mut txn = store.begin();
        for row in 0..rows {
            txn.put_raw("rows", &row.to_be_bytes(), &vec![7; (row as usize * 37) % 600]).expect("memory");
        }
        txn.put_raw("other", b"a", b"b").expect("memory");
        txn.commit().expect("memory");
        let mut stream = Vec::new();
        let content = store.snapshot().checkpoint_to(&mut stream).expect("memory").content;
        Self { stream, content, page_bytes, shares }
    }

    fn options(&self) -> Options {
        Options::new().page_bytes(self.page_bytes).log_bytes(1).keeper(false)
    }

    /// Whether there is a store of this name; if so, it is whole.
    fn is_there(&self, disk: &dyn Disk, name: &str) -> Result<bool, String> {
        let store = match self.options().read_only(true).open(disk, name) {
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(|error| format!("{name}: {error}"))?,
        };
        store.verify().map_err(|error| format!("{name}: {error}"))?;
        match store.snapshot().content_hash().map_err(|error| error.to_string())? {
            content if content == self.content => Ok(true),
            content => Err(format!("{name} holds {content}")),
        }
    }
}

impl Engine for Copies {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let words = |error: Error| error.to_string();
        if !self.is_there(disk, NAMES[0])? {
            acks.started(1);
            self.options().restore(disk, NAMES[0], &mut &self.stream[..]).map_err(words)?;
            acks.acked(1);
        }
        if !self.is_there(disk, NAMES[1])? {
            let store = self.options().open(disk, NAMES[0]).map_err(words)?;
            acks.started(2);
            let fork = match self.shares {
                true => store.fork(&self.options(), disk, NAMES[1]),
                false => store.snapshot().fork(&self.options(), disk, NAMES[1]),
            };
            fork.map_err(words)?;
            acks.acked(2);
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        match (self.is_there(disk, NAMES[0])?, self.is_there(disk, NAMES[1])?) {
            (false, false) => Ok(0),
            (true, false) => Ok(1),
            (true, true) => Ok(2),
            (false, true) => Err("a fork of a store that is not there".to_owned()),
        }
    }
}

#[test]
fn restored_and_forked_stores_are_whole_or_not_there_after_a_crash() {
    for (seed, page_bytes, rows) in [(1, 256, 40), (2, 512, 10), (3, 256, 0)] {
        for shares in [false, true] {
            let report = Explorer::new(seed).points(5_000).lives(3).explore(&Copies::new(page_bytes, rows, shares));
            assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
            assert!(report.points > 100, "only {} points", report.points);
        }
    }
}

#[test]
fn every_failing_call_leaves_no_half_of_a_copy() {
    for (nth, shares) in (1..200).flat_map(|nth| [(nth, false), (nth, true)]) {
        let fault = Fault::nth_of_any(nth, Failure::Io);
        let report = Explorer::new(nth).points(20).fault(fault).explore(&Copies::new(256, 10, shares));
        assert!(report.violation.is_none(), "call {nth}, {shares}: {:?}", report.violation);
    }
}
