//! The store as a whole: pinned, looked at as it was, compared, written out as a stream, restored, forked, made shorter.

use std::collections::BTreeMap;

use kauri_tree::disk::{Disk, MemoryDisk};
use kauri_tree::{Error, Options, Snapshot, Store};

use super::{Model, NAME, PAGE_BYTES};
use crate::twin::{Chance, Outcome, same, words};

const PINS: [&str; 3] = ["morning", "noon", "night"];

/// The pins that there should be: the number that each was made with, and what was in the tables then.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pins: BTreeMap<&'static str, (u64, Model)>,
    made: u64,
}

fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false)
}

impl Pins {
    /// Whether the pins are those that there should be, each with what was there.
    pub(super) fn check(&self, store: &Store) -> Outcome {
        let found: Vec<_> = store.pins().into_iter().map(|pin| (pin.name, pin.when)).collect();
        let expected: Vec<_> = self.pins.iter().map(|(name, (when, _))| ((*name).to_owned(), *when)).collect();
        same("pins", found, expected)?;
        for (name, (_, model)) in &self.pins {
            model.compare(&as_of(store, name)?).map_err(|what| format!("as of {name}: {what}"))?;
        }
        Ok(())
    }

    /// Something that is done with the whole store, which holds what the model says.
    pub(super) fn step(&mut self, store: &Store, model: &Model, chance: &mut impl Chance) -> Outcome {
        match chance.below(8) {
            0..3 => self.pin(store, model, chance),
            3 => shorten(store),
            4 => self.fork(store, model, chance),
            5 => stream(&store.snapshot(), model, chance),
            6 => self.stream_since(store, model, chance),
            _ => self.differences(store, model),
        }?;
        self.check(store)
    }

    /// Makes a pin, or takes it away; somebody may be looking.
    fn pin(&mut self, store: &Store, model: &Model, chance: &mut impl Chance) -> Outcome {
        let name = PINS[chance.below(PINS.len())];
        if let Some((_, pinned)) = self.pins.remove(name) {
            let held = as_of(store, name)?;
            same("whether a pin was there", store.unpin(name).map_err(words)?, true)?;
            pinned.compare(&held)?;
            return same("whether a pin is there twice", store.unpin(name).map_err(words)?, false);
        }
        self.made += 1;
        store.pin(name, self.made).map_err(words)?;
        let again = store.pin(name, 0);
        same("whether a name is given once", matches!(again, Err(Error::PinExists { .. })), true)?;
        self.pins.insert(name, (self.made, model.clone()));
        Ok(())
    }

    /// A copy with everything: its file shared, or its rows copied.
    fn fork(&self, store: &Store, model: &Model, chance: &mut impl Chance) -> Outcome {
        let (disk, page_bytes) = (MemoryDisk::new(), [PAGE_BYTES, 2 * PAGE_BYTES][chance.below(2)]);
        let fork = store.fork(&options(page_bytes), &disk, NAME).map_err(words)?;
        model.compare(&fork.snapshot())?;
        self.check(&fork)?;
        fork.verify().map_err(|error| format!("a fork: {error}"))?;
        same("names beside a fork", disk.names().map_err(words)?, vec![NAME.to_owned()])
    }

    /// What changed since a pin, restored on what was there then; and not on anything else.
    fn stream_since(&self, store: &Store, model: &Model, chance: &mut impl Chance) -> Outcome {
        let Some((name, (_, pinned))) = self.pins.iter().next() else { return Ok(()) };
        let (mut whole, mut changes) = (Vec::new(), Vec::new());
        let base = as_of(store, name)?.checkpoint_to(&mut whole).map_err(words)?;
        let done =
            store.checkpoint_since(name, &mut changes).map_err(words)?.ok_or("a pin that is listed and not there")?;
        let copy = options(2 * PAGE_BYTES).restore(&MemoryDisk::new(), NAME, &mut &whole[..]).map_err(words)?;
        let spoilt = spoil(&changes, chance);
        same("whether a spoilt stream is refused", copy.restore_from(&mut &spoilt[..]).is_err(), true)?;
        pinned.compare(&copy.snapshot()).map_err(|what| format!("after a spoilt stream: {what}"))?;
        copy.restore_from(&mut &changes[..]).map_err(words)?;
        model.compare(&copy.snapshot())?;
        same("the content", copy.snapshot().content_hash().map_err(words)?, done.content)?;
        copy.verify().map_err(|error| format!("a copy: {error}"))?;
        let again = copy.restore_from(&mut &changes[..]);
        let is_other = matches!(again, Err(Error::OtherBase { .. }));
        same("whether a stream for another base is refused", is_other, base.content != done.content)
    }

    /// What changed since a pin, row by row.
    fn differences(&self, store: &Store, model: &Model) -> Outcome {
        let now = store.snapshot();
        self.pins
            .iter()
            .try_for_each(|(name, (_, pinned))| model.rows.differences(&now, &as_of(store, name)?, &pinned.rows))
    }
}

fn as_of<'s>(store: &'s Store, pin: &str) -> Result<Snapshot<'s>, String> {
    store.as_of(pin).map_err(words)?.ok_or_else(|| format!("pin {pin} is listed and not there"))
}

fn shorten(store: &Store) -> Outcome {
    let content = store.snapshot().content_hash().map_err(words)?;
    let done = store.compact().map_err(words)?;
    same("whether a file is longer than before", done.bytes_after > done.bytes_before, false)?;
    same("the content", store.snapshot().content_hash().map_err(words)?, content)?;
    store.verify().map(drop).map_err(|error| format!("a compacted file: {error}"))
}

/// A version, elsewhere and in other pages; nothing, if the stream was spoilt on the way.
fn stream(snapshot: &Snapshot<'_>, model: &Model, chance: &mut impl Chance) -> Outcome {
    let mut stream = Vec::new();
    let checkpoint = snapshot.checkpoint_to(&mut stream).map_err(words)?;
    let (disk, page_bytes) = (MemoryDisk::new(), [PAGE_BYTES, 2 * PAGE_BYTES, 65_536][chance.below(3)]);
    let spoilt = options(page_bytes).restore(&disk, NAME, &mut &spoil(&stream, chance)[..]);
    same("whether a spoilt stream is refused", spoilt.is_err(), true)?;
    same("what is left of it", disk.names().map_err(words)?, Vec::new())?;
    let copy = options(page_bytes).restore(&disk, NAME, &mut &stream[..]).map_err(words)?;
    model.compare(&copy.snapshot())?;
    same("the content", copy.snapshot().content_hash().map_err(words)?, checkpoint.content)?;
    copy.verify().map(drop).map_err(|error| format!("a copy: {error}"))
}

/// A stream of which a bit is flipped, or the end missing.
fn spoil(stream: &[u8], chance: &mut impl Chance) -> Vec<u8> {
    let (mut spoilt, at) = (stream.to_vec(), chance.below(stream.len()));
    match chance.below(4) {
        0 => spoilt.truncate(at),
        _ => spoilt[at] ^= 1 << chance.below(8),
    }
    spoilt
}
