//! Recording steps, and running them again: does this code do with these messages what that code did?
//!
//! A [`Recorder`] writes a line of JSON for each step: when it ran, its message, and a hash of each row it wrote. A [`Replay`] runs the
//! handlers of today on a [fork](Runtime::fork) of the store from before the window, and names the first row that comes out another way.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use kauri_wire::{InboxKey, MessageRef, Seq, Timestamp, WorkerId};
use serde_json::{Value, json};
use twox_hash::XxHash3_64;

use crate::atomic::{Atomic, BlockLimits, Setting};
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::json::{from_hex, to_hex};
use crate::observe::{Observation, Observer, StepEnd};
use crate::runtime::Runtime;
use crate::schema;
use crate::substrate::{ModelSubstrate, Rows, Substrate, Verdict, Writes};
use crate::time::{Mono, Now};

/// The hashes of the rows that a step wrote, by table and key; none where it removed a row.
type Digest = BTreeMap<(String, Vec<u8>), Option<u64>>;

/// An observer that writes a line for each step that committed.
#[derive(Debug)]
pub struct Recorder<W> {
    out: Mutex<Out<W>>,
}

#[derive(Debug)]
struct Out<W> {
    out: W,
    /// A line could not be written; those after it would make a recording with a hole.
    is_broken: bool,
}

impl<W: Write + Send> Recorder<W> {
    /// Lines into this.
    pub const fn new(out: W) -> Self {
        Self { out: Mutex::new(Out { out, is_broken: false }) }
    }

    /// Whether a line could not be written. The recording ends before it.
    pub fn is_broken(&self) -> bool {
        self.out.lock().unwrap_or_else(PoisonError::into_inner).is_broken
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out.into_inner().unwrap_or_else(PoisonError::into_inner).out
    }
}

impl<W: Write + Send> Observer for Recorder<W> {
    fn observe(&self, observation: &Observation<'_>) {
        let Observation::StepEnded { key, end: StepEnd::Done, frame, now, writes: Some(writes), .. } = observation
        else {
            return;
        };
        let rows: Vec<Value> = digest(writes)
            .into_iter()
            .map(|((table, key), hash)| json!([table, to_hex(&key), hash.map(|hash| format!("{hash:016x}"))]))
            .collect();
        let line = json!({
            "worker": key.worker.0, "seq": key.seq.0, "wall": now.wall.0, "mono": now.mono.millis(),
            "frame": to_hex(frame), "rows": rows,
        });
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if !out.is_broken && writeln!(out.out, "{line}").is_err() {
            out.is_broken = true;
        }
    }

    fn wants_writes(&self) -> bool {
        true
    }
}

/// What was written to the application's tables.
fn digest(writes: &Writes) -> Digest {
    let tables = writes.iter().filter(|(table, _)| !schema::is_reserved(table));
    let rows = tables.flat_map(|(table, rows)| rows.iter().map(move |row| (table, row)));
    rows.map(|(table, (key, value))| ((table.to_string(), key.to_vec()), value.as_deref().map(XxHash3_64::oneshot)))
        .collect()
}

/// A recorded step.
#[derive(Clone, Debug)]
struct Step {
    key: InboxKey,
    now: Now,
    frame: Vec<u8>,
    rows: Digest,
}

/// Where a replay came out another way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Which step.
    pub key: InboxKey,
    /// The first row, by table and key, that is not what it was; none if the step failed.
    pub row: Option<(String, Vec<u8>)>,
    /// What is different, in words.
    pub what: String,
}

/// A step as a recording has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedStep<'a> {
    /// Which.
    pub key: InboxKey,
    /// When it ran.
    pub wall: Timestamp,
    /// Its message.
    pub frame: &'a [u8],
    /// How many rows of the application it wrote.
    pub rows: usize,
}

/// Recorded steps, to be run again.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    steps: Vec<Step>,
}

impl Replay {
    /// Reads the lines of a [`Recorder`].
    ///
    /// # Errors
    /// If they cannot be read, or one of them is none.
    pub fn read(lines: impl BufRead) -> Result<Self> {
        let mut steps = Vec::new();
        for (number, line) in lines.lines().enumerate() {
            let step = serde_json::from_str(&line?).ok().and_then(|line: Value| parse(&line));
            let wrong = || std::io::Error::other(format!("line {} is no recorded step", number + 1));
            steps.push(step.ok_or_else(wrong)?);
        }
        Ok(Self { steps })
    }

    /// How many steps there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = RecordedStep<'_>> {
        self.steps.iter().map(|step| {
            let Step { key, now, frame, rows } = step;
            RecordedStep { key: *key, wall: now.wall, frame, rows: rows.len() }
        })
    }

    /// Compares what was written last under each key with the rows that are there, without running anything. Answers how many rows were
    /// compared, and up to `most` that are not as they were written.
    ///
    /// Workers record beside each other, and which of them committed last is not told. So of what several wrote under one key, what
    /// any of them wrote last is right.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn compare(&self, rows: &dyn Rows, most: usize) -> Result<(usize, Vec<Divergence>)> {
        let mut last: BTreeMap<_, BTreeMap<WorkerId, (InboxKey, Option<u64>)>> = BTreeMap::new();
        for step in &self.steps {
            for (row, hash) in &step.rows {
                last.entry(row).or_default().insert(step.key.worker, (step.key, *hash));
            }
        }
        let mut different = Vec::new();
        for (row, written) in &last {
            let found = rows.get(&row.0.clone().into(), &row.1)?.map(|value| XxHash3_64::oneshot(&value));
            let Some((key, recorded)) = written.values().next_back() else { continue };
            if different.len() < most && written.values().all(|(_, hash)| *hash != found) {
                let what = format!("recorded: {}, there: {}", words_of(*recorded), words_of(found));
                different.push(Divergence { key: *key, row: Some((*row).clone()), what });
            }
        }
        Ok((last.len(), different))
    }

    /// Runs every step again, each on what the ones before left of the fork, and answers the first that comes out another way.
    /// The handler gets the messages of all workers: [`MessageRef::to`] says whose each is.
    ///
    /// # Errors
    /// If the fork fails.
    pub fn run(&self, fork: &ModelSubstrate, handler: &mut dyn Handler) -> Result<Option<Divergence>> {
        for step in &self.steps {
            if let Some((row, what)) = step.run(fork, handler)? {
                return Ok(Some(Divergence { key: step.key, row, what }));
            }
        }
        Ok(None)
    }
}

/// A row that is not what it was, if one is to blame, and what is different.
type Difference = (Option<(String, Vec<u8>)>, String);

impl Step {
    fn run(&self, fork: &ModelSubstrate, handler: &mut dyn Handler) -> Result<Option<Difference>> {
        let rows = fork.snapshot()?;
        let (worker, limits, takes) = (Some(self.key.worker), BlockLimits::default(), fork.limits());
        let setting = Setting { worker, now: self.now, incarnation: 0, limits, takes };
        let mut block = Atomic::new(&*rows, setting);
        if let Err(failure) = handler.handle(&mut block, MessageRef::decode(&self.frame)?) {
            return Ok(Some((None, format!("it failed: {failure}"))));
        }
        let (mut change, _) = block.into_change();
        drop(rows);
        change.reads.clear();
        change.ranges.clear();
        let found = digest(&change.writes);
        match fork.commit(&change.into())? {
            Verdict::Committed(_) => Ok(difference(&self.rows, &found)),
            Verdict::Conflict(conflict) => Err(Error::Conflict(conflict)),
        }
    }
}

fn difference(recorded: &Digest, found: &Digest) -> Option<Difference> {
    let keys = recorded.keys().chain(found.keys()).min_by_key(|key| (recorded.get(*key) == found.get(*key), *key))?;
    let words = |rows: &Digest| match rows.get(keys) {
        None => "not written".to_owned(),
        Some(None) => "removed".to_owned(),
        Some(Some(hash)) => format!("a value with hash {hash:016x}"),
    };
    let is_same = recorded.get(keys) == found.get(keys);
    (!is_same).then(|| (Some(keys.clone()), format!("recorded: {}, now: {}", words(recorded), words(found))))
}

fn words_of(hash: Option<u64>) -> String {
    hash.map_or_else(|| "no row".to_owned(), |hash| format!("a value with hash {hash:016x}"))
}

fn parse(line: &Value) -> Option<Step> {
    let rows = line["rows"].as_array()?.iter().map(|row| {
        let hash = match row[2].as_str() {
            Some(text) => Some(u64::from_str_radix(text, 16).ok()?),
            None => None,
        };
        Some(((row[0].as_str()?.to_owned(), from_hex(row[1].as_str()?)?), hash))
    });
    Some(Step {
        key: InboxKey { worker: WorkerId(line["worker"].as_i64()?), seq: Seq(line["seq"].as_u64()?) },
        now: Now { mono: Mono::from_millis(line["mono"].as_u64()?), wall: Timestamp(line["wall"].as_i64()?) },
        frame: from_hex(line["frame"].as_str()?)?,
        rows: rows.collect::<Option<Digest>>()?,
    })
}

impl Runtime {
    /// A copy of all rows as they are now, to try something on.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn fork(&self) -> Result<ModelSubstrate> {
        ModelSubstrate::copy_of(&*self.shared.substrate.snapshot()?)
    }

    /// A runtime on a copy of all rows: with the same clock and policy, and nobody else's work.
    ///
    /// # Errors
    /// If the substrate fails or the copy does not start.
    pub fn forked(&self) -> Result<Self> {
        let builder = Self::builder(Arc::new(self.fork()?), Arc::clone(&self.shared.clock));
        builder.policy(self.shared.policy.clone()).limits(self.shared.limits).start()
    }
}
