//! A file of lines that is only appended to: the form that the actions' WAL and the audit share.
//!
//! ```text
//! {"...":"...","seq":7,"batch":6,...}\n
//!                   │         └─ the seq of the first line that was written and synced together with this one
//!                   └─ counts lines without a gap
//! ```
//!
//! An append returns when its line is durable. Appends that come while another is being synced wait, and go out together
//! with one write and one sync: a batch. A batch is written only after the one before it is durable. So a crash can damage the
//! last batch alone, and this is how a torn tail is told from a damaged middle: **whatever follows a broken line within its own
//! batch was never acknowledged and is cut off; a good line of a later batch after a broken one means that durable bytes
//! changed, which is an alarm.** So is a broken line that is a whole object all the same: a crash leaves holes, and no edits.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::{Disk, File, Open};

use crate::error::{Error, Result};
use crate::group::{Group, Wake, gather};
use crate::lines::{LINE_BYTES_MAX, Line, each_line};
use crate::patience::Patience;
use crate::seal::is_object;

/// How many batches one caller writes before it goes on with its own work: so many syncs it may wait longer than others.
const BATCHES_IN_A_ROW_MAX: usize = 8;

/// Where a line stands among the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) batch: u64,
}

/// Says where a line stands, if it is one of ours and whole.
pub(crate) type Check = fn(&[u8]) -> std::result::Result<Head, String>;

/// A tail that a crash left and that was cut off: never acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn {
    /// Where it began.
    pub at: u64,
    /// How long it was.
    pub bytes: u64,
}

/// What a look at the whole file found.
pub(crate) struct Scan {
    /// Where the last whole line ends.
    pub(crate) end: u64,
    /// The last whole line, 0 if there is none.
    pub(crate) last: u64,
    pub(crate) torn: Option<Torn>,
}

/// An open journal. `T` is what each line depends on besides its number: the hash of the line before, or nothing.
pub(crate) struct Journal<T> {
    disk: Arc<dyn Disk>,
    name: String,
    state: Mutex<State<T>>,
    /// How those wait whose lines others write.
    patience: Patience,
}

/// How a batch ended, for whoever appended to it.
type Appended = std::result::Result<(), (io::ErrorKind, String)>;

/// The lines that wait to be written together.
struct Batch {
    /// The first of them.
    seq: u64,
    callers: Arc<Group<Appended>>,
}

struct State<T> {
    /// Absent after a failure and with a torn tail, until the file is opened again.
    file: Option<Arc<dyn File>>,
    /// Everything before is durable.
    end: u64,
    durable: Tip<T>,
    /// After the lines that wait to be written.
    newest: Tip<T>,
    waiting: Vec<u8>,
    /// Who waits for them, if there are any.
    batch: Option<Batch>,
    /// How many lines were written together, the last time.
    told: usize,
    /// Whether some caller is writing for all.
    writing: bool,
    /// A rewritten file may have lost its name again: what is appended to it might go with it.
    unnamed: bool,
}

#[derive(Clone)]
struct Tip<T> {
    seq: u64,
    chain: T,
}

impl<T: Clone> Journal<T> {
    /// Opens the journal, or makes it. Calls `each` with every whole line in order. A torn tail is told, and cut off by
    /// [`cut`](Self::cut) or before the next line is appended.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        name: &str,
        (first, chain): (u64, T),
        check: Check,
        mut each: impl FnMut(&mut T, Head, &[u8]) -> Result<()>,
    ) -> Result<(Self, Option<Torn>)> {
        let failed = || Error::io(format!("open the journal {name}"));
        let file = disk.open(name, Open::Create).map_err(failed())?;
        let mut durable = Tip { seq: first - 1, chain };
        let scan = scan(&*file, name, first, check, |head, line| each(&mut durable.chain, head, line))?;
        // Whether the last life came as far as this is not known.
        disk.sync_dir().map_err(failed())?;
        durable.seq = scan.last.max(first - 1);
        let (newest, file) = (durable.clone(), scan.torn.is_none().then(|| Arc::from(file)));
        let (waiting, batch, told, writing, unnamed) = (Vec::new(), None, 0, false, false);
        let state = State { file, end: scan.end, durable, newest, waiting, batch, told, writing, unnamed };
        let journal = Self { disk, name: name.to_owned(), state: Mutex::new(state), patience: Patience::new() };
        Ok((journal, scan.torn))
    }

    /// Appends the line that `write` makes, without its end, and returns its number when it is durable.
    pub(crate) fn append(&self, write: impl FnOnce(Head, &mut T, &mut Vec<u8>)) -> Result<u64> {
        let mut state = self.state();
        self.mend(&mut state)?;
        let seq = state.newest.seq + 1;
        let batch = state.batch.as_ref().map_or(seq, |batch| batch.seq);
        let State { waiting, newest, .. } = &mut *state;
        let (start, chain) = (waiting.len(), newest.chain.clone());
        write(Head { seq, batch }, &mut newest.chain, waiting);
        if waiting.len() - start > LINE_BYTES_MAX {
            waiting.truncate(start);
            newest.chain = chain;
            return Err(Error::input("a journal line", "64 MiB at most", "a longer one"));
        }
        debug_assert!(!waiting[start..].contains(&b'\n'), "a line has no end inside");
        waiting.push(b'\n');
        newest.seq = seq;
        let appended = self.wait(state, seq);
        let failed = |(kind, text)| Error::io(format!("append to {}", self.name))(io::Error::new(kind, text));
        appended.map(|()| seq).map_err(failed)
    }

    /// Waits until this line, which is the newest, is durable, or writes for all if nobody does.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State<T>>, seq: u64) -> Appended {
        let batch = state.batch.get_or_insert_with(|| Batch { seq, callers: Arc::new(Group::new()) });
        let (callers, at) = (Arc::clone(&batch.callers), seq - batch.seq);
        assert!(at != 1 || callers.join_second(), "a group has one second member");
        loop {
            let is_written = state.batch.as_ref().is_none_or(|batch| !Arc::ptr_eq(&batch.callers, &callers));
            if !state.writing && !is_written {
                self.write_waiting(state);
            } else {
                drop(state);
                match at {
                    0 => callers.wait_for_call(&self.patience),
                    1 => return callers.wait_second(&self.patience).clone(),
                    _ => return callers.wait(&self.patience).clone(),
                }
            }
            if let Some(end) = callers.end() {
                return end.clone();
            }
            state = self.state();
        }
    }

    /// Writes everything that waits, with one sync; then what came meanwhile, some batches in a row. Who is told comes again while
    /// the next batch is written or the others are being woken, and goes with one of the next.
    fn write_waiting<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) {
        for _ in 0..BATCHES_IN_A_ROW_MAX {
            // Nobody else begins to write meanwhile.
            state.writing = true;
            let told = state.told;
            drop(state);
            gather(&self.patience, told, || self.state().lines());
            state = self.state();
            state.told = state.lines();
            let Some(batch) = state.batch.take() else { break };
            let (file, bytes) = (state.file.clone(), std::mem::take(&mut state.waiting));
            let (end, tip) = (state.end, state.newest.clone());
            drop(state);
            let written = match file {
                Some(file) => file.write_durable_at(end, &bytes),
                None => Err(io::Error::other("it is not open")),
            };
            let lost;
            (state, lost) = self.wrote(written.is_ok().then_some((bytes.len() as u64, tip)));
            drop(state);
            let written = written.map_err(|error| (error.kind(), error.to_string()));
            lost.into_iter().for_each(|lost| lost.callers.tell(written.clone(), Wake::All));
            // A line is little work beside a write: all of them come back in time for the next.
            batch.callers.tell(written, Wake::All);
            state = self.state();
        }
        state.writing = false;
        let next = state.batch.as_ref().map(|next| Arc::clone(&next.callers));
        drop(state);
        next.into_iter().for_each(|next| next.call());
    }

    /// Goes on to what is durable now; or, after a failure, back to what was. What came meanwhile follows what is lost then: it is
    /// lost with it.
    fn wrote(&self, durable: Option<(u64, Tip<T>)>) -> (MutexGuard<'_, State<T>>, Option<Batch>) {
        let mut state = self.state();
        let Some((bytes, tip)) = durable else {
            let lost = state.fail();
            return (state, lost);
        };
        state.end += bytes;
        state.durable = tip;
        (state, None)
    }

    /// Cuts off a torn tail.
    pub(crate) fn cut(&self) -> Result<()> {
        self.mend(&mut self.state())
    }

    /// After a failure nobody knows what the file holds behind its durable end, and after a crash it may hold a torn tail: it is
    /// opened again and cut there.
    fn mend(&self, state: &mut State<T>) -> Result<()> {
        if state.file.is_some() {
            return Ok(());
        }
        let failed = || Error::io(format!("open {} again, and cut it where it is no longer durable", self.name));
        if state.unnamed {
            let text = "its new name may be lost; open the whole ledger again";
            return Err(failed()(io::Error::other(text)));
        }
        let file = self.disk.open(&self.name, Open::ReadWrite).map_err(failed())?;
        if file.len().map_err(failed())? < state.end {
            let what = format!("expected {} bytes, found fewer", state.end);
            return Err(Error::Damaged { file: self.name.clone(), at: state.end, what });
        }
        file.set_len(state.end).map_err(failed())?;
        file.sync().map_err(failed())?;
        state.file = Some(Arc::from(file));
        Ok(())
    }

    /// Puts these bytes in place of the whole journal, whose last line then is `last`. Nobody may append meanwhile.
    pub(crate) fn rewrite(&self, bytes: &[u8], last: u64) -> Result<()> {
        let mut state = self.state();
        assert!(!state.writing && state.waiting.is_empty(), "nobody appends");
        self.mend(&mut state)?;
        let failed = || Error::io(format!("rewrite {}", self.name));
        let aside = format!("{}.new", self.name);
        let file = self.disk.open(&aside, Open::Create).map_err(failed())?;
        file.set_len(0).map_err(failed())?;
        file.write_at(0, bytes).map_err(failed())?;
        file.sync().map_err(failed())?;
        self.disk.rename(&aside, &self.name).map_err(failed())?;
        // From here on the old file may be gone: what was durable is what the new one holds.
        state.file = Some(Arc::from(file));
        state.end = bytes.len() as u64;
        state.durable.seq = last;
        state.newest.seq = last;
        if let Err(error) = self.disk.sync_dir() {
            assert!(state.fail().is_none(), "nobody appends");
            state.unnamed = true;
            return Err(failed()(error));
        }
        Ok(())
    }

    /// How many bytes are durable.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().end
    }

    /// The last durable line, and what the next depends on.
    pub(crate) fn tip(&self) -> (u64, T) {
        let Tip { seq, chain } = self.state().durable.clone();
        (seq, chain)
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic runs under this lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> State<T> {
    /// How many lines wait to be written.
    fn lines(&self) -> usize {
        let lines = self.batch.as_ref().map_or(0, |batch| self.newest.seq + 1 - batch.seq);
        usize::try_from(lines).unwrap_or(usize::MAX)
    }

    /// Forgets everything that is not durable. Whoever waits for it must be told.
    fn fail(&mut self) -> Option<Batch> {
        self.file = None;
        self.waiting.clear();
        self.newest = self.durable.clone();
        self.batch.take()
    }
}

/// Looks at every line, and tells a torn tail from a damaged middle.
pub(crate) fn scan(
    file: &dyn File,
    name: &str,
    first: u64,
    check: Check,
    mut each: impl FnMut(Head, &[u8]) -> Result<()>,
) -> Result<Scan> {
    let len = file.len().map_err(Error::io(format!("read {name}")))?;
    let (mut end, mut expected) = (0, first);
    // Where the first broken line is.
    let mut broken: Option<(u64, String)> = None;
    let damaged = |at, what| ControlFlow::Break(Error::Damaged { file: name.to_owned(), at, what });
    let looked = each_line(file, |at, line| {
        let found = match line {
            Line::Whole(line) => check(line).map(|head| (head, line)),
            Line::Broken => Err("a line without an end".to_owned()),
        };
        match (found, &broken) {
            (Ok((head, line)), None) if head.seq == expected && head.batch <= head.seq => {
                expected += 1;
                end = at + line.len() as u64 + 1;
                match each(head, line) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                }
            }
            (Ok((head, _)), None) => damaged(at, format!("expected line {expected}, found line {}", head.seq)),
            // A good line after a broken one: of the same batch, or proof that the broken one was durable once.
            (Ok((head, _)), Some((at, what))) if head.batch > expected || head.seq <= expected => {
                damaged(*at, format!("{what}, before line {}", head.seq))
            }
            (Err(what), None) if matches!(line, Line::Whole(line) if is_object(line)) => damaged(at, what),
            (Err(what), None) => {
                broken = Some((at, what));
                ControlFlow::Continue(())
            }
            (_, Some(_)) => ControlFlow::Continue(()),
        }
    });
    match looked.map_err(Error::io(format!("read {name}")))? {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => {
            let torn = broken.map(|(at, _)| Torn { at, bytes: len - at });
            Ok(Scan { end, last: expected - 1, torn })
        }
    }
}

#[cfg(test)]
mod tests;
