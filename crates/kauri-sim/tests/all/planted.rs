//! The tests, tested: every bug that is planted in the store is found by what looks for bugs, and without one nothing is found.
//!
//! The searches are those of the other tests with a part of their budget, the quick ones first.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use kauri_sim::{Explorer, Medley, Rng, StoreTrial, Twin, TwinShape};
use kauri_tree::disk::testing::{Call, TwistedDisk};
use kauri_tree::disk::{Disk, MemoryDisk};
use kauri_tree::{Bug, Durability, Errand, Options, Outcome, Read, Store, Table, Write, plant};

use crate::store;

/// Looks for bugs, counts what it looks at, and says what it found.
type Search = fn(&mut u64) -> Result<(), String>;

/// What is searched, in what, and how: the quick ones first.
const SEARCHES: [(&str, &str, Search); 12] = [
    ("maps", "operations", |tried| maps(0..2, tried)),
    ("tables of every kind", "commits", tables),
    ("threads", "commits", threads),
    ("crashes", "points", |tried| crashes(0..2, tried)),
    ("promises", "commits", promises),
    ("cuts", "checkpoints", cuts),
    ("failing calls", "points", failing_calls),
    ("failing syncs", "points", failing_syncs),
    ("damage", "damaged files", damage),
    ("copies", "points", copies),
    ("more maps", "operations", |tried| maps(2..20, tried)),
    // The first of them have records that follow lost pages, and records that follow stale ones, which few have.
    ("more crashes", "points", |tried| {
        [45..46, 61..62, 12..28].into_iter().try_for_each(|seeds| crashes(seeds, tried))
    }),
];

/// All seeds together do a twentieth of the operations of the test command.
fn maps(seeds: Range<u64>, tried: &mut u64) -> Result<(), String> {
    for seed in seeds {
        let mut twin = Twin::new(TwinShape::of(seed), Rng::new(seed));
        let agreed = guarded(|| twin.work(25_000));
        *tried += twin.operations();
        agreed?;
    }
    Ok(())
}

/// All seeds together do a third of the commits of the test command.
fn tables(tried: &mut u64) -> Result<(), String> {
    for seed in 0..4 {
        guarded(|| Medley::new(Rng::new(seed)).work(MEDLEY_COMMITS))?;
        *tried += MEDLEY_COMMITS;
    }
    Ok(())
}

const MEDLEY_COMMITS: u64 = 150;

fn copies(tried: &mut u64) -> Result<(), String> {
    guarded(|| crate::copies::crash(1_000, tried))?;
    guarded(|| crate::copies::fail_every_call(tried))
}

/// All seeds together make a sixth of the crashes of the test command.
fn crashes(seeds: Range<u64>, tried: &mut u64) -> Result<(), String> {
    for seed in seeds {
        let report = Explorer::new(seed).points(10_000).lives(3).explore(&StoreTrial::new(seed, 256, 12));
        *tried += report.points;
        report.violation.map_or(Ok(()), |violation| Err(violation.to_string()))?;
    }
    Ok(())
}

fn failing_calls(tried: &mut u64) -> Result<(), String> {
    guarded(|| store::fail_every_call(tried))
}

fn failing_syncs(tried: &mut u64) -> Result<(), String> {
    guarded(|| store::fail_every_sync(tried))
}

fn cuts(tried: &mut u64) -> Result<(), String> {
    *tried += 1;
    guarded(store::write_behind_a_checkpoint)
}

/// A bit of every fifth byte.
fn damage(tried: &mut u64) -> Result<(), String> {
    let trial = StoreTrial::new(5, 256, 30);
    let mut bytes = guarded(|| Ok(store::file(&trial)))?;
    for at in (0..bytes.len()).step_by(5) {
        *tried += 1;
        bytes[at] ^= 1 << (at % 8);
        store::check_damaged(&trial, &bytes).map_err(|what| format!("byte {at}: {what}"))?;
        bytes[at] ^= 1 << (at % 8);
    }
    Ok(())
}

/// How long to wait for what must come: as long as a machine that does other things needs.
const LONG: Duration = Duration::from_secs(30);

/// What is to be synced soon is synced, without anybody waiting for it.
fn promises(tried: &mut u64) -> Result<(), String> {
    let (disk, synced) = slow_disk();
    let store = Options::new().open(&disk, "store").map_err(|error| error.to_string())?;
    for durability in [Durability::Sync, Durability::Flush(1)] {
        let before = *synced.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut txn = store.begin();
        txn.put(&DONE, (0, 0), ()).map_err(|error| error.to_string())?;
        txn.commit_with(durability).map_err(|error| error.to_string())?;
        *tried += 1;
        let syncs = synced.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = synced.1.wait_timeout_while(syncs, LONG, |syncs| *syncs == before);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            return Err(format!("a commit with {durability:?} was not synced"));
        }
    }
    Ok(())
}

const DONE: Table<(u32, u32), ()> = Table::new("done");

/// What a thread committed, it sees.
#[expect(clippy::disallowed_methods, reason = "threads are what is tested")]
fn threads(tried: &mut u64) -> Result<(), String> {
    let commits = AtomicU64::new(0);
    let (disk, _) = slow_disk();
    // A log that never goes round: whoever opens the file at any time finds all that is written.
    let store = Options::new().page_bytes(512).log_bytes(1 << 25).open(&disk, "store");
    let store = store.map_err(|error| error.to_string())?;
    let work = |worker| (0..200).try_for_each(|number| commit_and_look(&store, &disk, worker, number, &commits));
    commit_and_look(&store, &disk, 6, 0, &commits)?;
    let worked = thread::scope(|scope| {
        let workers: Vec<_> = (0..6).map(|worker| scope.spawn(move || guarded(|| work(worker)))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("guarded"))
    });
    *tried += commits.into_inner();
    worked
}

fn commit_and_look(
    store: &Store,
    disk: &dyn Disk,
    worker: u32,
    number: u32,
    commits: &AtomicU64,
) -> Result<(), String> {
    let words = |error: kauri_tree::Error| error.to_string();
    if number.is_multiple_of(2) {
        let mut txn = store.begin();
        txn.put(&DONE, (worker, number), ()).map_err(words)?;
        txn.commit().map_err(words)?;
    } else {
        let ((told, hears), own) = (mpsc::channel(), store.clone());
        let errand = Errand::new(move |txn| {
            txn.put(&DONE, (worker, number), ())?;
            Ok(Outcome::Committed { sequences: Vec::new() })
        });
        let then = move || drop(told.send(own.snapshot().contains(&DONE, (worker, number))));
        if !store.post(errand.then(then)).settle().map_err(words)?.is_committed() {
            return Err(format!("errand {number} of worker {worker} did not stay"));
        }
        if !hears.try_recv().map_err(|_| "nobody heard of an errand")?.map_err(words)? {
            return Err(format!("errand {number} of worker {worker} was told and is not seen"));
        }
    }
    commits.fetch_add(1, Ordering::Relaxed);
    if number.is_multiple_of(8) {
        seen_is_written(store, disk)?;
    }
    match store.snapshot().contains(&DONE, (worker, number)).map_err(words)? {
        true => Ok(()),
        false => Err(format!("commit {number} of worker {worker} returned and is not seen")),
    }
}

/// Whoever opens the file finds what a snapshot sees.
fn seen_is_written(store: &Store, disk: &dyn Disk) -> Result<(), String> {
    let words = |error: kauri_tree::Error| error.to_string();
    let seen = store.snapshot().len(&DONE).map_err(words)?;
    let found = Options::new().read_only(true).open(disk, "store").and_then(|file| file.snapshot().len(&DONE));
    match found {
        Ok(found) if found < seen => Err(format!("{seen} rows are seen and {found} are written")),
        // It was read while it was written.
        Err(error) if !error.is_corruption() => Err(words(error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How many syncs there were, and whoever waits for one.
type Synced = Arc<(Mutex<u64>, Condvar)>;

/// A disk in memory that lets others run while it writes, as a real one does, and counts its syncs.
fn slow_disk() -> (TwistedDisk<MemoryDisk>, Synced) {
    let synced = Synced::default();
    let notes = Arc::clone(&synced);
    let note = move || {
        *notes.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        notes.1.notify_all();
    };
    let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| {
        if let Call::WriteDurableAt(..) = call {
            (0..16).for_each(|_| thread::yield_now());
        }
        go()?;
        if let Call::WriteDurableAt(..) | Call::Sync(_) = call {
            note();
        }
        Ok(())
    });
    (disk, synced)
}

/// A panic of the store is a finding like any other.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

/// The first search that finds something: its name, how much it looked at, and what it found.
fn search() -> Option<String> {
    // A panic that is looked for needs no words of its own on the screen.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = SEARCHES.iter().find_map(|(name, unit, search)| {
        let mut tried = 0;
        let what = search(&mut tried).err()?;
        Some(format!("{name}, after {tried} {unit}: {}", what.lines().next().unwrap_or_default()))
    });
    std::panic::set_hook(hook);
    found
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    let _none = plant(None);
    assert_eq!(search(), None);
}

/// A test for each bug. A bug without one does not compile.
macro_rules! bugs {
    ($($name:ident: $bug:ident,)*) => {
        $(
            #[test]
            fn $name() {
                let planted = plant(Some(Bug::$bug));
                let found = search();
                drop(planted);
                let found = found.unwrap_or_else(|| panic!("{:?} was not found", Bug::$bug));
                println!("planted: {:?}: found by {}", Bug::$bug, found.chars().take(160).collect::<String>());
            }
        )*

        #[test]
        fn every_bug_has_a_test() {
            let tested = [$(Bug::$bug,)*];
            assert_eq!(tested, Bug::ALL);
        }
    };
}

bugs! {
    forget_head_is_found: ForgetHead,
    forget_dead_cell_is_found: ForgetDeadCell,
    keep_key_of_first_child_is_found: KeepKeyOfFirstChild,
    short_separator_is_found: ShortSeparator,
    keep_rows_of_split_page_is_found: KeepRowsOfSplitPage,
    keep_merged_page_is_found: KeepMergedPage,
    lose_rows_of_merged_page_is_found: LoseRowsOfMergedPage,
    keep_empty_page_is_found: KeepEmptyPage,
    count_below_root_is_found: CountBelowRoot,
    skip_row_backwards_is_found: SkipRowBackwards,
    keep_replaced_value_is_found: KeepReplacedValue,
    keep_values_of_dropped_table_is_found: KeepValuesOfDroppedTable,
    lose_held_page_is_found: LoseHeldPage,
    reuse_checkpointed_page_is_found: ReuseCheckpointedPage,
    say_free_where_none_is_found: SayFreeWhereNone,
    keep_waiting_in_bitmap_is_found: KeepWaitingInBitmap,
    lose_pages_of_vanished_is_found: LosePagesOfVanished,
    forget_pages_of_nested_is_found: ForgetPagesOfNested,
    keep_tables_of_vanished_is_found: KeepTablesOfVanished,
    log_vanished_is_found: LogVanished,
    log_to_table_of_vanished_is_found: LogToTableOfVanished,
    log_no_removals_is_found: LogNoRemovals,
    never_fill_log_is_found: NeverFillLog,
    trust_torn_record_is_found: TrustTornRecord,
    follow_stale_records_is_found: FollowStaleRecords,
    write_without_sync_is_found: WriteWithoutSync,
    sync_last_record_only_is_found: SyncLastRecordOnly,
    answer_too_many_is_found: AnswerTooMany,
    write_on_after_failure_is_found: WriteOnAfterFailure,
    publish_before_written_is_found: PublishBeforeWritten,
    publish_before_durable_is_found: PublishBeforeDurable,
    sync_nothing_is_found: SyncNothing,
    forget_flush_is_found: ForgetFlush,
    keep_unwanted_errand_is_found: KeepUnwantedErrand,
    do_errand_twice_is_found: DoErrandTwice,
    tell_errand_too_soon_is_found: TellErrandTooSoon,
    trust_pages_record_is_found: TrustPagesRecord,
    forget_written_through_is_found: ForgetWrittenThrough,
    trust_sync_after_failure_is_found: TrustSyncAfterFailure,
    cut_what_went_through_is_found: CutWhatWentThrough,
    commit_before_through_is_found: CommitBeforeThrough,
    follow_lost_pages_is_found: FollowLostPages,
    sync_without_referred_is_found: SyncWithoutReferred,
    reuse_referred_run_is_found: ReuseReferredRun,
    trust_referred_is_found: TrustReferred,
    adopt_too_late_is_found: AdoptTooLate,
    point_at_unsynced_pages_is_found: PointAtUnsyncedPages,
    release_log_too_soon_is_found: ReleaseLogTooSoon,
    keep_old_checkpoint_is_found: KeepOldCheckpoint,
    cover_too_much_is_found: CoverTooMuch,
    give_back_waiting_is_found: GiveBackWaiting,
    write_one_meta_is_found: WriteOneMeta,
    take_second_meta_is_found: TakeSecondMeta,
    take_readable_meta_is_found: TakeReadableMeta,
    trust_torn_meta_is_found: TrustTornMeta,
    trust_damaged_page_is_found: TrustDamagedPage,
    free_pinned_page_is_found: FreePinnedPage,
    free_for_older_pin_is_found: FreeForOlderPin,
    leak_on_unpin_is_found: LeakOnUnpin,
    keep_for_gone_pin_is_found: KeepForGonePin,
    keep_own_pages_is_found: KeepOwnPages,
    forget_kept_by_checkpoint_is_found: ForgetKeptByCheckpoint,
    read_newest_as_of_pin_is_found: ReadNewestAsOfPin,
    fork_without_pins_is_found: ForkWithoutPins,
    fork_removed_rows_is_found: ForkRemovedRows,
    name_unsynced_fork_is_found: NameUnsyncedFork,
    stream_no_removals_is_found: StreamNoRemovals,
    restore_on_any_base_is_found: RestoreOnAnyBase,
    restore_half_is_found: RestoreHalf,
    forget_name_of_copy_is_found: ForgetNameOfCopy,
    forget_moved_root_is_found: ForgetMovedRoot,
    keep_moved_value_is_found: KeepMovedValue,
    forget_moved_pins_is_found: ForgetMovedPins,
    keep_rows_of_cut_page_is_found: KeepRowsOfCutPage,
    keep_values_of_cut_rows_is_found: KeepValuesOfCutRows,
    skip_row_after_removed_is_found: SkipRowAfterRemoved,
    seek_exact_goes_on_is_found: SeekExactGoesOn,
    forget_moves_of_cursor_is_found: ForgetMovesOfCursor,
    take_values_of_others_is_found: TakeValuesOfOthers,
    load_pair_again_is_found: LoadPairAgain,
    keep_old_expiry_is_found: KeepOldExpiry,
    sweep_entry_only_is_found: SweepEntryOnly,
    tell_no_removals_is_found: TellNoRemovals,
    hide_missed_is_found: HideMissed,
    name_unsynced_file_is_found: NameUnsyncedFile,
    forget_name_sync_is_found: ForgetNameSync,
    ignore_log_is_found: IgnoreLog,
    recover_dropped_table_is_found: RecoverDroppedTable,
}
