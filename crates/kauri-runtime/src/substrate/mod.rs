//! What the runtime stands on: storage with three verbs, so that one machine and many are the same code.
//!
//! | verb | what it does |
//! |---|---|
//! | [`snapshot`](Substrate::snapshot) | one version of all rows, to be read |
//! | [`commit`](Substrate::commit) | applies a [`Change`] if everything it observed still holds, at once and durably |
//! | [`watch`](Substrate::watch) | a hint after a commit that rows under a prefix changed |
//!
//! Where a commit takes long to be durable, its maker may go on from it meanwhile ([`commit_early`](Substrate::commit_early)), or hand it in and do
//! something else ([`post`](Substrate::post)).
//!
//! What is longer than it takes is refused before it gets there: it [tells](Substrate::limits) what it takes.
//!
//! [`TreeSubstrate`] is Kauri's store; [`ModelSubstrate`] is the obvious map of maps it is compared with. [`conformance`] is what
//! any implementation must pass.

mod bytes;
mod change;
mod conformance;
mod limits;
mod model;
mod tree;
mod watch;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use bytes::Bytes;
pub(crate) use change::RowsHash;
pub use change::{Append, Change, Cut, Direction, Reads, Seen, SeenRange, TableWrites, Writes};
pub use conformance::conformance;
pub use limits::Limits;
pub(crate) use limits::{at_most, clip};
pub use model::ModelSubstrate;
pub use tree::TreeSubstrate;
pub use watch::Signal;

use crate::error::{Conflict, Result};

/// A table by its name.
pub type TableName = Cow<'static, str>;

/// Storage, as the runtime sees it.
pub trait Substrate: Send + Sync {
    /// The newest version of everything.
    ///
    /// # Errors
    /// If the storage cannot be reached.
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>>;

    /// Applies a change, if all that it observed still holds: whole, at once, and as durably as it asks.
    ///
    /// # Errors
    /// If the storage failed. Then nobody knows whether the change was applied, and the substrate has to be opened again.
    fn commit(&self, change: &Arc<Change>) -> Result<Verdict>;

    /// As [`commit`](Self::commit), but may return before the change is durable. Its maker sees it at once
    /// ([`snapshot_with`](Self::snapshot_with)), everybody else when it is durable, and those who watch are told then. A change that goes on
    /// from another says `after` which; it is never durable without that one.
    ///
    /// Nothing may be told outside of it before [`wait`](Self::wait) has returned. Where this is not to be had, it is `commit`.
    ///
    /// # Errors
    /// As for `commit`.
    fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        self.wait(after)?;
        Ok((self.commit(change)?, Early::default()))
    }

    /// A version that has what was committed early.
    ///
    /// # Errors
    /// As for `snapshot`.
    fn snapshot_with(&self, early: &Early) -> Result<Box<dyn Rows + '_>> {
        self.wait(early)?;
        self.snapshot()
    }

    /// Returns when what was committed early is durable, and everybody sees it.
    ///
    /// # Errors
    /// If the storage failed: as for `commit`, and nothing that was committed after it is there without it.
    fn wait(&self, early: &Early) -> Result<()> {
        assert!(early.is_done(), "whoever commits early waits too");
        Ok(())
    }

    /// As [`commit`](Self::commit), but may return before it is known what becomes of the change: it is committed together with others that are
    /// handed in meanwhile, and [`settle`](Self::settle) tells. Nobody sees it before it is durable, its maker included, and those who watch
    /// are told then.
    ///
    /// # Errors
    /// As for `commit`.
    fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        self.commit(change).map(Posted::done)
    }

    /// Returns when a change that was handed in is as durable as it asked, or met a conflict. Whoever drops it instead does not know what became
    /// of it.
    ///
    /// # Errors
    /// As for `commit`.
    fn settle(&self, posted: Posted) -> Result<Verdict> {
        match posted.0 {
            State::Done(verdict) => Ok(verdict),
            State::Underway(_) => unreachable!("whoever posts settles too"),
        }
    }

    /// How long keys, values and names of tables may be. It never changes. A commit of something longer fails, and applies nothing.
    fn limits(&self) -> Limits;

    /// Raises the signal after each commit that changed a row of this table under this prefix. A hint: it may be raised without
    /// a reason, and whoever waits looks at the rows. It ends when the signal is dropped.
    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>);
}

/// A commit that may not be durable yet; by default one that is.
#[derive(Clone, Default)]
pub struct Early(Option<Arc<dyn Any + Send + Sync>>);

impl Early {
    /// What a substrate needs to know of a commit that is not durable.
    #[must_use]
    pub fn new(of: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// Whether it was durable when it was made.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// What [`new`](Self::new) was given, if it was of this type.
    #[must_use]
    pub fn of<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Early").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// A change that was handed in: see [`Substrate::post`].
#[must_use = "nobody knows what became of it until it is settled"]
pub struct Posted(State);

enum State {
    Done(Verdict),
    Underway(Box<dyn Any + Send>),
}

impl Posted {
    /// One of which it is known what became of it.
    pub fn done(verdict: Verdict) -> Self {
        Self(State::Done(verdict))
    }

    /// What a substrate needs to know of one that is on its way.
    pub fn new(of: impl Any + Send) -> Self {
        Self(State::Underway(Box::new(of)))
    }

    /// Whether it was known what became of it when it was handed in.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done(_))
    }

    /// What [`new`](Self::new) was given.
    ///
    /// # Errors
    /// What became of it, if that was known.
    ///
    /// # Panics
    /// If it was of another type, and so of another substrate.
    pub fn into_of<T: Any>(self) -> Result<T, Verdict> {
        match self.0 {
            State::Done(verdict) => Err(verdict),
            State::Underway(of) => Ok(*of.downcast().expect("whoever settles a change has posted it")),
        }
    }
}

impl fmt::Debug for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a change that met a conflict was not applied"]
pub enum Verdict {
    /// It was applied.
    Committed(Committed),
    /// Something it had observed is not so any more; nothing was applied.
    Conflict(Conflict),
}

/// What a commit decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Committed {
    /// The sequence number that each append got, in their order.
    pub appended: Vec<u64>,
    /// How many rows were in the ranges that were cut.
    pub removed: u64,
}

/// One version of all rows.
pub trait Rows {
    /// What to put into [`Change::base`], if this substrate can tell by it that nothing changed since.
    fn version(&self) -> Option<u64>;

    /// The value of a key.
    ///
    /// # Errors
    /// If the storage is damaged or cannot be reached.
    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;

    /// The rows of a range, from either end.
    ///
    /// # Errors
    /// As for `get`.
    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>>;

    /// How many rows a range has.
    ///
    /// # Errors
    /// As for `get`.
    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64>;

    /// The names of all tables that have rows.
    ///
    /// # Errors
    /// As for `get`.
    fn tables(&self) -> Result<Vec<String>>;
}

/// A key and its value.
pub type Row<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Rows of a range in the order of their keys.
pub trait RowScan {
    /// The next row from the front, until the ends have met.
    ///
    /// # Errors
    /// If the storage is damaged or cannot be reached.
    fn next(&mut self) -> Result<Option<Row<'_>>>;

    /// The next row from the back, until the ends have met.
    ///
    /// # Errors
    /// As for `next`.
    fn previous(&mut self) -> Result<Option<Row<'_>>>;
}

/// Keys not less than `from`, and less than `until` if there is such a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyRange<'a> {
    /// The least key.
    pub from: &'a [u8],
    /// The least key that is beyond.
    pub until: Option<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// All keys.
    pub const ALL: KeyRange<'static> = KeyRange { from: &[], until: None };

    /// Whether the key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from && self.until.is_none_or(|until| key < until)
    }

    /// Keys from `from` on.
    #[must_use]
    pub const fn starting(from: &'a [u8]) -> Self {
        Self { from, until: None }
    }
}

/// The least key that no key with this prefix reaches; none if the prefix is all ones.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != 0xff)? + 1;
    let mut end = prefix[..keep].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}
