//! Transfers that conflict: blocks on many threads read and write the same accounts, and no money is lost or made.

use std::sync::Arc;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Policy, Read, Runtime, Write};
use kauri_tree::{Store, Table};

const ACCOUNTS: Table<u64, u64> = Table::new("accounts");
const THREADS: u64 = 4;
const TRANSFERS: u64 = 200;

/// Moves an amount, or as much of it as there is.
fn transfer(block: &mut Atomic<'_>, from: u64, to: u64, amount: u64) -> Result<(), Error> {
    let left = block.get(&ACCOUNTS, from)?.unwrap_or(0);
    let amount = amount.min(left);
    block.put(&ACCOUNTS, from, left - amount)?;
    let right = block.get(&ACCOUNTS, to)?.unwrap_or(0);
    block.put(&ACCOUNTS, to, right + amount)
}

fn total(from: &impl Read) -> Result<u64, Error> {
    from.scan(&ACCOUNTS)?.map(|_, balance| balance).sum()
}

#[expect(clippy::disallowed_methods, reason = "the example is about threads")]
pub(crate) fn main() -> Result<(), Error> {
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    // Accounts are few and threads are many: give a block more passes before it gives up.
    let policy = Policy { passes_max: 10_000, ..Policy::default() };
    let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).policy(policy).start()?;
    runtime.atomic(|block| (0..3).try_for_each(|account| block.put(&ACCOUNTS, account, 100)))?;
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let runtime = runtime.clone();
            scope.spawn(move || {
                (0..TRANSFERS).try_for_each(|number| {
                    let (from, to) = ((thread + number) % 3, (thread + number + 1) % 3);
                    // A block that only looks at everything is never torn, and never waits.
                    assert_eq!(runtime.read(|view| total(view))?, 300);
                    runtime.atomic(|block| transfer(block, from, to, number % 7))
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_eq!(runtime.read(|view| total(view))?, 300);
    Ok(())
}
