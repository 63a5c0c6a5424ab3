//! `kauri inbox`, `timers`, `leases`, `outbox`: what waits in the store of a home. They take no lock and start nothing.

use std::io::Write;

use kauri::ledger::{Clock as _, SystemClock};
use kauri::runtime::Look;
use kauri::wire::{InboxKey, MessageRef, Seq, TimerKey, Timestamp, WorkerId};
use serde_json::{Value, json};

use super::Trouble;
use super::frame::json::message as message_json;
use super::home::{HomeArgs, look};
use super::table::{Zone, list, moment, moment_and_seq, more, short, text_of};
use super::watch::Watch;

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
    /// Only what comes after this worker and number, as 7/12
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, value_parser = super::dead_letters::key)]
    after: Option<InboxKey>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri timers --limit 10
  kauri timers --after 2026-02-21T09:30:00.123Z/5
  kauri timers --watch")]
pub(crate) struct TimersArgs {
    #[command(flatten)]
    common: Args,
    #[command(flatten)]
    zone: Zone,
    /// Only what comes after this moment and number, as 2026-02-21T09:30:00.123Z/5
    #[arg(long, value_name = "KEY", value_parser = moment_and_seq)]
    after: Option<(i64, u64)>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri outbox --json | jq .message.payload
  kauri outbox --after 100 --limit 100")]
pub(crate) struct OutboxArgs {
    #[command(flatten)]
    common: Args,
    /// Only what comes after this number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri leases --json
  kauri leases --after 7/1")]
pub(crate) struct LeasesArgs {
    #[command(flatten)]
    common: Args,
    /// Only what comes after this worker and instance, as 7/1
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, value_parser = super::dead_letters::key)]
    after: Option<InboxKey>,
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
    #[command(flatten)]
    watch: Watch,
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
    let Args { home, json, limit, watch } = &args.common;
    watch.show(*json, out, |out| {
        let find = |look: &Look<'_>| look.inbox_after(args.worker.map(WorkerId), args.after, *limit);
        let found = look(home, find)?.unwrap_or_default();
        let rows = found.iter().map(|(key, frame)| {
            let [_, id, payload] = frame_cells(frame);
            let value = json!({ "worker": key.worker.0, "seq": key.seq.0, "message": frame_json(frame) });
            (value, vec![key.worker.to_string(), key.seq.to_string(), id, payload])
        });
        list(rows, *json, &["WORKER", "SEQ", "MESSAGE", "PAYLOAD"], "no messages wait", out)?;
        more(found.len(), *limit, found.last().map(|(key, _)| format!("{}/{}", key.worker, key.seq)), *json, out)
    })
}

pub(crate) fn outbox(args: &OutboxArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let Args { home, json, limit, watch } = &args.common;
    watch.show(*json, out, |out| {
        let found = look(home, |look| look.outbox_after(args.after.map(Seq), *limit))?.unwrap_or_default();
        let rows = found.iter().map(|(seq, frame)| {
            let [to, id, payload] = frame_cells(frame);
            (json!({ "seq": seq.0, "message": frame_json(frame) }), vec![seq.to_string(), to, id, payload])
        });
        list(rows, *json, &["SEQ", "TO", "MESSAGE", "PAYLOAD"], "nothing waits to be delivered", out)?;
        more(found.len(), *limit, found.last().map(|(seq, _)| seq.to_string()), *json, out)
    })
}

pub(crate) fn timers(args: &TimersArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let Args { home, json, limit, watch } = &args.common;
    let after = args.after.map(|(due, seq)| TimerKey { due: Timestamp(due), seq: Seq(seq) });
    watch.show(*json, out, |out| {
        let found = look(home, |look| look.timers_after(after, *limit))?.unwrap_or_default();
        let now = SystemClock.now().0;
        let rows = found.iter().map(|(key, frame)| {
            let [to, id, payload] = frame_cells(frame);
            let (due, is_due) = (moment(key.due.0), key.due.0 <= now);
            let value = json!({ "due": due, "seq": key.seq.0, "is_due": is_due, "message": frame_json(frame) });
            (value, vec![args.zone.moment(key.due.0), if is_due { "yes" } else { "" }.to_owned(), to, id, payload])
        });
        list(rows, *json, &["AT", "DUE", "TO", "MESSAGE", "PAYLOAD"], "no timers", out)?;
        let last = found.last().map(|(key, _)| format!("{}/{}", moment(key.due.0), key.seq));
        more(found.len(), *limit, last, *json, out)
    })
}

pub(crate) fn leases(args: &LeasesArgs, out: &mut impl Write) -> Result<(), Trouble> {
    args.common.watch.show(args.common.json, out, |out| list_leases(args, out))
}

fn list_leases(args: &LeasesArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let Args { home, json, limit, .. } = &args.common;
    let found = look(home, |look| Ok((look.leases_after(args.after, *limit)?, look.incarnation()?)))?;
    let (found, incarnation) = found.unwrap_or_default();
    let name = |key: InboxKey| format!("{}/{}", key.worker, key.seq);
    let rows = found.iter().map(|row| {
        let lease = &row.lease;
        let is_of_last_start = lease.incarnation == incarnation;
        let messages: Vec<u64> = row.messages.iter().map(|seq| seq.0).collect();
        let value = json!({
            "key": name(row.key),
            "worker": row.key.worker.0,
            "owner": lease.owner,
            "incarnation": lease.incarnation,
            "is_of_last_start": is_of_last_start,
            "deliveries": lease.deliveries,
            "messages": messages,
        });
        let seqs = messages.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let start = format!("{}{}", lease.incarnation, if is_of_last_start { " (the last)" } else { "" });
        (value, vec![name(row.key), start, lease.deliveries.to_string(), short(&seqs, 60)])
    });
    list(rows, *json, &["WORKER", "START", "DELIVERIES", "MESSAGES"], "no leases", out)?;
    more(found.len(), *limit, found.last().map(|row| name(row.key)), *json, out)
}
