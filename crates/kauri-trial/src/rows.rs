//! Rows of actions in a log on a simulated disk: what stands for the database in a crash trial.
//!
//! ```text
//! | length u32 | checksum u64 | the changes of one commit, as JSON | ...
//! ```
//!
//! A commit is one durable write: it is there whole or not at all, as SQLite promises of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::{Disk, File, Open};
use kauri_ledger::{ActionRow, Anchor, BatchKey, Error, Mark, Result, Rows, Settled, Standing, Status};
use serde_json::{Value, json};

const NAME: &str = "rows";
const HEAD_BYTES: usize = 12;

/// Rows in a log.
pub struct LogRows {
    state: Mutex<State>,
}

struct State {
    file: Box<dyn File>,
    end: u64,
    actions: BTreeMap<String, ActionRow>,
    anchors: BTreeMap<String, Anchor>,
    mark: Option<Mark>,
    is_broken: bool,
}

impl LogRows {
    /// Opens or makes the log on this disk.
    ///
    /// # Errors
    /// Whatever the disk reports.
    pub fn open(disk: &Arc<dyn Disk>) -> std::io::Result<Self> {
        let file = disk.open(NAME, Open::Create)?;
        let (end, actions, anchors) = (0, BTreeMap::new(), BTreeMap::new());
        let mut state = State { file, end, actions, anchors, mark: None, is_broken: false };
        while let Some(changes) = state.read()? {
            state.apply(&changes);
        }
        if state.file.len()? > state.end {
            state.file.set_len(state.end)?;
            state.file.sync()?;
        }
        disk.sync_dir()?;
        Ok(Self { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> Vec<ActionRow> {
        self.state().actions.values().cloned().collect()
    }
}

impl State {
    /// The next commit, if there is a whole one.
    fn read(&mut self) -> std::io::Result<Option<Value>> {
        let left = self.file.len()? - self.end;
        let mut head = [0; HEAD_BYTES];
        if left < HEAD_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_at(self.end, &mut head)?;
        let (length, sum) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        if u64::from(length) > left - HEAD_BYTES as u64 || length == 0 {
            return Ok(None);
        }
        let mut body = vec![0; length as usize];
        self.file.read_at(self.end + HEAD_BYTES as u64, &mut body)?;
        if sum != twox_hash::XxHash3_64::oneshot(&body).to_le_bytes() {
            return Ok(None);
        }
        self.end += (HEAD_BYTES + body.len()) as u64;
        Ok(serde_json::from_slice(&body).ok())
    }

    fn apply(&mut self, changes: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if changes["row"].is_object() {
            let row = row_of(&changes["row"]);
            self.actions.insert(row.action_id.clone(), row);
        }
        if changes["mark"].is_object() {
            let mark = &changes["mark"];
            let number = |name: &str| mark[name].as_u64().unwrap_or(0);
            let checksum = text(&mark["checksum"]).unwrap_or_default();
            self.mark = Some(Mark { seq: number("seq"), end_at: number("end_at"), checksum });
        }
        if changes["anchor"].is_object() {
            let anchor = &changes["anchor"];
            let (date, chain_hash) =
                (text(&anchor["date"]).unwrap_or_default(), text(&anchor["hash"]).unwrap_or_default());
            let number = |name: &str| anchor[name].as_u64().unwrap_or(0);
            let (record_count, last_seq) = (number("count"), number("last"));
            let anchor =
                Anchor { date: date.clone(), chain_hash, record_count, last_seq, created_at: time(&anchor["at"]) };
            if self.anchors.get(&date).is_none_or(|kept| kept.last_seq < last_seq) {
                self.anchors.insert(date, anchor);
            }
        }
    }

    fn commit(&mut self, changes: &Value) -> Result<()> {
        let unknown = |why: String| Error::Unknown { key: BatchKey { epoch: 0, batch: 0 }, why };
        if self.is_broken {
            // What the failed commit left is cut off: then it is known that it did not happen.
            let cut = self.file.set_len(self.end).and_then(|()| self.file.sync());
            cut.map_err(|error| unknown(format!("an earlier commit failed, and then {error}")))?;
            self.is_broken = false;
        }
        let body = changes.to_string().into_bytes();
        let mut bytes = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
        bytes.extend_from_slice(&twox_hash::XxHash3_64::oneshot(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        if let Err(error) = self.file.write_durable_at(self.end, &bytes) {
            self.is_broken = true;
            return Err(unknown(error.to_string()));
        }
        self.end += bytes.len() as u64;
        self.apply(changes);
        Ok(())
    }
}

fn time(value: &Value) -> kauri_ledger::Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn row_of(value: &Value) -> ActionRow {
    let optional = |name: &str| value[name].as_str().map(str::to_owned);
    let text = |name: &str| optional(name).unwrap_or_default();
    let needs = value["needs"].as_array().into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned));
    ActionRow {
        action_id: text("id"),
        trace_id: text("trace"),
        task: text("task"),
        status: text("status").parse().expect("we wrote it"),
        result_ref: optional("result"),
        started_at: time(&value["at"]),
        error: optional("error"),
        retry_of: optional("retry_of"),
        needs: needs.collect(),
    }
}

fn value_of(row: &ActionRow) -> Value {
    json!({
        "id": row.action_id, "trace": row.trace_id, "task": row.task, "status": row.status.as_str(),
        "result": row.result_ref, "at": row.started_at.to_string(), "error": row.error,
        "retry_of": row.retry_of, "needs": row.needs,
    })
}

fn anchor_value(anchor: &Anchor) -> Value {
    json!({
        "date": anchor.date, "hash": anchor.chain_hash, "count": anchor.record_count, "last": anchor.last_seq,
        "at": anchor.created_at.to_string(),
    })
}

impl Rows for LogRows {
    fn insert(&self, row: &ActionRow) -> Result<()> {
        let mut state = self.state();
        if let Some(found) = state.actions.get(&row.action_id) {
            return Err(Error::ActionExists { id: row.action_id.clone(), status: found.status });
        }
        state.commit(&json!({ "row": value_of(row) }))
    }

    fn settle(&self, id: &str, from: &[Status], settled: &Settled<'_>, anchor: Option<&Anchor>) -> Result<()> {
        let mut state = self.state();
        let found = state.actions.get(id).filter(|row| from.contains(&row.status)).cloned();
        let Some(mut row) = found else { return Err(Error::RowCount { expected: 1, found: 0 }) };
        row.status = settled.status;
        row.result_ref = settled.result_ref.map(str::to_owned).or(row.result_ref);
        row.error = settled.error.map(str::to_owned);
        let anchor = anchor.map_or(Value::Null, anchor_value);
        state.commit(&json!({ "row": value_of(&row), "anchor": anchor }))
    }

    fn find(&self, id: &str) -> Result<Option<ActionRow>> {
        Ok(self.state().actions.get(id).cloned())
    }

    fn statuses(&self, ids: &[&str]) -> Result<Vec<Option<Standing>>> {
        let state = self.state();
        let standing = |id: &&str| state.actions.get(*id).map(|row| (row.status, row.result_ref.clone()));
        Ok(ids.iter().map(standing).collect())
    }

    fn each_with(&self, statuses: &[Status], after: &str, most: u32) -> Result<Vec<ActionRow>> {
        let state = self.state();
        let rows =
            state.actions.values().filter(|row| row.action_id.as_str() > after && statuses.contains(&row.status));
        Ok(rows.take(most as usize).cloned().collect())
    }

    fn dependents(&self, id: &str) -> Result<Vec<String>> {
        let state = self.state();
        let needing = state.actions.values().filter(|row| row.needs.iter().any(|needed| needed == id));
        Ok(needing.map(|row| row.action_id.clone()).collect())
    }

    fn retry_of(&self, id: &str) -> Result<Option<String>> {
        let state = self.state();
        Ok(state.actions.values().find(|row| row.retry_of.as_deref() == Some(id)).map(|row| row.action_id.clone()))
    }

    fn mark(&self) -> Result<Option<Mark>> {
        Ok(self.state().mark.clone())
    }

    fn set_mark(&self, mark: &Mark) -> Result<()> {
        let Mark { seq, end_at, checksum } = mark;
        self.state().commit(&json!({ "mark": { "seq": seq, "end_at": end_at, "checksum": checksum } }))
    }

    fn set_anchor(&self, anchor: &Anchor) -> Result<()> {
        self.state().commit(&json!({ "anchor": anchor_value(anchor) }))
    }

    fn anchors(&self) -> Result<Vec<Anchor>> {
        Ok(self.state().anchors.values().cloned().collect())
    }
}
