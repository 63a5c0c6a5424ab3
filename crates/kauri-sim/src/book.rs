//! A ledger for worlds of runs: its entries are rows of the world's own store, so whatever happens to a commit happens to them.
//!
//! A crash before and after each of its commits is a crash between any two steps of an action: before it is begun, between that and the
//! effect, between the effect and its end, between that and the run's record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_runtime::run::{ActionLedger, ActionStanding, ActionTrouble, AskedAction, BegunAction};
use kauri_runtime::{Error, Read, Result, Runtime, Write};
use kauri_tree::Table;

/// By the action's id: how often it was begun, times four, and how it stands (see [`Entry`]).
const ACTIONS: Table<str, u64> = Table::new("actions");

/// How an action stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// It was begun, and nothing else is known.
    Begun,
    /// It was done.
    Done,
    /// It was not done, or somebody decided so: it may be begun again.
    Again,
}

impl Entry {
    const ALL: [Self; 3] = [Self::Begun, Self::Done, Self::Again];

    /// How an action stands, and how often it was begun.
    fn of(row: u64) -> (Self, u64) {
        (Self::ALL[usize::try_from(row % 4).unwrap_or(0)], row / 4)
    }
}

/// The ledger, and the outside, which no crash takes back.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Of this life.
    runtime: Option<Runtime>,
    /// How often each action was done.
    done: BTreeMap<String, u64>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> Result<Runtime> {
        // Not held while something is committed: others may run meanwhile.
        self.lock().runtime.clone().ok_or(Error::Stopped)
    }

    /// Goes on in another life.
    pub(crate) fn open(&self, runtime: &Runtime) {
        self.lock().runtime = Some(runtime.clone());
    }

    /// Does an action, outside.
    pub(crate) fn act(&self, id: &str) {
        *self.lock().done.entry(id.to_owned()).or_default() += 1;
    }

    /// Whether an action was done once.
    pub(crate) fn is_first(&self, id: &str) -> bool {
        self.lock().done.get(id) == Some(&1)
    }

    /// The actions that were begun and have no end.
    pub(crate) fn in_doubt(&self) -> Result<Vec<String>> {
        self.runtime()?.read(|view| {
            let mut found = Vec::new();
            let mut scan = view.scan(&ACTIONS)?;
            while let Some((id, row)) = scan.next()? {
                if Entry::of(row).0 == Entry::Begun {
                    found.push(id.to_owned());
                }
            }
            Ok(found)
        })
    }

    /// Decides about an action, if it has no end.
    pub(crate) fn decide(&self, id: &str, entry: Entry) -> Result<()> {
        self.change(id, |found| found.filter(|(found, _)| *found == Entry::Begun).map(|(_, times)| (entry, times)))
            .map(drop)
    }

    /// Every action was done at most as often as it was begun, and one that is done was.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let words = |error: Error| error.to_string();
        let done = self.lock().done.clone();
        for (id, times) in done {
            let found = self.runtime().and_then(|runtime| runtime.read(|view| view.get(&ACTIONS, &id)));
            let begun = found.map_err(words)?.map_or(0, |row| Entry::of(row).1);
            if times > begun {
                return Err(format!("action {id} was done {times} times, and begun {begun} times"));
            }
        }
        Ok(())
    }

    /// Changes an entry: how it stood before. Tried again where there is no room, or others are quicker.
    fn change(
        &self,
        id: &str,
        change: impl Fn(Option<(Entry, u64)>) -> Option<(Entry, u64)>,
    ) -> Result<Option<(Entry, u64)>> {
        let runtime = self.runtime()?;
        loop {
            let done = runtime.atomic(|block| {
                let found = block.get(&ACTIONS, id)?.map(Entry::of);
                if let Some((entry, times)) = change(found) {
                    block.put(&ACTIONS, id, times * 4 + entry as u64)?;
                }
                Ok(found)
            });
            match done {
                Err(Error::Store(kauri_tree::Error::Full)) => {}
                Err(error) if error.is_retryable() => {}
                done => return done,
            }
        }
    }
}

impl ActionLedger for Book {
    fn begin(&self, asked: &AskedAction<'_>) -> std::result::Result<ActionStanding, ActionTrouble> {
        let begun = |found| match found {
            None => Some((Entry::Begun, 1)),
            Some((Entry::Again, times)) => Some((Entry::Begun, times + 1)),
            Some((Entry::Begun | Entry::Done, _)) => None,
        };
        Ok(match self.change(asked.id, begun).map_err(trouble)? {
            Some((Entry::Done, _)) => ActionStanding::Done(asked.id.into()),
            Some((Entry::Begun, _)) => ActionStanding::InDoubt,
            found @ (None | Some((Entry::Again, _))) => {
                let (book, id, time) = (self.clone(), asked.id.to_owned(), found.map_or(1, |(_, times)| times + 1));
                ActionStanding::Begun(Box::new(Begun { book, id, time }))
            }
        })
    }
}

/// An action that was begun for the so-manieth time.
struct Begun {
    book: Book,
    id: String,
    time: u64,
}

impl Begun {
    /// Writes down its end, unless somebody has decided meanwhile.
    fn end(&self, end: Entry) -> std::result::Result<(), ActionTrouble> {
        let own = Some((Entry::Begun, self.time));
        self.book.change(&self.id, |found| (found == own).then_some((end, self.time))).map(drop).map_err(trouble)
    }
}

impl BegunAction for Begun {
    fn id(&self) -> &str {
        &self.id
    }

    fn complete(self: Box<Self>, _: &[u8]) -> std::result::Result<(), ActionTrouble> {
        self.end(Entry::Done)
    }

    fn fail(self: Box<Self>, _: &str) -> std::result::Result<(), ActionTrouble> {
        self.end(Entry::Again)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn trouble(error: Error) -> ActionTrouble {
    ActionTrouble(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use kauri_runtime::substrate::ModelSubstrate;
    use kauri_runtime::testing::VirtualClock;
    use kauri_wire::{RunId, Timestamp};

    use super::*;

    #[test]
    fn action_that_was_done_more_often_than_it_was_begun_is_found() {
        let book = Book::default();
        let substrate = Arc::new(ModelSubstrate::new());
        let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start().unwrap();
        book.open(&runtime);
        let run = RunId::from_parts(Timestamp(1), [1; 10]);
        let begin = || book.begin(&AskedAction { id: "a", trace: "t", task: "act", run }).unwrap();
        assert!(matches!(begin(), ActionStanding::Begun(_)), "and dropped: in doubt");
        book.act("a");
        assert!(book.check().is_ok() && matches!(begin(), ActionStanding::InDoubt));
        assert_eq!(book.in_doubt().unwrap(), ["a"]);
        book.decide("a", Entry::Again).unwrap();
        assert!(matches!(begin(), ActionStanding::Begun(_)));
        book.act("a");
        assert!(book.check().is_ok());
        book.act("a");
        assert!(book.check().is_err());
    }
}
