//! `kauri inbox`, `timers`, `leases`, `outbox`: what waits in the store of a home. They take no lock and start nothing.

use std::io::Write;

use kauri::ledger::{Clock as _, SystemClock};
use kauri::wire::{MessageRef, WorkerId};
use serde_json::{Value, json};

use super::Trouble;
use super::frame::json::message as message_json;
use super::home::{HomeArgs, look};
use super::table::{list, moment, short, text_of};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri inbox --worker 7
  kauri inbox --json | jq .message.payload")]
pub(crate) struct InboxArgs {
    #[command(flatten)]
    common: Args,
    /// Only the inbox of this worker
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    worker: Option<i64>,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "ROWS")]
    limit: usize,
}

/// A message as JSON; what does not decode is told, with its bytes.
pub(super) fn frame_json(frame: &[u8]) -> Value {
    match MessageRef::decode(frame) {
        Ok(message) => message_json(&message),
        Err(error) => json!({ "fault": error.to_string(), "frame_hex": hex::encode(frame) }),
    }
}

/// Whom a message is for, its id and its payload, in a few words.
pub(super) fn frame_cells(frame: &[u8]) -> [String; 3] {
    match MessageRef::decode(frame) {
        Ok(message) => [
            message.to().to_string(),
            short(&text_of(message.id()), 40),
            format!("{} bytes: {}", message.payload().len(), short(&text_of(message.payload()), 40)),
        ],
        Err(error) => [String::new(), String::new(), format!("no message: {error}")],
    }
}

pub(crate) fn inbox(args: &InboxArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let Args { home, json, limit } = &args.common;
    let rows = look(home, |look| look.inbox(args.worker.map(WorkerId), *limit))?.unwrap_or_default();
    let rows = rows.iter().map(|(key, frame)| {
        let [_, id, payload] = frame_cells(frame);
        let value = json!({ "worker": key.worker.0, "seq": key.seq.0, "message": frame_json(frame) });
        (value, vec![key.worker.to_string(), key.seq.to_string(), id, payload])
    });
    list(rows, *json, &["WORKER", "SEQ", "MESSAGE", "PAYLOAD"], "no messages wait", out)
}

pub(crate) fn outbox(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let rows = look(&args.home, |look| look.outbox(args.limit))?.unwrap_or_default();
    let rows = rows.iter().map(|(seq, frame)| {
        let [to, id, payload] = frame_cells(frame);
        (json!({ "seq": seq.0, "message": frame_json(frame) }), vec![seq.to_string(), to, id, payload])
    });
    list(rows, args.json, &["SEQ", "TO", "MESSAGE", "PAYLOAD"], "nothing waits to be delivered", out)
}

pub(crate) fn timers(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let rows = look(&args.home, |look| look.timers(args.limit))?.unwrap_or_default();
    let now = SystemClock.now().0;
    let rows = rows.iter().map(|(key, frame)| {
        let [to, id, payload] = frame_cells(frame);
        let (due, is_due) = (moment(key.due.0), key.due.0 <= now);
        let value = json!({ "due": due, "seq": key.seq.0, "is_due": is_due, "message": frame_json(frame) });
        (value, vec![due, if is_due { "yes" } else { "" }.to_owned(), to, id, payload])
    });
    list(rows, args.json, &["AT", "DUE", "TO", "MESSAGE", "PAYLOAD"], "no timers", out)
}

pub(crate) fn leases(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let found = look(&args.home, |look| Ok((look.leases(args.limit)?, look.incarnation()?)))?;
    let (rows, incarnation) = found.unwrap_or_default();
    let rows = rows.iter().map(|row| {
        let lease = &row.lease;
        let is_of_last_start = lease.incarnation == incarnation;
        let messages: Vec<u64> = row.messages.iter().map(|seq| seq.0).collect();
        let value = json!({
            "worker": row.worker.0,
            "owner": lease.owner,
            "incarnation": lease.incarnation,
            "is_of_last_start": is_of_last_start,
            "deliveries": lease.deliveries,
            "messages": messages,
        });
        let seqs = messages.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let start = format!("{}{}", lease.incarnation, if is_of_last_start { " (the last)" } else { "" });
        (value, vec![row.worker.to_string(), start, lease.deliveries.to_string(), short(&seqs, 60)])
    });
    list(rows, args.json, &["WORKER", "START", "DELIVERIES", "MESSAGES"], "no leases", out)
}
