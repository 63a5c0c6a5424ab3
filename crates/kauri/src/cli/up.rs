//! `kauri up`: an instance, from its first screen to its last line.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use kauri::instance::{Account, Instance, Standing, UpError};
use kauri::runtime::run::Outcome;
use kauri::{Config, JobConfig, Layout, LogLevel, show_span};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Trouble;
use super::ask::connect;
use super::config::{ConfigArgs, Flags, load};
use super::home::HomeArgs;
use super::log::Log;
use super::table::{Table, Zone, moment, plain, short};

/// How often it looks for the kill switch, and whether everything has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it waits for somebody who has the lock and is no instance.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long it waits for threads whose work was killed.
const LAST_WAIT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri up
  kauri up --home /srv/shop --drain 30s
  kauri up --json
  kauri up --log info --log-format json

What it runs is in kauri.toml in the home:
  [job.hello]
  command = [\"./hello.sh\"]      # the job as JSON on standard input; exit code 0 is success
  timeout = \"5m\"
  retry = { attempts = 3 }
  schedule = { cron = \"0 3 * * *\" }      # in UTC: each day at 03:00; or every = \"5m\"
  fan_out = { depth = 2, exit = \"all\" }   # it may ask for other jobs, and ends well if all of them do
then `kauri submit hello --input '{\"name\": \"Ann\"}'`. `kauri config show` prints every key with its value.

SIGINT (Ctrl-C) and SIGTERM: nothing begins any more, and what is under way is waited for. The second: it is killed.
Exit codes: 0 stopped and everything under way has ended, 1 stopped and something was killed (it is taken over at the next start),
2 it could not start or could not go on.")]
pub(crate) struct Args {
    #[command(flatten)]
    home: HomeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    flags: Flags,
    /// Print JSON, one object a line, when something changes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    zone: Zone,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = args.home.layout();
    let (config, path) = load(&layout, &args.config, &args.flags)?;
    let signals = signals()?;
    let log = Arc::new(Log::new(config.log.value, config.log_format.value, args.zone));
    let (instance, account) = start(&layout, &config, &log)?;
    let mut teller = Teller { out, json: args.json, zone: args.zone, log };
    teller.up(&instance, &account, &args.home.shown(), path.exists().then_some(&path))?;
    watch(instance, &signals, &mut teller)
}

/// A command that changes something while nobody runs has the lock for a moment: it is waited for. An instance is not.
fn start(layout: &Layout, config: &Config, log: &Arc<Log>) -> Result<(Instance, Account), Trouble> {
    let began = Instant::now();
    loop {
        match Instance::start_observed(layout, config.clone(), Some(Arc::clone(log) as _)) {
            Err(UpError::Ledger(kauri::ledger::Error::Locked { .. }))
                if began.elapsed() < LOCK_WAIT && connect(layout)?.is_none() =>
            {
                std::thread::sleep(LOOK_EVERY);
            }
            started => return started.map_err(|error| refused(layout, &error)),
        }
    }
}

/// Why it does not run, with the file that it is about.
pub(super) fn refused(layout: &Layout, error: &UpError) -> Trouble {
    use kauri::ledger::{DATABASE_NAME, Error};
    Trouble::Wrong(match error {
        UpError::Ledger(locked @ Error::Locked { .. }) => format!("somebody works here already: {locked}"),
        UpError::Ledger(error @ (Error::Sql { .. } | Error::NewerSchema { .. })) => {
            format!("{}: {error}", layout.runtime().join(DATABASE_NAME).display())
        }
        UpError::Runtime(error) => format!("{}: {error}", layout.store().display()),
        other => other.to_string(),
    })
}

/// What was sent to this process.
fn signals() -> Result<Receiver<i32>, Trouble> {
    let failed = |error: std::io::Error| Trouble::Wrong(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (tell, told) = channel();
    let listen = move || signals.forever().take_while(|signal| tell.send(*signal).is_ok()).for_each(drop);
    std::thread::Builder::new().name("kauri-signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(told)
}

/// Until it is told to stop.
fn watch(mut instance: Instance, signals: &Receiver<i32>, teller: &mut Teller<'_, impl Write>) -> Result<(), Trouble> {
    let began = Instant::now();
    let layout = instance.layout().clone();
    let failed = |error| refused(&layout, &error);
    let mut stopped = instance.switch_reason();
    if let Some(reason) = &stopped {
        teller.tell("stopped", &json!({ "reason": reason }), &stopped_words(reason));
    }
    let mut trouble = None;
    loop {
        teller.trouble(&mut trouble, instance.trouble());
        match signals.recv_timeout(LOOK_EVERY) {
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return drain(instance, signals, began, teller),
            Err(RecvTimeoutError::Timeout) => {}
        }
        match (instance.switch_reason(), &stopped) {
            (Some(reason), None) => {
                instance.drain(Standing::Stopped);
                teller.tell("stopped", &json!({ "reason": reason }), &stopped_words(&reason));
                instance.end_by_switch(&reason).map_err(failed)?;
                stopped = Some(reason);
            }
            (None, Some(_)) if instance.is_idle() => {
                instance.join().map_err(failed)?;
                instance.work().map_err(failed)?;
                teller.tell("resumed", &json!({}), "resumed: working again");
                stopped = None;
            }
            // Threads that stop by themselves have met something that they cannot go on with.
            (None, None) if instance.is_stopping() => {
                instance.hurry();
                return Err(instance.stop().err().map_or_else(no_reason, failed));
            }
            _ => {}
        }
    }
}

fn no_reason() -> Trouble {
    Trouble::Wrong("the workers stopped, and nobody knows why".to_owned())
}

fn stopped_words(reason: &str) -> String {
    format!("stopped by the kill switch: {reason}\nwhat was under way is ended; `kauri resume` lets work begin again")
}

/// Waits for what is under way, until it has ended, its time is over, or somebody insists.
fn drain(
    instance: Instance,
    signals: &Receiver<i32>,
    began: Instant,
    teller: &mut Teller<'_, impl Write>,
) -> Result<(), Trouble> {
    instance.drain(Standing::Draining);
    let most = instance.config().drain.value;
    let limit = most.map_or_else(String::new, |most| format!(", {} at most", show_span(most)));
    let going = instance.running();
    let words = match going {
        0 => "stopping".to_owned(),
        1 => format!("stopping: waiting for 1 run that is under way{limit} (once more to kill it)"),
        many => format!("stopping: waiting for {many} runs that are under way{limit} (once more to kill them)"),
    };
    teller.tell("draining", &json!({ "running": going }), &words);
    let since = Instant::now();
    let mut killed: Option<(Instant, usize)> = None;
    loop {
        if instance.is_idle() {
            break;
        }
        let is_told = !matches!(signals.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout));
        let is_late = most.is_some_and(|most| since.elapsed() >= most);
        match killed {
            None if is_told || is_late => {
                killed = Some((Instant::now(), instance.running()));
                instance.hurry();
            }
            Some((at, _)) if at.elapsed() >= LAST_WAIT => break,
            _ => {}
        }
    }
    let counts = instance.runtime().metrics();
    let failed = counts.runs_script_error
        + counts.runs_executor_crash
        + counts.runs_policy_failure
        + counts.runs_version_mismatch
        + counts.runs_cancelled
        + counts.runs_timed_out;
    let ended = counts.runs_success + counts.runs_skipped + failed;
    let killed = killed.map_or(0, |(_, running)| running);
    let layout = instance.layout().clone();
    match instance.is_idle() {
        true => instance.stop().map_err(|error| refused(&layout, &error))?,
        false => instance.abandon(),
    }
    let up = show_span(Duration::from_secs(began.elapsed().as_secs()));
    let words = match killed {
        0 => format!("stopped after {up}: {ended} runs ended, {failed} of them badly"),
        _ => {
            format!(
                "stopped after {up}: {ended} runs ended, {killed} of them killed: with the next start another attempt follows if their class wants one"
            )
        }
    };
    teller.tell("ended", &json!({ "ended": ended, "failed": failed, "killed": killed }), &words);
    if killed > 0 { Err(Trouble::No) } else { Ok(()) }
}

/// Says what happens, to people or to programs.
struct Teller<'a, W> {
    out: &'a mut W,
    json: bool,
    zone: Zone,
    log: Arc<Log>,
}

impl<W: Write> Teller<'_, W> {
    /// Tells what goes wrong beside the work, when that changes.
    fn trouble(&self, before: &mut Option<String>, now: Option<String>) {
        if *before != now {
            let words =
                now.as_ref().map_or_else(|| "it goes well again".to_owned(), |now| format!("beside the work: {now}"));
            self.log.say(LogLevel::Warn, "trouble", &words, &json!({ "trouble": now }));
            *before = now;
        }
    }

    /// Work goes on whether anybody reads what is said of it or not.
    fn tell(&mut self, event: &str, value: &Value, words: &str) {
        let mut line = json!({ "event": event });
        for (name, value) in value.as_object().into_iter().flatten() {
            line[name] = value.clone();
        }
        let lines = if self.json { vec![line.to_string()] } else { words.lines().map(plain).collect() };
        for line in lines {
            let _unheard = writeln!(self.out, "{line}");
        }
        let _unheard = self.out.flush();
    }

    fn up(
        &mut self,
        instance: &Instance,
        account: &Account,
        home: &str,
        path: Option<&PathBuf>,
    ) -> Result<(), Trouble> {
        let recovered = recovered(account);
        if self.json {
            let value = json!({
                "pid": std::process::id(),
                "home": instance.layout().home().display().to_string(),
                "config": path.map(|path| path.display().to_string()),
                "incarnation": instance.runtime().incarnation(),
                "classes": instance.config().jobs.keys().collect::<Vec<_>>(),
                "recovered": account_json(account),
            });
            self.tell("up", &value, "");
            return Ok(());
        }
        let out = &mut self.out;
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        writeln!(out, "kauri {version} is up, process {pid}, start {}\n", instance.runtime().incarnation())?;
        writeln!(out, "home    {}", instance.layout().home().display())?;
        match path {
            Some(path) => writeln!(out, "config  {}", path.display())?,
            None => writeln!(out, "config  none: all defaults")?,
        }
        if !recovered.is_empty() {
            writeln!(out, "\nWhat the last start left:")?;
            recovered.iter().try_for_each(|line| writeln!(out, "  {}", plain(&self.zone.within(line))))?;
        }
        writeln!(out)?;
        classes(instance, out)?;
        hints(instance.config(), home, out)?;
        Ok(out.flush()?)
    }
}

fn classes(instance: &Instance, out: &mut impl Write) -> Result<(), Trouble> {
    let (config, defined) = (instance.config(), instance.defined());
    let mut table = Table::new(&["JOB", "AT ONCE", "TIMEOUT", "ATTEMPTS", "SCHEDULE", "WAITING", "COMMAND"]);
    let room = command_columns(config);
    for (name, job) in &config.jobs {
        let worker = defined.workers.get(name);
        let waiting = worker.map_or(Ok(0), |worker| instance.runtime().depth(*worker));
        table.add([
            name.clone(),
            job.concurrency.value.to_string(),
            show_span(job.timeout.value),
            job.retry.value.attempts_max.to_string(),
            schedule(job),
            waiting.map_or_else(|error| error.to_string(), |waiting| waiting.to_string()),
            short(&job.command_shown.join(" "), room),
        ]);
    }
    if !config.jobs.is_empty() {
        table.print("", out)?;
    }
    for (name, waiting) in &defined.strangers {
        let name = plain(name);
        writeln!(
            out,
            "{name}: in the store and not in kauri.toml: nothing runs it; messages that wait for it: {waiting}"
        )?;
    }
    Ok(())
}

fn schedule(job: &JobConfig) -> String {
    job.schedule.value.as_ref().map_or_else(|| "-".to_owned(), kauri::ScheduleConfig::words)
}

/// How many columns a command may have, so that rows stay rows on this terminal.
fn command_columns(config: &Config) -> usize {
    let size = std::io::stdout().is_terminal().then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    let Some((columns, _)) = size else { return 40 };
    let widest = |width: &dyn Fn(&String, &JobConfig) -> usize| {
        config.jobs.iter().map(|(name, job)| width(name, job)).max().unwrap_or(0)
    };
    let name = widest(&|name, _| name.chars().count()).max("JOB".len());
    let schedule = widest(&|_, job| schedule(job).chars().count()).max("SCHEDULE".len());
    // The other columns are as wide as their names, with two spaces between each, and three dots say that something is missing.
    let others = name + schedule + "AT ONCE  TIMEOUT  ATTEMPTS  WAITING".len() + 3 * 2 + 3;
    usize::from(columns).saturating_sub(others).max(4)
}

fn hints(config: &Config, home: &str, out: &mut impl Write) -> Result<(), Trouble> {
    match config.jobs.keys().next() {
        Some(name) => {
            writeln!(out, "\nsubmit  kauri submit {name}{home}")?;
            writeln!(out, "watch   kauri top{home}")?;
            writeln!(out, "look    kauri runs list{home}")?;
            writeln!(out, "check   kauri doctor{home}")?;
        }
        None => {
            writeln!(out, "No jobs: there is nothing to run yet. Write kauri.toml into the home, for example")?;
            writeln!(out, "  [job.hello]\n  command = [\"echo\", \"hello\"]")?;
            writeln!(out, "and start again; then `kauri submit hello{home}`.")?;
        }
    }
    writeln!(out, "stop    Ctrl-C: what is under way is waited for; twice: it is killed")?;
    Ok(())
}

/// What a start found and did, a line each.
fn recovered(account: &Account) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(holder) = &account.died {
        lines.push(format!("process {} died; it had the home since {}", holder.pid, holder.timestamp));
    }
    let count = |outcome: Outcome| account.runs.ended.iter().filter(|(_, found)| *found == outcome).count();
    for outcome in Outcome::ALL {
        let runs = count(outcome);
        if runs > 0 {
            let another =
                if outcome == Outcome::ExecutorCrash { "; another attempt follows if its class wants one" } else { "" };
            lines.push(format!("{} under way: ended as {outcome}{another}", many(runs, "run was", "runs were")));
        }
    }
    if !account.runs.resumed.is_empty() {
        lines.push(format!("{} under way: taken over", many(account.runs.resumed.len(), "run was", "runs were")));
    }
    if account.processes > 0 {
        let (noun, verb) = if account.processes == 1 { ("process", "was") } else { ("processes", "were") };
        lines.push(format!("{} {noun} of such runs {verb} still there: killed", account.processes));
    }
    let ledger = &account.ledger;
    if let Some(torn) = &ledger.torn {
        lines.push(format!("the journal of actions had a torn tail of {} bytes: cut off", torn.bytes));
    }
    if !ledger.repairs.is_empty() {
        lines.push(format!("{} made to agree again", many(ledger.repairs.len(), "action was", "actions were")));
    }
    lines.extend(ledger.findings.iter().map(|finding| format!("the ledger needs somebody to look: {finding}")));
    match ledger.orphans.len() {
        0 => {}
        1 => lines.push("1 action was begun and has no end: see `kauri ledger orphans`".to_owned()),
        many => lines.push(format!("{many} actions were begun and have no end: see `kauri ledger orphans`")),
    }
    lines
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn account_json(account: &Account) -> Value {
    let ended: Vec<Value> = account
        .runs
        .ended
        .iter()
        .map(|(run, outcome)| json!({ "run_id": run.to_string(), "outcome": outcome.as_str() }))
        .collect();
    json!({
        "died": account.died.as_ref().map(|holder| json!({ "pid": holder.pid, "since": moment(holder.timestamp.0) })),
        "ended": ended,
        "resumed": account.runs.resumed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "processes": account.processes,
        "journal_torn": account.ledger.torn.is_some(),
        "repairs": account.ledger.repairs.len(),
        "findings": account.ledger.findings,
        "orphans": account.ledger.orphans.len(),
    })
}
