//! The queue that people write in PostgreSQL: `SELECT ... FOR UPDATE SKIP LOCKED`, here with the deletion in one statement, so that a job
//! costs one commit; or, as whoever has many would write it, with up to [`BATCH`] jobs in such a statement. `synchronous_commit` and
//! `fsync` are on, as they are by default.
//!
//! It is spoken to in its own protocol over a Unix socket, with statements prepared once for each connection.

use std::io::{BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::peer::{BULK, Client, PAYLOAD, Peer, Result, expect};
use crate::server::{Server, find};

/// How many jobs a worker takes that takes several: as many as ours does if nobody says otherwise.
const BATCH: usize = 64;

pub(crate) struct Postgres {
    server: Server,
    batch: usize,
}

impl Postgres {
    /// Workers take one job at a time.
    pub(crate) fn start(folder: &Path, servers: Option<&Path>) -> Result<Self> {
        Self::taking(1, folder, servers)
    }

    /// Workers take several jobs at a time.
    pub(crate) fn start_in_batches(folder: &Path, servers: Option<&Path>) -> Result<Self> {
        Self::taking(BATCH, folder, servers)
    }

    fn taking(batch: usize, folder: &Path, servers: Option<&Path>) -> Result<Self> {
        let (initdb, postgres) = (find("initdb", servers), find("postgres", servers));
        let (initdb, postgres) = (initdb.ok_or("no initdb")?, postgres.ok_or("no postgres")?);
        std::fs::create_dir_all(folder)?;
        let data = folder.join("data");
        // The server refuses to be the administrator's; then it is the user's that Debian made for it.
        let own = std::fs::metadata(folder)?.uid() == 0;
        let as_user = |program: &Path| match own {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        if own && !Command::new("chown").arg("postgres").arg(folder).status()?.success() {
            return Err("there is no user for it".into());
        }
        let made = as_user(&initdb)
            .args(["-A", "trust", "-U", "queue", "-E", "UTF8", "--no-locale", "-D"])
            .arg(&data)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned().into());
        }
        let mut command = as_user(&postgres);
        command.arg("-D").arg(&data).arg("-k").arg(folder).args([
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=820",
        ]);
        let server = Server::start(&mut command, folder.join(".s.PGSQL.5432"))?;
        let peer = Self { server, batch };
        let mut first = peer.open()?;
        first.run("CREATE TABLE jobs (id BIGSERIAL PRIMARY KEY, payload BYTEA NOT NULL)")?;
        Ok(peer)
    }

    /// A connection. The socket answers a little before the server does.
    fn open(&self) -> Result<Connection> {
        for _ in 0..100 {
            match Connection::new(self.server.connect()?) {
                Ok(connection) => return Ok(connection),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        }
        Connection::new(self.server.connect()?)
    }
}

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        if self.batch > 1 { "postgres, 64 at a time" } else { "postgres, skip locked" }
    }

    fn works_in_batches(&self) -> bool {
        self.batch > 1
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        let mut connection = self.open()?;
        connection.prepare("put", "INSERT INTO jobs (payload) VALUES ($1)")?;
        let many: Vec<String> = (1..=BULK).map(|at| format!("(${at})")).collect();
        connection.prepare("many", &format!("INSERT INTO jobs (payload) VALUES {}", many.join(", ")))?;
        connection
            .prepare("tell", "WITH put AS (INSERT INTO jobs (payload) VALUES ($1)) SELECT pg_notify('jobs', '')")?;
        connection.prepare(
            "take",
            "DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING payload",
        )?;
        let some = "ARRAY(SELECT id FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED LIMIT";
        connection.prepare("some", &format!("DELETE FROM jobs WHERE id = ANY({some} {BATCH})) RETURNING payload"))?;
        connection.takes = if self.batch > 1 { "some" } else { "take" };
        Ok(Box::new(connection))
    }
}

struct Connection {
    stream: BufReader<UnixStream>,
    /// The statement that claims jobs.
    takes: &'static str,
    listens: bool,
    /// Somebody has put a job since it was looked.
    told: bool,
}

impl Connection {
    fn new(stream: UnixStream) -> Result<Self> {
        let mut connection = Self { stream: BufReader::new(stream), takes: "take", listens: false, told: false };
        let words = b"\0\x03\0\0user\0queue\0database\0postgres\0\0";
        let length = u32::try_from(words.len() + 4)?.to_be_bytes();
        connection.stream.get_mut().write_all(&[&length[..], words].concat())?;
        connection.answers()?;
        Ok(connection)
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// Reads one message.
    fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; usize::try_from(length)?.saturating_sub(4).min(1 << 20)];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// Reads answers until the server is ready, and gives the first column of each row.
    fn answers(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        loop {
            match self.read()? {
                (b'Z', _) => return Ok(found),
                (b'E', body) => return Err(String::from_utf8_lossy(&body).replace('\0', " ").into()),
                (b'A', _) => self.told = true,
                (b'D', row) => {
                    let length = row.get(2..6).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
                    let length = usize::try_from(length.unwrap_or(-1)).unwrap_or(0);
                    found.push(row.get(6..6 + length).unwrap_or_default().to_vec());
                }
                _ => {}
            }
        }
    }

    fn run(&mut self, sql: &str) -> Result<Vec<Vec<u8>>> {
        self.stream.get_mut().write_all(&Self::message(b'Q', &[sql.as_bytes(), b"\0"].concat()))?;
        self.answers()
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        let parse = Self::message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        self.stream.get_mut().write_all(&[parse, Self::message(b'S', b"")].concat())?;
        self.answers().map(drop)
    }

    /// Runs a prepared statement; parameters and columns are bytes.
    fn call(&mut self, name: &str, parameters: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut bind = [b"\0", name.as_bytes(), b"\0\0\x01\0\x01"].concat();
        bind.extend(u16::try_from(parameters.len())?.to_be_bytes());
        for bytes in parameters {
            bind.extend(u32::try_from(bytes.len())?.to_be_bytes());
            bind.extend(*bytes);
        }
        bind.extend(b"\0\x01\0\x01");
        let execute = Self::message(b'E', b"\0\0\0\0\0");
        let all = [Self::message(b'B', &bind), execute, Self::message(b'S', b"")].concat();
        self.stream.get_mut().write_all(&all)?;
        self.answers()
    }

    /// Begins a transaction and claims jobs in it; without any there is nothing to end. Tells how many.
    fn take(&mut self) -> Result<usize> {
        self.run("BEGIN")?;
        let payloads = self.call(self.takes, &[])?;
        if payloads.is_empty() {
            self.run("ROLLBACK")?;
        }
        payloads.iter().try_for_each(|payload| expect(payload, PAYLOAD))?;
        Ok(payloads.len())
    }
}

impl Client for Connection {
    fn put(&mut self) -> Result<()> {
        let statement = if self.listens { "tell" } else { "put" };
        self.call(statement, &[PAYLOAD]).map(drop)
    }

    /// A row each in one statement; it is prepared for so many.
    fn put_many(&mut self, count: usize) -> Result<()> {
        assert_eq!(count, BULK, "one statement is prepared");
        self.call("many", &[PAYLOAD; BULK]).map(drop)
    }

    fn work(&mut self) -> Result<bool> {
        self.work_many().map(|done| done > 0)
    }

    fn work_many(&mut self) -> Result<usize> {
        let taken = self.take()?;
        if taken > 0 {
            self.run("COMMIT")?;
        }
        Ok(taken)
    }

    fn notify(&mut self) {
        self.listens = true;
    }

    fn wait(&mut self) -> Result<()> {
        if !self.listens {
            self.run("LISTEN jobs")?;
            self.listens = true;
        }
        while self.take()? == 0 {
            while !std::mem::take(&mut self.told) {
                self.told = self.read()?.0 == b'A';
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.run("COMMIT").map(drop)
    }
}
