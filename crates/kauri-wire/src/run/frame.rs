//! One run frame: its length prefix, and the seven things it can be.

use alloc::vec::Vec;

use crate::error::{self, Found, WireError};
use crate::pack::{Map, MapBuf, Value};
use crate::run::envelope::Envelope;
use crate::run::event::{EventType, words};
use crate::run::fields::pick;
use crate::run::step::{STEP_ANSWER, STEP_REQUEST, StepAnswer, StepRequest};

/// The bytes of a frame's length.
///
/// ```
/// use kauri_wire::run::{FileWriteAck, PREFIX_BYTES, RunFrame};
///
/// let mut frame = Vec::new();
/// RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: true, error: None }).append_to(&mut frame)?;
/// let (prefix, body) = frame.split_at(PREFIX_BYTES);
/// assert_eq!(prefix, u32::try_from(body.len()).expect("a short frame").to_be_bytes());
/// assert!(RunFrame::decode(body).is_ok());
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub const PREFIX_BYTES: usize = 4;
/// The longest frame, with its prefix: 16 MiB.
///
/// ```
/// use kauri_wire::run::{FRAME_BYTES_MAX, PREFIX_BYTES, frame_length};
///
/// let longest = u32::try_from(FRAME_BYTES_MAX - PREFIX_BYTES).expect("16 MiB");
/// assert!(frame_length(longest.to_be_bytes()).is_ok() && frame_length((longest + 1).to_be_bytes()).is_err());
/// ```
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// The most bytes that a chunk or a file may carry: 8 MiB.
///
/// ```
/// use kauri_wire::run::{ArtifactChunk, DATA_BYTES_MAX, RunFrame};
///
/// let data = vec![7; DATA_BYTES_MAX + 1];
/// let chunk = |data| RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data });
/// assert!(chunk(&data[1..]).append_to(&mut Vec::new()).is_ok());
/// assert!(chunk(&data).append_to(&mut Vec::new()).is_err());
/// ```
pub const DATA_BYTES_MAX: usize = 8 << 20;

const TOO_LONG: &str = "a frame of 16777216 bytes at most, with its prefix";

/// How many bytes follow this prefix, so that a reader knows what to wait for before it makes room for it.
///
/// ```
/// use kauri_wire::WireErrorKind;
/// use kauri_wire::run::frame_length;
///
/// assert_eq!(frame_length([0, 0, 1, 2]), Ok(258));
/// assert_eq!(frame_length(*b"HTTP").unwrap_err().kind, WireErrorKind::TooBig); // somebody speaks another language
/// ```
///
/// # Errors
/// `TooBig` if they and the prefix are more than 16 MiB, `Format` if there are none.
pub fn frame_length(prefix: [u8; PREFIX_BYTES]) -> Result<usize, WireError> {
    match u32::from_be_bytes(prefix) as usize {
        0 => Err(error::format(0, "a frame of at least one byte", error::length(0))),
        length if length > FRAME_BYTES_MAX - PREFIX_BYTES => Err(error::too_big(0, TOO_LONG, length)),
        length => Ok(length),
    }
}

/// What an executor and the runtime say to each other.
///
/// ```
/// use kauri_wire::pack::Map;
/// use kauri_wire::run::{Envelope, EventType, Frames, RunFrame};
///
/// let done = RunFrame::Event(Envelope {
///     contract_version: "0.1.0",
///     event_id: "event-1",
///     run_id: "018bcfe5-6800-7707-8707-070707070707",
///     seq: 1,
///     event_type: EventType::RunComplete,
///     ts: "2026-11-15T10:00:00.000Z",
///     payload: Map::EMPTY,
///     attempt: 1,
///     job_id: None,
///     parent_run_id: None,
/// });
/// let mut pipe = Vec::new();
/// done.append_to(&mut pipe)?;
/// assert_eq!(Frames::new(&pipe).next(), Some(Ok(done)));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RunFrame<'a> {
    /// An event of the run.
    Event(Envelope<'a>),
    /// Part of an artifact.
    ArtifactChunk(ArtifactChunk<'a>),
    /// A file to be kept beside the run.
    FileWrite(FileWrite<'a>),
    /// The answer to it.
    FileWriteAck(FileWriteAck<'a>),
    /// How the executor ended.
    RunResult(RunResult<'a>),
    /// A durable step that the executor asks for.
    StepRequest(StepRequest<'a>),
    /// The answer to it.
    StepAnswer(StepAnswer<'a>),
}

/// Part of an artifact. The artifact event that follows the last part commits them.
///
/// ```
/// use kauri_wire::run::{ArtifactChunk, Frames, RunFrame};
///
/// let mut pipe = Vec::new();
/// for (seq, data) in (1..).zip([&b"to be "[..], b"kept"]) {
///     let is_last = seq == 2;
///     RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "report", seq, is_last, data }).append_to(&mut pipe)?;
/// }
/// let mut whole = Vec::new();
/// for frame in Frames::new(&pipe) {
///     let RunFrame::ArtifactChunk(chunk) = frame? else { panic!("only chunks were written") };
///     whole.extend_from_slice(chunk.data);
/// }
/// assert_eq!(whole, b"to be kept");
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArtifactChunk<'a> {
    /// Which artifact.
    pub artifact_id: &'a str,
    /// The part's place, from 1.
    pub seq: u64,
    /// Whether it is the last.
    pub is_last: bool,
    /// The bytes.
    pub data: &'a [u8],
}

/// A file to be kept beside the run. Whether it can have that name and type says whoever keeps it, in the answer: a wrong one is that file's
/// fault alone.
///
/// ```
/// use kauri_wire::run::{FileWrite, Frames, RunFrame};
///
/// let mut frame = Vec::new();
/// let page = FileWrite { write_id: 7, filename: "page.html", content_type: "text/html", data: b"<p>" };
/// RunFrame::FileWrite(page).append_to(&mut frame)?;
/// assert_eq!(Frames::new(&frame).next(), Some(Ok(RunFrame::FileWrite(page))));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileWrite<'a> {
    /// What the answer refers to; 0 if none is wanted.
    pub write_id: u64,
    /// The file's name.
    pub filename: &'a str,
    /// Its media type.
    pub content_type: &'a str,
    /// The bytes.
    pub data: &'a [u8],
}

/// The answer to a file write.
///
/// ```
/// use kauri_wire::run::{FileWriteAck, Frames, RunFrame};
///
/// let refused = RunFrame::FileWriteAck(FileWriteAck { write_id: 7, ok: false, error: Some("the disk is full") });
/// let mut pipe = Vec::new();
/// refused.append_to(&mut pipe)?;
/// assert_eq!(Frames::new(&pipe).next(), Some(Ok(refused)));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileWriteAck<'a> {
    /// Which write.
    pub write_id: u64,
    /// Whether the file is kept, durably.
    pub ok: bool,
    /// Why not.
    pub error: Option<&'a str>,
}

/// How the executor ended.
///
/// ```
/// use kauri_wire::run::{Frames, RunFrame, RunResult, RunStatus};
///
/// let result = RunResult { status: RunStatus::Error, message: Some("nobody answered"), error_type: None, stack: None, proxy_used: None };
/// let mut pipe = Vec::new();
/// RunFrame::RunResult(result).append_to(&mut pipe)?;
/// let Some(Ok(RunFrame::RunResult(read))) = Frames::new(&pipe).next() else { panic!("a result was written") };
/// assert_eq!((read.status, read.message), (RunStatus::Error, Some("nobody answered")));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunResult<'a> {
    /// In one word.
    pub status: RunStatus,
    /// In a sentence.
    pub message: Option<&'a str>,
    /// The class of the error.
    pub error_type: Option<&'a str>,
    /// Where it came from.
    pub stack: Option<&'a str>,
    /// The proxy that was used, without its password.
    pub proxy_used: Option<Map<'a>>,
}

words! {
    /// How an executor ended, in one word.
    ///
    /// ```
    /// use kauri_wire::run::RunStatus;
    ///
    /// assert_eq!(RunStatus::from_word("crash"), Some(RunStatus::Crash)); // the executor's fault, not the script's
    /// ```
    RunStatus {
        /// As it should.
        Completed = "completed",
        /// The script failed.
        Error = "error",
        /// The executor failed.
        Crash = "crash",
    }
}

const ARTIFACT_CHUNK: &str = "artifact_chunk";
const FILE_WRITE: &str = "file_write";
const FILE_WRITE_ACK: &str = "file_write_ack";
const RUN_RESULT: &str = "run_result";

impl<'a> RunFrame<'a> {
    /// Reads the map of one frame, without its prefix.
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    /// use kauri_wire::run::{FileWriteAck, RunFrame};
    ///
    /// let mut map = MapBuf::new();
    /// map.put("ok", true).put("write_id", 7_u64).put("type", "file_write_ack"); // in any order
    /// let frame = map.view().encode();
    /// assert_eq!(RunFrame::decode(&frame)?, RunFrame::FileWriteAck(FileWriteAck { write_id: 7, ok: true, error: None }));
    ///
    /// map.put("ok", false); // once more: which of the two counts?
    /// assert!(RunFrame::decode(&map.view().encode()).is_err());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// What [`Map::decode`] says, then `Format` for an unknown `type`, and for a key that is missing, twice there or of
    /// the wrong type; `TooBig` for more than 16 MiB, or more than 8 MiB of data.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        Self::decode_at(body, 0)
    }

    /// As `decode`, for a body that stands at offset `at` of a larger input.
    fn decode_at(body: &'a [u8], at: usize) -> Result<Self, WireError> {
        if body.len() > FRAME_BYTES_MAX - PREFIX_BYTES {
            return Err(error::too_big(at, TOO_LONG, body.len() + PREFIX_BYTES));
        }
        let map = Map::decode_at(body, at)?;
        let [kind] = pick(map, [("type", "type: an event type or a frame kind")])?;
        match kind.text()? {
            ARTIFACT_CHUNK => decode_artifact_chunk(map).map(Self::ArtifactChunk),
            FILE_WRITE => decode_file_write(map).map(Self::FileWrite),
            FILE_WRITE_ACK => decode_file_write_ack(map).map(Self::FileWriteAck),
            RUN_RESULT => decode_run_result(map).map(Self::RunResult),
            STEP_REQUEST => StepRequest::decode(map).map(Self::StepRequest),
            STEP_ANSWER => StepAnswer::decode(map).map(Self::StepAnswer),
            _ => {
                kind.word(EventType::from_word)?;
                Envelope::from_map(map).map(Self::Event)
            }
        }
    }

    /// Writes the frame, prefix and all, to the end of `out`.
    ///
    /// ```
    /// use kauri_wire::run::{ArtifactChunk, RunFrame};
    ///
    /// let mut out = b"before".to_vec();
    /// let chunk = |seq| RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq, is_last: true, data: b"" });
    /// assert!(chunk(0).append_to(&mut out).is_err(), "they are counted from 1");
    /// assert_eq!(out, b"before");
    /// chunk(1).append_to(&mut out)?;
    /// assert!(out.starts_with(b"before\0\0\0"));
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `TooBig` if the frame would be longer than 16 MiB or its data longer than 8 MiB, `Invalid` if a reader would refuse
    /// a field. Nothing is written then.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let map = self.to_map()?;
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        map.view().append_to(out);
        let body = out.len() - start - PREFIX_BYTES;
        if body > FRAME_BYTES_MAX - PREFIX_BYTES {
            out.truncate(start);
            return Err(error::too_big(0, TOO_LONG, body + PREFIX_BYTES));
        }
        let length = u32::try_from(body).expect("at most 16 MiB");
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn to_map(self) -> Result<MapBuf, WireError> {
        let mut map = MapBuf::new();
        match self {
            Self::Event(envelope) => return envelope.to_map(),
            Self::StepRequest(request) => return request.to_map(),
            Self::StepAnswer(answer) => return answer.to_map(),
            Self::ArtifactChunk(chunk) => {
                check_data(chunk.data)?;
                check_texts(&[Some(chunk.artifact_id)])?;
                check_names(&[chunk.artifact_id])?;
                if chunk.seq == 0 {
                    return Err(error::invalid("a chunk seq of 1 or more", error::number(0)));
                }
                map.put("type", ARTIFACT_CHUNK)
                    .put("artifact_id", chunk.artifact_id)
                    .put("seq", chunk.seq)
                    .put("is_last", chunk.is_last)
                    .put("data", chunk.data);
            }
            Self::FileWrite(file) => {
                check_data(file.data)?;
                check_texts(&[Some(file.filename), Some(file.content_type)])?;
                map.put("type", FILE_WRITE)
                    .put("write_id", file.write_id)
                    .put("filename", file.filename)
                    .put("content_type", file.content_type)
                    .put("data", file.data);
            }
            Self::FileWriteAck(ack) => {
                check_texts(&[ack.error])?;
                map.put("type", FILE_WRITE_ACK)
                    .put("write_id", ack.write_id)
                    .put("ok", ack.ok)
                    .put_some("error", ack.error);
            }
            Self::RunResult(result) => {
                check_texts(&[result.message, result.error_type, result.stack])?;
                if result.proxy_used.is_some_and(|proxy| Value::Map(proxy).depth() >= crate::pack::DEPTH_MAX) {
                    return Err(error::invalid("proxy_used of 63 levels at most", Found::Type("a deeper one")));
                }
                let mut outcome = MapBuf::new();
                outcome
                    .put("status", result.status.as_str())
                    .put_some("message", result.message)
                    .put_some("error_type", result.error_type)
                    .put_some("stack", result.stack);
                map.put("type", RUN_RESULT).put("outcome", outcome.view()).put_some("proxy_used", result.proxy_used);
            }
        }
        Ok(map)
    }
}

pub(crate) fn check_data(data: &[u8]) -> Result<(), WireError> {
    match data.len() {
        0..=DATA_BYTES_MAX => Ok(()),
        length => Err(error::too_big(0, "data of 8388608 bytes at most", length)),
    }
}

/// Text that no frame can hold is refused before it is copied: beyond 4 GiB its length could not even be written.
pub(crate) fn check_texts(texts: &[Option<&str>]) -> Result<(), WireError> {
    let bytes = texts.iter().flatten().fold(0_usize, |sum, text| sum.saturating_add(text.len()));
    if bytes > FRAME_BYTES_MAX - PREFIX_BYTES {
        return Err(error::too_big(0, TOO_LONG, bytes));
    }
    Ok(())
}

fn check_names(names: &[&str]) -> Result<(), WireError> {
    match names.iter().any(|name| name.is_empty()) {
        false => Ok(()),
        true => Err(error::invalid("ids, names and types that are not empty", Found::Type("an empty string"))),
    }
}

fn decode_artifact_chunk(map: Map<'_>) -> Result<ArtifactChunk<'_>, WireError> {
    let [artifact_id, seq, is_last, data] = pick(
        map,
        [
            ("artifact_id", "artifact_id: a non-empty string"),
            ("seq", "seq: an integer of 1 or more"),
            ("is_last", "is_last: a boolean"),
            ("data", "data: 8388608 bytes at most"),
        ],
    )?;
    Ok(ArtifactChunk {
        artifact_id: artifact_id.name()?,
        seq: seq.at_least(1)?,
        is_last: is_last.flag()?,
        data: data.bytes(DATA_BYTES_MAX)?,
    })
}

fn decode_file_write(map: Map<'_>) -> Result<FileWrite<'_>, WireError> {
    let [write_id, filename, content_type, data] = pick(
        map,
        [
            ("write_id", "write_id: an integer of 0 or more"),
            ("filename", "filename: a string"),
            ("content_type", "content_type: a string"),
            ("data", "data: 8388608 bytes at most"),
        ],
    )?;
    Ok(FileWrite {
        write_id: write_id.at_least(0)?,
        filename: filename.text()?,
        content_type: content_type.text()?,
        data: data.bytes(DATA_BYTES_MAX)?,
    })
}

fn decode_file_write_ack(map: Map<'_>) -> Result<FileWriteAck<'_>, WireError> {
    let [write_id, ok, error] = pick(
        map,
        [
            ("write_id", "write_id: an integer of 0 or more"),
            ("ok", "ok: a boolean"),
            ("error", "error: a string or nil"),
        ],
    )?;
    Ok(FileWriteAck { write_id: write_id.at_least(0)?, ok: ok.flag()?, error: error.optional_text()? })
}

fn decode_run_result(map: Map<'_>) -> Result<RunResult<'_>, WireError> {
    let [outcome, proxy_used] = pick(map, [("outcome", "outcome: a map"), ("proxy_used", "proxy_used: a map or nil")])?;
    let [status, message, error_type, stack] = pick(
        outcome.map()?,
        [
            ("status", "status: completed, error or crash"),
            ("message", "message: a string or nil"),
            ("error_type", "error_type: a string or nil"),
            ("stack", "stack: a string or nil"),
        ],
    )?;
    Ok(RunResult {
        status: status.word(RunStatus::from_word)?,
        message: message.optional_text()?,
        error_type: error_type.optional_text()?,
        stack: stack.optional_text()?,
        proxy_used: proxy_used.optional_map()?,
    })
}

/// The frames in a buffer, one after the other.
///
/// A frame that cannot be read is an error, and the next one follows it, because the prefix said where. A buffer that ends
/// inside a frame is an error and the end; so is a prefix that no frame can have.
///
/// ```
/// use kauri_wire::run::{FileWriteAck, Frames, RunFrame};
///
/// let ack = |write_id| RunFrame::FileWriteAck(FileWriteAck { write_id, ok: true, error: None });
/// let mut pipe = Vec::new();
/// ack(1).append_to(&mut pipe)?;
/// pipe.extend_from_slice(&[0, 0, 0, 1, 0xc0]); // nil: no frame, but it says how long it is
/// ack(2).append_to(&mut pipe)?;
/// let read: Vec<_> = Frames::new(&pipe).map(|frame| frame.ok()).collect();
/// assert_eq!(read, [Some(ack(1)), None, Some(ack(2))]);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    /// The frames of this buffer.
    ///
    /// ```
    /// use kauri_wire::run::Frames;
    ///
    /// assert!(Frames::new(b"").next().is_none());
    /// assert!(Frames::new(b"\0\0").next().is_some_and(|frame| frame.is_err())); // it ends inside one
    /// ```
    #[must_use]
    pub const fn new(buffer: &'a [u8]) -> Self {
        Self { rest: buffer, at: 0 }
    }

    /// The offset of the next frame.
    ///
    /// ```
    /// use kauri_wire::run::{FileWriteAck, Frames, RunFrame};
    ///
    /// let mut pipe = Vec::new();
    /// RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: true, error: None }).append_to(&mut pipe)?;
    /// let whole = pipe.len();
    /// pipe.extend_from_slice(b"\0\0\0\x09half"); // the rest is under way
    /// let mut frames = Frames::new(&pipe);
    /// assert!(frames.next().is_some_and(|frame| frame.is_ok()));
    /// assert_eq!(frames.at(), whole); // what is before it need not be kept
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self) -> Result<RunFrame<'a>, WireError> {
        let body = match split(self.rest) {
            Ok((body, rest)) => {
                self.rest = rest;
                body
            }
            Err(error) => {
                self.rest = &[];
                return Err(error.shifted(self.at));
            }
        };
        let start = self.at + PREFIX_BYTES;
        self.at = start + body.len();
        RunFrame::decode_at(body, start)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<RunFrame<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.take())
    }
}

/// The body of the first frame and what follows it.
fn split(buffer: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let Some((prefix, rest)) = buffer.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(error::truncated(buffer.len(), "a 4-byte frame length", buffer.len()));
    };
    let length = frame_length(*prefix)?;
    rest.split_at_checked(length)
        .ok_or_else(|| error::truncated(buffer.len(), "as many bytes as the prefix says", rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WireErrorKind;
    use alloc::vec;

    fn frame(bytes: &[u8]) -> Result<RunFrame<'_>, WireError> {
        Frames::new(bytes).next().expect("a frame")
    }

    fn encode(frame: RunFrame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.append_to(&mut out).unwrap();
        out
    }

    fn body(change: impl FnOnce(&mut MapBuf)) -> Vec<u8> {
        let mut map = MapBuf::new();
        change(&mut map);
        map.view().encode()
    }

    fn chunk(data: &[u8]) -> RunFrame<'_> {
        RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data })
    }

    #[test]
    fn frames_survive_the_trip() {
        let mut proxy = MapBuf::new();
        proxy.put("host", "localhost");
        let frames = [
            chunk(b"\0\xff"),
            RunFrame::FileWrite(FileWrite { write_id: 0, filename: "a.txt", content_type: "text/plain", data: b"" }),
            RunFrame::FileWriteAck(FileWriteAck { write_id: u64::MAX, ok: false, error: Some("disk full") }),
            RunFrame::RunResult(RunResult {
                status: RunStatus::Crash,
                message: Some("gone"),
                error_type: None,
                stack: None,
                proxy_used: Some(proxy.view()),
            }),
        ];
        let mut pipe = Vec::new();
        for frame in frames {
            frame.append_to(&mut pipe).unwrap();
        }
        let read: Result<Vec<_>, _> = Frames::new(&pipe).collect();
        assert_eq!(read.unwrap(), frames);
    }

    #[test]
    fn a_prefix_is_judged_before_anything_is_read() {
        assert_eq!(frame_length([0, 0xff, 0xff, 0xfc]), Ok(FRAME_BYTES_MAX - 4));
        assert_eq!(frame_length([0, 0xff, 0xff, 0xfd]).unwrap_err().kind, WireErrorKind::TooBig);
        assert_eq!(frame_length([0xff; 4]).unwrap_err().kind, WireErrorKind::TooBig);
        assert_eq!(frame_length([0; 4]).unwrap_err().kind, WireErrorKind::Format);
    }

    #[test]
    fn data_over_the_limit_is_refused_on_both_sides() {
        let most = vec![7; DATA_BYTES_MAX];
        assert_eq!(frame(&encode(chunk(&most))), Ok(chunk(&most)));
        let more = vec![7; DATA_BYTES_MAX + 1];
        assert_eq!(chunk(&more).append_to(&mut Vec::new()).unwrap_err().kind, WireErrorKind::TooBig);
        let bytes = body(|map| {
            map.put("type", "artifact_chunk").put("artifact_id", "a").put("seq", 1_u64).put("is_last", true);
            map.put("data", &more[..]);
        });
        assert_eq!(RunFrame::decode(&bytes).unwrap_err().kind, WireErrorKind::TooBig);
    }

    #[test]
    fn a_frame_over_the_limit_leaves_the_output_as_it_was() {
        // The first is too long as text, the second only with what stands around it.
        for bytes in [FRAME_BYTES_MAX, FRAME_BYTES_MAX - PREFIX_BYTES] {
            let long = "x".repeat(bytes);
            let ack = RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: false, error: Some(&long) });
            let mut out = b"before".to_vec();
            assert_eq!(ack.append_to(&mut out).unwrap_err().kind, WireErrorKind::TooBig);
            assert_eq!(out, b"before");
        }
    }

    #[test]
    fn text_over_the_limit_is_refused_before_it_is_copied() {
        let long = "x".repeat(FRAME_BYTES_MAX);
        let result = RunResult {
            status: RunStatus::Error,
            message: None,
            error_type: None,
            stack: Some(&long),
            proxy_used: None,
        };
        let file = FileWrite { write_id: 1, filename: &long, content_type: "t", data: b"" };
        let envelope = Envelope {
            contract_version: "0.1.0",
            event_id: "e",
            run_id: "r",
            seq: 1,
            event_type: EventType::RunComplete,
            ts: "t",
            payload: Map::EMPTY,
            attempt: 1,
            job_id: Some(&long),
            parent_run_id: None,
        };
        for frame in [RunFrame::RunResult(result), RunFrame::FileWrite(file), RunFrame::Event(envelope)] {
            let mut out = Vec::new();
            assert_eq!(frame.append_to(&mut out).unwrap_err().kind, WireErrorKind::TooBig);
            assert_eq!(out.capacity(), 0);
        }
    }

    #[test]
    fn unknown_keys_are_skipped_and_order_does_not_matter() {
        let bytes = body(|map| {
            map.put("ok", true).put("since", "tomorrow").put("write_id", 7_u64).put("type", "file_write_ack");
        });
        let expected = FileWriteAck { write_id: 7, ok: true, error: None };
        assert_eq!(RunFrame::decode(&bytes), Ok(RunFrame::FileWriteAck(expected)));
    }

    #[test]
    fn a_known_key_twice_is_refused() {
        let bytes = body(|map| {
            map.put("type", "file_write_ack").put("write_id", 7_u64).put("ok", true).put("ok", false);
        });
        let error = RunFrame::decode(&bytes).unwrap_err();
        assert_eq!(error.found, Found::Type("the same key a second time"));
        assert_eq!(error.at, bytes.len() - 1);
    }

    #[test]
    fn an_unknown_type_is_refused_and_the_next_frame_still_read() {
        let mut pipe = vec![0, 0, 0, 0];
        pipe.extend(body(|map| {
            map.put("type", "telepathy");
        }));
        pipe[3] = u8::try_from(pipe.len() - 4).unwrap();
        chunk(b"x").append_to(&mut pipe).unwrap();
        let mut frames = Frames::new(&pipe);
        assert_eq!(frames.next().unwrap().unwrap_err().expected, "type: an event type or a frame kind");
        assert_eq!(frames.next(), Some(Ok(chunk(b"x"))));
        assert_eq!(frames.next(), None);
    }

    #[test]
    fn a_buffer_that_ends_inside_a_frame_says_so_once() {
        let bytes = encode(chunk(b"data"));
        for cut in 1..bytes.len() {
            let mut frames = Frames::new(&bytes[..cut]);
            let error = frames.next().unwrap().unwrap_err();
            assert_eq!((error.kind, error.at), (WireErrorKind::Truncated, cut));
            assert_eq!(frames.next(), None);
        }
    }
}
