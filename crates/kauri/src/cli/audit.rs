//! `kauri audit`: what was done and decided, and whether it is still what was written.

use std::io::Write;

use kauri::ledger::{AuditLine, Clock as _, Look, SystemClock};
use serde_json::json;

use super::Trouble;
use super::home::{HomeArgs, span, there};
use super::ledger::wrong;
use super::progress::Progress;
use super::table::{Zone, list, more, plain, short};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri audit show --limit 20
  kauri audit show --after 0 --limit 1000    from the beginning, page by page
  kauri audit show --json | jq 'select(.kind == \"KILL_SWITCH_THROWN\")'
  kauri audit verify                 exit code 1 if anything was edited, taken out or cut off")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the newest lines, oldest first
    Show {
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "LINES")]
        limit: usize,
        /// Not the newest lines but those after this number; 0 is the beginning
        #[arg(long, value_name = "LINE")]
        after: Option<u64>,
        /// Only lines written so long ago or later, as 2h
        #[arg(long, value_name = "SPAN", value_parser = span)]
        since: Option<i64>,
        #[command(flatten)]
        zone: Zone,
    },
    /// Look at every line and every anchor; exit code 1 if something is wrong
    Verify,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let look = Look::at(there(&args.home)?.home());
    match args.command {
        Command::Show { limit, after, since, zone } => {
            let since = since.map(|span| SystemClock.now().0.saturating_sub(span));
            let lines = after.map_or_else(|| look.audit_lines(limit), |after| look.audit_lines_after(after, limit));
            let mut lines = lines.map_err(|error| wrong(&error))?;
            let (count, last) = (lines.len(), lines.last().map(|line| line.seq.to_string()));
            lines.retain(|line| since.is_none_or(|since| line.timestamp.0 >= since));
            show(&lines, zone, args.json, out)?;
            // Behind the newest there are none; before them there may be.
            match (after, lines.first()) {
                (Some(_), _) => more(count, limit, last, args.json, out),
                (None, Some(first)) if count == limit && first.seq > 1 && !args.json => {
                    let before = (first.seq - 1).saturating_sub(limit as u64);
                    Ok(writeln!(out, "there are older lines: --after {before}")?)
                }
                (None, _) => Ok(()),
            }
        }
        Command::Verify => verify(&look, args.json, out),
    }
}

fn show(lines: &[AuditLine], zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let value = |line: &AuditLine| {
        json!({
            "seq": line.seq,
            "timestamp": line.timestamp.to_string(),
            "kind": line.kind,
            "action_id": line.action_id,
            "trace_id": line.trace_id,
            "detail": line.detail,
        })
    };
    let cells = |line: &AuditLine| {
        let detail = line.detail.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" ");
        let action = line.action_id.clone().unwrap_or_default();
        vec![line.seq.to_string(), zone.moment(line.timestamp.0), line.kind.clone(), action, short(&detail, 72)]
    };
    let rows = lines.iter().map(|line| (value(line), cells(line)));
    list(rows, json, &["LINE", "TIME", "KIND", "ACTION", "DETAIL"], "nothing was written down yet", out)
}

fn verify(look: &Look, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let progress = Progress::of("looking at every line", !json);
    let report = look.audit();
    drop(progress);
    let report = report.map_err(|error| wrong(&error))?.unwrap_or_default();
    let torn_bytes = report.torn.map_or(0, |torn| torn.bytes);
    if json {
        let value = json!({
            "whole": report.is_whole(),
            "lines": report.lines,
            "anchors": report.anchors,
            "torn_bytes": torn_bytes,
            "broken": report.broken,
            "unanchored": report.unanchored,
        });
        writeln!(out, "{value}")?;
    } else {
        let whole = if report.is_whole() { "whole" } else { "NOT whole" };
        writeln!(out, "{whole}: {} lines, {} anchors on them", report.lines, report.anchors)?;
        let wrong = report.broken.iter().chain(&report.unanchored);
        wrong.into_iter().try_for_each(|what| writeln!(out, "- {}", plain(what)))?;
        if torn_bytes > 0 {
            writeln!(out, "a torn tail of {torn_bytes} bytes, which was never acknowledged")?;
        }
    }
    if report.is_whole() { Ok(()) } else { Err(Trouble::No) }
}
