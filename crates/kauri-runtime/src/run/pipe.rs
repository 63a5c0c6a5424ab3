//! Run frames out of a stream of bytes, however it is cut into pieces.

use kauri_wire::WireError;
use kauri_wire::pack::{Map, Value};
use kauri_wire::run::{PREFIX_BYTES, RunFrame, frame_length};

/// Bytes that came through a pipe, and the frames in them.
///
/// It holds one frame that is not whole yet and what was pushed since: a length that a prefix claims makes no room for anything, the bytes
/// have to come. After a prefix that no frame can have, nothing can be found any more.
///
/// ```
/// use kauri_runtime::run::Pipe;
/// use kauri_wire::run::{FileWriteAck, RunFrame};
///
/// let ack = RunFrame::FileWriteAck(FileWriteAck { write_id: 7, ok: true, error: None });
/// let mut bytes = Vec::new();
/// ack.append_to(&mut bytes)?;
///
/// let mut pipe = Pipe::default();
/// pipe.push(&bytes[..9]);
/// assert_eq!(pipe.next_frame(), None);
/// pipe.push(&bytes[9..]);
/// assert_eq!(pipe.next_frame(), Some(Ok(ack)));
/// assert_eq!(pipe.rest(), 0);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Debug, Default)]
pub struct Pipe {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
    broken: Option<WireError>,
}

impl Pipe {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    pub fn next_frame(&mut self) -> Option<Result<RunFrame<'_>, Unread<'_>>> {
        if let Some(error) = self.broken {
            return Some(Err(error.into()));
        }
        let (prefix, rest) = self.bytes.get(self.at..)?.split_first_chunk::<PREFIX_BYTES>()?;
        let length = match frame_length(*prefix) {
            Ok(length) => length,
            Err(error) => {
                self.broken = Some(error);
                return Some(Err(error.into()));
            }
        };
        let body = rest.get(..length)?;
        self.at += PREFIX_BYTES + length;
        Some(RunFrame::decode(body).map_err(|error| Unread { error, version: version_in(body) }))
    }

    /// How many bytes wait for the rest of their frame.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// A frame that could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread<'a> {
    /// Why not.
    pub error: WireError,
    /// The version of the contract that it names, if it names one: one of another contract may well say what we do not know.
    pub version: Option<&'a str>,
}

impl From<WireError> for Unread<'_> {
    fn from(error: WireError) -> Self {
        Self { error, version: None }
    }
}

fn version_in(body: &[u8]) -> Option<&str> {
    match Map::decode(body).ok()?.get("contract_version")? {
        Value::Str(version) => Some(version),
        _ => None,
    }
}
