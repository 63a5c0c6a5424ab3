//! What a person sees while the demo works: bars where there is a terminal, a line now and then where there is none.

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::super::Trouble;
use super::life::{Recovered, Tally};
use super::order::Plan;

/// How often a line is printed where there is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// What a person sees.
pub(super) enum View {
    /// Nothing: a script asked.
    Nothing,
    Lines {
        plan: Plan,
        last: Option<Instant>,
    },
    Bars(Box<Bars>),
}

pub(super) struct Bars {
    all: MultiProgress,
    accepted: ProgressBar,
    paid: ProgressBar,
    shipped: ProgressBar,
    invoices: ProgressBar,
    rest: ProgressBar,
}

impl View {
    pub(super) fn new(plan: Plan, is_json: bool) -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::Bars(Box::new(Bars::new(plan))),
            false if is_json => Self::Nothing,
            false => Self::Lines { plan, last: None },
        }
    }

    /// Shows how far everything is.
    pub(super) fn show(&mut self, tally: &Tally, out: &mut impl Write) -> Result<(), Trouble> {
        match self {
            Self::Nothing => Ok(()),
            Self::Bars(bars) => {
                bars.show(tally);
                Ok(())
            }
            Self::Lines { plan, last } => {
                if last.is_some_and(|last| last.elapsed() < LINE) {
                    return Ok(());
                }
                *last = Some(Instant::now());
                let (of, rest) = (plan.orders, rest(tally));
                let Tally { accepted, paid, shipped, invoices, .. } = tally;
                Ok(writeln!(
                    out,
                    "  {accepted} accepted, {paid} paid, {shipped} shipped of {of}; {invoices} invoices; {rest}"
                )?)
            }
        }
    }

    /// Says something that stays.
    pub(super) fn say(&self, line: &str, out: &mut impl Write) -> Result<(), Trouble> {
        match self {
            Self::Nothing => Ok(()),
            Self::Lines { .. } => Ok(writeln!(out, "{line}")?),
            Self::Bars(bars) => Ok(bars.all.println(line)?),
        }
    }
}

impl Bars {
    fn new(plan: Plan) -> Self {
        let all = MultiProgress::new();
        let bar = |name: &'static str, of: u64, template: &str| {
            let style = ProgressStyle::with_template(template).expect("the template is one");
            all.add(ProgressBar::new(of).with_message(name).with_style(style.progress_chars("█▌░")))
        };
        let counted = |colour: &str| format!("  {{msg:<10}} {{bar:40.{colour}}} {{pos:>6}} of {{len}}");
        Self {
            accepted: bar("accepted", plan.orders, &counted("cyan")),
            paid: bar("paid", plan.orders, &counted("blue")),
            shipped: bar("shipped", plan.orders, &counted("green")),
            invoices: bar("invoiced", plan.customers(), &counted("magenta")),
            rest: bar("", 0, "  {msg}"),
            all,
        }
    }

    fn show(&self, tally: &Tally) {
        self.accepted.set_position(tally.accepted);
        self.paid.set_position(tally.paid);
        self.shipped.set_position(tally.shipped);
        self.invoices.set_position(tally.invoices);
        self.rest.set_message(rest(tally));
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        // What was drawn stays: it is how far everything came.
        for bar in [&self.accepted, &self.paid, &self.shipped, &self.invoices, &self.rest] {
            bar.abandon();
        }
        // The cursor is at the end of the last of them. If there is nobody to see it, nothing is missing.
        let _unseen = writeln!(std::io::stderr());
    }
}

fn rest(tally: &Tally) -> String {
    let Tally { waiting, timers, retries, buried, .. } = tally;
    let letters = if *buried == 1 { "1 dead letter".to_owned() } else { format!("{buried} dead letters") };
    format!("{waiting} messages wait, {timers} timers, {retries} tries failed, {letters}")
}

/// That the process was killed, so that it is seen.
pub(super) fn killed(view: &View, shipped: Option<u64>, plan: Plan) -> String {
    let word = match view {
        View::Bars(_) if is_coloured() => "\u{1b}[1;31mKILLED\u{1b}[0m",
        _ => "KILLED",
    };
    match shipped {
        Some(shipped) => format!("{word}   with {shipped} of {} orders shipped", plan.orders),
        None => format!("{word}   while it started"),
    }
}

/// Whether the terminal and whoever sits there want colours.
fn is_coloured() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// What a start found and took over, in a line.
pub(super) fn told(recovered: &Recovered) -> String {
    let Recovered { claimed, waiting, timers, runs, orphans, repairs, .. } = *recovered;
    let some = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let claimed_by = "of them claimed by the dead process";
    let parts = [
        some(waiting, "message", "messages"),
        some(claimed, claimed_by, claimed_by),
        some(timers, "timer", "timers"),
        some(runs, "run without a driver", "runs without a driver"),
        some(orphans, "action without an end", "actions without an end"),
        some(repairs, "line of the ledger to settle", "lines of the ledger to settle"),
    ];
    match parts.into_iter().flatten().collect::<Vec<_>>() {
        parts if parts.is_empty() => "nothing was under way".to_owned(),
        parts => format!("took over {}", parts.join(", ")),
    }
}
