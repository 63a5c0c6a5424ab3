//! Worlds: the runtime under preemption, pauses, crashes and jumping clocks, on the model.

use std::collections::BTreeMap;

use kauri_runtime::testing::{FaultKind, Faults, World};
use kauri_runtime::{Atomic, Failure, Read, Runtime, Worker, Write};
use kauri_tree::Table;
use kauri_wire::{Message, MessageId, MessageRef, WorkerId};

const ACCOUNTS: Table<u64, u64> = Table::new("accounts");
const APPLIED: Table<str, u64> = Table::new("applied");
const BANK: WorkerId = WorkerId(1);

/// Moves an amount between accounts, and counts each message.
fn transfer(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let &[from, to, amount] = message.payload() else { return Err(Failure::fatal("three bytes")) };
    let id = std::str::from_utf8(message.id()).map_err(Failure::fatal)?;
    let times = block.get(&APPLIED, id)?.unwrap_or(0);
    block.put(&APPLIED, id, times + 1)?;
    let balance =
        |block: &Atomic<'_>, account: u8| block.get(&ACCOUNTS, u64::from(account)).map(|found| found.unwrap_or(100));
    if from == to {
        return Ok(());
    }
    let (left, right) = (balance(block, from)?, balance(block, to)?);
    let moved = u64::from(amount).min(left);
    block.put(&ACCOUNTS, from.into(), left - moved)?;
    block.put(&ACCOUNTS, to.into(), right + moved)?;
    Ok(())
}

fn workers(runtime: &Runtime) -> Vec<Worker> {
    (0..3).map(|_| runtime.worker(BANK, transfer)).collect()
}

#[test]
fn money_is_conserved_and_every_transfer_happens_once_whatever_goes_wrong() {
    let mut hits: BTreeMap<FaultKind, u64> = BTreeMap::new();
    for seed in 0..150 {
        let mut world = World::in_memory(seed, workers).unwrap();
        for number in 0..12_u8 {
            let id = MessageId::new(format!("t{number}")).unwrap();
            world.runtime().send(&Message::command(BANK, id, [number % 4, number * 3 % 4, number])).unwrap();
        }
        world.set_faults(Faults::ALL);
        world.run(40).unwrap_or_else(|error| panic!("{}: {error}", world.replay()));
        world.settle().unwrap_or_else(|error| panic!("{}: {error}", world.replay()));
        let (total, applied) = world
            .runtime()
            .read(|view| {
                let balances: Result<Vec<u64>, _> = view.scan(&ACCOUNTS)?.map(|_, balance| balance).collect();
                let applied: Result<Vec<u64>, _> = view.scan(&APPLIED)?.map(|_, times| times).collect();
                let balances = balances?;
                Ok::<_, kauri_runtime::Error>((balances.iter().sum::<u64>(), (balances.len(), applied?)))
            })
            .unwrap();
        assert_eq!(total, 100 * applied.0 as u64, "{}", world.replay());
        assert_eq!(applied.1, [1; 12], "{}", world.replay());
        let gauges = world.runtime().gauges().unwrap();
        assert_eq!((gauges.inbox, gauges.leases, gauges.dead_letters), (0, 0, 0), "{}", world.replay());
        for (kind, count) in world.hits() {
            *hits.entry(kind).or_default() += count;
        }
    }
    assert_eq!(hits.len(), 11, "each kind of fault happened: {hits:?}");
}

#[test]
fn same_seed_does_the_same() {
    let story = |seed| {
        let mut world = World::in_memory(seed, workers).unwrap();
        for number in 0..12_u8 {
            let id = MessageId::new(format!("t{number}")).unwrap();
            world.runtime().send(&Message::command(BANK, id, [number % 4, 1, number])).unwrap();
        }
        world.set_faults(Faults::ALL);
        world.run(60).unwrap();
        (world.hits(), world.runtime().incarnation(), world.runtime().metrics())
    };
    assert_eq!(story(3), story(3));
    assert_ne!(story(3), story(4));
}
