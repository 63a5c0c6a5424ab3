//! `kauri demo`: what is there today, shown at work.

use std::io::Write;

use kauri::tree::{self, Read, Store, Table, Write as _};
use kauri::wire::{
    Flags, InboxKey, Intent, IntentRef, Message, MessageId, MessageRef, Seq, Timestamp, WireError, WorkerId,
};

use super::Trouble;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many orders to send
    #[arg(long, default_value_t = 1000, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    orders: u32,
}

const SALES: WorkerId = WorkerId(1);
const SHIPPING: WorkerId = WorkerId(2);

/// The messages that wait: whose they are and in which order, and their frames.
const INBOX: Table<InboxKey, [u8]> = Table::new("inbox");

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        out,
        "Kauri {version}. Ready today: the wire, and a store that fits in memory. The runtime comes next.\n"
    )?;

    let first = order(1).and_then(|order| order.encode()).map_err(broken)?;
    writeln!(out, "1. An order becomes a frame of {} bytes:", first.len())?;
    dump(&first, out)?;

    let (shipped, apples) = pipeline(args.orders).map_err(broken)?;
    writeln!(out, "\n2. {} orders went through two inboxes in a store, one commit for each step:", args.orders)?;
    writeln!(out, "   {shipped} shipped, {apples} apples; expected {} and {}", args.orders, expected(args.orders))?;

    let damage = damage(&first);
    writeln!(out, "\n3. Every byte of that frame was changed to every other value ({} frames):", damage.tried)?;
    writeln!(
        out,
        "   {} refused, {} read as another message, {} read as the same",
        damage.refused, damage.other, damage.same
    )?;
    writeln!(out, "   (a frame carries no checksum: that is the work of whatever stores it)")?;
    if let Err(error) = MessageRef::decode(&first[..first.len() / 2]) {
        writeln!(out, "   Cut in half it says: {error}")?;
    }

    if (shipped, apples) != (u64::from(args.orders), expected(args.orders)) || damage.same > 0 {
        writeln!(out, "\nThe numbers do not add up: this is a fault in Kauri.")?;
        return Err(Trouble::No);
    }
    writeln!(out, "\nThis ran in memory; nothing was kept. Try `kauri frame decode {}`", hex::encode(&first))?;
    Ok(())
}

fn broken(error: impl std::fmt::Display) -> Trouble {
    Trouble::Wrong(format!("the demo made something that cannot be: {error}"))
}

fn order(number: u32) -> Result<Message, WireError> {
    let apples = number % 12 + 1;
    let message = Message::command(SALES, MessageId::new(format!("order-{number}"))?, format!("{apples} apples"));
    Ok(message.routed(SALES, Timestamp(1_700_000_000_000)).with(Flags::DURABLE | Flags::DEDUPE_REQUIRED))
}

fn expected(orders: u32) -> u64 {
    (1..=orders).map(|number| u64::from(number % 12 + 1)).sum()
}

/// Sends the orders to sales, which emits one message per order to shipping, which counts.
fn pipeline(orders: u32) -> tree::Result<(u64, u64)> {
    let store = Store::in_memory()?;
    let mut txn = store.begin();
    for number in 1..=orders {
        put(&mut txn, Seq(number.into()), &order(number)?)?;
    }
    txn.commit()?;
    let (mut shipped, mut apples) = (0, 0);
    while let Some(step) = step(&store)? {
        if let Some(count) = step {
            shipped += 1;
            apples += count;
        }
    }
    Ok((shipped, apples))
}

/// Handles the first message that waits: taking it away and sending on what follows from it are one commit. Tells how many apples
/// were shipped, if any; `None` if nothing waits.
fn step(store: &Store) -> tree::Result<Option<Option<u64>>> {
    let mut txn = store.begin();
    let first = txn.scan(&INBOX)?.next()?.map(|(key, frame)| (key, frame.into_owned()));
    let Some((key, frame)) = first else { return Ok(None) };
    txn.remove(&INBOX, key)?;
    let message = MessageRef::decode(&frame)?;
    let shipped = if message.to() == SALES {
        let intent = sell(&message)?.encode()?;
        put(&mut txn, key.seq, &IntentRef::decode(&intent)?.message().to_message())?;
        None
    } else {
        Some(count(message.payload()))
    };
    txn.commit()?;
    Ok(Some(shipped))
}

fn put(txn: &mut tree::WriteTxn<'_>, seq: Seq, message: &Message) -> tree::Result<()> {
    txn.put(&INBOX, InboxKey { worker: message.to, seq }, &message.encode()?)
}

fn sell(order: &MessageRef<'_>) -> Result<Intent, WireError> {
    let message = Message::event(SHIPPING, MessageId::new(order.id())?, order.payload()).sent_by(SALES);
    Ok(Intent::Emit { message })
}

fn count(payload: &[u8]) -> u64 {
    let digits = payload.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

struct Damage {
    tried: u32,
    refused: u32,
    other: u32,
    same: u32,
}

fn damage(frame: &[u8]) -> Damage {
    let good = MessageRef::decode(frame).ok();
    let mut damage = Damage { tried: 0, refused: 0, other: 0, same: 0 };
    let mut bytes = frame.to_vec();
    for at in 0..frame.len() {
        for change in 1..=u8::MAX {
            bytes[at] = frame[at] ^ change;
            damage.tried += 1;
            match MessageRef::decode(&bytes) {
                Ok(message) if Some(message) == good => damage.same += 1,
                Ok(_) => damage.other += 1,
                Err(_) => damage.refused += 1,
            }
        }
        bytes[at] = frame[at];
    }
    damage
}

fn dump(bytes: &[u8], out: &mut impl Write) -> Result<(), Trouble> {
    for (index, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = line.chunks(4).map(hex::encode).collect();
        let text: String =
            line.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { byte.into() } else { '.' }).collect();
        writeln!(out, "   {:4}  {:35}  {text}", index * 16, hex.join(" "))?;
    }
    Ok(())
}
