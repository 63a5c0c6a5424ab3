//! What is asked of the database, over any connection to it.

use rusqlite::{Connection, OptionalExtension, Result, Row};

use crate::action::{ActionRow, Mark, Standing, Status};
use crate::audit::Anchor;
use crate::clock::Timestamp;

/// The columns of an action, in the order in which [`action_row`] takes them.
macro_rules! select_actions {
    ($rest:literal) => {
        concat!("SELECT action_id, trace_id, task, status, result_ref, started_at, error FROM actions ", $rest)
    };
}

fn action_row(row: &Row<'_>) -> Result<ActionRow> {
    let text = |at: usize| row.get::<_, String>(at);
    let wrong = |at, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, error)
    };
    Ok(ActionRow {
        action_id: text(0)?,
        trace_id: text(1)?,
        task: text(2)?,
        status: text(3)?.parse::<Status>().map_err(|error| wrong(3, error.into()))?,
        result_ref: row.get(4)?,
        started_at: text(5)?.parse::<Timestamp>().map_err(|error| wrong(5, error.into()))?,
        error: row.get(6)?,
        retry_of: None,
        needs: Vec::new(),
    })
}

pub(super) fn state(connection: &Connection, key: &str) -> Result<Option<String>> {
    let sql = "SELECT value FROM state WHERE key = ?1";
    connection.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()
}

/// What the database says of itself when it is asked so, and of references that lead nowhere: nothing, if it is whole.
pub(super) fn faults(connection: &Connection, pragma: &'static str) -> Result<Vec<String>> {
    let mut found: Vec<String> = connection.prepare(pragma)?.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
    found.retain(|line| line != "ok");
    let keys = connection
        .prepare("PRAGMA foreign_key_check")?
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>>>()?;
    found.extend(keys.into_iter().map(|table| format!("a row of {table} refers to one that is not there")));
    Ok(found)
}

pub(super) fn find(connection: &Connection, id: &str) -> Result<Option<ActionRow>> {
    let sql = select_actions!("WHERE action_id = ?1");
    let links = "SELECT kind, other FROM action_links WHERE action_id = ?1 ORDER BY other";
    let Some(mut row) = connection.prepare_cached(sql)?.query_row([id], action_row).optional()? else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached(links)?;
    let mut found = statement.query([id])?;
    while let Some(link) = found.next()? {
        match link.get::<_, String>(0)?.as_str() {
            "retry_of" => row.retry_of = Some(link.get(1)?),
            _ => row.needs.push(link.get(1)?),
        }
    }
    Ok(Some(row))
}

pub(super) fn statuses(connection: &Connection, ids: &[&str]) -> Result<Vec<Option<Standing>>> {
    let mut statement = connection.prepare_cached("SELECT status, result_ref FROM actions WHERE action_id = ?1")?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let row = statement.query_row([id], |row| {
            let status = row.get_ref(0)?.as_str()?.parse::<Status>();
            let status = status.map_err(|error| rusqlite::types::FromSqlError::Other(error.into()))?;
            Ok((status, row.get(1)?))
        });
        found.push(row.optional()?);
    }
    Ok(found)
}

pub(super) fn each_with(
    connection: &Connection,
    statuses: &[Status],
    after: &str,
    most: u32,
) -> Result<Vec<ActionRow>> {
    // Of those that ended there are many, and the index of statuses would find and sort all of them again for every page.
    let are_many = statuses.iter().any(|status| matches!(status, Status::Completed | Status::Failed));
    let sql = match are_many {
        true => select_actions!("WHERE +status IN (?1, ?2, ?3) AND action_id > ?4 ORDER BY action_id LIMIT ?5"),
        false => select_actions!("WHERE status IN (?1, ?2, ?3) AND action_id > ?4 ORDER BY action_id LIMIT ?5"),
    };
    let status = |at: usize| statuses.get(at).map(|status| status.as_str());
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map((status(0), status(1), status(2), after, most), action_row)?.collect()
}

/// The newest actions, of one status and one trace or of all.
pub(super) fn newest(
    connection: &Connection,
    status: Option<Status>,
    trace: Option<&str>,
    most: u32,
) -> Result<Vec<ActionRow>> {
    let sql = select_actions!(
        "WHERE (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR trace_id = ?2)
         ORDER BY started_at DESC, action_id LIMIT ?3"
    );
    let status = status.map(Status::as_str);
    connection.prepare_cached(sql)?.query_map((status, trace, most), action_row)?.collect()
}

pub(super) fn dependents(connection: &Connection, id: &str) -> Result<Vec<String>> {
    let sql = "SELECT action_id FROM action_links WHERE other = ?1 AND kind = 'needs' ORDER BY action_id";
    connection.prepare_cached(sql)?.query_map([id], |row| row.get(0))?.collect()
}

pub(super) fn retry_of(connection: &Connection, id: &str) -> Result<Option<String>> {
    let sql = "SELECT action_id FROM action_links WHERE other = ?1 AND kind = 'retry_of'";
    connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()
}

pub(super) fn mark(connection: &Connection) -> Result<Option<Mark>> {
    let sql = "SELECT seq, end_at, checksum FROM journal_marks WHERE name = 'actions'";
    let mark = |row: &Row<'_>| Ok(Mark { seq: number(row, 0)?, end_at: number(row, 1)?, checksum: row.get(2)? });
    connection.query_row(sql, [], mark).optional()
}

pub(super) fn anchors(connection: &Connection) -> Result<Vec<Anchor>> {
    let sql = "SELECT date, chain_hash, record_count, last_seq, created_at FROM audit_anchors ORDER BY date";
    let anchor = |row: &Row<'_>| {
        let created_at = row.get::<_, String>(4)?.parse().unwrap_or_default();
        let (record_count, last_seq) = (number(row, 2)?, number(row, 3)?);
        Ok(Anchor { date: row.get(0)?, chain_hash: row.get(1)?, record_count, last_seq, created_at })
    };
    connection.prepare_cached(sql)?.query_map([], anchor)?.collect()
}

fn number(row: &Row<'_>, at: usize) -> Result<u64> {
    row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0))
}
