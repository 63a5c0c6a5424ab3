//! Asking a running instance.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Code, Fault, VERSION};
use crate::home::Layout;

/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long an answer may take, beside what the request itself waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// The instance said no.
    Fault(Fault),
    /// It could not be asked, or is gone.
    Gone(io::Error),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => write!(f, "{fault}"),
            Self::Gone(error) => write!(f, "the instance does not answer: {error}"),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// A connection to the instance that runs in a home.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the instance that runs in a home; nothing if none does.
    ///
    /// # Errors
    /// Whatever else the system reports, such as a socket of somebody else.
    pub fn connect(layout: &Layout) -> io::Result<Option<Self>> {
        let reach = super::serve::Reach::of(layout)?;
        let Some(reach) = reach else { return Ok(None) };
        match UnixStream::connect(reach.path()) {
            Ok(stream) => Ok(Some(Self { stream: BufReader::new(stream) })),
            // Nobody listens: what is left there belongs to an instance that has died.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks, and returns with the answer. `wait` is how long the request itself may wait for something.
    ///
    /// # Errors
    /// What the instance says, or that it is gone.
    pub fn ask(&mut self, what: &str, args: &Value, wait: Duration) -> Result<Value, AskError> {
        let mut request = json!({ "v": VERSION, "do": what });
        for (name, value) in args.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        if !wait.is_zero() {
            request["wait_ms"] = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).into();
        }
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(PATIENCE + wait))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = Vec::new();
        self.stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut answer: Value = serde_json::from_slice(&line).map_err(io::Error::from)?;
        match answer.get_mut("ok") {
            Some(found) => Ok(found.take()),
            None => Err(AskError::Fault(fault(&answer["error"]))),
        }
    }
}

fn fault(error: &Value) -> Fault {
    let code = Code::ALL.into_iter().find(|code| error["code"] == code.as_str()).unwrap_or(Code::Failed);
    let message = error["message"].as_str().unwrap_or("expected an answer or an error, found neither");
    Fault::new(code, message)
}
