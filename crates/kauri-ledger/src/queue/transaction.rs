//! One transaction: the submissions of a batch, and how each of them went.

use super::session::{Answer, Session, is_fatal};
use super::{Applied, Op};
use crate::error::{Error, Result};

/// How one transaction ended.
pub(super) enum Ended {
    /// Committed; the answers stand.
    Answered,
    /// Its only submission failed, so there was nothing to commit; the answer stands.
    Refused,
    /// Nothing was applied. The submission that was at fault, if it was one.
    Aborted(Option<usize>, rusqlite::Error),
    /// The commit was begun and no answer came.
    Doubtful(String),
}

/// What a transaction writes. It may grow until it is committed.
pub(super) trait Submissions {
    /// What there is so far.
    fn all(&self) -> &[Vec<Op>];
    /// Adds what has come meanwhile, at the end. Whether something has.
    fn more(&mut self) -> bool;
}

impl Submissions for &[Vec<Op>] {
    fn all(&self) -> &[Vec<Op>] {
        self
    }

    fn more(&mut self) -> bool {
        false
    }
}

/// How far a transaction has come: known also after a panic.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) answers: Vec<Result<Applied>>,
    pub(super) is_committing: bool,
}

/// Writes a batch as the transaction of this key.
///
/// A savepoint for each submission costs about as much as the submission, and nearly always all of them go well. So they are
/// first tried without. If one fails, nothing has happened yet: all of it is rolled back, and they are tried again with a
/// savepoint each, so that the one at fault fails alone.
pub(super) fn run(
    session: &mut dyn Session,
    batch: &mut dyn Submissions,
    key: (i64, i64),
    progress: &mut Progress,
) -> Ended {
    match try_run(session, batch, key, progress) {
        Ok(()) => Ended::Answered,
        Err(ended) => ended,
    }
}

type Step<T> = std::result::Result<T, Ended>;

fn try_run(
    session: &mut dyn Session,
    batch: &mut dyn Submissions,
    key: (i64, i64),
    progress: &mut Progress,
) -> Step<()> {
    begin(session)?;
    if !together(session, batch, progress)? {
        session.rollback().map_err(|error| Ended::Doubtful(format!("cannot roll back: {error}")))?;
        if batch.all().len() == 1 {
            return Err(Ended::Refused);
        }
        begin(session)?;
        apart(session, batch.all(), progress)?;
    }
    assert_eq!(progress.answers.len(), batch.all().len(), "every submission has its answer");
    commit(session, key, progress)
}

fn begin(session: &mut dyn Session) -> Step<()> {
    session.begin().map_err(|error| abort(session, None, error))
}

/// All submissions, and those that come meanwhile, up to the first that fails. Whether none did.
fn together(session: &mut dyn Session, batch: &mut dyn Submissions, progress: &mut Progress) -> Step<bool> {
    loop {
        progress.answers.reserve(batch.all().len() - progress.answers.len());
        while let Some(ops) = batch.all().get(progress.answers.len()) {
            let at = progress.answers.len();
            let answer = execute(session, ops).map_err(|error| abort(session, Some(at), error))?;
            let is_well = answer.is_ok();
            progress.answers.push(answer);
            if !is_well {
                return Ok(false);
            }
        }
        if !batch.more() {
            return Ok(true);
        }
    }
}

/// Each submission in a savepoint of its own.
fn apart(session: &mut dyn Session, batch: &[Vec<Op>], progress: &mut Progress) -> Step<()> {
    progress.answers.clear();
    for (at, ops) in batch.iter().enumerate() {
        let answer = nested(session, ops).map_err(|error| abort(session, Some(at), error))?;
        progress.answers.push(answer);
    }
    Ok(())
}

fn commit(session: &mut dyn Session, key: (i64, i64), progress: &mut Progress) -> Step<()> {
    session.mark(key.0, key.1).map_err(|error| abort(session, None, error))?;
    progress.is_committing = true;
    session.commit().map_err(|error| match session.in_transaction() && !is_fatal(&error) {
        // Busy, or a constraint that is checked at the end: the transaction is still there, so it was not committed.
        true => abort(session, None, error),
        false => Ended::Doubtful(format!("the commit failed: {error}")),
    })
}

/// The operations of one submission. The outer error is one that ended the transaction.
fn execute(session: &mut dyn Session, ops: &[Op]) -> Answer<Result<Applied>> {
    let mut rows = 0;
    for op in ops {
        match session.execute(op) {
            Ok(found) => match op.rows {
                Some(expected) if expected != found => return Ok(Err(Error::RowCount { expected, found })),
                _ => rows += found,
            },
            Err(error) if session.in_transaction() && !is_fatal(&error) => {
                return Ok(Err(Error::Sql { doing: "write to the database", cause: error }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(Applied { rows }))
}

/// The same, and undone if one of them fails.
fn nested(session: &mut dyn Session, ops: &[Op]) -> Answer<Result<Applied>> {
    session.nest()?;
    let answer = execute(session, ops)?;
    if answer.is_ok() {
        session.keep()?;
    } else {
        session.undo()?;
    }
    Ok(answer)
}

fn abort(session: &mut dyn Session, at: Option<usize>, error: rusqlite::Error) -> Ended {
    if session.in_transaction()
        && let Err(worse) = session.rollback()
    {
        return Ended::Doubtful(format!("{error}, and then {worse}"));
    }
    Ended::Aborted(at, error)
}
