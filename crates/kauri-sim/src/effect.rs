//! What an operation has yet to do to stable storage, and what a crash may make of it.
//!
//! A write is two effects: its bytes, and the new length if the file grew. Each survives or not by itself, and bytes may be
//! torn. Survivors are applied in the order in which they were issued. No other order is needed: where two pending writes
//! overlap, "the earlier one on top" is the later one torn so that the overlap is lost.

use crate::fault::{FaultKind, Hits};
use crate::image::{FileId, Image};
use crate::rng::Rng;
use crate::tear::Tear;
use crate::trace::{Bytes, NameChange, Op};

#[derive(Clone)]
pub(crate) struct Effect {
    /// The operation it belongs to.
    pub(crate) op: usize,
    pub(crate) what: What,
}

#[derive(Clone)]
pub(crate) enum What {
    Bytes {
        file: FileId,
        at: u64,
        bytes: Bytes,
    },
    /// `cuts` says that it made the file shorter: bytes that lay beyond must not come back with a later growth.
    Length {
        file: FileId,
        len: u64,
        cuts: bool,
    },
    Name(NameChange),
}

/// What becomes of an effect.
#[derive(Clone)]
pub(crate) enum Fate {
    Lost,
    Whole,
    Torn(Tear),
}

impl Effect {
    /// The file whose bytes or length it changes.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.what {
            What::Bytes { file, .. } | What::Length { file, .. } => Some(file),
            What::Name(_) => None,
        }
    }

    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.what, What::Bytes { .. })
    }
}

/// The effects of an operation that changes something; none for a sync.
pub(crate) fn effects_of(number: usize, op: &Op, into: &mut Vec<Effect>) {
    let mut push = |what| into.push(Effect { op: number, what });
    match op {
        Op::Write { file, at, bytes, grows_to }
        | Op::WriteDurable { file, at, bytes, grows_to }
        | Op::WriteDurableFailed { file, at, bytes, grows_to, .. } => {
            if let Some(len) = *grows_to {
                push(What::Length { file: *file, len, cuts: false });
            }
            push(What::Bytes { file: *file, at: *at, bytes: bytes.clone() });
        }
        Op::SetLen { file, len, cuts } => push(What::Length { file: *file, len: *len, cuts: *cuts }),
        Op::Name(change) => push(What::Name(change.clone())),
        Op::Sync { .. } | Op::SyncFailed { .. } | Op::SyncDir | Op::SyncDirFailed { .. } => {}
    }
}

/// Applies one effect. Bytes may come to lie beyond the length until [`settle`] is called.
pub(crate) fn apply(image: &mut Image, what: &What, fate: &Fate) {
    match (what, fate) {
        (_, Fate::Lost) => {}
        (What::Bytes { file, at, bytes }, Fate::Whole) => image.file_mut(*file).put(*at, bytes),
        (What::Bytes { file, at, bytes }, Fate::Torn(tear)) => {
            let content = image.file_mut(*file);
            tear.pieces(*at, bytes.len(), |piece| content.put(*at + piece.start as u64, &bytes[piece]));
        }
        (What::Length { file, len, cuts }, Fate::Whole | Fate::Torn(_)) => {
            let content = image.file_mut(*file);
            content.set_len_over_puts(*len);
            if *cuts {
                content.cut();
            }
        }
        (What::Name(change), Fate::Whole | Fate::Torn(_)) => change.apply(image),
    }
}

/// Ends a series of [`apply`]: bytes beyond a file's length are gone.
pub(crate) fn settle(image: &mut Image, effects: &[Effect]) {
    for effect in effects {
        if let What::Bytes { file, at, bytes } = &effect.what {
            let content = image.file_mut(*file);
            if at + bytes.len() as u64 > content.len() {
                content.cut();
            }
        }
    }
}

/// Fills the places where pending writes lengthened a file with whatever the device held before, if there are any.
pub(crate) fn fill_growth(image: &mut Image, effects: &[Effect], rng: &mut Rng) -> bool {
    let mut filled = false;
    for effect in effects {
        let What::Bytes { file, at, bytes } = &effect.what else { continue };
        let content = image.file_mut(*file);
        let from = content.len().max(*at);
        let end = at + bytes.len() as u64;
        if from < end {
            let mut garbage = vec![0; usize::try_from(end - from).expect("no longer than the write")];
            rng.fill(&mut garbage);
            content.put(from, &garbage);
            filled = true;
        }
    }
    filled
}

/// Counts what a choice of fates did.
pub(crate) fn count(effects: &[Effect], fates: &[Fate], hits: &mut Hits) {
    let mut lost_before = false;
    for (effect, fate) in effects.iter().zip(fates) {
        match (&effect.what, fate) {
            (What::Bytes { .. }, Fate::Lost) => hits.count(FaultKind::LostWrite),
            (What::Bytes { .. }, Fate::Torn(tear)) => hits.count(tear.kind()),
            (What::Length { .. }, Fate::Lost) => hits.count(FaultKind::LostLength),
            (What::Name(_), Fate::Lost) => hits.count(FaultKind::LostName),
            (What::Bytes { .. }, Fate::Whole) if lost_before => hits.count(FaultKind::Reordered),
            (_, Fate::Whole | Fate::Torn(_)) => {}
        }
        lost_before |= effect.is_bytes() && matches!(fate, Fate::Lost);
    }
}
