//! Bugs on purpose: where the code says `planted!(..)` it does something wrong if a test asked for it, and the test sees whether
//! the other tests would have noticed.
//!
//! They are there with the feature `planted` only, which no release build accepts. Without it `planted!(..)` is `false` and nothing of
//! this is left in the program. Each stands for a mistake that somebody could make, in the line where it would be made.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` makes a store with bugs: it is for tests, never for a release build");

/// Whether the bug of this name was planted.
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// Whether the bug of this name was planted.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Bug::$bug)
    };
}

#[cfg(feature = "planted")]
pub(crate) use bugs::is;
#[cfg(feature = "planted")]
pub use bugs::{Bug, Planted, plant};

#[cfg(feature = "planted")]
mod bugs {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The bug that is planted: its place among all, from 1; or 0.
    static PLANTED: AtomicUsize = AtomicUsize::new(0);
    /// One at a time, also where tests run in threads.
    static TURN: Mutex<()> = Mutex::new(());

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as usize + 1
    }

    /// A bug is planted as long as this lives.
    #[derive(Debug)]
    #[must_use = "the bug is gone when this is dropped"]
    pub struct Planted(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

    /// Plants a bug, or none, in all stores of this process, until what is returned is dropped. Waits for whoever planted one
    /// before.
    pub fn plant(bug: Option<Bug>) -> Planted {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        PLANTED.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::Relaxed);
        Planted(turn)
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.store(0, Ordering::Relaxed);
        }
    }

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident,)*) => {
            /// What can be done wrong.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[non_exhaustive]
            pub enum Bug { $($(#[$doc])* $bug,)* }

            impl Bug {
                /// All of them.
                pub const ALL: &[Self] = &[$(Self::$bug,)*];
            }
        };
    }

    bugs! {
        // Pages.
        /// The head of a new key is zero.
        ForgetHead,
        /// A removed cell is not counted as unused.
        ForgetDeadCell,
        /// The second child of a branch keeps its key when it becomes the first.
        KeepKeyOfFirstChild,
        // Splits and merges.
        /// A branch key is too short to tell two pages apart.
        ShortSeparator,
        /// A page that was split keeps its count in its parent.
        KeepRowsOfSplitPage,
        /// A page that was merged into its neighbour is not given up.
        KeepMergedPage,
        /// The rows of a page that was merged into its neighbour are not counted there.
        LoseRowsOfMergedPage,
        /// A page without rows is not given up.
        KeepEmptyPage,
        // Counts and scans.
        /// Rows are counted in all branches but the topmost.
        CountBelowRoot,
        /// A scan that goes backwards leaves the last row of each page out.
        SkipRowBackwards,
        // Long values.
        /// A long value that was replaced is not given up.
        KeepReplacedValue,
        /// The long values of a dropped table are not given up.
        KeepValuesOfDroppedTable,
        // Pages that can be used again.
        /// A page that a snapshot sees is neither kept nor free.
        LoseHeldPage,
        /// Pages of the last checkpoint are used again before the next.
        ReuseCheckpointedPage,
        /// The set of free pages says that there are some where there are none.
        SayFreeWhereNone,
        /// The bitmap says that pages are in use which only wait for a reader.
        KeepWaitingInBitmap,
        /// What a transaction made that vanished is not free.
        LosePagesOfVanished,
        // Nesting.
        /// What a nested transaction made is not its parent's to give up.
        ForgetPagesOfNested,
        /// A transaction that vanished leaves its tables as they were in it.
        KeepTablesOfVanished,
        /// A transaction that vanished stays in the log.
        LogVanished,
        /// The log goes on in the table of a nested transaction that vanished.
        LogToTableOfVanished,
        // The log.
        /// Removals are not in the log.
        LogNoRemovals,
        /// The log never says that it is full.
        NeverFillLog,
        /// A record is believed whatever its checksum says.
        TrustTornRecord,
        /// A life goes on with the log where the one before stopped.
        FollowStaleRecords,
        // What is durable when.
        /// Records are written and not synced.
        WriteWithoutSync,
        /// A durable write is believed to make earlier ones durable.
        SyncLastRecordOnly,
        /// Whoever waits is answered although only a part was written.
        AnswerTooMany,
        /// Writing goes on after a failed write.
        WriteOnAfterFailure,
        /// A version is shown before its record is written.
        PublishBeforeWritten,
        /// A version that a checkpoint commits is shown before the checkpoint is durable.
        PublishBeforeDurable,
        /// What is written is taken for synced.
        SyncNothing,
        /// What is to be synced soon is never synced.
        ForgetFlush,
        // Errands.
        /// What an errand did that was not to stay stays.
        KeepUnwantedErrand,
        /// Errands that are done again are done on top of the first time.
        DoErrandTwice,
        /// Whoever hears of an errand hears of it before it is committed.
        TellErrandTooSoon,
        // Records of pages.
        /// Pages that a record says were written are believed to be there.
        TrustPagesRecord,
        /// The record of pages does not name those that were in the file before the commit.
        ForgetWrittenThrough,
        /// A checkpoint takes its pages for synced although the sync of a commit meanwhile failed.
        TrustSyncAfterFailure,
        /// A checkpoint cuts off what went through behind its end.
        CutWhatWentThrough,
        /// What is on its way to the file is not written before the commit.
        CommitBeforeThrough,
        /// What followed a record whose pages are lost is found by a later recovery.
        FollowLostPages,
        // Long values that the log names.
        /// A record is synced without the pages that it names.
        SyncWithoutReferred,
        /// Pages that the log names are used again before a checkpoint holds what it says.
        ReuseReferredRun,
        /// Pages that a record names are believed to be there.
        TrustReferred,
        /// Pages that the log names are in use only when their record is done again.
        AdoptTooLate,
        // Checkpoints and metas.
        /// The meta page is written before its pages are durable.
        PointAtUnsyncedPages,
        /// The log's records are given up when a checkpoint begins, not when it is durable.
        ReleaseLogTooSoon,
        /// The pages that are kept are those of the checkpoint before the last.
        KeepOldCheckpoint,
        /// Records that were written while a checkpoint was made count as synced with it.
        CoverTooMuch,
        /// The room of pages is given back that somebody still sees.
        GiveBackWaiting,
        /// All checkpoints write the same meta page.
        WriteOneMeta,
        /// The second meta page is taken, newer or not.
        TakeSecondMeta,
        /// A meta page that cannot be read now is taken for none.
        TakeReadableMeta,
        /// A meta page is believed whatever its checksum says.
        TrustTornMeta,
        /// A page is believed whatever its checksum says.
        TrustDamagedPage,
        // Pins.
        /// A page that a pin sees is free when it dies.
        FreePinnedPage,
        /// A page that an older pin sees is free when a newer one goes.
        FreeForOlderPin,
        /// A page that only a pin saw is not free when that goes.
        LeakOnUnpin,
        /// Pages are kept for the newest pin after it has gone.
        KeepForGonePin,
        /// Pages that belong to no version are kept for pins.
        KeepOwnPages,
        /// What a checkpoint itself gives up is not in its list of kept pages.
        ForgetKeptByCheckpoint,
        /// What is read as of a pin is the newest version.
        ReadNewestAsOfPin,
        // Forks.
        /// A fork whose rows are copied has no pins.
        ForkWithoutPins,
        /// Rows that were removed between two pins are in a fork as of the later one too.
        ForkRemovedRows,
        /// A fork whose bytes are shared gets its name before they are durable.
        NameUnsyncedFork,
        // Streams.
        /// A stream of changes does not say which rows are gone.
        StreamNoRemovals,
        /// A stream of changes is restored on whatever is there.
        RestoreOnAnyBase,
        /// What came before the fault of a stream is committed.
        RestoreHalf,
        /// The name of a restored store is not made durable.
        ForgetNameOfCopy,
        // Compaction.
        /// A table whose topmost page was moved begins where it began.
        ForgetMovedRoot,
        /// A long value that was moved is not given up where it was.
        KeepMovedValue,
        /// The trees of pins that were moved begin where they began.
        ForgetMovedPins,
        // Ranges.
        /// Rows that were cut from below a branch are still counted there.
        KeepRowsOfCutPage,
        /// The long values of a range that was removed are not given up.
        KeepValuesOfCutRows,
        // Cursors.
        /// After a removal a cursor leaves the next row out.
        SkipRowAfterRemoved,
        /// A cursor that looks for a row which is not there goes to the next.
        SeekExactGoesOn,
        /// A change does not note what its cursors looked at.
        ForgetMovesOfCursor,
        // Several values per key.
        /// Taking all values from a key takes those of the keys behind it too.
        TakeValuesOfOthers,
        /// A pair that comes again in a sorted load is not left out.
        LoadPairAgain,
        // Rows that expire.
        /// A row that gets another expiry is also swept at the one before.
        KeepOldExpiry,
        /// A sweep takes the entry of a row and leaves the row.
        SweepEntryOnly,
        // Watches.
        /// Nobody is told of rows that were removed.
        TellNoRemovals,
        /// A queue that was full does not say so.
        HideMissed,
        // Making and recovery.
        /// A new store gets its name before its bytes are durable.
        NameUnsyncedFile,
        /// The name of a new store is not made durable.
        ForgetNameSync,
        /// What the log says is not done again.
        IgnoreLog,
        /// What the log says of dropped tables is not done again.
        RecoverDroppedTable,
    }
}
