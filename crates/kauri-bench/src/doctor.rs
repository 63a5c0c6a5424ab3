//! The suite `doctor`: how long `kauri doctor` takes, and how much memory, on a home of many gigabytes.
//!
//! The home is made here as an application would have made it: rows in tables of its own, messages, timers and runs of a runtime, actions
//! with their journal, database and artifacts, an audit. Then the program itself is run on it, as a person would.

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kauri_disk::{Disk, MemoryDisk, Open, OsDisk};
use kauri_ledger::{Artifact, Audit, AuditNote, Home, Ledger, Redactor, SystemClock};
use kauri_runtime::run::{Class, Submission};
use kauri_tree::{Options, Store, Table};
use kauri_wire::WorkerId;

use crate::ledger::fill;
use crate::measure::{Estimate, Outcome, Unit};
use crate::report::{Bound, Goal};
use crate::runtime::{Result, WORKER, send, start};

const TIME: &str = "kauri doctor";
const MEMORY: &str = "memory of it";
const DEEP: &str = "kauri doctor --deep";
const READ: &str = "read all files";
/// How often the program is run.
const ROUNDS: usize = 3;
/// How often the memory of a process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is in a home for each of its gibibytes, of bytes about 1 GiB.
const TABLES: u64 = 3;
const TABLE_BYTES: u64 = 240 << 20;
const VALUE_BYTES: usize = 1_000;
const ARTIFACTS: u64 = 200;
const ARTIFACT_BYTES: usize = 1 << 20;
const JOURNAL_LINES: u64 = 100_000;
const AUDIT_LINES: u64 = 50_000;
const MESSAGES: usize = 20_000;
const RUNS: u64 = 500;

/// How large the home is, and where.
pub(crate) struct Size<'a> {
    /// In quarters of a gibibyte.
    pub(crate) quarters: u64,
    pub(crate) folder: &'a Path,
    /// The program whose doctor is meant.
    pub(crate) kauri: &'a Path,
    pub(crate) is_deep: bool,
}

/// A home that is gone when this is.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(size: &Size<'_>, mut tell: impl FnMut(&str)) -> Result<Vec<Outcome>> {
    let home = Made(size.folder.join(format!("kauri-bench-doctor-{}", std::process::id())));
    let path = &home.0;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let of = |per_gib: u64| (per_gib * size.quarters / 4).max(1);
    tell(&format!("journal of {} lines, audit of {}", of(JOURNAL_LINES), of(AUDIT_LINES)));
    fill_ledger(path, of(JOURNAL_LINES), of(AUDIT_LINES))?;
    tell(&format!("{} artifacts of {} bytes", of(ARTIFACTS), ARTIFACT_BYTES));
    fill_artifacts(path, of(ARTIFACTS))?;
    tell(&format!("{} tables of {} bytes", of(TABLES), TABLE_BYTES));
    fill_store(path, of(TABLES), of(MESSAGES as u64), of(RUNS))?;
    let bytes = length(path)?;
    tell(&format!("a home of {:.2} GiB", bytes as f64 / f64::from(1 << 30)));
    tell("reading all of it, for comparison");
    forget(path)?;
    let began = Instant::now();
    read(path)?;
    let whole = began.elapsed().as_secs_f64();
    let (mut took, mut memory) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        forget(path)?;
        let (seconds, megabytes) = examine(size.kauri, path, &[])?;
        tell(&format!("round {round}: {seconds:.3} s, {megabytes:.0} MB"));
        took.push(seconds);
        memory.push(megabytes);
    }
    let gib = format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    let mut outcomes = vec![
        outcome(format!("{TIME} on a home of {gib}"), Unit::Seconds, took, (READ, whole)),
        outcome(format!("{MEMORY}, {gib}"), Unit::Megabytes, memory, ("the home's size", bytes as f64 / 1e6)),
    ];
    if size.is_deep {
        forget(path)?;
        let (seconds, megabytes) = examine(size.kauri, path, &["--deep"])?;
        tell(&format!("deep: {seconds:.3} s, {megabytes:.0} MB"));
        outcomes.push(outcome(format!("{DEEP}, {gib}"), Unit::Seconds, vec![seconds], (READ, whole)));
    }
    Ok(outcomes)
}

fn outcome(workload: String, unit: Unit, found: Vec<f64>, (name, peer): (&'static str, f64)) -> Outcome {
    Outcome { workload, unit, ours: Estimate::of(found), peers: vec![(name, Estimate::of(vec![peer]))] }
}

/// Does something with every file of a home.
fn each_file(path: &Path, with: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return with(path);
    }
    fs::read_dir(path)?.try_for_each(|entry| each_file(&entry?.path(), with))
}

/// Nothing of it is in the system's memory any more, as after a start of the machine.
fn forget(home: &Path) -> std::io::Result<()> {
    each_file(home, &mut |path| {
        let file = fs::File::open(path)?;
        file.sync_all()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    })
}

fn read(home: &Path) -> std::io::Result<()> {
    let mut chunk = vec![0; 1 << 20];
    each_file(home, &mut |path| {
        let mut file = fs::File::open(path)?;
        while file.read(&mut chunk)? > 0 {}
        Ok(())
    })
}

/// Seconds of the whole program, and megabytes that it had at most, as far as they were seen. Anything but a failure is an answer.
fn examine(kauri: &Path, home: &Path, more: &[&str]) -> Result<(f64, f64)> {
    let mut command = Command::new(kauri);
    command.args(["doctor", "--home"]).arg(home).args(more).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", kauri.display()))?;
    let mut most = 0.0_f64;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        most = most.max(line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1e3);
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let seconds = began.elapsed().as_secs_f64();
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // A clock that knows no date, and a disk without much room, are this suite's and the machine's.
    let is_bad = |line: &&str| line.starts_with("FAIL") && !line.contains("free-space");
    match said.lines().find(is_bad) {
        Some(line) => Err(format!("the home is not as it should be: {line}").into()),
        None => Ok((seconds, most)),
    }
}

fn fill_ledger(home: &Path, lines: u64, notes: u64) -> Result<()> {
    // Everything that a first start makes.
    drop(Ledger::open(Home::lock(home)?)?);
    fill(lines, &home.join("runtime"));
    let memory = MemoryDisk::new();
    let audit = Audit::open(Arc::new(memory.clone()), Arc::new(SystemClock), Redactor::default())?;
    for number in 0..notes {
        audit.append(
            &AuditNote::new("ORDER_SHIPPED").action(format!("action-{number:08}")).with("by", "the night shift"),
        )?;
    }
    drop(audit);
    let folder = home.join("audit");
    fs::remove_dir_all(&folder)?;
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    for name in memory.names()? {
        let file = memory.open(&name, Open::ReadOnly)?;
        let mut bytes = vec![0; usize::try_from(file.len()?)?];
        file.read_at(0, &mut bytes)?;
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(folder.join(&name))?;
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// Actions whose results are kept, each with other bytes.
fn fill_artifacts(home: &Path, artifacts: u64) -> Result<()> {
    let (ledger, _) = Ledger::open(Home::lock(home)?)?;
    let mut bytes = vec![7; ARTIFACT_BYTES];
    for number in 0..artifacts {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let mut action = ledger.begin(format!("page-{number:08}"), "crawl", "fetch a page")?;
        action.complete_with(Artifact::bytes(&bytes))?;
    }
    Ok(())
}

fn fill_store(home: &Path, tables: u64, messages: u64, runs: u64) -> Result<()> {
    let disk = OsDisk::new(home.join("runtime"))?;
    let store = Options::new().cache_bytes(256 << 20).open(&disk, "store.kauri")?;
    for number in 0..tables {
        fill_table(&store, number)?;
    }
    let runtime = start(store)?;
    send(&runtime, WORKER, usize::try_from(messages)?)?;
    runtime.runs().define("crawl", &Class::new(WorkerId(2)))?;
    for _ in 0..runs {
        runtime.runs().submit(&Submission::new("crawl", "{}"))?;
    }
    Ok(())
}

fn fill_table(store: &Store, number: u64) -> std::result::Result<(), Box<dyn Error>> {
    // A few names, for as long as this program runs.
    let name: &'static str = Box::leak(format!("orders-{number:03}").into_boxed_str());
    let (table, mut state) = (Table::<u64, [u8]>::new(name), number + 1);
    let values: Vec<Vec<u8>> = (0..64).map(|_| random(&mut state)).collect();
    let rows = (0..TABLE_BYTES / VALUE_BYTES as u64).map(|row| (row, &*values[usize::from(row.to_le_bytes()[0] % 64)]));
    let mut txn = store.begin();
    txn.load_sorted(&table, rows)?;
    Ok(txn.commit()?)
}

/// Bytes that look like chance and are the same each time.
fn random(state: &mut u64) -> Vec<u8> {
    let mut next = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..VALUE_BYTES).map(|_| next()).collect()
}

/// The bytes of all files, as far as they take room.
fn length(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.blocks() * 512);
    }
    fs::read_dir(path)?.map(|entry| length(&entry?.path())).sum()
}

/// What we want of these numbers.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let goal = |start: &str, of: &str, limit: f64, unit: &'static str| {
        let outcome = outcomes.iter().find(|outcome| outcome.workload.starts_with(start))?;
        Some(Goal { of: of.to_owned(), found: outcome.ours.median, bound: Bound::Below(limit), unit })
    };
    let goals = [goal(TIME, "an examination takes", 10.0, " s"), goal(MEMORY, "it has in memory", 1_000.0, " MB")];
    goals.into_iter().flatten().collect()
}
