//! `kauri demo`: an order pipeline on a home of its own, which then proves its totals by reading them back.
//!
//! ```text
//! orders ──> sales ──> payment ~~ timer ~~> shipping      three workers with handlers: a commit for each batch of steps
//!              │           └ the bank is often busy: retries
//!              └ one order makes no sense: a dead letter
//!
//! close of the day ──> a run for each customer ──> an action: a letter outside, its copy an artifact
//! ```

mod crash;
mod desk;
mod life;
mod order;
mod proof;
mod view;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kauri::Layout;
use kauri::runtime::substrate::{Rows, Substrate};
use serde_json::json;

use self::crash::{End, Points};
use self::life::{Life, Told};
use self::order::Plan;
use self::proof::Proof;
use self::view::View;
use super::Trouble;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri demo                         a home in a new temporary folder, which stays there to be looked at
  kauri demo --crash                 the work kills its own process a dozen times; nothing is lost, nothing doubled
  kauri demo --crash --seed 7        the same kills again
  kauri demo --home try --orders 100000
  kauri demo --home try              goes on with what was interrupted there, or proves its totals again
  kauri demo --json | jq .holds      for scripts

Exit codes: 0 every total is right, 1 one is wrong, 2 wrong arguments, or a home that cannot be used.")]
pub(crate) struct Args {
    /// How many orders come in; 2000 if nothing is said
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    orders: Option<u64>,
    /// The home to work in: a new folder, or one in which a demo ran; a new temporary folder if nothing is said
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Work in a process that kills itself, and start it again until everything is done
    #[arg(long)]
    crash: bool,
    /// What is ordered by whom, and when the process is killed; by chance if nothing is said
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// How often the process is killed at most
    #[arg(long, value_name = "TIMES", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    kills: u64,
    /// Write every step that commits into a new file, for `kauri replay`
    #[arg(long, value_name = "FILE", conflicts_with = "crash")]
    record: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const ORDERS: u64 = 2_000;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = Layout::of(home(args)?);
    let (plan, is_done) = plan(args, &layout)?;
    if let Some(life) = std::env::var(crash::LIFE).ok().and_then(|life| life.parse().ok()) {
        return live(args, &layout, plan, life, out);
    }
    let began = Instant::now();
    if !args.json {
        greet(args, &layout, plan, is_done, out)?;
    }
    let mut view = View::new(plan, args.json);
    let worked = match is_done {
        true => Ok(Worked::default()),
        false if args.crash => work_through_kills(args, &layout, plan, &mut view, out),
        false => work_here(args, &layout, plan, &mut view, out),
    };
    drop(view);
    let worked = worked?;
    let took = began.elapsed();
    let proof = proof::prove(&layout, plan).map_err(Trouble::Wrong)?;
    match args.json {
        true => writeln!(out, "{}", to_json(&layout, plan, worked, took, &proof))?,
        false => conclude(&layout, plan, worked, took, &proof, out)?,
    }
    if proof.holds() { Ok(()) } else { Err(Trouble::No) }
}

/// The home that was named, or a new one. What is in it is for its owner alone.
fn home(args: &Args) -> Result<PathBuf, Trouble> {
    use std::os::unix::fs::DirBuilderExt as _;

    let wrong = |path: &Path, error: std::io::Error| Trouble::Wrong(format!("{}: {error}", path.display()));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    if let Some(path) = &args.home {
        builder.recursive(true).create(path).map_err(|error| wrong(path, error))?;
        return Ok(path.clone());
    }
    let folder = std::env::temp_dir();
    for _ in 0..100 {
        let path = folder.join(format!("kauri-demo-{:08x}", chance() & 0xffff_ffff));
        match builder.create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(wrong(&path, error)),
        }
    }
    Err(Trouble::Wrong(format!("{}: no name for a new folder is free", folder.display())))
}

/// A number that nobody has guessed.
fn chance() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    order::mix(u64::try_from(now.as_nanos() & u128::from(u64::MAX)).unwrap_or(0) ^ u64::from(std::process::id()) << 40)
}

/// What the demo is about, and whether it is done: as the home says, or as was asked for.
fn plan(args: &Args, layout: &Layout) -> Result<(Plan, bool), Trouble> {
    let failed = |error: kauri::runtime::Error| Trouble::Wrong(format!("{}: {error}", layout.store().display()));
    let substrate = super::home::open_store(layout).map_err(|error| failed(error.into()))?;
    let rows = substrate.as_ref().map(Substrate::snapshot).transpose().map_err(failed)?;
    let kept = rows.as_deref().map(Plan::read).transpose().map_err(failed)?.flatten();
    let Some(kept) = kept else {
        let is_used = rows.as_deref().map(is_used).transpose().map_err(failed)?.unwrap_or(false);
        check_free(layout, is_used)?;
        let seed = args.seed.unwrap_or_else(|| chance() % 10_000);
        return Ok((Plan { orders: args.orders.unwrap_or(ORDERS), seed }, false));
    };
    let asked = Plan { orders: args.orders.unwrap_or(kept.orders), seed: args.seed.unwrap_or(kept.seed) };
    if asked != kept {
        let Plan { orders, seed } = kept;
        let shown = layout.home().display();
        return Err(Trouble::Wrong(format!("{shown}: the demo here is one of {orders} orders with seed {seed}")));
    }
    let is_done = rows.as_deref().map(|rows| life::is_done(rows, kept)).transpose().map_err(failed)?;
    Ok((kept, is_done.unwrap_or(false)))
}

/// A demo begins in an empty folder, or where one was killed before it wrote down what it is about: whoever removes its home removes
/// nothing else.
fn check_free(layout: &Layout, is_used: bool) -> Result<(), Trouble> {
    let shown = layout.home().display();
    let entries = std::fs::read_dir(layout.home()).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| Trouble::Wrong(format!("{shown}: {error}")))?;
    let is_ours =
        |name: &std::ffi::OsStr| ["runtime", "artifacts", "audit", "outside"].iter().any(|known| name == *known);
    let other = entries.iter().map(std::fs::DirEntry::file_name).find(|name| is_used || !is_ours(name));
    match other {
        None => Ok(()),
        Some(name) => Err(Trouble::Wrong(format!(
            "{shown}: expected an empty folder or the home of a demo, found {}; name a new folder with --home",
            name.display()
        ))),
    }
}

/// Whether there is anything but what the start of a runtime leaves.
fn is_used(rows: &dyn Rows) -> kauri::runtime::Result<bool> {
    Ok(rows.tables()?.iter().any(|table| !matches!(&**table, "app_state" | "sequences")))
}

/// What came of the work, besides what is in the home.
#[derive(Clone, Copy, Default)]
struct Worked {
    kills: u64,
    retries: u64,
}

fn work_here(
    args: &Args,
    layout: &Layout,
    plan: Plan,
    view: &mut View,
    out: &mut impl Write,
) -> Result<Worked, Trouble> {
    let points = Arc::new(Points::harmless());
    let (life, recovered) = Life::begin(layout, plan, &points, args.record.as_deref()).map_err(Trouble::Wrong)?;
    if recovered.starts > 0 {
        view.say(&format!("start {:<2} {}", recovered.starts + 1, view::told(&recovered)), out)?;
    }
    let (mut retries, mut unheard) = (0, None);
    let worked = life.work(&mut |told| {
        let Told::Tally(tally) = told else { return Ok(()) };
        retries = tally.retries;
        view.show(&tally, out).map_err(|trouble| {
            unheard = Some(trouble);
            String::new()
        })
    });
    match (unheard, worked) {
        (Some(trouble), _) => Err(trouble),
        (None, Err(what)) => Err(interrupted(layout, &what)),
        (None, Ok(())) => Ok(Worked { kills: 0, retries }),
    }
}

fn interrupted(layout: &Layout, what: &str) -> Trouble {
    let home = layout.home().display();
    Trouble::Wrong(format!("{what} (nothing is lost: `kauri demo --home {home}` goes on)"))
}

/// One life of the process that kills itself; the last one does not.
fn live(args: &Args, layout: &Layout, plan: Plan, life: u64, out: &mut impl Write) -> Result<(), Trouble> {
    let mut tell = |told: Told| {
        let told = writeln!(out, "{}", told.to_line()).and_then(|()| out.flush());
        told.map_err(|error| error.to_string())
    };
    let points = Arc::new(Points::harmless());
    if life <= args.kills {
        Points::arm_start(plan, life);
    }
    let (worker, recovered) = Life::begin(layout, plan, &points, None).map_err(Trouble::Wrong)?;
    tell(Told::Recovered(recovered)).map_err(Trouble::Wrong)?;
    if life <= args.kills {
        points.arm(plan, life, args.kills);
    }
    worker.work(&mut tell).map_err(Trouble::Wrong)
}

fn work_through_kills(
    args: &Args,
    layout: &Layout,
    plan: Plan,
    view: &mut View,
    out: &mut impl Write,
) -> Result<Worked, Trouble> {
    let mut worked = Worked::default();
    for life in 1..=args.kills + 1 {
        let mut retries = 0;
        let mut shipped = None;
        let end = crash::live(layout.home(), plan, life, args.kills, &mut |told| match told {
            Told::Recovered(recovered) if recovered.starts == 0 => Ok(()),
            Told::Recovered(recovered) => view.say(&format!("start {life:<2} {}", view::told(&recovered)), out),
            Told::Tally(tally) => {
                (retries, shipped) = (tally.retries, Some(tally.shipped));
                view.show(&tally, out)
            }
        })?;
        worked.retries += retries;
        match end {
            End::Done => return Ok(worked),
            End::Failed(what) => return Err(interrupted(layout, &what)),
            End::Killed => {
                worked.kills += 1;
                view.say(&view::killed(view, shipped, plan), out)?;
            }
        }
    }
    Err(interrupted(layout, "somebody else killed the process"))
}

fn greet(args: &Args, layout: &Layout, plan: Plan, is_done: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let Plan { orders, seed } = plan;
    writeln!(out, "{orders} orders through four workers, seed {seed}, in {}", layout.home().display())?;
    if is_done {
        return Ok(writeln!(out, "The work here is done already; its totals are proved again.")?);
    }
    writeln!(out, "Every step is one commit in a file. Timers, retries, a poisoned order, and at")?;
    writeln!(out, "the end a run for each customer that posts an invoice, as an action whose copy")?;
    writeln!(out, "is kept as an artifact.")?;
    if args.crash {
        writeln!(out, "The process that does all this kills itself (SIGKILL), up to {} times.", args.kills)?;
    } else {
        let home = layout.home().display();
        writeln!(out, "Interrupt it if you like: `kauri demo --home {home}` goes on.")?;
    }
    Ok(writeln!(out)?)
}

fn conclude(
    layout: &Layout,
    plan: Plan,
    worked: Worked,
    took: Duration,
    proof: &Proof,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    writeln!(out, "\nRead back from the store, the ledger and the post office, with nobody at work:")?;
    for line in &proof.lines {
        match line.holds() {
            true => writeln!(out, "  ok     {:<38} {}", line.what, line.found)?,
            false => writeln!(out, "  WRONG  {:<38} {}; expected {}", line.what, line.found, line.expected)?,
        }
    }
    let Proof { shipped, buried, cents, invoices, .. } = proof;
    let times = if worked.kills > 0 { format!(", {} kills", worked.kills) } else { String::new() };
    if !proof.holds() {
        writeln!(out, "\nThe totals are wrong: this is a fault in Kauri, or somebody changed the home.")?;
        return Ok(());
    }
    writeln!(
        out,
        "\nNothing lost, nothing doubled: {} orders, {shipped} shipped, {buried} buried,\n\
         {cents} cents on {invoices} invoices{times}, in {:.1} s.",
        plan.orders,
        took.as_secs_f64(),
    )?;
    suggest(layout, proof, out)
}

/// Commands that work on the home as it is now.
fn suggest(layout: &Layout, proof: &Proof, out: &mut impl Write) -> Result<(), Trouble> {
    let home = quoted(layout.home());
    writeln!(out, "\nThe home stays where it is. Try on it:")?;
    if let Some(this) = unknown_program() {
        writeln!(out, "  alias kauri={}", quoted(&this))?;
    }
    writeln!(out, "  export KAURI_HOME={home}")?;
    let mut commands = vec![("kauri doctor".to_owned(), "what is wrong here? (the dead letter is)")];
    if let Some(letter) = &proof.dead_letter {
        commands.push((format!("kauri dead-letters show {letter}"), "the poisoned order, and why"));
    }
    if let Some(run) = &proof.closing {
        commands.push((format!("kauri runs lineage {run}"), "the close of the day and its child runs"));
    }
    commands.push(("kauri ledger actions".to_owned(), "every letter, and where its copy is"));
    commands.push(("kauri audit verify".to_owned(), "what was written down, and that nobody changed it"));
    let scan = "kauri store scan \"$KAURI_HOME/runtime/store.kauri\" orders --limit 3";
    commands.push((scan.to_owned(), "rows, as they lie in the file"));
    commands.push((format!("rm -r {home}"), "when you have seen enough"));
    // A line each: beside a long command, what it is for would not fit into eighty columns.
    Ok(commands.iter().try_for_each(|(command, what)| writeln!(out, "  # {what}\n  {command}"))?)
}

/// This program, if the shell would not find it under its name.
fn unknown_program() -> Option<PathBuf> {
    let this = std::env::current_exe().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_known = std::env::split_paths(&path).any(|folder| folder.join("kauri").is_file());
    (!is_known).then_some(this)
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|char| char.is_ascii_alphanumeric() || "/._-+".contains(char));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn to_json(layout: &Layout, plan: Plan, worked: Worked, took: Duration, proof: &Proof) -> serde_json::Value {
    json!({
        "home": layout.home().to_string_lossy(),
        "orders": plan.orders,
        "seed": plan.seed,
        "shipped": proof.shipped,
        "dead_letters": proof.buried,
        "apples": proof.apples,
        "cents": proof.cents,
        "invoices": proof.invoices,
        "runs": proof.runs,
        "actions": proof.actions,
        "kills": worked.kills,
        "failed_tries_seen": worked.retries,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "holds": proof.holds(),
        "totals": proof.lines.iter().map(proof::Line::to_json).collect::<Vec<_>>(),
    })
}
