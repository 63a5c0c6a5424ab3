//! Timers and schedules: a reminder in an hour, a report every morning. Time is virtual here, so nobody waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, CatchUp, Error, Runtime, When};
use kauri_tree::Store;
use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};

const DESK: WorkerId = WorkerId(1);

pub(crate) fn main() -> Result<(), Error> {
    let clock = VirtualClock::at(Timestamp(0));
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    let runtime = Runtime::builder(substrate, Arc::new(clock.clone())).start()?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&heard);
    let mut desk = runtime.worker(DESK, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        own.lock().expect("no panic").push(String::from_utf8_lossy(message.id()).into_owned());
        Ok(())
    });

    let hour = Duration::from_hours(1);
    runtime.arm(Timestamp(3_600_000), &Message::timer(DESK, MessageId::new("call back")?, ""))?;
    let never = runtime.arm(Timestamp(7_200_000), &Message::timer(DESK, MessageId::new("never mind")?, ""))?;
    let report = Message::timer(DESK, MessageId::new("the slot's name comes here")?, "");
    runtime.schedule("report", &When::Cron("0 8 * * *".to_owned()), CatchUp::Latest, &report)?;

    clock.advance(hour - Duration::from_millis(1));
    desk.drain()?;
    assert!(heard.lock().expect("no panic").is_empty(), "never early");
    clock.advance(Duration::from_millis(1));
    desk.drain()?;
    assert!(runtime.disarm(never)?, "it was not due yet");

    // Nobody was there for three days: with `Latest`, one report is enough.
    clock.advance(72 * hour);
    desk.drain()?;
    let eight_on_the_third_day = 2 * 86_400_000 + 8 * 3_600_000;
    let expected = ["call back".to_owned(), format!("report@{eight_on_the_third_day}")];
    assert_eq!(*heard.lock().expect("no panic"), expected);
    Ok(())
}
