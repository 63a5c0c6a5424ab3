//! A reliable queue in Redis, with an append-only file that is synced always: a job moves to a second list while it is worked on.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::peer::{Client, PAYLOAD, Peer, Result, expect};
use crate::server::{self, Server, find};

pub(crate) struct Redis {
    server: Server,
    clients: AtomicU64,
}

impl Redis {
    pub(crate) fn start(folder: &Path, servers: Option<&Path>) -> Result<Self> {
        let program = find("redis-server", servers).ok_or("no such program")?;
        std::fs::create_dir_all(folder)?;
        let socket = folder.join("socket");
        let mut command = server::command(&program, servers);
        command.args(["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        command.arg("--dir").arg(folder).arg("--unixsocket").arg(&socket);
        Ok(Self { server: Server::start(&mut command, socket)?, clients: AtomicU64::new(0) })
    }
}

impl Redis {
    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        self.server.socket()
    }
}

impl Peer for Redis {
    fn name(&self) -> &'static str {
        "redis, aof always"
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        let stream = BufReader::new(self.server.connect()?);
        Ok(Box::new(Connection { stream, client, sent: 0, claimed: Vec::new() }))
    }
}

struct Connection {
    stream: BufReader<UnixStream>,
    client: u64,
    sent: u64,
    /// The job that was waited for.
    claimed: Vec<u8>,
}

impl Connection {
    /// Sends a command, and reads a number, a text or nothing.
    fn ask(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).bytes());
            command.extend_from_slice(word);
            command.extend(b"\r\n");
        }
        self.stream.get_mut().write_all(&command)?;
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.split_first() {
            Some((b':', rest)) => Ok(Some(rest.to_vec())),
            Some((b'$', b"-1\r\n") | (b'*', b"-1\r\n")) => Ok(None),
            Some((b'$', length)) => {
                let length: usize = std::str::from_utf8(length)?.trim().parse()?;
                let mut text = vec![0; length + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(length);
                Ok(Some(text))
            }
            _ => Err(format!("found {:?}", String::from_utf8_lossy(&line)).into()),
        }
    }

    /// The next job: it is told from another by its first bytes.
    fn job(&mut self) -> Vec<u8> {
        self.sent += 1;
        [&self.client.to_be_bytes()[..], &self.sent.to_be_bytes(), PAYLOAD].concat()
    }

    fn done(&mut self, job: &[u8]) -> Result<()> {
        let removed = self.ask(&[b"LREM", b"working", b"1", job])?;
        expect(&removed.unwrap_or_default(), b"1")
    }
}

impl Client for Connection {
    fn put(&mut self) -> Result<()> {
        self.put_many(1)
    }

    /// One command, whose jobs come together.
    fn put_many(&mut self, count: usize) -> Result<()> {
        let jobs: Vec<Vec<u8>> = (0..count).map(|_| self.job()).collect();
        let words: Vec<&[u8]> = [&b"RPUSH"[..], b"jobs"].into_iter().chain(jobs.iter().map(|job| &job[..])).collect();
        self.ask(&words)?.ok_or("no answer")?;
        Ok(())
    }

    fn work(&mut self) -> Result<bool> {
        let Some(job) = self.ask(&[b"LMOVE", b"jobs", b"working", b"LEFT", b"RIGHT"])? else { return Ok(false) };
        expect(job.get(16..).unwrap_or_default(), PAYLOAD)?;
        self.done(&job).map(|()| true)
    }

    fn wait(&mut self) -> Result<()> {
        let job = self.ask(&[b"BLMOVE", b"jobs", b"working", b"LEFT", b"RIGHT", b"20"])?;
        self.claimed = job.ok_or("no job came")?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let job = std::mem::take(&mut self.claimed);
        self.done(&job)
    }
}
