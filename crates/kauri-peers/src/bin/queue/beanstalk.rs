//! beanstalkd with its binlog, synced after each write.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::peer::{Client, PAYLOAD, Peer, Result, expect};
use crate::server::{self, Server, find};

pub(crate) struct Beanstalkd(Server);

impl Beanstalkd {
    pub(crate) fn start(folder: &Path, servers: Option<&Path>) -> Result<Self> {
        let program = find("beanstalkd", servers).ok_or("no such program")?;
        std::fs::create_dir_all(folder)?;
        let socket = folder.join("socket");
        let mut command = server::command(&program, servers);
        command.arg("-l").arg(format!("unix:{}", socket.display())).arg("-b").arg(folder).args(["-f", "0"]);
        Ok(Self(Server::start(&mut command, socket)?))
    }
}

impl Peer for Beanstalkd {
    fn name(&self) -> &'static str {
        "beanstalkd, fsync each"
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Connection { stream: BufReader::new(self.0.connect()?), claimed: Vec::new() }))
    }
}

struct Connection {
    stream: BufReader<UnixStream>,
    /// The id of the job that was waited for.
    claimed: Vec<u8>,
}

impl Connection {
    fn ask(&mut self, command: &[u8]) -> Result<Vec<u8>> {
        self.stream.get_mut().write_all(command)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// The id of the next job, if there is one in so many seconds.
    fn reserve(&mut self, seconds: u32) -> Result<Option<Vec<u8>>> {
        let answer = self.ask(format!("reserve-with-timeout {seconds}\r\n").as_bytes())?;
        if answer.starts_with(b"TIMED_OUT") {
            return Ok(None);
        }
        expect(&answer, b"RESERVED ")?;
        let id = answer.split(|byte| *byte == b' ').nth(1).ok_or("a job without an id")?.to_vec();
        let mut payload = vec![0; PAYLOAD.len() + 2];
        self.stream.read_exact(&mut payload)?;
        expect(&payload, PAYLOAD)?;
        Ok(Some(id))
    }

    fn delete(&mut self, id: &[u8]) -> Result<()> {
        let answer = self.ask(&[b"delete ", id, b"\r\n"].concat())?;
        expect(&answer, b"DELETED")
    }
}

impl Client for Connection {
    fn put(&mut self) -> Result<()> {
        self.put_many(1)
    }

    /// It has no call for many: all of them are on their way before the first answer is read.
    fn put_many(&mut self, count: usize) -> Result<()> {
        let head = format!("put 0 0 600 {}\r\n", PAYLOAD.len());
        let put = [head.as_bytes(), PAYLOAD, b"\r\n"].concat();
        self.stream.get_mut().write_all(&put.repeat(count))?;
        (0..count).try_for_each(|_| expect(&self.answer()?, b"INSERTED"))
    }

    fn work(&mut self) -> Result<bool> {
        match self.reserve(0)? {
            Some(id) => self.delete(&id).map(|()| true),
            None => Ok(false),
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.claimed = self.reserve(20)?.ok_or("no job came")?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let id = std::mem::take(&mut self.claimed);
        self.delete(&id)
    }
}
