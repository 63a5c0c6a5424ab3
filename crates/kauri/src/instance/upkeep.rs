//! What goes on beside the work: messages of the outbox leave, what is not kept any more is removed, and the ledger's table of runs is
//! brought up to date.
#![expect(clippy::disallowed_methods, reason = "a driver: a thread, a file and the time")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kauri_ledger::Ledger;
use kauri_runtime::run::{Collector, Files, RUN_ROWS};
use kauri_runtime::substrate::Signal;
use kauri_runtime::{JsonLines, Runtime};

use super::stats::Desk;
use crate::retention;
use crate::run_table::RunTable;

/// How many messages leave in one go.
const BATCH: usize = 256;
/// How many rows are swept, or names collected, before messages may leave again.
const SWEEP_ROWS: usize = 4_096;
const COLLECT_NAMES: usize = 256;
/// How often bytes are looked for that a run wrote and never named, if any were written.
const ORPHANS: Duration = Duration::from_hours(1);
/// Changes of runs are in the table of runs after this time at the latest, as `docs/ledger.md` says; together, for each time costs two commits.
const TABLE_EVERY: Duration = Duration::from_secs(5);
/// After trouble it is tried again after this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Upkeep {
    signal: Arc<Signal>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    pub(super) fn start(
        runtime: &Runtime,
        outbox: &Path,
        sweep: Duration,
        desk: Arc<Desk>,
        keeping: Keeping,
    ) -> io::Result<Self> {
        let sink = JsonLines::new(Synced::open(outbox)?);
        let (signal, is_over) = (Arc::new(Signal::default()), Arc::new(AtomicBool::new(false)));
        runtime.substrate().watch("outbox", &[], &signal);
        let changed = Arc::new(Signal::default());
        RUN_ROWS.iter().for_each(|rows| runtime.substrate().watch(rows.table, rows.prefix, &changed));
        let (chore, has_swept, collected) = (Chore::Rest, false, None);
        let runtime = runtime.clone();
        let work = Work { runtime, sink, sweep, desk, keeping, changed, tabled: None, chore, has_swept, collected };
        let (bell, over) = (Arc::clone(&signal), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("kauri-upkeep".to_owned()).spawn(move || work.go(&bell, &over))?;
        Ok(Self { signal, is_over, thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.signal.raise();
        if let Some(thread) = self.thread.take() {
            // A panic there was told by the thread itself.
            let _ended = thread.join();
        }
    }
}

/// What it keeps, beside the runtime's store.
pub(super) struct Keeping {
    pub(super) table: RunTable,
    pub(super) ledger: Arc<Ledger>,
    pub(super) files: Files,
}

type Trouble = Box<dyn std::error::Error + Send + Sync>;

struct Work {
    runtime: Runtime,
    sink: JsonLines<Synced>,
    sweep: Duration,
    desk: Arc<Desk>,
    keeping: Keeping,
    /// Raised when a run changes, and how often it had been when the table of runs was brought up to date.
    changed: Arc<Signal>,
    tabled: Option<u64>,
    chore: Chore,
    /// Whether something was swept since the last collection: only then, or after a crash, there are files of no run.
    has_swept: bool,
    /// When the last collection began, and how many artifacts had been written by then.
    collected: Option<(Instant, u64)>,
}

/// What is left to do of a pass over what is not kept.
enum Chore {
    Rest,
    Sweep,
    Collect(Box<Collector>),
}

impl Work {
    fn go(mut self, signal: &Signal, is_over: &AtomicBool) {
        let (mut swept, mut tabled) = (Instant::now(), Instant::now());
        while !is_over.load(Ordering::Acquire) {
            let seen = signal.count();
            let mut trouble = self.deliver().err().map(Into::into);
            if matches!(self.chore, Chore::Rest) && (self.tabled.is_none() || swept.elapsed() >= self.sweep) {
                swept = Instant::now();
                self.chore = Chore::Sweep;
            }
            let is_pass = !matches!(self.chore, Chore::Rest);
            if is_pass {
                trouble = self.clean().err().or(trouble);
            }
            let is_pass_over = is_pass && matches!(self.chore, Chore::Rest);
            if is_pass_over || tabled.elapsed() >= TABLE_EVERY {
                tabled = Instant::now();
                trouble = self.table().err().or(trouble);
            }
            // What waits although it was offered was not taken: it is offered again, and not at once.
            let waits = self.runtime.gauges().is_ok_and(|gauges| gauges.outbox > 0);
            // Commits that change runs do not wake this thread: there may be thousands in a second.
            let until = self.sweep.saturating_sub(swept.elapsed()).min(TABLE_EVERY.saturating_sub(tabled.elapsed()));
            let pause = match self.chore {
                Chore::Rest if waits || trouble.is_some() => until.min(PATIENCE),
                Chore::Rest => until,
                Chore::Sweep | Chore::Collect(_) => Duration::ZERO,
            };
            self.desk.note_trouble(trouble.map(|error: Trouble| error.to_string()));
            signal.wait(seen, Some(pause));
        }
        // What fails here is caught up with at the next start.
        let _later = self.table();
    }

    fn deliver(&mut self) -> kauri_runtime::Result<()> {
        while self.runtime.drain_outbox(&mut self.sink, BATCH)? == BATCH {}
        Ok(())
    }

    /// Does a small part of what is left of a pass: messages wait no longer than for that. What fails is tried again in the next pass.
    fn clean(&mut self) -> Result<(), Trouble> {
        let Keeping { ledger, files, .. } = &self.keeping;
        match std::mem::replace(&mut self.chore, Chore::Rest) {
            Chore::Rest => {}
            Chore::Sweep => {
                let swept = retention::sweep_rows(&self.runtime.runs(), ledger, files, SWEEP_ROWS)?;
                self.has_swept |= swept.rows > 0;
                if swept.rows >= SWEEP_ROWS as u64 {
                    self.chore = Chore::Sweep;
                } else if self.may_collect() {
                    let written = files.artifacts().written();
                    self.chore = Chore::Collect(Box::new(self.runtime.runs().collector(files)?));
                    (self.has_swept, self.collected) = (false, Some((Instant::now(), written)));
                }
            }
            Chore::Collect(mut collector) => {
                retention::collect(&mut collector, ledger, COLLECT_NAMES).inspect_err(|_| self.has_swept = true)?;
                if !collector.is_over() {
                    self.chore = Chore::Collect(collector);
                }
            }
        }
        Ok(())
    }

    /// Whether there may be something to collect: of runs that were swept, or that a crash left, or that a run wrote and never named.
    fn may_collect(&self) -> bool {
        let Some((at, before)) = self.collected else { return true };
        self.has_swept || at.elapsed() >= ORPHANS && self.keeping.files.artifacts().written() != before
    }

    fn table(&mut self) -> Result<(), Trouble> {
        let changes = self.changed.count();
        if self.tabled != Some(changes) {
            self.keeping.table.catch_up()?;
            self.tabled = Some(changes);
        }
        Ok(())
    }
}

/// A file of lines that is durable when it is flushed.
#[derive(Debug)]
struct Synced(File);

impl Synced {
    /// A line that a crash has cut gets an end: whoever reads it sees that it is none, and the message comes again after it.
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self(file))
    }
}

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
