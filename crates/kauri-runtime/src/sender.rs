//! Sending without waiting for each message: for asynchronous code, and for a thread with many messages on their way.
//!
//! ```text
//! message ──> tray ──> the sender's thread takes all that have come ──> one commit ──> each is told
//!               ^ what comes while a commit is on its way to the disk goes with the next
//! ```
#![expect(clippy::disallowed_methods, reason = "a driver: it has a thread")]

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use kauri_wire::Message;

use crate::error::{Error, Result};
use crate::runtime::{Runtime, Sent};

/// How many messages may be on their way: whoever has more waits for some of them first.
const WAITING_MAX: usize = 4096;
/// So many go into one commit, which others wait for too.
const GROUP_MAX: usize = 256;
/// A group ends with the message that brings its payloads to so many bytes.
const GROUP_BYTES_MAX: usize = 256 << 10;

/// Sends messages for those who do not wait for each of them: made by [`Runtime::sender`]. Dropped, it sends what it was given before.
///
/// Each message is as durable as with [`Runtime::send`] when its sender is told, and is sent or refused by itself. Messages that were given one
/// after the other by one thread are in its worker's inbox in that order.
///
/// ```
/// # use kauri_runtime::substrate::TreeSubstrate;
/// # use kauri_runtime::testing::VirtualClock;
/// # use kauri_runtime::Runtime;
/// # use kauri_wire::{Message, MessageId, WorkerId};
/// # use std::sync::Arc;
/// # let store = TreeSubstrate::new(kauri_tree::Store::in_memory()?);
/// # let runtime = Runtime::builder(Arc::new(store), Arc::new(VirtualClock::default())).start()?;
/// const SALES: WorkerId = WorkerId(7);
/// let order = |number: u32| Message::command(SALES, MessageId::new(format!("order-{number}")).unwrap(), "apples");
/// let sender = runtime.sender()?;
/// let many = (1..=100).map(|number| sender.send(order(number))).collect::<Result<Vec<_>, _>>()?;
/// for sending in many {
///     sending.wait()?; // in asynchronous code: sending.await?
/// }
/// assert_eq!(runtime.depth(SALES)?, 100);
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Sender {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Desk {
    runtime: Runtime,
    tray: Mutex<Tray>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Tray {
    waiting: VecDeque<(Message, Arc<Slip>)>,
    /// How many of those that were taken are not told yet.
    underway: usize,
    /// The thread sleeps until something comes.
    is_asleep: bool,
    is_closed: bool,
}

/// A message on its way. It is sent whether or not this is waited for; a future that is ready when it is durable.
#[must_use = "nobody knows that it is durable until it is waited for"]
pub struct Sending(Arc<Slip>);

/// Where a message's sender is told.
#[derive(Debug, Default)]
struct Slip(Mutex<Told>);

#[derive(Debug)]
enum Told {
    /// Nothing yet; and who is to be woken.
    Nothing(Option<Waker>),
    Answer(Result<Sent>),
    /// Its one answer was given.
    Taken,
}

impl Default for Told {
    fn default() -> Self {
        Self::Nothing(None)
    }
}

impl Runtime {
    /// Whoever sends many messages without waiting for each: one commit for all that come while the one before is on its way.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn sender(&self) -> Result<Sender> {
        let desk = Arc::new(Desk { runtime: self.clone(), tray: Mutex::default(), rung: Condvar::new() });
        let serves = Arc::clone(&desk);
        let thread = thread::Builder::new().name("kauri-sender".to_owned()).spawn(move || serves.serve());
        Ok(Sender { desk, thread: Some(thread.map_err(Error::Io)?) })
    }
}

impl Sender {
    /// Begins to send a message. When what this returns is ready, it is in the store, and survives.
    ///
    /// # Errors
    /// [`Error::Limit`] if too many are on their way: wait for some of them first. [`Error::Stopped`] if the sender's thread panicked. Why a
    /// message cannot be sent is told to whoever waits for it.
    pub fn send(&self, message: Message) -> Result<Sending> {
        let slip = Arc::new(Slip::default());
        let mut tray = self.desk.tray();
        if tray.is_closed {
            return Err(Error::Stopped);
        }
        let found = tray.waiting.len() + tray.underway;
        if found >= WAITING_MAX {
            return Err(Error::Limit {
                of: "messages on their way",
                most: WAITING_MAX as u64,
                found: found as u64 + 1,
            });
        }
        tray.waiting.push_back((message, Arc::clone(&slip)));
        // Waking nobody is a call to the system.
        let is_asleep = std::mem::take(&mut tray.is_asleep);
        drop(tray);
        if is_asleep {
            self.desk.rung.notify_one();
        }
        Ok(Sending(slip))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.desk.tray().is_closed = true;
        self.desk.rung.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened, and everybody was told.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let _closing = Closing(self);
        while let Some(group) = self.next() {
            let count = group.len();
            self.commit(group);
            self.tray().underway -= count;
        }
    }

    /// Waits until there is something to send; `None` is the end.
    fn next(&self) -> Option<Vec<(Message, Arc<Slip>)>> {
        let mut tray = self.tray();
        while tray.waiting.is_empty() {
            if tray.is_closed {
                return None;
            }
            tray.is_asleep = true;
            tray = self.rung.wait(tray).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut group, mut bytes) = (Vec::with_capacity(tray.waiting.len().min(GROUP_MAX)), 0);
        while group.len() < GROUP_MAX
            && bytes < GROUP_BYTES_MAX
            && let Some(next) = tray.waiting.pop_front()
        {
            bytes += next.0.payload.len();
            group.push(next);
        }
        tray.underway = group.len();
        Some(group)
    }

    /// Sends messages in one commit; each by itself if one of them cannot be sent.
    fn commit(&self, group: Vec<(Message, Arc<Slip>)>) {
        let (messages, slips): (Vec<Message>, Vec<Unheard>) =
            group.into_iter().map(|(message, slip)| (message, Unheard(slip))).unzip();
        match self.runtime.send_all(&messages) {
            Ok(sent) => slips.iter().zip(sent).for_each(|(slip, sent)| slip.0.tell(Ok(sent))),
            Err(error) if is_of_one(&error) && slips.len() > 1 => {
                slips.iter().zip(&messages).for_each(|(slip, message)| slip.0.tell(self.runtime.send(message)));
            }
            Err(error) => {
                let again = slips.iter().skip(1).map(|_| same(&error)).collect::<Vec<_>>();
                slips.iter().zip([error].into_iter().chain(again)).for_each(|(slip, error)| slip.0.tell(Err(error)));
            }
        }
    }
}

/// Held by the thread: if it panics, nothing more is taken, and nobody waits for ever.
struct Closing<'a>(&'a Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut tray = self.0.tray();
        tray.is_closed = true;
        let waiting = std::mem::take(&mut tray.waiting);
        drop(tray);
        waiting.into_iter().for_each(|(_, slip)| slip.tell(Err(Error::Stopped)));
    }
}

/// Whether an error is about one of the messages: then it was found before anything was committed.
const fn is_of_one(error: &Error) -> bool {
    matches!(error, Error::Limit { .. } | Error::Wire(_)) || error.is_refusal()
}

/// The same error, for another of those that it befell.
fn same(error: &Error) -> Error {
    match error {
        Error::Stopped => Error::Stopped,
        Error::Conflict(conflict) => Error::Conflict(conflict.clone()),
        // The disk's own words are told once.
        Error::Store(_) => Error::Store(kauri_tree::Error::Broken),
        other => Error::Substrate(other.to_string().into()),
    }
}

/// A message whose sender is told something in any case, also if the thread panics.
struct Unheard(Arc<Slip>);

impl Drop for Unheard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0
                .tell(Err(Error::Substrate("the thread that sends panicked: nobody knows whether it was sent".into())));
        }
    }
}

impl Slip {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told first counts.
    fn tell(&self, answer: Result<Sent>) {
        let mut told = self.told();
        if let Told::Nothing(waker) = &mut *told {
            let waker = waker.take();
            *told = Told::Answer(answer);
            drop(told);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Future for Sending {
    type Output = Result<Sent>;

    /// # Panics
    /// If it was ready before, as futures may.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut told = self.0.told();
        match &mut *told {
            Told::Nothing(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            answer => match std::mem::replace(answer, Told::Taken) {
                Told::Answer(answer) => Poll::Ready(answer),
                Told::Nothing(_) | Told::Taken => panic!("a message that was told of is asked for again"),
            },
        }
    }
}

impl Sending {
    /// Sleeps until it is durable.
    ///
    /// # Errors
    /// As for [`Runtime::send`].
    pub fn wait(mut self) -> Result<Sent> {
        let waker = Waker::from(Arc::new(Sleeper(thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut cx) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }
}

/// A thread that sleeps until it is woken.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sending").field(&*self.0.told()).finish()
    }
}
