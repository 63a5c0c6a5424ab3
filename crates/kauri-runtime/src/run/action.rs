//! Actions of a run: effects on the outside world, which a ledger writes down before they happen.
//!
//! ```text
//! 1  the run's record           is it recorded?  then that is the answer, and nothing is done
//! 2  the ledger: begin          written down; or it was before: done (its result is the answer), or nobody knows
//! 3  the effect
//! 4  the ledger: complete       with the result; or that it failed
//! 5  the run's record           the result
//! ```
//!
//! A crash between 2 and 4 leaves an effect of which nobody knows whether it happened. It is never simply done again: the run waits,
//! holding nothing, until somebody has decided in the ledger and [told](super::Runs::tell_decided) it.

use std::fmt;
use std::sync::Arc;

use kauri_wire::RunId;
use sha2::{Digest as _, Sha256};

use super::fault::RunFault;
use super::index;
use super::job::Job;
use super::live::{Halt, LiveRun};
use super::make::{self, mark, marked, unmark};
use super::runs::Runs;
use super::signal;
use super::step::{Divergence, StepKind};
use crate::error::{Error, Result};
use crate::handler::Failure;

/// The longest id of an action, in bytes; one that would be longer is named by its SHA-256.
const ID_BYTES_MAX: usize = 200;

/// What a run waits for when nobody knows whether an effect happened.
pub(super) const DECIDED: &str = "action decided";

/// Where actions of runs are written down: the seam between runs and a ledger.
pub trait ActionLedger: Send + Sync {
    /// Writes down that an action is about to be done, unless one of this id was before. Its effect may happen only after this returned.
    ///
    /// An action that failed, or of which it was decided that it may be tried again, is begun anew, whatever its task was. One that was done as
    /// another task is [`Other`](ActionStanding::Other).
    ///
    /// # Errors
    /// If it cannot be written down. Then it counts as not begun.
    fn begin(&self, asked: &AskedAction<'_>) -> Result<ActionStanding, ActionTrouble>;
}

/// An action that a run wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedAction<'a> {
    /// Its id: that of the job, how many actions of its name the run did before it, and its name; so a run which goes on after a crash, and one
    /// that tries the job again, mean the same action, whatever steps are around it. Where the job's id was chosen, its first run is in it too: another
    /// job may have the id later.
    pub id: &'a str,
    /// The trace: the root of the run's tree.
    pub trace: &'a str,
    /// What is to be done, in words.
    pub task: &'a str,
    /// The run that asks.
    pub run: RunId,
}

/// How an action stands that was asked for.
pub enum ActionStanding {
    /// It is written down and may be done now.
    Begun(Box<dyn BegunAction>),
    /// It was done before, and this is its result.
    Done(Vec<u8>),
    /// Something else was done under its id: this task. Its result is not what was asked for.
    Other(Box<str>),
    /// It was begun before, and nobody knows whether it was done: somebody must decide.
    InDoubt,
}

impl fmt::Debug for ActionStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begun(_) => "Begun",
            Self::Done(_) => "Done",
            Self::Other(_) => "Other",
            Self::InDoubt => "InDoubt",
        })
    }
}

/// An action under way. Dropped without an end, it is in doubt.
pub trait BegunAction {
    /// Its id in the ledger: pass it along with the effect, so that whoever does it can tell that it was asked for twice.
    fn id(&self) -> &str;

    /// Writes down that it was done, and its result. When this returned, both survive.
    ///
    /// # Errors
    /// If it cannot be written down. Then it is in doubt.
    fn complete(self: Box<Self>, result: &[u8]) -> Result<(), ActionTrouble>;

    /// Writes down that it was not done, and why.
    ///
    /// # Errors
    /// As for `complete`.
    fn fail(self: Box<Self>, why: &str) -> Result<(), ActionTrouble>;
}

/// Why something could not be written into the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionTrouble(pub Box<str>);

impl fmt::Display for ActionTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ledger: {}", self.0)
    }
}

impl std::error::Error for ActionTrouble {}

impl From<ActionTrouble> for Halt {
    /// Trouble with the ledger is the runtime's, not the script's: the run is left as a crash would leave it.
    fn from(trouble: ActionTrouble) -> Self {
        Self::Runtime(Error::Substrate(Box::new(trouble)))
    }
}

/// An action before its effect.
pub(super) enum AtHand {
    /// Its effect was done before, and this is the result.
    Done(Vec<u8>),
    /// It is written down and may be done now.
    Begun(Box<dyn BegunAction>),
}

impl LiveRun {
    /// Does something outside, once: `work` is given the action's id and answers the result, which is recorded. It is written down in
    /// the [`ActionLedger`] before it is done, and is not done again by a run that goes on after a crash or tries the job again, unless
    /// it failed or somebody decided so.
    ///
    /// A failure of the work means that nothing was done. [`Failure::Runtime`] says that nobody knows.
    ///
    /// # Errors
    /// `Failed` with what the work answers; `Parked` if nobody knows whether it was done before; `Diverged` if it was done as another task;
    /// and as for [`step`](LiveRun::step).
    pub fn action(
        &mut self,
        name: &str,
        task: &str,
        work: impl FnOnce(&str) -> Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Halt> {
        match self.begin_action(name, task)? {
            AtHand::Done(result) => Ok(result),
            AtHand::Begun(action) => {
                let worked = work(action.id());
                self.end_action(name, action, worked)
            }
        }
    }

    /// Steps 1 and 2: what is known of an action before its effect.
    pub(super) fn begin_action(&mut self, name: &str, task: &str) -> Result<AtHand, Halt> {
        if let Some(result) = self.recall(StepKind::Action, name)? {
            self.count_action(name);
            return Ok(AtHand::Done(result));
        }
        let Some(ledger) = self.ledger() else {
            let words = "expected a runtime with a ledger for actions, found one without";
            return self.note(Err(Halt::Failed(words.into())));
        };
        // Also finds out whether the run is still ours. Whoever decides does so before it tells: so what is asked after this look
        // is the decision.
        self.forget_signal(DECIDED)?;
        let id = action_id(self.job(), self.actions_before(name), name)?;
        let (trace, run) = (self.run().trace(), self.id());
        let asked = AskedAction { id: &id, trace: &trace, task, run };
        let mut standing = ledger.begin(&asked)?;
        if matches!(standing, ActionStanding::InDoubt) {
            // Whoever decides from here on tells us; whoever did before is heard now.
            self.await_decision()?;
            standing = ledger.begin(&asked)?;
        }
        match standing {
            ActionStanding::Done(result) => self.record_action(name, result).map(AtHand::Done),
            ActionStanding::Other(done) => Err(self.diverge_in(name, &done, task)),
            #[cfg(feature = "planted")]
            ActionStanding::InDoubt if self.shared.is_planted(crate::planted::Bug::DoubtIgnored) => {
                Ok(AtHand::Begun(Box::new(crate::planted::Unwritten(id))))
            }
            ActionStanding::InDoubt => Err(self.park_for_decision()),
            ActionStanding::Begun(action) => Ok(AtHand::Begun(action)),
        }
    }

    /// Steps 4 and 5: writes down how the effect came out.
    pub(super) fn end_action(
        &mut self,
        name: &str,
        action: Box<dyn BegunAction>,
        worked: Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Halt> {
        let settled = settle(action, worked);
        let result = self.note(settled)?;
        self.record_action(name, result)
    }

    /// The ledger has another task under an action's id than the code asks for. Which of them is right, people must say.
    fn diverge_in(&self, name: &str, done: &str, task: &str) -> Halt {
        let side = |task| (StepKind::Action, format!("{name}: {task}").into());
        Halt::Diverged(Box::new(Divergence { number: self.next_step(), recorded: side(done), asked: Some(side(task)) }))
    }

    fn record_action(&mut self, name: &str, result: Vec<u8>) -> Result<Vec<u8>, Halt> {
        let run = self.id();
        match self.record_step(StepKind::Action, name, &result) {
            Ok(()) => {
                self.count_action(name);
                Ok(result)
            }
            Err(halt) => {
                if matches!(halt, Halt::Lost) {
                    // Whoever drives the run now may have found this action under way.
                    let _told = self.runs().tell_decided(run);
                }
                Err(halt)
            }
        }
    }

    /// Says that a decision is to be told to this run, before it waits for it.
    pub(super) fn await_decision(&mut self) -> Result<(), Halt> {
        self.commit(|block, _, run| Ok(mark(block, &index::undecided(run.id))?))
    }

    /// Takes the signals of a name that only wake.
    fn forget_signal(&mut self, name: &str) -> Result<(), Halt> {
        self.commit(|block, _, run| {
            while let Some((key, _)) = signal::find(block, run.id, name)? {
                signal::take(block, &key)?;
            }
            Ok(())
        })
    }
}

impl Runs {
    /// Tells a run that waits because nobody knew whether an effect had happened: somebody has decided in the ledger. A run that does
    /// not wait, or has ended, is left alone.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails.
    pub fn tell_decided(&self, run: RunId) -> Result<()> {
        match self.signal(run, DECIDED, &[]) {
            // It was cancelled while it waited, and nobody will ask any more.
            Err(Error::Run(RunFault::Ended(_))) => self.atomically(|block| unmark(block, &index::undecided(run))),
            told => told,
        }
    }

    /// The runs that wait so, up to `most` of them.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn undecided(&self, most: usize) -> Result<Vec<RunId>> {
        let keys = self.read(|view| marked(view, index::UNDECIDED, most))?;
        keys.iter().map(|key| index::last_run(key)).collect()
    }

    /// Tells all runs that wait so, and answers how many. Each asks the ledger again, and goes on waiting if nothing was decided about
    /// it: for decisions that were made by another program, or while no runtime was at work.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn tell_all_decided(&self) -> Result<usize> {
        let waiting = self.undecided(usize::MAX)?;
        waiting.iter().try_for_each(|run| self.tell_decided(*run))?;
        Ok(waiting.len())
    }
}

/// Writes down how what was begun came out.
fn settle(action: Box<dyn BegunAction>, worked: Result<Vec<u8>, Failure>) -> Result<Vec<u8>, Halt> {
    match worked {
        Ok(result) => {
            action.complete(&result)?;
            Ok(result)
        }
        Err(Failure::Retry(why) | Failure::Fatal(why)) => {
            action.fail(&why)?;
            Err(Halt::Failed(why))
        }
        Err(Failure::Runtime(error)) => Err(Halt::Runtime(error)),
    }
}

/// The id of an action before which so many of its name were done.
fn action_id(job: &Job, before: u32, name: &str) -> Result<String> {
    let Job { id, first, .. } = job;
    // An id that somebody chose may come again when its job is gone, which the ledger does not know. That of a run never does.
    let id = match *id == make::own_job(*first)? {
        true => format!("{id}#{before}:{name}"),
        false => format!("{id}@{first}#{before}:{name}"),
    };
    Ok(match id.len() <= ID_BYTES_MAX {
        true => id,
        false => hex::encode(Sha256::digest(id.as_bytes())),
    })
}

/// Where actions are written down, if anywhere.
pub(crate) type Ledger = Option<Arc<dyn ActionLedger>>;
