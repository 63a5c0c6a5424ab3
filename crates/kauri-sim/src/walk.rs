//! A walk along a trace: what is durable, and what is pending, after each operation.

use crate::effect::{self, Effect, Fate, What, effects_of};
use crate::image::{FileId, Image};
use crate::rng::Rng;
use crate::tear::Tear;
use crate::trace::{Bytes, Op, Trace};

/// Goes from operation to operation; the image of the next crash is never built from the beginning.
pub(crate) struct Walk<'t> {
    trace: &'t Trace,
    at: usize,
    durable: Image,
    pending: Vec<Effect>,
}

/// What an operation did to the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// Something is pending that was not.
    Pending,
    /// Something became durable, or was lost for good.
    Durable,
}

/// A failed sync loses writes by the system's pages or parts of them; sectors are the finest it can split.
const FAILED_SYNC_UNIT: u32 = 512;

impl<'t> Walk<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Self {
        Self { trace, at: 0, durable: trace.start.clone(), pending: Vec::new() }
    }

    /// How many operations have returned.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The operation that comes next.
    pub(crate) fn next(&self) -> Option<&'t Op> {
        self.trace.ops.get(self.at)
    }

    pub(crate) fn durable(&self) -> &Image {
        &self.durable
    }

    pub(crate) fn pending(&self) -> &[Effect] {
        &self.pending
    }

    /// What is pending while the next operation is on its way.
    pub(crate) fn pending_during_next(&self) -> Vec<Effect> {
        let mut pending = self.pending.clone();
        if let Some(op) = self.next() {
            effects_of(self.at, op, &mut pending);
        }
        pending
    }

    /// Lets the next operation return.
    pub(crate) fn advance(&mut self) -> Moved {
        let op = self.next().expect("an operation is left");
        let number = self.at;
        self.at += 1;
        match op {
            Op::Write { .. } | Op::SetLen { .. } | Op::Name(_) => {
                effects_of(number, op, &mut self.pending);
                return Moved::Pending;
            }
            Op::WriteDurable { file, at, bytes, grows_to } => self.make_durable(number, *file, *at, bytes, *grows_to),
            Op::WriteDurableFailed { file, at, bytes, seed, .. } => {
                let mut ours = Vec::new();
                effects_of(number, op, &mut ours);
                // What was pending under these bytes is no longer in the cache, so it can no longer reach the disk.
                self.clip(*file, *at, *at + bytes.len() as u64);
                self.lose_some(&ours, *seed);
            }
            Op::Sync { file } => {
                let ours = self.take(|effect| effect.file() == Some(*file));
                self.keep(&ours, |_| Fate::Whole);
            }
            Op::SyncFailed { file, seed } => {
                let ours = self.take(|effect| effect.file() == Some(*file));
                self.lose_some(&ours, *seed);
            }
            Op::SyncDir => {
                let ours = self.take(|effect| effect.file().is_none());
                self.keep(&ours, |_| Fate::Whole);
            }
            Op::SyncDirFailed { seed } => {
                let ours = self.take(|effect| effect.file().is_none());
                self.lose_some(&ours, *seed);
            }
        }
        Moved::Durable
    }

    fn take(&mut self, ours: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let (ours, rest) = std::mem::take(&mut self.pending).into_iter().partition(ours);
        self.pending = rest;
        ours
    }

    fn keep(&mut self, effects: &[Effect], mut fate: impl FnMut(&Effect) -> Fate) {
        for effect in effects {
            effect::apply(&mut self.durable, &effect.what, &fate(effect));
        }
        effect::settle(&mut self.durable, effects);
    }

    fn lose_some(&mut self, effects: &[Effect], seed: u64) {
        let mut rng = Rng::new(seed);
        self.keep(effects, |effect| match rng.below(3) {
            0 => Fate::Lost,
            1 if effect.is_bytes() => Fate::Torn(Tear::draw(FAILED_SYNC_UNIT, &mut rng)),
            _ => Fate::Whole,
        });
    }

    /// A durable write: its bytes, and the length if it is needed to reach them.
    fn make_durable(&mut self, number: usize, file: FileId, at: u64, bytes: &Bytes, grows_to: Option<u64>) {
        let end = at + bytes.len() as u64;
        if let Some(len) = grows_to {
            self.pending.push(Effect { op: number, what: What::Length { file, len, cuts: false } });
        }
        let too_short =
            |effect: &Effect| matches!(effect.what, What::Length { file: of, len, .. } if of == file && len < end);
        if self.durable.file_mut(file).len() < end || self.pending.iter().any(too_short) {
            self.make_length_durable(file);
        }
        self.clip(file, at, end);
        let content = self.durable.file_mut(file);
        assert!(end <= content.len(), "the length reaches the durable bytes");
        content.put(at, bytes);
    }

    fn make_length_durable(&mut self, file: FileId) {
        let mut at = 0;
        while at < self.pending.len() {
            let What::Length { file: of, len, cuts } = self.pending[at].what else {
                at += 1;
                continue;
            };
            if of != file {
                at += 1;
                continue;
            }
            let removed = self.pending.remove(at);
            effect::apply(&mut self.durable, &removed.what, &Fate::Whole);
            if cuts {
                // Bytes written before the cut, beyond it, must not come back when the file grows again.
                let later = self.pending.split_off(at);
                self.clip(file, len, u64::MAX);
                at = self.pending.len();
                self.pending.extend(later);
            }
        }
    }

    /// Takes the range out of what is pending for the file.
    fn clip(&mut self, file: FileId, from: u64, to: u64) {
        let overlaps = |effect: &Effect| match &effect.what {
            What::Bytes { file: of, at, bytes } => *of == file && *at < to && at + bytes.len() as u64 > from,
            What::Length { .. } | What::Name(_) => false,
        };
        if !self.pending.iter().any(overlaps) {
            return;
        }
        let mut kept = Vec::with_capacity(self.pending.len() + 1);
        for effect in self.pending.drain(..) {
            match &effect.what {
                What::Bytes { at, bytes, .. } if overlaps(&effect) => {
                    let inside = |position: u64| usize::try_from(position - at).expect("inside the write");
                    let end = at + bytes.len() as u64;
                    if *at < from {
                        let what = What::Bytes { file, at: *at, bytes: bytes.part(0, inside(from)) };
                        kept.push(Effect { op: effect.op, what });
                    }
                    if end > to {
                        let what = What::Bytes { file, at: to, bytes: bytes.part(inside(to), bytes.len()) };
                        kept.push(Effect { op: effect.op, what });
                    }
                }
                _ => kept.push(effect),
            }
        }
        self.pending = kept;
    }
}
