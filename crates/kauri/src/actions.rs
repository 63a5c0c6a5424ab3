//! Actions of runs, written into a home's ledger.

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;

use kauri_ledger::{Action, Artifact, Begin, Decision, Error, Ledger, Status};
use kauri_runtime::run::{ActionLedger, ActionStanding, ActionTrouble, AskedAction, BegunAction, Runs};
use kauri_wire::RunId;

/// How often one thing may be begun anew.
const TRIES_MAX: u32 = 10_000;

/// The longest result that is read back: 64 MiB.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// A ledger as runs see it: where [`LiveRun::action`](kauri_runtime::run::LiveRun::action) writes down what is done outside.
///
/// ```
/// use std::sync::Arc;
///
/// use kauri::SystemClock;
/// use kauri::ledger::{Home, Ledger, Status};
/// use kauri::runtime::run::{Class, Ending, Halt, LiveRun, Submission};
/// use kauri::runtime::substrate::TreeSubstrate;
/// use kauri::runtime::{Policy, Runtime};
/// use kauri::tree::Store;
/// use kauri::wire::{WorkerId, pack::Map};
///
/// # let directory = std::env::temp_dir().join(format!("kauri-doc-actions-{}", std::process::id()));
/// let (ledger, _) = Ledger::open(Home::lock(&directory)?)?;
/// let ledger = Arc::new(ledger);
/// let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(Store::in_memory()?)), Arc::new(SystemClock::default()))
///     .ledger(Arc::new(kauri::RunLedger::new(Arc::clone(&ledger))))
///     .start()?;
/// runtime.runs().define("order", &Class::new(WorkerId(1)))?;
/// let submitted = runtime.runs().submit(&Submission::new("order", "12 apples"))?;
///
/// let sell = |run: &mut LiveRun| {
///     // Here the mail is sent, with the action's id as its own.
///     let receipt = run.action("mail", "send the confirmation", |_id| Ok(b"250 accepted".to_vec()))?;
///     assert_eq!(receipt, b"250 accepted");
///     Ok::<_, Halt>(Ending::success(run.now().wall, Map::EMPTY))
/// };
/// runtime.run_worker(WorkerId(1), Policy::default(), sell).drain()?;
/// let action = ledger.action(&format!("{}#0:mail", submitted.job))?.expect("it is written down");
/// assert_eq!((action.status, action.trace_id), (Status::Completed, submitted.run.to_string()));
/// # drop(runtime);
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RunLedger {
    ledger: Arc<Ledger>,
}

impl RunLedger {
    /// The ledger of a home.
    #[must_use]
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger }
    }

    /// Decides about an action of which nobody knows whether it was done, and tells the run that waits for it.
    ///
    /// # Errors
    /// As [`Ledger::resolve`]; or what the runtime's store says. The decision is then made, and [`Runs::tell_all_decided`] tells of it.
    pub fn decide(
        &self,
        runs: &Runs,
        run: RunId,
        action: &str,
        decision: &Decision,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.ledger.resolve(action, decision)?;
        Ok(runs.tell_decided(run)?)
    }

    /// The action that stands for what was asked, or a new one: what failed, or may be tried again, is a link of a chain.
    fn find_or_begin(&self, asked: &AskedAction<'_>) -> Result<ActionStanding, ActionTrouble> {
        let mut before: Option<String> = None;
        for number in 1..=TRIES_MAX {
            let id = if number == 1 { asked.id.to_owned() } else { format!("{}~{number}", asked.id) };
            let begin = Begin::new(&id, asked.trace, asked.task);
            let begin = before.iter().fold(begin, Begin::retry_of);
            match self.ledger.begin_with(begin) {
                Ok(mut action) => {
                    action.record_started().map_err(trouble)?;
                    return Ok(ActionStanding::Begun(Box::new(Begun { action })));
                }
                Err(Error::ActionExists { id: found, status }) if found == id => match status {
                    Status::Failed | Status::Retriable => before = Some(id),
                    Status::Completed => return self.done(&id, asked.task),
                    Status::Started | Status::NeedsHuman | Status::Missing | Status::Invalidated => {
                        return Ok(ActionStanding::InDoubt);
                    }
                },
                // Somebody else tries it again.
                Err(Error::ActionExists { .. }) => return Ok(ActionStanding::InDoubt),
                Err(error) => return Err(trouble(error)),
            }
        }
        Ok(ActionStanding::InDoubt)
    }

    /// The standing of a completed action, for who asks for this task.
    fn done(&self, id: &str, task: &str) -> Result<ActionStanding, ActionTrouble> {
        let row = self.ledger.action(id).map_err(trouble)?;
        match row.filter(|row| row.task != self.ledger.actions().redacted(task)) {
            Some(row) => Ok(ActionStanding::Other(row.task.into())),
            None => Ok(ActionStanding::Done(self.result(id)?)),
        }
    }

    /// What a completed action left.
    fn result(&self, id: &str) -> Result<Vec<u8>, ActionTrouble> {
        let row = self.ledger.action(id).map_err(trouble)?;
        let Some(result_ref) = row.and_then(|row| row.result_ref) else { return Ok(Vec::new()) };
        let Some(reader) = self.ledger.actions().artifact(&result_ref).map_err(trouble)? else {
            // Somebody decided that it was done, and said where its result is.
            return Ok(result_ref.into_bytes());
        };
        let mut result = Vec::new();
        let read = reader.take(RESULT_BYTES_MAX + 1).read_to_end(&mut result);
        read.map_err(|error| ActionTrouble(format!("cannot read the result of {id}: {error}").into()))?;
        if result.len() as u64 > RESULT_BYTES_MAX {
            let words = format!("expected a result of {RESULT_BYTES_MAX} bytes at most for {id}, found more");
            return Err(ActionTrouble(words.into()));
        }
        Ok(result)
    }
}

impl ActionLedger for RunLedger {
    fn begin(&self, asked: &AskedAction<'_>) -> Result<ActionStanding, ActionTrouble> {
        self.find_or_begin(asked)
    }
}

struct Begun {
    action: Action,
}

impl BegunAction for Begun {
    fn id(&self) -> &str {
        self.action.id()
    }

    fn complete(mut self: Box<Self>, result: &[u8]) -> Result<(), ActionTrouble> {
        self.action.complete_with(Artifact::bytes(result)).map(drop).map_err(trouble)
    }

    fn fail(mut self: Box<Self>, why: &str) -> Result<(), ActionTrouble> {
        self.action.fail(why).map_err(trouble)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn trouble(error: Error) -> ActionTrouble {
    ActionTrouble(error.to_string().into())
}

impl fmt::Debug for RunLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLedger").finish_non_exhaustive()
    }
}
