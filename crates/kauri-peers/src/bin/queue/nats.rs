//! NATS JetStream with a file store that is synced before anything is acknowledged, spoken to over loopback: a stream from which a job
//! vanishes when it is done, and one consumer that hands jobs out. Servers before 2.10 sync every two minutes, and cannot be compared.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::peer::{Client, PAYLOAD, Peer, Result, expect};
use crate::server::{Process, command, find};

pub(crate) struct Nats {
    address: String,
    clients: AtomicU64,
    _server: Process,
}

const STREAM: &str = r#"{"name":"jobs","subjects":["jobs"],"retention":"workqueue","storage":"file"}"#;
const CONSUMER: &str = r#"{"stream_name":"jobs","config":{"durable_name":"work","ack_policy":"explicit","ack_wait":600000000000,
"max_ack_pending":100000}}"#;

impl Nats {
    pub(crate) fn start(folder: &Path, servers: Option<&Path>) -> Result<Self> {
        let program = find("nats-server", servers).ok_or("no such program")?;
        std::fs::create_dir_all(folder)?;
        let (config, ports) = (folder.join("config"), folder.join("ports"));
        std::fs::create_dir_all(&ports)?;
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let (store, told) = (quoted(&folder.join("store")), quoted(&ports));
        // It listens where there is room, and writes down where that is.
        let words = format!(
            "listen: \"127.0.0.1:-1\"\nports_file_dir: {told}\njetstream {{ store_dir: {store}, sync_interval: always }}\n"
        );
        std::fs::write(&config, words)?;
        if !command(&program, servers).arg("-t").arg("-c").arg(&config).output()?.status.success() {
            return Err("this nats-server cannot sync before it acknowledges (that came with 2.10)".into());
        }
        let mut command = command(&program, servers);
        let (server, address) = Process::start(command.arg("-c").arg(&config), || address(&ports))?;
        let nats = Self { address, clients: AtomicU64::new(0), _server: server };
        let mut first = nats.open()?;
        for (subject, config) in [("STREAM.CREATE.jobs", STREAM), ("CONSUMER.DURABLE.CREATE.jobs.work", CONSUMER)] {
            let answer = first.ask(&format!("$JS.API.{subject}"), config.as_bytes())?;
            if String::from_utf8_lossy(&answer.payload).contains("\"error\"") {
                return Err(format!("{subject}: {}", String::from_utf8_lossy(&answer.payload)).into());
            }
        }
        Ok(nats)
    }

    fn open(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        // A server that has died must not hold up the others.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let inbox = format!("_INBOX.{}", self.clients.fetch_add(1, Ordering::Relaxed));
        let mut connection = Connection { stream: BufReader::new(stream), inbox, asked: 0, claimed: String::new() };
        expect(connection.line()?.as_bytes(), b"INFO ")?;
        let hello = r#"CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
        connection.say(&format!("{hello}\r\nSUB {}.* 1\r\nPING\r\n", connection.inbox))?;
        expect(connection.line()?.as_bytes(), b"PONG")?;
        Ok(connection)
    }
}

/// Where the server listens, once it has written that down whole.
fn address(ports: &Path) -> Option<String> {
    let file = std::fs::read_dir(ports).ok()?.flatten().next()?.path();
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let address = told["nats"][0].as_str()?.strip_prefix("nats://")?.to_owned();
    TcpStream::connect(&address).ok().map(|_| address)
}

impl Peer for Nats {
    fn name(&self) -> &'static str {
        "nats jetstream, sync always"
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(self.open()?))
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
    inbox: String,
    asked: u64,
    /// Where it is said that the job that was waited for is done.
    claimed: String,
}

/// What came back.
struct Answer {
    /// Where to answer.
    reply: Option<String>,
    /// It is about the question, and no job.
    is_status: bool,
    payload: Vec<u8>,
}

impl Connection {
    fn say(&mut self, words: &str) -> Result<()> {
        Ok(self.stream.get_mut().write_all(words.as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err("the server hung up".into()),
            _ => Ok(line),
        }
    }

    /// A question as it is sent, and where its answer comes.
    fn question(&mut self, subject: &str, payload: &[u8]) -> (Vec<u8>, String) {
        self.asked += 1;
        let inbox = format!("{}.{}", self.inbox, self.asked);
        let head = format!("PUB {subject} {inbox} {}\r\n", payload.len());
        ([head.as_bytes(), payload, b"\r\n"].concat(), inbox)
    }

    /// Sends something, and waits for what comes back.
    fn ask(&mut self, subject: &str, payload: &[u8]) -> Result<Answer> {
        let (question, inbox) = self.question(subject, payload);
        self.stream.get_mut().write_all(&question)?;
        self.answer(&inbox)
    }

    /// The answer to a question.
    fn answer(&mut self, inbox: &str) -> Result<Answer> {
        loop {
            if let Some(answer) = self.read(inbox)? {
                return Ok(answer);
            }
        }
    }

    /// Reads what the server says next; `None` if it is no answer to this question.
    fn read(&mut self, inbox: &str) -> Result<Option<Answer>> {
        let line = self.line()?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (head, reply, total) = match words[..] {
            ["PING"] => return self.say("PONG\r\n").map(|()| None),
            ["MSG", _, _, total] => (0, None, total),
            ["MSG", _, _, reply, total] => (0, Some(reply), total),
            ["HMSG", _, _, head, total] => (head.parse()?, None, total),
            ["HMSG", _, _, reply, head, total] => (head.parse()?, Some(reply), total),
            _ => return Err(format!("found {line:?}").into()),
        };
        let mut bytes = vec![0; total.parse::<usize>()? + 2];
        self.stream.read_exact(&mut bytes)?;
        let payload = bytes.get(head..bytes.len() - 2).ok_or("a head longer than everything")?.to_vec();
        // A job comes under the subject that it was sent to; whatever else comes is about some question.
        let is_status = words[1].starts_with(&self.inbox);
        let answer = Answer { reply: reply.map(str::to_owned), is_status, payload };
        Ok((!is_status || words[1] == inbox).then_some(answer))
    }

    /// Claims the next job; where to say that it is done.
    fn next(&mut self, how: &str) -> Result<Option<String>> {
        let answer = self.ask("$JS.API.CONSUMER.MSG.NEXT.jobs.work", how.as_bytes())?;
        if answer.is_status {
            return Ok(None);
        }
        expect(&answer.payload, PAYLOAD)?;
        Ok(Some(answer.reply.ok_or("a job without an end")?))
    }

    /// Says that a job is done, and waits until that is written.
    fn done(&mut self, job: &str) -> Result<()> {
        self.ask(job, b"+ACK").map(drop)
    }
}

impl Client for Connection {
    fn put(&mut self) -> Result<()> {
        let answer = self.ask("jobs", PAYLOAD)?;
        expect(&answer.payload, br#"{"stream":"jobs""#)
    }

    /// All of them are on their way before the first answer is read.
    fn put_many(&mut self, count: usize) -> Result<()> {
        let (questions, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| self.question("jobs", PAYLOAD)).unzip();
        self.stream.get_mut().write_all(&questions.concat())?;
        // They come in their order.
        inboxes.iter().try_for_each(|inbox| expect(&self.answer(inbox)?.payload, br#"{"stream":"jobs""#))
    }

    fn work(&mut self) -> Result<bool> {
        match self.next(r#"{"batch":1,"no_wait":true}"#)? {
            Some(job) => self.done(&job).map(|()| true),
            None => Ok(false),
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.claimed = self.next(r#"{"batch":1,"expires":20000000000}"#)?.ok_or("no job came")?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let job = std::mem::take(&mut self.claimed);
        self.done(&job)
    }
}
