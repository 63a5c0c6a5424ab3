//! Damage that no crash leaves: what the device, or somebody, did to bytes that were durable.

use std::fmt;

use crate::fault::FaultKind;
use crate::image::Image;
use crate::rng::Rng;
use crate::trace::{Op, Trace};

/// One damage to one file of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Corruption {
    /// The bit with this number is turned.
    BitFlip {
        /// Counted from the lowest bit of the first byte.
        bit: u64,
    },
    /// A range reads as zeros.
    Zeroed {
        /// Where it starts.
        at: u64,
        /// How many bytes it has.
        len: u64,
    },
    /// A range holds what it held before: a write to it was lost without a word.
    Stale {
        /// Where it starts.
        at: u64,
        /// What it held.
        bytes: Vec<u8>,
    },
    /// A range holds the bytes of another one: a write went astray.
    Misdirected {
        /// Where the bytes belong.
        from: u64,
        /// Where they landed.
        to: u64,
        /// How many there are.
        len: u64,
    },
    /// The file ends early.
    Truncated {
        /// Where.
        len: u64,
    },
}

const SECTOR_BYTES: u64 = 512;

impl Corruption {
    /// Which kind of trouble this is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::BitFlip { .. } => FaultKind::BitFlip,
            Self::Zeroed { .. } => FaultKind::Zeroed,
            Self::Stale { .. } => FaultKind::Stale,
            Self::Misdirected { .. } => FaultKind::Misdirected,
            Self::Truncated { .. } => FaultKind::Truncated,
        }
    }

    /// Draws a damage of the file with this name, at the end of this trace: ranges are those of writes, so that a page is
    /// hit as a page. Nothing if the file is missing, empty or was never written to, or if the draw would change nothing.
    #[must_use]
    pub fn draw(trace: &Trace, image: &Image, name: &str, rng: &mut Rng) -> Option<Self> {
        let len = image.len_of(name).filter(|len| *len > 0)?;
        let writes = writes(trace, name, len);
        let (number, at, count) = *(!writes.is_empty()).then(|| rng.pick(&writes))?;
        let drawn = match rng.below(5) {
            0 => Self::BitFlip { bit: (at + rng.below(count)) * 8 + rng.below(8) },
            1 => Self::Zeroed { at, len: count },
            2 => Self::Stale { at, bytes: before(trace, number, name, at, count)? },
            3 => {
                let (_, to, room) = *rng.pick(&writes);
                Self::Misdirected { from: at, to, len: count.min(room) }
            }
            _ => Self::Truncated { len: rng.below(len.div_ceil(SECTOR_BYTES)) * SECTOR_BYTES },
        };
        (drawn.apply(image, name)? != *image).then_some(drawn)
    }

    /// The image with this damage done to this file; nothing if there is no such file, or the damage lies outside it.
    #[must_use]
    pub fn apply(&self, image: &Image, name: &str) -> Option<Image> {
        let mut image = image.clone();
        let file = *image.names.get(name)?;
        let content = image.file_mut(file);
        let read = |at: u64, len: u64| {
            let mut bytes = vec![0; usize::try_from(len).ok()?];
            content.read(at, &mut bytes).map(|()| bytes)
        };
        let (at, bytes) = match self {
            Self::BitFlip { bit } => (bit / 8, vec![read(bit / 8, 1)?[0] ^ (1 << (bit % 8))]),
            Self::Zeroed { at, len } => (*at, vec![0; read(*at, *len)?.len()]),
            Self::Stale { at, bytes } => (*at, read(*at, bytes.len() as u64).map(|_| bytes.clone())?),
            Self::Misdirected { from, to, len } => (*to, read(*to, *len).and_then(|_| read(*from, *len))?),
            Self::Truncated { len } => {
                content.set_len((*len < content.len()).then_some(*len)?);
                return Some(image);
            }
        };
        content.write(at, &bytes);
        Some(image)
    }
}

/// The writes to the file with this name that lie within its length: number, position, length.
fn writes(trace: &Trace, name: &str, len: u64) -> Vec<(usize, u64, u64)> {
    let mut live = trace.start.clone();
    let write = |(number, op): (usize, &Op)| {
        apply_live(&mut live, op);
        let (Op::Write { file, at, bytes, .. } | Op::WriteDurable { file, at, bytes, .. }) = op else { return None };
        let end = at + bytes.len() as u64;
        (live.names.get(name) == Some(file) && end <= len).then_some((number, *at, end - at))
    };
    trace.ops.iter().enumerate().filter_map(write).collect()
}

/// What the range held before this operation.
fn before(trace: &Trace, number: usize, name: &str, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut live = trace.start.clone();
    trace.ops[..number].iter().for_each(|op| apply_live(&mut live, op));
    let content = live.file(*live.names.get(name)?);
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let there = usize::try_from(content.len().saturating_sub(at).min(len)).ok()?;
    content.read(at, &mut bytes[..there])?;
    Some(bytes)
}

fn apply_live(live: &mut Image, op: &Op) {
    match op {
        Op::Write { file, at, bytes, .. }
        | Op::WriteDurable { file, at, bytes, .. }
        | Op::WriteDurableFailed { file, at, bytes, .. } => live.file_mut(*file).write(*at, bytes),
        Op::SetLen { file, len, .. } => live.file_mut(*file).set_len(*len),
        Op::Name(change) => {
            change.apply(live);
            if let crate::trace::NameChange::Create { file, .. } = change {
                let _ = live.file_mut(*file);
            }
        }
        Op::Sync { .. } | Op::SyncFailed { .. } | Op::SyncDir | Op::SyncDirFailed { .. } => {}
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BitFlip { bit } => write!(f, "bit {} of byte {} turned", bit % 8, bit / 8),
            Self::Zeroed { at, len } => write!(f, "{len} bytes at {at} zeroed"),
            Self::Stale { at, bytes } => write!(f, "{} bytes at {at} as they were before", bytes.len()),
            Self::Misdirected { from, to, len } => write!(f, "{len} bytes of {from} written to {to}"),
            Self::Truncated { len } => write!(f, "cut off at {len}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;
    use kauri_tree::disk::{Disk, Open};

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        let file = disk.open("a", Open::CreateNew).expect("made");
        for (at, byte) in [(0, 1), (512, 2), (1_024, 3), (512, 4)] {
            file.write_at(at, &[byte; 512]).expect("written");
        }
        drop(file);
        disk
    }

    fn check(corruption: &Corruption, expected: &[(usize, u8)], len: usize) {
        let bytes = corruption.apply(&disk().image(), "a").and_then(|image| image.bytes("a")).expect("damaged");
        assert_eq!(bytes.len(), len, "{corruption}");
        for (at, byte) in expected {
            assert_eq!(bytes[*at], *byte, "{corruption}: byte {at}");
        }
    }

    #[test]
    fn each_damage_is_what_its_name_says() {
        check(&Corruption::BitFlip { bit: 513 * 8 + 7 }, &[(512, 4), (513, 0x84), (514, 4)], 1_536);
        check(&Corruption::Zeroed { at: 512, len: 512 }, &[(511, 1), (512, 0), (1_023, 0), (1_024, 3)], 1_536);
        check(&Corruption::Stale { at: 512, bytes: vec![2; 512] }, &[(511, 1), (512, 2), (1_024, 3)], 1_536);
        check(&Corruption::Misdirected { from: 0, to: 1_024, len: 512 }, &[(0, 1), (512, 4), (1_024, 1)], 1_536);
        check(&Corruption::Truncated { len: 512 }, &[(511, 1)], 512);
    }

    #[test]
    fn damage_outside_the_file_is_none() {
        let image = disk().image();
        for corruption in [
            Corruption::BitFlip { bit: 1_536 * 8 },
            Corruption::Zeroed { at: 1_535, len: 2 },
            Corruption::Stale { at: 1_536, bytes: vec![0] },
            Corruption::Misdirected { from: 0, to: 1_025, len: 512 },
            Corruption::Truncated { len: 1_536 },
        ] {
            assert_eq!(corruption.apply(&image, "a"), None, "{corruption}");
            assert_eq!(corruption.apply(&image, "b"), None);
        }
    }

    #[test]
    fn every_kind_is_drawn_and_the_stale_version_is_the_one_before() {
        let (disk, mut rng) = (disk(), Rng::new(1));
        let (trace, image) = (disk.trace(), disk.image());
        let mut hits = crate::Hits::default();
        for _ in 0..200 {
            let Some(drawn) = Corruption::draw(&trace, &image, "a", &mut rng) else { continue };
            hits.count(drawn.kind());
            if let Corruption::Stale { at: 512, bytes } = &drawn {
                assert!(bytes.iter().all(|byte| *byte == 2 || *byte == 0), "before the second write, or the first");
            }
        }
        let kinds =
            [FaultKind::BitFlip, FaultKind::Zeroed, FaultKind::Stale, FaultKind::Misdirected, FaultKind::Truncated];
        assert_eq!(hits.require(&kinds), Ok(()));
    }
}
