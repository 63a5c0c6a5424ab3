//! The queue that people write in SQLite: a table of jobs, write-ahead log, `synchronous = FULL`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::peer::{Client, PAYLOAD, Peer, Result, expect};

pub(crate) struct Sqlite(PathBuf);

impl Sqlite {
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let peer = Self(folder.join("jobs"));
        peer.open()?.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload BLOB NOT NULL, claimed INTEGER NOT NULL DEFAULT 0);
             CREATE INDEX waiting ON jobs (id) WHERE claimed = 0;",
        )?;
        Ok(peer)
    }

    fn open(&self) -> Result<Connection> {
        let connection = Connection::open(&self.0)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.execute_batch("PRAGMA synchronous = FULL;")?;
        Ok(connection)
    }
}

impl Peer for Sqlite {
    fn name(&self) -> &'static str {
        "queue in sqlite"
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Jobs { connection: self.open()?, claimed: 0 }))
    }
}

struct Jobs {
    connection: Connection,
    claimed: i64,
}

impl Jobs {
    /// Claims a job in one transaction.
    fn claim(&mut self) -> Result<bool> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let claimed: Option<(i64, Vec<u8>)> = transaction
            .prepare_cached(
                "UPDATE jobs SET claimed = 1 WHERE id = (SELECT id FROM jobs WHERE claimed = 0 ORDER BY id LIMIT 1)
                 RETURNING id, payload",
            )?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        transaction.commit()?;
        let Some((id, payload)) = claimed else { return Ok(false) };
        self.claimed = id;
        expect(&payload, PAYLOAD).map(|()| true)
    }
}

fn insert(into: &Connection) -> Result<()> {
    let put = into.prepare_cached("INSERT INTO jobs (payload) VALUES (?)")?.execute(params![PAYLOAD])?;
    if put == 1 { Ok(()) } else { Err("the job was not put".into()) }
}

impl Client for Jobs {
    fn put(&mut self) -> Result<()> {
        insert(&self.connection)
    }

    fn put_many(&mut self, count: usize) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        (0..count).try_for_each(|_| insert(&transaction))?;
        Ok(transaction.commit()?)
    }

    fn work(&mut self) -> Result<bool> {
        Ok(self.claim()? && self.finish().map(|()| true)?)
    }

    /// Nobody tells it: it has to ask again and again.
    fn wait(&mut self) -> Result<()> {
        while !self.claim()? {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.connection.prepare_cached("DELETE FROM jobs WHERE id = ?")?.execute(params![self.claimed])?;
        Ok(())
    }
}
