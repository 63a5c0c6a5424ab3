//! A process that runs an order pipeline, killed two hundred times: in the end everything was done, once.
#![expect(clippy::disallowed_methods, reason = "starts and kills a process in a directory of its own")]

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Failure, Policy, Pool, Read, Runtime, Worker, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Flags, Message, MessageId, MessageRef, WorkerId};

use crate::threads::SystemClock;

/// Tells the process where its store is.
const STORE: &str = "KAURI_RUNTIME_TEST_STORE";
/// What it says when its workers run.
const OPEN: &str = "the store is open";
const KILLS: u64 = 200;
const ORDERS_PER_LIFE: u64 = 40;

const STAGES: [WorkerId; 4] = [WorkerId(1), WorkerId(2), WorkerId(3), WorkerId(4)];
/// How many orders each stage has handled.
const HANDLED: Table<u64, u64> = Table::new("handled");
/// How often each order came through.
const SHIPPED: Table<u64, u64> = Table::new("shipped");
/// How many orders were made, so that each life makes new ones.
const MADE: Table<u8, u64> = Table::new("made");

fn open(path: &Path) -> Runtime {
    // The process that was killed may not be quite gone.
    let store = (0..2000).find_map(|_| match Store::open(path) {
        Err(kauri_tree::Error::Locked) => {
            std::thread::sleep(Duration::from_millis(1));
            None
        }
        opened => Some(opened.unwrap()),
    });
    let substrate = Arc::new(TreeSubstrate::new(store.expect("the store is free in two seconds")));
    // A message that is claimed in many lives and ended in none is buried; here it is not the message's fault.
    let policy = Policy { delivery_budget: u32::MAX, ..Policy::default() };
    Runtime::builder(substrate, Arc::new(SystemClock::new())).policy(policy).start().unwrap()
}

/// Counts an order and passes it on; the last stage ships it.
fn handle(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = u64::from_le_bytes(message.payload().try_into().map_err(|_| Failure::fatal("eight bytes"))?);
    let stage = message.to().key_bits();
    let handled = block.get(&HANDLED, stage)?.unwrap_or(0);
    block.put(&HANDLED, stage, handled + 1)?;
    match STAGES.iter().find(|next| next.key_bits() == stage + 1) {
        Some(next) => block.emit(&Message { to: *next, ..message.to_message() })?,
        None => {
            let times = block.get(&SHIPPED, order)?.unwrap_or(0);
            block.put(&SHIPPED, order, times + 1)?;
        }
    }
    Ok(())
}

fn workers(runtime: &Runtime) -> Vec<Worker> {
    STAGES.iter().map(|stage| runtime.worker(*stage, handle)).collect()
}

/// Makes an order, in a block that counts it.
fn make_order(runtime: &Runtime) -> Result<(), kauri_runtime::Error> {
    runtime.atomic(|block| {
        let order = block.get(&MADE, 0)?.unwrap_or(0);
        block.put(&MADE, 0, order + 1)?;
        let id = MessageId::new(format!("order-{order}"))?;
        block.emit(&Message::command(STAGES[0], id, order.to_le_bytes()).with(Flags::DURABLE))
    })
}

/// The process that is killed, when it is one: the test below starts it. By itself it has nothing to do.
#[test]
fn the_process_that_is_killed() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let runtime = open(Path::new(&path));
    let _pool = Pool::start(workers(&runtime)).unwrap();
    // Whoever is to kill hears that the store is open.
    println!("{OPEN}");
    std::io::stdout().flush().unwrap();
    for _ in 0..ORDERS_PER_LIFE {
        // Conflicts are for blocks that touch the same rows; making orders is this thread's alone.
        make_order(&runtime).unwrap();
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn process_killed_two_hundred_times_carries_out_every_order_once() {
    let folder = std::env::temp_dir().join(format!("kauri-runtime-kill-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("store");
    let this = std::env::current_exe().unwrap();
    for kill in 0..KILLS {
        let mut command = Command::new(&this);
        command.args(["--exact", "kill::the_process_that_is_killed", "--nocapture"]).env(STORE, &path);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_running = lines.map_while(Result::ok).any(|line| line.contains(OPEN));
        assert!(is_running, "life {kill} did not start");
        // Any moment of its work will do; which it is, the machine decides.
        std::thread::sleep(Duration::from_micros(kill * 97 % 9000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let runtime = open(&path);
    let mut all = workers(&runtime);
    while all.iter_mut().map(|worker| worker.drain().unwrap()).sum::<usize>() > 0 {}
    assert_eq!(runtime.dead_letters(None, None, 10).unwrap(), []);
    let made = runtime.read(|view| view.get(&MADE, 0)).unwrap().unwrap_or(0);
    assert!(made > KILLS, "{made} orders in {KILLS} lives");
    runtime
        .read(|view| {
            for stage in STAGES {
                assert_eq!(view.get(&HANDLED, stage.key_bits())?, Some(made));
            }
            for order in 0..made {
                assert_eq!(view.get(&SHIPPED, order)?, Some(1), "order {order}");
            }
            Ok::<_, kauri_runtime::Error>(())
        })
        .unwrap();
    let gauges = runtime.gauges().unwrap();
    assert_eq!((gauges.inbox, gauges.leases, gauges.dead_letters), (0, 0, 0));
    drop((all, runtime));
    std::fs::remove_dir_all(&folder).unwrap();
}
