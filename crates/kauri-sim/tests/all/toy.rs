//! A toy engine: four pages, copied on write, under two superblocks. Right as it stands, and wrong in eleven ways on order.
//!
//! ```text
//! | slot 0 | 512: slot 1 | 1024: pages of 256 bytes ... |
//! slot = { commit, length of the file, count of repairs, position of each page, checksum }
//! page = { number, values, checksum }
//! ```
//!
//! Commit `n` rewrites page `n % 4` in a free place, syncs, and then writes slot `n % 2`.

use kauri_sim::{Acks, Engine, Progress, SimDisk};
use kauri_tree::disk::{Disk, File, Open};

pub(crate) const NAME: &str = "toy";
const SLOT_BYTES: u64 = 512;
const PAGES: usize = 4;
const PAGE_BYTES: usize = 256;
const PAGES_START: u64 = 2 * SLOT_BYTES;
const PLACES_MAX: u64 = 12;
const GROWTH: u64 = 3 * PAGE_BYTES as u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    None,
    MetaBeforeData,
    NoDataSync,
    AckBeforeSync,
    SameSlot,
    NoMetaChecksum,
    NoPageChecksum,
    SyncRetried,
    LengthAssumed,
    NoDirSync,
    ReuseTooEarly,
    RepairBoth,
}

pub(crate) struct Toy {
    pub(crate) bug: Bug,
    pub(crate) commits: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Slot {
    commit: u64,
    len: u64,
    repairs: u64,
    pages: [u64; PAGES],
}

type Answer<T> = Result<T, String>;

impl Engine for Toy {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Answer<()> {
        let file = self.create(disk).map_err(words)?;
        let mut slot = self.open(&*file)?;
        for commit in slot.commit + 1..=slot.commit + self.commits {
            acks.started(commit);
            let next = self.plan(&slot);
            self.commit(&*file, &slot, &next, acks).map_err(words)?;
            slot = next;
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Answer<u64> {
        let Ok(file) = disk.open(NAME, Open::ReadWrite) else { return Ok(0) };
        let slot = self.open(&*file)?;
        for page in 0..PAGES {
            self.check_page(&*file, &slot, page)?;
        }
        Ok(slot.commit)
    }
}

impl Toy {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { bug, commits: 8 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// Opens the file, or makes it beside its name and then gives it the name.
    fn create(&self, disk: &SimDisk) -> std::io::Result<Box<dyn File>> {
        if let Ok(file) = disk.open(NAME, Open::ReadWrite) {
            // A crash may have left the name without its sync: whatever is promised from here on needs it.
            if !self.has(Bug::NoDirSync) {
                disk.sync_dir()?;
            }
            return Ok(file);
        }
        let file = disk.open("toy.new", Open::Create)?;
        let slot = Slot { commit: 0, len: PAGES_START, ..Slot::default() };
        file.set_len(PAGES_START)?;
        (0..2).try_for_each(|at| file.write_at(at * SLOT_BYTES, &slot.encode()))?;
        file.sync()?;
        disk.rename("toy.new", NAME)?;
        if !self.has(Bug::NoDirSync) {
            disk.sync_dir()?;
        }
        Ok(file)
    }

    /// The newest valid superblock. An invalid one is mended: the next commit but one would do it anyway.
    fn open(&self, file: &dyn File) -> Answer<Slot> {
        let slots: Vec<Option<Slot>> = (0..2).map(|at| self.read_slot(file, at)).collect();
        let best = slots.iter().flatten().max_by_key(|slot| slot.commit).copied().ok_or("no valid superblock")?;
        let len = file.len().map_err(words)?;
        if len < best.len {
            return Err(format!("expected {} bytes, found {len}", best.len));
        }
        if slots.contains(&None) {
            let mend = (0..2).filter(|at| slots[*at].is_none() || self.has(Bug::RepairBoth));
            let mended = Slot { repairs: best.repairs + 1, ..best };
            for at in mend {
                file.write_at(at as u64 * SLOT_BYTES, &mended.encode()).map_err(words)?;
            }
            file.sync().map_err(words)?;
        }
        Ok(best)
    }

    fn read_slot(&self, file: &dyn File, at: u64) -> Option<Slot> {
        let mut bytes = [0; Slot::BYTES];
        file.read_at(at * SLOT_BYTES, &mut bytes).ok()?;
        Slot::decode(&bytes).filter(|_| self.has(Bug::NoMetaChecksum) || sealed(&bytes))
    }

    /// What the superblock after this one will say.
    fn plan(&self, slot: &Slot) -> Slot {
        let mut next = Slot { commit: slot.commit + 1, ..*slot };
        let number = page_of(next.commit);
        // Places are taken in turn. Only those of the newest superblock are in use: the other is about to be overwritten.
        let mut places =
            (0..PLACES_MAX).map(|turn| PAGES_START + (next.commit * 5 + turn) % PLACES_MAX * PAGE_BYTES as u64);
        let mut free = places.find(|at| !slot.pages.contains(at)).expect("more places than pages");
        if self.has(Bug::ReuseTooEarly) && slot.pages[number] > 0 {
            free = slot.pages[number];
        }
        next.pages[number] = free;
        let end = free + PAGE_BYTES as u64;
        if end > next.len {
            next.len = end + GROWTH;
        }
        next
    }

    fn commit(&self, file: &dyn File, slot: &Slot, next: &Slot, acks: &Acks) -> std::io::Result<()> {
        let grow = || if next.len > slot.len { file.set_len(next.len) } else { Ok(()) };
        let data = || {
            if !self.has(Bug::LengthAssumed) {
                grow()?;
            }
            file.write_at(next.pages[page_of(next.commit)], &page(next.commit))?;
            if self.has(Bug::NoDataSync) { Ok(()) } else { self.sync(file) }
        };
        if !self.has(Bug::MetaBeforeData) {
            data()?;
        }
        if self.has(Bug::LengthAssumed) {
            grow()?;
        }
        self.write_slot(file, next, acks)?;
        if self.has(Bug::MetaBeforeData) {
            data()?;
        }
        if !self.has(Bug::AckBeforeSync) {
            acks.acked(next.commit);
        }
        Ok(())
    }

    fn write_slot(&self, file: &dyn File, next: &Slot, acks: &Acks) -> std::io::Result<()> {
        let at = if self.has(Bug::SameSlot) { 0 } else { next.commit % 2 * SLOT_BYTES };
        // Both ways of making it durable have their turn.
        let in_one_write = next.commit.is_multiple_of(3) && !self.has(Bug::AckBeforeSync);
        if in_one_write {
            return file.write_durable_at(at, &next.encode());
        }
        file.write_at(at, &next.encode())?;
        if self.has(Bug::AckBeforeSync) {
            acks.acked(next.commit);
        }
        self.sync(file)
    }

    fn sync(&self, file: &dyn File) -> std::io::Result<()> {
        let again = |error| if self.has(Bug::SyncRetried) { file.sync() } else { Err(error) };
        file.sync().or_else(again)
    }

    fn check_page(&self, file: &dyn File, slot: &Slot, number: usize) -> Answer<()> {
        // The newest commit that wrote this page, if any did.
        let newest = (1..=slot.commit).rev().find(|commit| page_of(*commit) == number);
        let at = slot.pages[number];
        let Some(commit) = newest else {
            return if at == 0 { Ok(()) } else { Err(format!("page {number} was never written")) };
        };
        let mut bytes = [0; PAGE_BYTES];
        file.read_at(at, &mut bytes).map_err(words)?;
        if !self.has(Bug::NoPageChecksum) && !sealed(&bytes) {
            return Err(format!("page {number} has a wrong checksum"));
        }
        if bytes == page(commit) { Ok(()) } else { Err(format!("page {number} is not that of commit {commit}")) }
    }
}

impl Slot {
    const BYTES: usize = 8 * (3 + PAGES + 1);

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.commit, self.len, self.repairs].into_iter().chain(self.pages);
        bytes.chunks_mut(8).zip(words).for_each(|(part, word)| part.copy_from_slice(&word.to_le_bytes()));
        seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at * 8..at * 8 + 8].try_into().map(u64::from_le_bytes).ok();
        let mut pages = [0; PAGES];
        for (at, page) in pages.iter_mut().enumerate() {
            *page = word(3 + at)?;
        }
        Some(Self { commit: word(0)?, len: word(1)?, repairs: word(2)?, pages })
    }
}

fn page_of(commit: u64) -> usize {
    usize::try_from(commit).expect("small") % PAGES
}

/// The page that this commit writes.
fn page(commit: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    kauri_sim::Rng::new(commit).fill(&mut bytes);
    bytes[0] = u8::try_from(page_of(commit)).expect("small");
    seal(&mut bytes);
    bytes
}

/// FNV-1a, which is enough for a toy.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn seal(bytes: &mut [u8]) {
    let (body, sum) = bytes.split_at_mut(bytes.len() - 8);
    sum.copy_from_slice(&checksum(body).to_le_bytes());
}

fn sealed(bytes: &[u8]) -> bool {
    let (body, sum) = bytes.split_at(bytes.len() - 8);
    sum == checksum(body).to_le_bytes()
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn words(error: std::io::Error) -> String {
    error.to_string()
}
