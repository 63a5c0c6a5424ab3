//! The socket itself, and the threads that answer.
#![expect(
    clippy::disallowed_methods,
    reason = "a driver: the socket is a file of the system, and each connection a thread"
)]

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Code, Fault, REQUEST_BYTES_MAX, VERSION};
use crate::home::Layout;

/// How many may ask at once.
const CONNECTIONS_MAX: usize = 64;
/// A connection that says nothing for so long is closed.
const SILENCE_MAX: Duration = Duration::from_mins(10);
/// The system allows a socket's path about a hundred bytes.
const PATH_BYTES_MAX: usize = 100;

/// Answers requests: a word and what comes with it.
pub type Answering = dyn Fn(&str, &Value) -> Result<Value, Fault> + Send + Sync;

/// The path of a home's socket, however long the home's is.
pub(super) struct Reach {
    path: PathBuf,
    /// Held while the path is used, which leads through it.
    _directory: Option<fs::File>,
}

impl Reach {
    /// Nothing if the home has no directory for it.
    pub(super) fn of(layout: &Layout) -> io::Result<Option<Self>> {
        let path = layout.socket();
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Some(Self { path, _directory: None }));
        }
        match fs::File::open(layout.runtime()) {
            Ok(directory) => {
                let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join("control.sock");
                Ok(Some(Self { path, _directory: Some(directory) }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A socket that is answered. Dropped, it is gone.
#[derive(Debug)]
#[must_use = "nobody answers once this is dropped"]
pub struct Server {
    layout: Layout,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens in a home, whose lock the caller has: so whatever socket lies there is nobody's any more.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn start(layout: &Layout, answering: Arc<Answering>) -> io::Result<Self> {
        match fs::remove_file(layout.socket()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let reach = Reach::of(layout)?.ok_or(io::ErrorKind::NotFound)?;
        let listener = UnixListener::bind(reach.path())?;
        // Nobody else can reach it before this either: its directory is the owner's alone.
        fs::set_permissions(layout.socket(), fs::Permissions::from_mode(0o600))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let accept = move || accept(&listener, &over, &answering);
        let thread = thread::Builder::new().name("kauri-control".to_owned()).spawn(accept)?;
        Ok(Self { layout: layout.clone(), is_over, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread that waits for connections. If that fails, it is not waited for.
        let is_awake =
            Reach::of(&self.layout).ok().flatten().is_some_and(|reach| UnixStream::connect(reach.path()).is_ok());
        let _gone = fs::remove_file(self.layout.socket());
        if let Some(thread) = self.thread.take().filter(|_| is_awake) {
            let _ended = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, is_over: &AtomicBool, answering: &Arc<Answering>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of files, most likely: whoever asked asks again.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.load(Ordering::Acquire) >= CONNECTIONS_MAX {
            let busy = Fault::new(Code::Busy, format!("expected {CONNECTIONS_MAX} connections at most, found another"));
            let _unheard = say(&stream, &busy.to_json());
            continue;
        }
        open.fetch_add(1, Ordering::AcqRel);
        let (answering, leave) = (Arc::clone(answering), Leave(Arc::clone(&open)));
        let converse = move || {
            let _leave = leave;
            // Whoever asked may be gone before the answer.
            let _over = converse(&stream, &*answering);
        };
        // A thread that cannot be started closes the connection.
        let _thread = thread::Builder::new().name("kauri-ask".to_owned()).spawn(converse);
    }
}

/// One connection fewer, however its thread ends.
struct Leave(Arc<AtomicUsize>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn converse(stream: &UnixStream, answering: &Answering) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let most = REQUEST_BYTES_MAX as u64 + 1;
        if requests.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") && line.len() > REQUEST_BYTES_MAX {
            let fault =
                Fault::new(Code::TooLong, format!("expected a line of {REQUEST_BYTES_MAX} bytes at most, found more"));
            // What follows is the middle of it.
            return say(stream, &fault.to_json());
        }
        let answer = match read(&line).and_then(|(what, args)| answering(&what, &args)) {
            Ok(answer) => json!({ "v": VERSION, "ok": answer }),
            Err(fault) => fault.to_json(),
        };
        say(stream, &answer)?;
    }
}

fn say(mut stream: &UnixStream, answer: &Value) -> io::Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes())
}

fn read(line: &[u8]) -> Result<(String, Value), Fault> {
    let request: Value = serde_json::from_slice(line).map_err(|error| {
        Fault::new(Code::Bad, format!("expected a line with a JSON object, found something else: {error}"))
    })?;
    let version = &request["v"];
    if *version != VERSION {
        return Err(Fault::new(Code::Version, format!("expected \"v\": {VERSION}, found {version}")));
    }
    match request["do"].as_str() {
        Some(what) => Ok((what.to_owned(), request)),
        None => Err(Fault::new(Code::Bad, "expected what to do as \"do\", found none")),
    }
}
