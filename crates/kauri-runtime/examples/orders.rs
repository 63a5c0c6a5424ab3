//! An order goes through four workers; each step is one commit, so a crash between any two loses nothing and repeats nothing.

use std::sync::Arc;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Failure, Read, Runtime, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Message, MessageId, MessageRef, WorkerId};

const SALES: WorkerId = WorkerId(1);
const PAYMENT: WorkerId = WorkerId(2);
const STOCK: WorkerId = WorkerId(3);
const SHIPPING: WorkerId = WorkerId(4);

/// What became of each order.
const ORDERS: Table<str, str> = Table::new("orders");
const APPLES: Table<str, u64> = Table::new("stock");

/// Passes an order on to the next worker.
fn pass_on(block: &mut Atomic<'_>, order: MessageRef<'_>, to: WorkerId, state: &str) -> Result<(), Failure> {
    let id = std::str::from_utf8(order.id()).map_err(Failure::fatal)?;
    block.put(&ORDERS, id, state)?;
    Ok(block.emit(&Message::event(to, MessageId::new(id)?, order.payload()).sent_by(order.to()))?)
}

fn sell(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
    pass_on(block, order, PAYMENT, "sold")
}

fn charge(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
    pass_on(block, order, STOCK, "paid")
}

fn reserve(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
    let wanted: u64 = String::from_utf8_lossy(order.payload()).parse().map_err(Failure::fatal)?;
    let there = block.get(&APPLES, "apples")?.unwrap_or(0);
    let left = there.checked_sub(wanted).ok_or_else(|| Failure::retry("not enough apples yet"))?;
    block.put(&APPLES, "apples", left)?;
    pass_on(block, order, SHIPPING, "reserved")
}

fn ship(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
    Ok(block.put(&ORDERS, std::str::from_utf8(order.id()).map_err(Failure::fatal)?, "shipped")?)
}

pub(crate) fn main() -> Result<(), Error> {
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start()?;
    runtime.atomic(|block| block.put(&APPLES, "apples", 30))?;
    let mut workers = [
        runtime.worker(SALES, sell),
        runtime.worker(PAYMENT, charge),
        runtime.worker(STOCK, reserve),
        runtime.worker(SHIPPING, ship),
    ];
    for (order, apples) in [("order-1", "12"), ("order-2", "18"), ("order-3", "5")] {
        runtime.send(&Message::command(SALES, MessageId::new(order)?, apples))?;
    }
    for worker in &mut workers {
        worker.drain()?;
    }
    runtime.read(|view| {
        assert_eq!(view.get(&ORDERS, "order-2")?.as_deref(), Some("shipped"));
        // There were no apples left for the third: it was tried four times, and waits where somebody can look at it.
        assert_eq!(view.get(&ORDERS, "order-3")?.as_deref(), Some("paid"));
        Ok::<_, Error>(())
    })?;
    assert_eq!(runtime.dead_letters(Some(STOCK), None, 10)?.len(), 1);
    Ok(())
}
