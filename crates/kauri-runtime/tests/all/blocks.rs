//! Atomic blocks: reading one's own writes, nesting, conflicts, phantoms, leases on names.

use std::collections::BTreeMap;
use std::time::Duration;

use kauri_runtime::{Acquired, Atomic, BlockLimits, Error, Failure, Policy, Read, Released, Runtime, Write};
use kauri_tree::Table;
use kauri_wire::{Intent, Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::setup::{ANN, BOB, Setup, command};

const STOCK: Table<str, u64> = Table::new("stock");

fn put(runtime: &Runtime, key: &str, value: u64) {
    runtime.atomic(|block| block.put(&STOCK, key, value)).unwrap();
}

fn get(runtime: &Runtime, key: &str) -> Option<u64> {
    runtime.read(|view| view.get(&STOCK, key)).unwrap()
}

#[test]
fn block_reads_its_own_writes_through_all_nests() {
    let setup = Setup::new();
    put(&setup.runtime, "apples", 1);
    let seen = setup.runtime.atomic(|block| {
        block.put(&STOCK, "apples", 2)?;
        block.nest(|block| {
            block.put(&STOCK, "pears", 3)?;
            block.nest(|block| {
                block.remove(&STOCK, "apples")?;
                assert_eq!(block.get(&STOCK, "pears")?, Some(3));
                assert_eq!(block.get(&STOCK, "apples")?, None);
                Ok::<_, Error>(())
            })
        })?;
        Ok::<_, Error>((block.get(&STOCK, "apples")?, block.get(&STOCK, "pears")?, block.len(&STOCK)?))
    });
    assert_eq!(seen.unwrap(), (None, Some(3), 1));
    assert_eq!((get(&setup.runtime, "apples"), get(&setup.runtime, "pears")), (None, Some(3)));
}

#[test]
fn nest_that_fails_vanishes_with_its_writes_and_intents() {
    let setup = Setup::new();
    setup
        .runtime
        .atomic(|block| {
            block.put(&STOCK, "apples", 1)?;
            let failed: Result<(), Error> = block.nest(|block| {
                block.put(&STOCK, "apples", 99)?;
                block.emit(&command(ANN, "never"))?;
                block.nest(|block| block.put(&STOCK, "pears", 99))?;
                Err(Error::Stopped)
            });
            assert!(failed.is_err());
            block.emit(&command(ANN, "sent"))?;
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!((get(&setup.runtime, "apples"), get(&setup.runtime, "pears")), (Some(1), None));
    assert_eq!(setup.runtime.depth(ANN).unwrap(), 1);
}

#[test]
fn block_that_fails_leaves_nothing() {
    let setup = Setup::new();
    let failed: Result<(), Error> = setup.runtime.atomic(|block| {
        block.put(&STOCK, "apples", 1)?;
        block.emit(&command(ANN, "never"))?;
        Err(Error::Stopped)
    });
    assert!(failed.is_err());
    assert_eq!((get(&setup.runtime, "apples"), setup.runtime.depth(ANN).unwrap()), (None, 0));
}

/// How many passes a block makes that reads like this, when somebody else writes like that during the first.
fn check(read: impl Fn(&Atomic<'_>) -> Result<(), Error>, write: impl Fn(&Runtime)) -> u32 {
    let setup = Setup::new();
    for (key, value) in [("a", 1), ("c", 3), ("e", 5)] {
        put(&setup.runtime, key, value);
    }
    let mut passes = 0;
    setup
        .runtime
        .atomic(|block| {
            passes += 1;
            read(block)?;
            if passes == 1 {
                write(&setup.runtime);
            }
            block.put(&STOCK, "result", 1)
        })
        .unwrap();
    passes
}

#[test]
fn changed_read_means_another_pass() {
    let read = |block: &Atomic<'_>| block.get(&STOCK, "a").map(drop);
    assert_eq!(check(read, |runtime| put(runtime, "a", 2)), 2);
    assert_eq!(check(read, |runtime| put(runtime, "c", 2)), 1, "another row is another matter");
    assert_eq!(check(read, |runtime| put(runtime, "a", 1)), 1, "the same value is no change");
    let absent = |block: &Atomic<'_>| block.contains(&STOCK, "b").map(drop);
    assert_eq!(check(absent, |runtime| put(runtime, "b", 2)), 2);
}

#[test]
fn rows_that_appear_change_or_vanish_in_a_range_that_was_read_mean_another_pass() {
    let scan = |block: &Atomic<'_>| {
        let mut rows = block.scan(&STOCK)?.from("b").until("e");
        while rows.next()?.is_some() {}
        Ok(())
    };
    let back = |block: &Atomic<'_>| {
        let mut rows = block.scan(&STOCK)?.from("b").until("e");
        while rows.previous()?.is_some() {}
        Ok(())
    };
    for read in [scan, back] {
        assert_eq!(check(read, |runtime| put(runtime, "b", 2)), 2);
        assert_eq!(check(read, |runtime| put(runtime, "c", 9)), 2);
        assert_eq!(check(read, |runtime| drop(runtime.atomic(|block| block.remove(&STOCK, "c")))), 2);
        assert_eq!(check(read, |runtime| put(runtime, "e", 9)), 1);
        assert_eq!(check(read, |runtime| put(runtime, "a", 9)), 1);
    }
}

#[test]
fn only_the_part_of_a_range_that_was_looked_at_counts() {
    let first = |block: &Atomic<'_>| block.scan(&STOCK)?.next().map(drop);
    assert_eq!(check(first, |runtime| put(runtime, "b", 2)), 1);
    assert_eq!(check(first, |runtime| put(runtime, "A", 2)), 2, "it would have been first");
    let last = |block: &Atomic<'_>| block.scan(&STOCK)?.previous().map(drop);
    assert_eq!(check(last, |runtime| put(runtime, "b", 2)), 1);
    assert_eq!(check(last, |runtime| put(runtime, "z", 2)), 2);
    let both = |block: &Atomic<'_>| {
        let mut rows = block.scan(&STOCK)?;
        rows.next()?;
        rows.previous()?;
        Ok(())
    };
    assert_eq!(check(both, |runtime| put(runtime, "b", 2)), 1);
    assert_eq!(check(both, |runtime| put(runtime, "A", 2)), 2);
    assert_eq!(check(both, |runtime| put(runtime, "z", 2)), 2);
}

#[test]
fn counts_are_observed() {
    let count = |block: &Atomic<'_>| block.len(&STOCK).map(drop);
    assert_eq!(check(count, |runtime| put(runtime, "a", 9)), 1, "the number is the same");
    assert_eq!(check(count, |runtime| put(runtime, "b", 9)), 2);
}

#[test]
fn what_a_vanished_nest_read_still_counts() {
    let nested = |block: &mut Atomic<'_>| {
        let _: Result<(), Error> = block.nest(|block| {
            block.get(&STOCK, "a")?;
            Err(Error::Stopped)
        });
        Ok::<_, Error>(())
    };
    let setup = Setup::new();
    put(&setup.runtime, "a", 1);
    let mut passes = 0;
    setup
        .runtime
        .atomic(|block| {
            passes += 1;
            nested(block)?;
            if passes == 1 {
                put(&setup.runtime, "a", 2);
            }
            block.put(&STOCK, "result", 1)
        })
        .unwrap();
    assert_eq!(passes, 2, "its failure may have decided what came after");
}

#[test]
fn passes_are_bounded_and_pause_longer_each_time() {
    let setup = Setup::new();
    let began = setup.runtime.now().mono;
    let mut passes = 0;
    let result: Result<(), Error> = setup.runtime.atomic(|block| {
        passes += 1;
        let count = block.get(&STOCK, "a")?.unwrap_or(0);
        put(&setup.runtime, "a", count + 1);
        block.put(&STOCK, "b", count)
    });
    let error = result.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("\"a\" of table `stock`"), "{error}");
    assert_eq!(passes, Policy::default().passes_max);
    let paused = setup.runtime.now().mono.since(began);
    let most = Duration::from_micros(250 + 500 + 1000);
    assert!((most / 2..=most).contains(&paused), "{paused:?}");
}

#[test]
fn own_writes_and_the_snapshot_are_merged_like_one_map_by_every_random_scan() {
    let setup = Setup::new();
    let mut chance = 7_u64;
    let mut next = move |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    for _ in 0..300 {
        setup
            .runtime
            .atomic(|block| {
                let mut model: BTreeMap<String, u64> = BTreeMap::new();
                let mut rows = block.scan(&STOCK)?;
                while let Some((key, value)) = rows.next()? {
                    model.insert(key.to_owned(), value);
                }
                drop(rows);
                for _ in 0..next(12) {
                    let key = format!("{:02}", next(30));
                    if next(3) == 0 {
                        assert_eq!(block.remove(&STOCK, &key)?, model.remove(&key).is_some());
                    } else {
                        let value = next(1000);
                        block.put(&STOCK, &key, value)?;
                        model.insert(key, value);
                    }
                }
                let (from, until) = (format!("{:02}", next(30)), format!("{:02}", next(30)));
                let mut expected: Vec<(String, u64)> =
                    model.into_iter().filter(|(key, _)| *key >= from && *key < until).collect();
                let mut rows = block.scan(&STOCK)?.from(&from).until(&until);
                assert_eq!(rows.count()?, expected.len() as u64);
                loop {
                    let (found, wanted) = if next(2) == 0 {
                        (rows.next()?, (!expected.is_empty()).then(|| expected.remove(0)))
                    } else {
                        (rows.previous()?, expected.pop())
                    };
                    assert_eq!(found.map(|(key, value)| (key.to_owned(), value)), wanted);
                    if wanted.is_none() {
                        break;
                    }
                }
                drop(rows);
                Ok::<_, Error>(())
            })
            .unwrap();
    }
}

#[test]
fn intents_are_checked_when_they_are_pushed() {
    let setup = Setup::new();
    let message = Message::timer(ANN, MessageId::new("t").unwrap(), "");
    let arm = Intent::Arm { due: Timestamp(5), message: message.clone() }.encode().unwrap();
    let emit = Intent::Emit { message }.encode().unwrap();
    setup
        .runtime
        .atomic(|block| {
            block.intend(&emit)?;
            block.intend(&arm)?;
            assert!(matches!(block.intend(b"LINT"), Err(Error::Wire(_))));
            let mut broken = emit.clone();
            broken[28] = b'X';
            assert!(matches!(block.intend(&broken), Err(Error::Wire(_))));
            Ok::<_, Error>(())
        })
        .unwrap();
    let gauges = setup.runtime.gauges().unwrap();
    assert_eq!((gauges.inbox, gauges.timers), (1, 1));
}

#[test]
fn limits_of_a_block_are_told_at_the_limit_and_not_before() {
    let limits = BlockLimits { depth_max: 2, intents_max: 2, frame_bytes_max: 70, written_bytes_max: 20 };
    let setup = Setup::with(|builder| builder.limits(limits));
    let short = command(ANN, "a");
    assert_eq!(short.encoded_len(), 68);
    setup
        .runtime
        .atomic(|block| {
            block.nest(|block| {
                block.nest(|block| {
                    let deeper: Result<(), Error> = block.nest(|_| Ok(()));
                    assert!(matches!(deeper, Err(Error::Limit { of: "nested blocks", most: 2, found: 3 })));
                    Ok::<_, Error>(())
                })
            })?;
            let long = command(ANN, "abcd");
            assert!(matches!(block.emit(&long), Err(Error::Limit { of: "bytes of a frame", most: 70, found: 71 })));
            block.emit(&short)?;
            block.emit(&short)?;
            assert!(matches!(block.emit(&short), Err(Error::Limit { of: "intents of a block", .. })));
            block.put(&STOCK, "12345678", 1)?;
            assert!(matches!(block.put(&STOCK, "12345", 1), Err(Error::Limit { of: "bytes written by a block", .. })));
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn marker_and_runtime_tables_cannot_be_written_and_the_rest_of_app_state_can() {
    let setup = Setup::new();
    setup
        .runtime
        .atomic(|block| {
            let state = "app_state".into();
            assert!(matches!(block.put_row(&state, b"runner.schema.version", b"x"), Err(Error::Reserved { .. })));
            assert!(matches!(block.remove_row(&"leases".into(), b"x"), Err(Error::Reserved { .. })));
            block.put_row(&state, b"mine", b"x")
        })
        .unwrap();
}

/// Whether a worker's block gets the lease, for a second.
fn acquire(setup: &Setup, worker: WorkerId) -> Acquired {
    let (told, hears) = std::sync::mpsc::channel();
    setup.send(worker, "acquire");
    let handle = move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        told.send(block.acquire(b"printer", Duration::from_secs(1))?).map_err(Failure::fatal)
    };
    setup.runtime.worker(worker, handle).drain().unwrap();
    hears.recv().unwrap()
}

fn release(setup: &Setup, worker: WorkerId) -> Released {
    let (told, hears) = std::sync::mpsc::channel();
    setup.send(worker, "release");
    let handle =
        move |block: &mut Atomic<'_>, _: MessageRef<'_>| told.send(block.release(b"printer")?).map_err(Failure::fatal);
    setup.runtime.worker(worker, handle).drain().unwrap();
    hears.recv().unwrap()
}

#[test]
fn named_lease_is_one_workers_until_it_is_released_or_runs_out() {
    let setup = Setup::new();
    assert_eq!(acquire(&setup, ANN), Acquired::Yes { token: 1 });
    assert_eq!(acquire(&setup, BOB), Acquired::Busy { owner: 1 });
    assert_eq!(acquire(&setup, ANN), Acquired::Yes { token: 2 }, "it renews its own");
    assert_eq!(release(&setup, BOB), Released::NotOwner);
    assert_eq!(release(&setup, ANN), Released::Yes);
    assert_eq!(release(&setup, ANN), Released::Missing);
    assert_eq!(acquire(&setup, BOB), Acquired::Yes { token: 3 }, "a token never goes back");
    setup.clock.jump(86_400_000);
    assert_eq!(acquire(&setup, ANN), Acquired::Busy { owner: 2 }, "the wall clock does not matter");
    setup.advance(1000);
    assert_eq!(acquire(&setup, ANN), Acquired::Yes { token: 4 });
}

#[test]
fn named_lease_survives_a_restart_by_the_wall_clock() {
    let setup = Setup::new();
    let _ = acquire(&setup, ANN);
    let setup = setup.restarted();
    setup.advance(999);
    assert_eq!(acquire(&setup, BOB), Acquired::Busy { owner: 1 });
    setup.advance(1);
    assert_eq!(acquire(&setup, BOB), Acquired::Yes { token: 2 });
}
