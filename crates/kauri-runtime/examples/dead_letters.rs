//! A message that fails is buried with its reason; when the code is mended, it is sent again.

use std::sync::Arc;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Failure, Read, Reason, Runtime, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Message, MessageId, MessageRef, WorkerId};

const IMPORT: WorkerId = WorkerId(1);
const TOTAL: Table<str, i64> = Table::new("total");

fn add(block: &mut Atomic<'_>, number: i64) -> Result<(), Failure> {
    let total = block.get(&TOTAL, "all")?.unwrap_or(0);
    Ok(block.put(&TOTAL, "all", total + number)?)
}

/// Reads plain numbers.
fn import(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(message.payload());
    add(block, text.parse().map_err(|error| Failure::fatal(format!("{text:?} is no number: {error}")))?)
}

/// Reads numbers with spaces around them, too.
fn mended(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    add(block, String::from_utf8_lossy(message.payload()).trim().parse().map_err(Failure::fatal)?)
}

pub(crate) fn main() -> Result<(), Error> {
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start()?;
    for (id, payload) in [("one", "1"), ("two", " 2"), ("three", "3")] {
        runtime.send(&Message::command(IMPORT, MessageId::new(id)?, payload))?;
    }
    runtime.worker(IMPORT, import).drain()?;
    let letters = runtime.dead_letters(Some(IMPORT), None, 10)?;
    let [(key, letter)] = &letters[..] else { panic!("expected one dead letter, found {letters:?}") };
    assert_eq!(letter.reason, Reason::FailuresSpent);
    assert!(letter.detail.starts_with("\" 2\" is no number"));

    // Back to the tail of its inbox, out of the dead letters, in one commit.
    assert!(runtime.replay(*key)?.is_some());
    runtime.worker(IMPORT, mended).drain()?;
    assert_eq!(runtime.gauges()?.dead_letters, 0);
    assert_eq!(runtime.read(|view| view.get(&TOTAL, "all"))?, Some(6));
    Ok(())
}
