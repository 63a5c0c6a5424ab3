//! What the tests share: a runtime in memory with a clock that stands still.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Builder, Failure, Observation, Observer, Policy, Runtime, Sent, StepEnd, Worker};
use kauri_tree::Store;
use kauri_wire::{InboxKey, Message, MessageId, MessageRef, WorkerId};

pub(crate) const ANN: WorkerId = WorkerId(1);
pub(crate) const BOB: WorkerId = WorkerId(2);

/// A runtime, and what it stands on.
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) clock: VirtualClock,
    pub(crate) store: Store,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn policy(policy: Policy) -> Self {
        Self::with(|builder| builder.policy(policy))
    }

    pub(crate) fn with(configure: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = VirtualClock::default();
        let store = Store::in_memory().expect("a store in memory");
        Self::on(store, clock, configure)
    }

    pub(crate) fn on(store: Store, clock: VirtualClock, configure: impl FnOnce(Builder) -> Builder) -> Self {
        let substrate = Arc::new(TreeSubstrate::new(store.clone()));
        let runtime = configure(Runtime::builder(substrate, Arc::new(clock.clone()))).start().expect("it starts");
        Self { runtime, clock, store }
    }

    /// The same store and clock after everything else is gone.
    pub(crate) fn restarted(self) -> Self {
        self.runtime.stop();
        Self::on(self.store, self.clock, |builder| builder)
    }

    /// How many commits something takes. (A commit may take more than one number of the store.)
    pub(crate) fn commits(&self, work: impl FnOnce()) -> u64 {
        let version = || self.store.snapshot().version();
        let start = version();
        self.send(WorkerId(99), "one commit");
        let one = version() - start;
        let before = version();
        work();
        (version() - before) / one
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    pub(crate) fn send(&self, to: WorkerId, id: &str) -> InboxKey {
        self.send_message(&command(to, id))
    }

    /// Sends messages with the ids 0, 1, 2...
    pub(crate) fn send_many(&self, to: WorkerId, count: usize) {
        for number in 0..count {
            self.send(to, &number.to_string());
        }
    }

    pub(crate) fn send_message(&self, message: &Message) -> InboxKey {
        match self.runtime.send(message).expect("sent") {
            Sent::Inbox(key) => key,
            other => panic!("expected an inbox, found {other:?}"),
        }
    }

    /// A worker that writes down the ids of its messages.
    pub(crate) fn scribe(&self, id: WorkerId) -> (Worker, Notes) {
        let notes = Notes::default();
        let own = notes.clone();
        let worker = self.runtime.worker(id, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
            own.add(message);
            Ok(())
        });
        (worker, notes)
    }
}

/// Ids of messages, in the order in which they were handled.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, message: MessageRef<'_>) {
        self.0.lock().unwrap().push(String::from_utf8_lossy(message.id()).into_owned());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Ends of steps, in order.
#[derive(Clone, Default)]
pub(crate) struct Ends(pub(crate) Arc<Mutex<Vec<StepEnd>>>);

impl Observer for Ends {
    fn observe(&self, observation: &Observation<'_>) {
        if let Observation::StepEnded { end, .. } = observation {
            self.0.lock().unwrap().push((*end).clone());
        }
    }
}

pub(crate) fn command(to: WorkerId, id: &str) -> Message {
    Message::command(to, MessageId::new(id).expect("an id"), "payload")
}

/// A handler that always answers this.
pub(crate) fn answering(
    answer: impl Fn() -> Result<(), Failure> + Send + 'static,
) -> impl FnMut(&mut Atomic<'_>, MessageRef<'_>) -> Result<(), Failure> + Send + 'static {
    move |_, _| answer()
}
