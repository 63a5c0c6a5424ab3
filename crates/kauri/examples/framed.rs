//! A job's command that speaks run frames: what a program in any language does that is named in kauri.toml with `protocol = "frames"`.
//!
//! ```toml
//! [job.framed]
//! command = ["target/debug/examples/framed"]
//! protocol = "frames"
//! ```
//!
//! It says an item, keeps an artifact and a file, waits for the answer to the file, and ends. With a word as its argument it does one
//! thing wrong: `no-frame`, `gap`, `other-attempt`, `other-run`, `after-terminal`, `cut-off`, `no-end`, `size`, `failed`. With `steps` it
//! does something once, sends an invoice as an action, and waits for a moment and for a signal: started anew as often as it must be. With
//! `doubt` it does not know whether its invoice was sent, and waits until somebody has decided. With `fan` it asks for work of the classes that
//! are its further arguments, and says how much it asked for.
#![expect(clippy::disallowed_methods, reason = "a program at the edge: its run is told by the environment")]

use std::io::{self, BufRead, Read, Write};

use kauri::wire::pack::{Map, MapBuf};
use kauri::wire::run::{
    ArtifactChunk, Envelope, Event, EventType, FileWrite, Level, PREFIX_BYTES, RunFrame, StepRequest, StepStatus,
    StepWish, frame_length,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Whose events these are, and how many there were.
struct Says<W> {
    out: W,
    run_id: String,
    attempt: u32,
    seq: u64,
}

impl<W: Write> Says<W> {
    fn frame(&mut self, frame: &RunFrame<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes)?;
        self.out.write_all(&bytes)?;
        Ok(self.out.flush()?)
    }

    fn event(&mut self, event_type: EventType, payload: Map<'_>) -> Result<()> {
        self.seq += 1;
        let (event_id, run_id) = (format!("event-{}", self.seq), self.run_id.clone());
        self.frame(&RunFrame::Event(Envelope {
            contract_version: "0.1.0",
            event_id: &event_id,
            run_id: &run_id,
            seq: self.seq,
            event_type,
            ts: "2026-11-15T10:00:00.000Z",
            payload,
            attempt: self.attempt,
            job_id: None,
            parent_run_id: None,
        }))
    }

    fn log(&mut self, message: &str) -> Result<()> {
        let log = Event::Log { level: Level::Info, message, fields: None };
        self.event(EventType::Log, log.payload().view())
    }

    fn artifact(&mut self, name: &str, parts: &[&[u8]], size_bytes: u64) -> Result<()> {
        for (at, data) in parts.iter().enumerate() {
            let (seq, is_last) = (at as u64 + 1, at + 1 == parts.len());
            self.frame(&RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "page", seq, is_last, data }))?;
        }
        let kept = Event::Artifact { artifact_id: "page", name, content_type: "text/html", size_bytes };
        self.event(EventType::Artifact, kept.payload().view())
    }
}

/// The frame that comes next on standard input.
fn body(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut prefix = [0; PREFIX_BYTES];
    from.read_exact(&mut prefix)?;
    let mut body = vec![0; frame_length(prefix)?];
    from.read_exact(&mut body)?;
    Ok(body)
}

/// Durable steps, asked for one after the other.
struct Steps<'a, W, R> {
    says: &'a mut Says<W>,
    from: &'a mut R,
    asked: u64,
}

/// What a step came to: its status, its bytes and its text.
type Came = (StepStatus, Vec<u8>, String);

impl<W: Write, R: Read> Steps<'_, W, R> {
    fn ask(&mut self, wish: StepWish, name: &str, with: impl FnOnce(&mut StepRequest<'_>)) -> Result<Came> {
        self.asked += 1;
        let mut request = StepRequest::new(self.asked, wish, name);
        with(&mut request);
        self.says.frame(&RunFrame::StepRequest(request))?;
        let body = body(self.from)?;
        match RunFrame::decode(&body)? {
            RunFrame::StepAnswer(answer) if answer.request_id == self.asked => {
                if answer.status == StepStatus::Parked {
                    // It is started anew when what it waits for has come.
                    std::process::exit(0);
                }
                Ok((
                    answer.status,
                    answer.data.unwrap_or_default().to_vec(),
                    answer.text.unwrap_or_default().to_owned(),
                ))
            }
            other => Err(format!("expected the answer to step {}, found {other:?}", self.asked).into()),
        }
    }

    /// Waits for a decision about an action, and says what was decided.
    fn doubt(&mut self) -> Result<()> {
        let (status, ..) = self.ask(StepWish::BeginAction, "invoice", |request| request.text = Some("an invoice"))?;
        if status == StepStatus::Begun {
            self.ask(StepWish::ActionInDoubt, "invoice", |_| ())?;
        }
        self.says.log(&format!("the invoice is {status}"))?;
        self.says.event(EventType::RunComplete, Map::EMPTY)
    }

    /// All that a script can ask for.
    fn take_all(&mut self) -> Result<()> {
        if self.ask(StepWish::Recall, "charge", |_| ())?.0 == StepStatus::Absent {
            self.says.log("charging")?;
            self.ask(StepWish::Record, "charge", |request| request.data = Some(b"42"))?;
        }
        let (status, _, id) =
            self.ask(StepWish::BeginAction, "invoice", |request| request.text = Some("an invoice"))?;
        if status == StepStatus::Begun {
            self.says.log(&format!("an invoice, {}", if id.is_empty() { "without an id" } else { "with an id" }))?;
            self.ask(StepWish::ActionDone, "invoice", |request| request.data = Some(b"sent"))?;
        }
        self.ask(StepWish::SleepUntil, "long ago", |request| request.due_ms = Some(1))?;
        let (status, _, why) = self.ask(StepWish::Enqueue, "more", |request| {
            (request.text, request.params) = (Some("nothing"), Some(Map::EMPTY));
        })?;
        self.says.log(&format!("{status}: {why}"))?;
        let (_, said, _) = self.ask(StepWish::WaitForSignal, "go", |_| ())?;
        self.says.log(&format!("go {}", String::from_utf8_lossy(&said)))?;
        self.says.event(EventType::RunComplete, Map::EMPTY)
    }
}

/// The answer to a file.
fn answer(from: &mut impl Read) -> Result<(u64, bool)> {
    match RunFrame::decode(&body(from)?)? {
        RunFrame::FileWriteAck(ack) => Ok((ack.write_id, ack.ok)),
        other => Err(format!("expected the answer to a file, found {other:?}").into()),
    }
}

/// Asks for work of these classes, each with its place among them.
fn fan<W: Write>(says: &mut Says<W>, targets: impl Iterator<Item = String>) -> Result<()> {
    let mut asked = 0_u32;
    for target in targets {
        asked += 1;
        let mut params = MapBuf::new();
        params.put("place", asked);
        let wish = Event::Enqueue { target: &target, params: params.view(), source: None, category: None };
        says.event(EventType::Enqueue, wish.payload().view())?;
    }
    let mut summary = MapBuf::new();
    summary.put("asked", asked);
    says.event(EventType::RunComplete, Event::RunComplete { summary: Some(summary.view()) }.payload().view())
}

fn main() -> Result<()> {
    let wrong = std::env::args().nth(1).unwrap_or_default();
    let mut input = io::stdin().lock();
    let mut job = String::new();
    input.read_line(&mut job)?;
    let attempt: u32 = std::env::var("KAURI_ATTEMPT")?.parse()?;
    let mut run_id = std::env::var("KAURI_RUN_ID")?;
    if wrong == "other-run" {
        run_id = "018bcfe5-6800-7707-8707-070707070707".to_owned();
    }
    let attempt = attempt + u32::from(wrong == "other-attempt");
    let mut says = Says { out: io::stdout().lock(), run_id, attempt, seq: 0 };
    says.log(job.trim())?;
    match &*wrong {
        "doubt" => return Steps { says: &mut says, from: &mut input, asked: 0 }.doubt(),
        "fan" => return fan(&mut says, std::env::args().skip(2)),
        "steps" => return Steps { says: &mut says, from: &mut input, asked: 0 }.take_all(),
        "no-frame" => says.out.write_all(b"this is a line, and no frame\n")?,
        "gap" => says.seq += 1,
        "cut-off" => says.out.write_all(&[0, 0, 1, 0, 0x81])?,
        "failed" => {
            let error = Event::RunError { error_type: "http_503", message: "the shop is closed", stack: None };
            return says.event(EventType::RunError, error.payload().view());
        }
        _ => {}
    }
    if matches!(&*wrong, "cut-off" | "no-end") {
        return Ok(());
    }
    let (mut page, item_type) = (MapBuf::new(), "page");
    page.put("title", "Apples");
    says.event(EventType::Item, Event::Item { item_type, data: page.view() }.payload().view())?;
    says.artifact("page.html", &[b"<h1>App", b"les</h1>"], if wrong == "size" { 16 } else { 15 })?;
    let file = FileWrite { write_id: 1, filename: "notes.txt", content_type: "text/plain", data: b"12 apples" };
    says.frame(&RunFrame::FileWrite(file))?;
    let (write_id, is_kept) = answer(&mut input)?;
    says.log(&format!("file {write_id} is {}", if is_kept { "kept" } else { "not kept" }))?;
    says.event(EventType::RunComplete, Map::EMPTY)?;
    if wrong == "after-terminal" {
        says.log("one more thing")?;
    }
    Ok(())
}
