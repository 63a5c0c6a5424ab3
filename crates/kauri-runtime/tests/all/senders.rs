//! Messages that are sent without a thread that waits for each.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use kauri_runtime::substrate::{Change, Limits, Rows, Signal, Substrate, TreeSubstrate, Verdict};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Runtime, Sender, Sending, Sent};
use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Options, Store};
use kauri_wire::{Message, MessageId, MessageRef};

use crate::setup::ANN;

fn open(disk: &MemoryDisk) -> (Store, Runtime) {
    let store = Options::new().keeper(false).open(disk, "store").unwrap();
    (store.clone(), start(Arc::new(TreeSubstrate::new(store))))
}

fn start(substrate: Arc<dyn Substrate>) -> Runtime {
    Runtime::builder(substrate, Arc::new(VirtualClock::default())).start().unwrap()
}

fn message(id: impl AsRef<str>) -> Message {
    Message::command(ANN, MessageId::new(id.as_ref()).unwrap(), "apples")
}

/// The ids of all messages in the inbox, in order.
fn handled(runtime: &Runtime) -> Vec<String> {
    let ids = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&ids);
    let mut worker = runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        told.lock().unwrap().push(String::from_utf8(message.id().to_vec()).unwrap());
        Ok(())
    });
    worker.drain().unwrap();
    std::mem::take(&mut ids.lock().unwrap())
}

#[test]
fn every_message_of_every_thread_is_sent_once_and_in_its_order_and_survives() {
    const THREADS: usize = 4;
    const EACH: usize = 500;
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sender = &sender;
            scope.spawn(move || {
                let send = |number| sender.send(message(format!("{thread}-{number:03}"))).unwrap();
                let sendings: Vec<Sending> = (0..EACH).map(send).collect();
                let mut before = None;
                for sending in sendings {
                    let Sent::Inbox(key) = sending.wait().unwrap() else { panic!("it went elsewhere") };
                    assert!(before.replace(key.seq).is_none_or(|before| before < key.seq), "they are in order");
                }
            });
        }
    });
    assert_eq!(runtime.depth(ANN).unwrap(), (THREADS * EACH) as u64);
    drop((sender, runtime, store));
    let ids = handled(&open(&disk).1);
    for thread in 0..THREADS {
        let own = ids.iter().filter(|id| id.starts_with(&format!("{thread}-")));
        assert!(own.eq((0..EACH).map(|number| format!("{thread}-{number:03}")).collect::<Vec<_>>().iter()));
    }
    assert_eq!(ids.len(), THREADS * EACH);
}

/// Messages that wait together, because the store's turn is taken until all of them are given.
fn together(store: &Store, sender: &Sender, ids: &[String]) -> Vec<Sending> {
    let turn = store.begin();
    let sendings = ids.iter().map(|id| sender.send(message(id)).unwrap()).collect();
    drop(turn);
    sendings
}

#[test]
fn message_that_cannot_be_sent_is_refused_alone() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    let ids = ["one".to_owned(), "x".repeat(10_000), "two".to_owned(), "y".repeat(10_000), "three".to_owned()];
    let sent = together(&store, &sender, &ids).into_iter().map(Sending::wait);
    let is_sent: Vec<bool> = sent
        .map(|sent| match sent {
            Ok(_) => true,
            Err(Error::Limit { .. }) => false,
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(is_sent, [true, false, true, false, true]);
    assert_eq!(handled(&runtime), ["one", "two", "three"]);
}

#[test]
fn too_many_on_their_way_are_refused_until_some_have_arrived() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    let turn = store.begin();
    let mut sendings = Vec::new();
    let most = loop {
        match sender.send(message(format!("{}", sendings.len()))) {
            Ok(sending) => sendings.push(sending),
            Err(Error::Limit { most, found, .. }) => {
                assert_eq!((sendings.len() as u64, found), (most, most + 1));
                break most;
            }
            Err(error) => panic!("{error}"),
        }
    };
    drop(turn);
    assert!(sendings.into_iter().all(|sending| sending.wait().is_ok()));
    sender.send(message("again")).unwrap().wait().unwrap();
    assert_eq!(handled(&runtime).len() as u64, most + 1);
}

struct Tells(mpsc::Sender<()>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        // Nobody listens if it was ready when it was looked at.
        let _ = self.0.send(());
    }
}

#[test]
fn future_is_ready_when_the_message_is_durable_and_wakes_whoever_asked_last() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    let turn = store.begin();
    let mut sending = pin!(sender.send(message("one")).unwrap());
    let wakers = [(); 2].map(|()| {
        let (told, hears) = mpsc::channel();
        (Waker::from(Arc::new(Tells(told))), hears)
    });
    for (waker, _) in &wakers {
        assert!(sending.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    drop(turn);
    wakers[1].1.recv().unwrap();
    assert!(wakers[0].1.try_recv().is_err(), "only the last one is woken");
    let Poll::Ready(Ok(Sent::Inbox(_))) = sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it is ready")
    };
    // On the disk, whoever opens it.
    drop((sender, runtime, store));
    assert_eq!(handled(&open(&disk).1), ["one"]);
}

#[test]
fn executors_with_threads_take_the_future() {
    fn takes(_: impl Future<Output = Result<Sent, Error>> + Send + 'static) {}
    let runtime = open(&MemoryDisk::new()).1;
    takes(runtime.sender().unwrap().send(message("one")).unwrap());
    assert_eq!(handled(&runtime), ["one"], "it is sent although nobody waits");
}

#[test]
fn message_that_nobody_waits_for_is_sent_before_the_sender_is_gone() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    drop(together(&store, &sender, &["one".to_owned(), "two".to_owned()]));
    drop(sender);
    assert_eq!(handled(&runtime), ["one", "two"]);
}

#[test]
fn everybody_is_told_that_the_runtime_was_stopped() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let sender = runtime.sender().unwrap();
    runtime.stop();
    for sending in together(&store, &sender, &["one".to_owned(), "two".to_owned(), "three".to_owned()]) {
        assert!(matches!(sending.wait(), Err(Error::Stopped)));
    }
}

/// A store whose commits fail or panic when they are told to.
pub(crate) struct Failing {
    tree: TreeSubstrate,
    pub(crate) fails: AtomicBool,
    panics: AtomicBool,
    /// How many commits have failed.
    pub(crate) failed: AtomicU64,
}

impl Substrate for Failing {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>, Error> {
        self.tree.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict, Error> {
        assert!(!self.panics.load(Ordering::Relaxed), "as it was told to");
        match self.fails.load(Ordering::Relaxed) {
            true => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Err(Error::Io(std::io::Error::other("no disk")))
            }
            false => self.tree.commit(change),
        }
    }

    fn limits(&self) -> Limits {
        self.tree.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.tree.watch(table, prefix, signal);
    }
}

impl Failing {
    pub(crate) fn new() -> Arc<Self> {
        let tree = TreeSubstrate::new(Store::in_memory().unwrap());
        let (fails, panics, failed) = Default::default();
        Arc::new(Self { tree, fails, panics, failed })
    }
}

fn failing() -> (Arc<Failing>, Runtime) {
    let failing = Failing::new();
    (Arc::clone(&failing), start(failing))
}

#[test]
fn everybody_is_told_that_the_store_failed_and_nothing_is_tried_again() {
    let (failing, runtime) = failing();
    let sender = runtime.sender().unwrap();
    failing.fails.store(true, Ordering::Relaxed);
    for sending in together(failing.tree.store(), &sender, &["one".to_owned(), "two".to_owned(), "three".to_owned()]) {
        let error = sending.wait().unwrap_err();
        assert!(error.to_string().contains("no disk"), "{error}");
    }
    failing.fails.store(false, Ordering::Relaxed);
    sender.send(message("four")).unwrap().wait().unwrap();
    assert_eq!(handled(&runtime), ["four"]);
}

#[test]
fn nobody_waits_for_ever_if_the_thread_that_sends_panics() {
    let (failing, runtime) = failing();
    let sender = runtime.sender().unwrap();
    failing.panics.store(true, Ordering::Relaxed);
    let first = sender.send(message("one")).unwrap();
    assert!(first.wait().unwrap_err().to_string().contains("nobody knows whether it was sent"));
    // Those that came in the meantime, and those that come now.
    let next = loop {
        match sender.send(message("two")) {
            Ok(sending) => drop(sending.wait().unwrap_err()),
            Err(error) => break error,
        }
    };
    assert!(matches!(next, Error::Stopped));
}
