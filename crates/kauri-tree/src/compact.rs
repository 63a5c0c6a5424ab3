//! Making a store's file shorter: what lies at its end is moved to free places before it, in steps.
//!
//! ```text
//! | used | free | used | free | free | used |        target: as many pages as are used
//!           ^──────────────────────────┘             each step is a transaction, and a checkpoint
//! | used | used | used |                             what is free at the end is cut off
//! ```

use crate::error::Result;
use crate::store::Store;

/// The most pages that one step looks at, and about the most that it moves.
const STEP_PAGES: u32 = 1024;

/// What [`Store::compact`] did.
///
/// ```
/// use kauri_tree::disk::MemoryDisk;
/// use kauri_tree::{Options, Table};
///
/// const NOTES: Table<u64, [u8]> = Table::new("notes");
/// let store = Options::new().open(&MemoryDisk::new(), "store")?;
/// let mut txn = store.begin();
/// txn.load_sorted(&NOTES, (0..1_000).map(|number| (number, &[7; 200][..])))?;
/// txn.commit()?;
/// let first = store.compact()?;
/// assert_eq!(store.compact()?.bytes_before, first.bytes_after); // nobody wrote in between
/// assert_eq!(store.compact()?.moved_pages, 0);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Compaction {
    /// The length of the file before, with all that was committed in its pages.
    pub bytes_before: u64,
    /// Its length after.
    pub bytes_after: u64,
    /// How many pages were written elsewhere.
    pub moved_pages: u64,
}

/// Where the next step goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The table; all before it in the order of names are done.
    pub(crate) table: String,
    /// How many of its rows are done.
    pub(crate) row: u64,
}

/// What a step did.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) moved: u32,
    /// Where to go on; `None` when everything was looked at.
    pub(crate) next: Option<Place>,
    /// There was no free place left to move to.
    pub(crate) stuck: bool,
}

impl Store {
    /// Makes the file as short as it can be while it is in use: pages at its end are moved to free places before them, and the end is
    /// cut off. Others read and write meanwhile; only each of many short steps takes the writer's turn. It ends when the
    /// file gets no shorter, whatever others do.
    ///
    /// What a snapshot still sees is not cut off, and a value too long for one page is moved only where enough free pages lie side by
    /// side; calling it again later may gain more. In memory nothing is done.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// let store = Options::new().log_bytes(1).open(&MemoryDisk::new(), "store")?;
    /// let mut txn = store.begin();
    /// txn.load_sorted(&SQUARES, (0..100_000).map(|number| (number, number * number)))?;
    /// txn.commit()?;
    /// let mut txn = store.begin();
    /// txn.remove_range(&SQUARES, ..90_000)?;
    /// txn.commit()?;
    ///
    /// let compaction = store.compact()?;
    /// assert!(compaction.bytes_after < compaction.bytes_before / 3);
    /// assert_eq!(store.snapshot().len(&SQUARES)?, 10_000);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the disk fails, or the store is damaged or was opened to be read only. What was committed stays committed.
    pub fn compact(&self) -> Result<Compaction> {
        let Some(durable) = self.durable() else { return Ok(Compaction::default()) };
        durable.check()?;
        let length = durable.file.disk().len()?;
        // What was committed and is only in the log belongs to the length too, and so do the books of two checkpoints: a new file
        // has had one.
        self.release()?;
        let bytes_before = length.max(durable.file.disk().len()?);
        let mut compaction = Compaction { bytes_before, ..Compaction::default() };
        self.set_cut_all(true);
        let done = self.compact_rounds(&mut compaction);
        self.set_cut_all(false);
        done?;
        self.give_back();
        compaction.bytes_after = durable.file.disk().len()?;
        Ok(compaction)
    }

    /// Moves pages until the store gets no shorter than it was at its shortest. One round may be in vain: a long value may find its place only
    /// where the round before has moved others away. Two are the end.
    fn compact_rounds(&self, compaction: &mut Compaction) -> Result<()> {
        self.release()?;
        let (mut shortest, mut was_vain) = (u32::MAX, false);
        loop {
            let (end, target) = self.end_and_target();
            let is_vain = end >= shortest;
            if end == target || is_vain && was_vain {
                return Ok(());
            }
            (shortest, was_vain) = (shortest.min(end), is_vain);
            let moved = self.compact_round(end, target)?;
            compaction.moved_pages += moved;
            if moved == 0 {
                return Ok(());
            }
            self.release()?;
        }
    }

    /// Moves what lies at the target or behind it, and tells how many pages that was.
    fn compact_round(&self, end: u32, target: u32) -> Result<u64> {
        let (mut place, mut moved) = (Place::default(), 0);
        // There are no more leaves than pages, unless others make some meanwhile.
        for _ in 0..end {
            let step = self.relocate(target, &place)?;
            moved += u64::from(step.moved);
            match step.next {
                Some(next) if !step.stuck || step.moved > 0 => place = next,
                _ => break,
            }
        }
        Ok(moved)
    }

    fn relocate(&self, target: u32, place: &Place) -> Result<Step> {
        let mut txn = self.begin();
        let step = txn.relocate(target, place, STEP_PAGES)?;
        if step.moved > 0 {
            txn.commit()?;
        }
        Ok(step)
    }

    /// Lets the file forget what only the checkpoints before the last had, and cuts it.
    fn release(&self) -> Result<()> {
        self.write_out()?;
        self.write_out()
    }
}
