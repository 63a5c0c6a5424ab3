//! Messages for the outside go to the outbox in the commit of their step, and from there to a file of JSON lines, at least once.

use std::sync::Arc;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Failure, JsonLines, Runtime};
use kauri_tree::Store;
use kauri_wire::{Message, MessageId, MessageRef, WorkerId};

const SALES: WorkerId = WorkerId(1);
/// Somebody who is not in this runtime.
const WAREHOUSE: WorkerId = WorkerId(1000);

fn sell(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
    Ok(block.emit(&Message::command(WAREHOUSE, MessageId::new(order.id())?, order.payload()).sent_by(SALES))?)
}

pub(crate) fn main() -> Result<(), Error> {
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    let builder = Runtime::builder(substrate, Arc::new(VirtualClock::default()));
    let runtime = builder.elsewhere(|worker| worker.0 >= 1000).start()?;
    for order in ["order-1", "order-2"] {
        runtime.send(&Message::command(SALES, MessageId::new(order)?, "12 apples"))?;
    }
    runtime.worker(SALES, sell).drain()?;
    assert_eq!(runtime.gauges()?.outbox, 2);

    // A file would do as well; what it has accepted is removed from the outbox.
    let mut lines = JsonLines::new(Vec::new());
    assert_eq!(runtime.drain_outbox(&mut lines, 100)?, 2);
    let text = String::from_utf8_lossy(&lines.into_inner()).into_owned();
    let first =
        r#"{"seq":1,"kind":"command","to_worker":1000,"from_worker":1,"message_id":"order-1","payload":"12 apples"}"#;
    assert_eq!(text.lines().next(), Some(first));
    assert_eq!(runtime.gauges()?.outbox, 0);
    Ok(())
}
