//! Scripts that are commands: a process for each run, at the head of its own group.
//!
//! ```text
//! standard input    the job as JSON, one line, and then its end
//! standard output   a line that is a JSON object is an item, any other a log event; or run frames
//! standard error    log events of level `warn`; the last lines are part of the error if the command fails
//! exit code         0 is success, anything else a script error
//! ```
//!
//! A call that has to stop ends the command and its whole group: SIGTERM, and SIGKILL after the call's grace. What a command leaves behind in its
//! group when it ends is ended too. The group's number cannot be anybody else's meanwhile, because the command is only reaped afterwards.

#![expect(clippy::disallowed_methods, reason = "a driver: a process has pipes, and each pipe a thread")]

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid};
use serde_json::Value;

use super::answers::Answers;
use super::calls::Pulse as _;
use super::context::Context;
use super::error::ScriptError;
use super::executor::{Call, Called, Executor, Prepared};
use super::framed::{Framed, REFUSED};
use super::hook::{Hooks, LoadError};
use super::leash::{Leash, Leashed};
use super::lines::Lines;
use super::plan::RunInfo;
use super::stop::{Cancel, Cause, Stop};
use crate::time::Mono;

/// How long the pipes of a command that has ended are listened to, if something it started holds them open.
const LINGER: Duration = Duration::from_secs(1);
/// How often a group that does not go is killed.
const KILL_EVERY: Duration = Duration::from_millis(100);
/// How much is read from a pipe at once.
const CHUNK_BYTES: usize = 16 << 10;
/// How many chunks may wait to be heard; then the command waits.
const CHUNKS_MAX: usize = 64;
/// How much of the end of standard error is kept for the error.
const TAIL_LINES: usize = 20;
const TAIL_BYTES_MAX: usize = 8 << 10;

/// How a command is spoken with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Lines of text on standard output.
    #[default]
    Lines,
    /// Run frames on standard output, and answers to them on standard input, after the line with the job. `KAURI_STEPS` in the environment
    /// says which version of step requests is answered. A command whose step is answered `parked`, `diverged` or `stopped` is ended
    /// with SIGTERM; if its run waits, the command is started anew when what it waits for has come.
    Frames,
}

/// Who is told of process groups, so that somebody else can end them.
pub trait Groups: Send + Sync {
    /// A group has begun. What is answered is dropped when it has ended, before its number can be used again.
    ///
    /// # Errors
    /// Why nothing may begin any more; the group is ended then.
    fn register(&self, group: u32) -> Result<Box<dyn Any + Send>, String>;

    /// Why everything was stopped, if it was.
    fn stopped(&self) -> Option<String>;
}

/// Groups of which nobody else wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGroups;

impl Groups for NoGroups {
    fn register(&self, _: u32) -> Result<Box<dyn Any + Send>, String> {
        Ok(Box::new(()))
    }

    fn stopped(&self) -> Option<String> {
        None
    }
}

/// Runs a command for each run.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// # use kauri_wire::{RunId, Timestamp};
/// # let (run_id, clock) = (RunId::from_parts(Timestamp(7), [7; 10]), Arc::new(VirtualClock::default()));
/// use kauri_runtime::run::{MemorySink, Outcome};
/// use kauri_runtime::run::script::{Plan, Process, execute};
///
/// let sink = MemorySink::default();
/// let plan = Plan::new(run_id, serde_json::json!({"name": "Ann"}), clock);
/// // It says what it was given: an item.
/// let report = execute(plan, &mut Process::new(["cat"]), Box::new(sink.clone()), |verdict| {
///     assert_eq!(verdict.outcome, Outcome::Success { skipped: false });
///     Ok(())
/// });
/// assert!(report.sealed.is_ok());
/// assert_eq!(sink.events()[0].kind.as_str(), "item");
/// ```
#[derive(Clone)]
#[must_use = "it does nothing before it is called"]
pub struct Process {
    command: Vec<OsString>,
    directory: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    protocol: Protocol,
    groups: Arc<dyn Groups>,
}

impl Process {
    /// This program with these arguments, in the directory and with the environment of this process.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        let (directory, env, protocol) = (None, Vec::new(), Protocol::default());
        Self { command, directory, env, protocol, groups: Arc::new(NoGroups) }
    }

    /// In this directory. A program that is named by a relative path is looked for there.
    pub fn directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()), ..self }
    }

    /// With this in its environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Spoken with like this.
    pub fn protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// With somebody who is told of its group.
    pub fn groups(self, groups: Arc<dyn Groups>) -> Self {
        Self { groups, ..self }
    }

    fn shown(&self) -> String {
        self.command.first().map_or_else(String::new, |program| program.to_string_lossy().into_owned())
    }

    fn spawn(&self, run: &RunInfo) -> Result<Child, ScriptError> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(ScriptError::new("expected a command, found none").of_type("no_command"));
        };
        let mut command = Command::new(self.find(program));
        command.args(arguments).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("KAURI_RUN_ID", run.run_id.to_string()).env("KAURI_ATTEMPT", run.attempt.to_string());
        if let Some(job) = &run.job_id {
            command.env("KAURI_JOB_ID", job.as_str());
        }
        if self.protocol == Protocol::Frames {
            command.env("KAURI_STEPS", kauri_wire::run::STEPS_VERSION.to_string());
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.spawn().map_err(|error| self.not_started(&error))
    }

    /// A relative path is one from the command's directory, whatever the system makes of it.
    fn find(&self, program: &OsString) -> OsString {
        let path = std::path::Path::new(program);
        match &self.directory {
            Some(directory) if path.is_relative() && path.components().count() > 1 => directory.join(path).into(),
            _ => program.clone(),
        }
    }

    fn not_started(&self, error: &io::Error) -> ScriptError {
        let place = self.directory.as_ref().map_or_else(String::new, |place| format!(" in {}", place.display()));
        let fix = match error.kind() {
            io::ErrorKind::NotFound => ": is the path right, and is its interpreter there?",
            io::ErrorKind::PermissionDenied => ": is it executable?",
            _ => "",
        };
        let message = format!("cannot start `{}`{place}: {error}{fix}", self.shown());
        ScriptError::new(message).of_type("not_started")
    }

    fn run(&self, cx: &Context) -> Called<()> {
        if let Some(why) = self.groups.stopped() {
            return Called::Crashed(why);
        }
        let mut child = match self.spawn(cx.run()) {
            Ok(child) => child,
            Err(error) => return Called::Failed(error),
        };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child's id is one");
        let (mut going, registered) = match self.begin(&mut child, group, cx) {
            Ok(begun) => begun,
            Err(why) => {
                kill(group, Signal::KILL);
                drop(child.wait());
                return Called::Crashed(why);
            }
        };
        let cut = going.hear_out(cx);
        // What is left of the group goes; its number is ours until the command is reaped, and registered no longer than that.
        kill(group, Signal::KILL);
        drop(registered);
        let status = child.wait();
        self.judge(going, cut, status, cx)
    }

    /// Tells of the command's group, and begins to hear it. If either cannot be, it must not go on.
    fn begin(&self, child: &mut Child, group: Pid, cx: &Context) -> Result<(Going, Box<dyn Any + Send>), String> {
        let registered = self.groups.register(child.id())?;
        let going = Going::new(child, group, cx, self.protocol)
            .map_err(|error| format!("the threads that hear `{}` could not be started: {error}", self.shown()))?;
        Ok((going, registered))
    }

    fn judge(&self, going: Going, cut: Option<Halted>, status: io::Result<ExitStatus>, cx: &Context) -> Called<()> {
        let is_refused = matches!(&cut, Some(Halted::Failed(error)) if error.error_type == REFUSED);
        let (stopped, ended) = (self.groups.stopped(), status.as_ref().ok().copied());
        // What a refused frame means for the call, its session knows; and it knows what is to be told, however the call ended.
        let called = going.voice.end(ended, cx, |how| going.tail.error(&format!("`{}` {how}", self.shown())));
        match (stopped, cut, status) {
            (Some(why), ..) => Called::Crashed(why),
            (None, Some(Halted::Cut(cause)), _) => Called::Cut(cause),
            (None, Some(Halted::Failed(error)), _) if !is_refused => Called::Failed(error),
            (None, None, Err(error)) => Called::Crashed(format!("nobody knows how `{}` ended: {error}", self.shown())),
            (None, ..) => called,
        }
    }
}

impl Executor for Process {
    fn load(&mut self, _: &Stop) -> Result<Hooks, LoadError> {
        Ok(Hooks::NONE)
    }

    fn prepare(&mut self, _: &Arc<Value>, _: &Arc<RunInfo>, _: &Stop) -> Called<Prepared> {
        Called::Returned(Prepared::CONTINUE)
    }

    fn call(&mut self, call: Call, cx: &Context) -> Called<()> {
        match call {
            Call::Run => self.run(cx),
            _ => Called::Returned(()),
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("command", &self.command)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// How an exit is told.
pub(super) fn how(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("ended with exit code {code}"),
        Some((None, Some(signal))) => format!("was ended by signal {signal}"),
        Some((None, None)) | None => "ended, nobody knows how".to_owned(),
    }
}

/// What comes from a command.
enum Said {
    Out(Vec<u8>),
    Err(Vec<u8>),
    OutClosed,
    ErrClosed,
}

/// Why a command was not heard to its end.
enum Halted {
    Cut(Cause),
    Failed(ScriptError),
    /// It has said its last, and does not end.
    Over,
}

/// What makes events of standard output.
pub(super) enum Voice {
    Lines(Lines),
    Frames(Box<Framed>),
}

impl Voice {
    fn hear(&mut self, bytes: &[u8], cx: &Context) -> Result<(), ScriptError> {
        match self {
            Self::Lines(lines) => lines.hear(bytes, |line| super::lines::say(line, cx)),
            Self::Frames(framed) => framed.hear(bytes, cx),
        }
    }

    /// Whether the command has to read before more of it is heard.
    fn is_full(&self) -> bool {
        match self {
            Self::Lines(_) => false,
            Self::Frames(framed) => framed.is_full(),
        }
    }

    /// Whether the command has said its last.
    const fn is_over(&self) -> bool {
        match self {
            Self::Lines(_) => false,
            Self::Frames(framed) => framed.is_over(),
        }
    }

    /// The command is gone, and reads nothing any more.
    fn give_up_answers(&self) {
        match self {
            Self::Lines(_) => {}
            Self::Frames(framed) => framed.give_up_answers(),
        }
    }

    fn close(&mut self, cx: &Context) -> Result<(), ScriptError> {
        match self {
            Self::Lines(lines) => lines.close(|line| super::lines::say(line, cx)),
            Self::Frames(_) => Ok(()),
        }
    }

    fn end(self, status: Option<ExitStatus>, cx: &Context, error: impl FnOnce(&str) -> ScriptError) -> Called<()> {
        match (self, status) {
            (Self::Lines(_), Some(status)) if status.success() => Called::Returned(()),
            (Self::Lines(_), status) => Called::Failed(error(&how(status)).of_type("exit_code")),
            (Self::Frames(framed), status) => framed.end(status, cx, error),
        }
    }
}

/// A command under way.
struct Going {
    group: Pid,
    /// Dropped, nobody reads or writes the command's pipes any more.
    _leash: Leash,
    said: Receiver<Said>,
    voice: Voice,
    errors: Lines,
    tail: Tail,
    /// How many pipes are open.
    open: u8,
    /// Whether the command has ended. It is told beside what was said, which nobody takes while the command has to read.
    exited: Arc<AtomicBool>,
}

impl Going {
    fn new(child: &mut Child, group: Pid, cx: &Context, protocol: Protocol) -> io::Result<Self> {
        let (say, said) = sync_channel(CHUNKS_MAX);
        let (leash, waker) = (Leash::new()?, cx.stop().waker());
        let input = child.stdin.take().map(|input| leash.on_input(input)).transpose()?;
        let (out, err) = (child.stdout.take().map(|out| leash.on(out)), child.stderr.take().map(|err| leash.on(err)));
        let job = format!("{}\n", cx.job());
        let voice = match protocol {
            Protocol::Lines => {
                listen("kauri-stdin", move || feed(input, &job))?;
                Voice::Lines(Lines::default())
            }
            Protocol::Frames => Voice::Frames(Box::new(Framed::new(cx.run(), answers(input, job, waker.clone())?))),
        };
        let (one, two) = ((say.clone(), waker.clone()), (say, waker.clone()));
        listen("kauri-stdout", move || read_pipe(out, &one, Said::Out, Said::OutClosed))?;
        listen("kauri-stderr", move || read_pipe(err, &two, Said::Err, Said::ErrClosed))?;
        let exited = Arc::new(AtomicBool::new(false));
        let going = StillGoing(Arc::clone(&exited), waker);
        listen("kauri-exit", move || {
            let _going = going;
            wait_for(group);
        })?;
        let (errors, tail) = (Lines::default(), Tail::default());
        Ok(Self { group, _leash: leash, said, voice, errors, tail, open: 2, exited })
    }

    /// Hears what the command says until it has ended, or has to.
    fn hear_out(&mut self, cx: &Context) -> Option<Halted> {
        let (stop, pulse) = (cx.stop(), cx.pulse());
        let mut halted = None;
        let mut told: Option<Mono> = None;
        let mut exited: Option<Mono> = None;
        let mut over: Option<Mono> = None;
        loop {
            let seen = stop.signal().count();
            // Asked first: then what it had said by then is heard below.
            let has_exited = self.exited.load(Ordering::Acquire);
            if has_exited && self.voice.is_full() {
                self.voice.give_up_answers();
            }
            if let Err(error) = self.hear_waiting(cx, halted.is_none()) {
                halted.get_or_insert(Halted::Failed(error));
            }
            let now = stop.clock().now().mono;
            if has_exited {
                let since = *exited.get_or_insert(now);
                if self.open == 0 || now.since(since) >= LINGER {
                    let halted = halted.or_else(|| self.close(cx).err().map(Halted::Failed));
                    // Asked last: what came too late was refused, and a command of which something is lost has not done its work.
                    return halted.or_else(|| stop.cause().map(Halted::Cut));
                }
            }
            if halted.is_none() {
                halted = stop.cause().map(Halted::Cut);
            }
            if halted.is_none() && self.voice.is_over() && now.since(*over.get_or_insert(now)) >= stop.grace() {
                halted = Some(Halted::Over);
            }
            if halted.is_some() {
                match told {
                    None => {
                        told = Some(now);
                        kill(self.group, Signal::TERM);
                    }
                    Some(since) if now.since(since) >= stop.grace() => kill(self.group, Signal::KILL),
                    Some(_) => {}
                }
            }
            pulse.tick();
            let until = match (exited, told) {
                (Some(since), _) => since + LINGER,
                // Killed, and not gone yet: it is told when it is, and looked at again if not.
                (None, Some(since)) if now.since(since) >= stop.grace() => now + KILL_EVERY,
                (None, Some(since)) => since + stop.grace(),
                (None, None) => over.map_or(stop.deadline(), |since| stop.deadline().min(since + stop.grace())),
            };
            let until = pulse.due().map_or(until, |due| due.min(until));
            // What has come due was looked after just now: no reason to turn round and round.
            // The command takes its own time, whatever the clock: so this waits in earnest.
            stop.signal().wait(seen, Some(until.since(now).max(Duration::from_millis(1))));
        }
    }

    /// Takes what was said so far, or much of it. What a command says after it was told to stop is not heard, but taken, so that it can end. One
    /// that has to read its answers first waits, and whoever hears it does not.
    fn hear_waiting(&mut self, cx: &Context, is_heard: bool) -> Result<(), ScriptError> {
        let mut heard = if is_heard { self.voice.hear(&[], cx) } else { Ok(()) };
        // Some commands talk faster than they are heard, for ever: whether they have to stop is asked in between. What a command that has
        // ended had said by then is less than this.
        for _ in 0..2 * CHUNKS_MAX {
            if is_heard && heard.is_ok() && self.voice.is_full() {
                return heard;
            }
            if is_heard && heard.is_ok() && cx.stop().cause().is_some() {
                break;
            }
            match self.said.try_recv() {
                Ok(Said::Out(bytes)) if is_heard && heard.is_ok() => heard = self.voice.hear(&bytes, cx),
                Ok(Said::Err(bytes)) => {
                    let tail = &mut self.tail;
                    let said = self.errors.hear(&bytes, |line| tail.take(line, cx, is_heard));
                    heard = heard.and(said);
                }
                Ok(Said::Out(_)) => {}
                Ok(Said::OutClosed | Said::ErrClosed) => self.open -= 1,
                Err(TryRecvError::Empty) => return heard,
                Err(TryRecvError::Disconnected) => {
                    // Both threads are gone: there is nothing to hear any more.
                    self.open = 0;
                    return heard;
                }
            }
        }
        // Nobody tells again of what is left: the next turn comes at once.
        cx.stop().waker().wake();
        heard
    }

    fn close(&mut self, cx: &Context) -> Result<(), ScriptError> {
        let tail = &mut self.tail;
        let errors = self.errors.close(|line| tail.take(line, cx, true));
        self.voice.close(cx).and(errors)
    }
}

/// Ends a command that is not reaped yet, and its group.
fn kill(group: Pid, signal: Signal) {
    // All of it may have ended by itself in between.
    let _gone = kill_process_group(group, signal);
    if getpgid(Some(group)) != Ok(group) {
        // The command has gone to another group. Its number is its own all the same.
        let _gone = kill_process(group, signal);
    }
}

/// That a command has not ended, as long as this is there.
struct StillGoing(Arc<AtomicBool>, Cancel);

impl Drop for StillGoing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.wake();
    }
}

/// The last lines of standard error.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    fn take(&mut self, line: &[u8], cx: &Context, is_heard: bool) -> Result<(), ScriptError> {
        let line = String::from_utf8_lossy(line);
        let kept = line[..line.floor_char_boundary(TAIL_BYTES_MAX / 2)].to_owned();
        self.bytes += kept.len();
        self.lines.push_back(kept);
        while self.lines.len() > TAIL_LINES || self.bytes > TAIL_BYTES_MAX {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
        if is_heard && !line.is_empty() { super::lines::warn(&line, cx) } else { Ok(()) }
    }

    fn error(&self, how: &str) -> ScriptError {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        match lines.iter().all(|line| line.is_empty()) {
            true => ScriptError::new(how),
            false => ScriptError::new(format!("{how}:\n{}", lines.join("\n"))),
        }
    }
}

type Teller = (SyncSender<Said>, Cancel);

/// Whoever hears may have stopped; then nobody minds.
fn tell((say, waker): &Teller, what: Said) -> bool {
    let is_heard = say.send(what).is_ok();
    waker.wake();
    is_heard
}

fn listen(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn read_pipe(pipe: Option<impl Read>, teller: &Teller, made: fn(Vec<u8>) -> Said, closed: Said) {
    let mut buffer = vec![0; CHUNK_BYTES];
    if let Some(mut pipe) = pipe {
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) if tell(teller, made(buffer[..read].to_vec())) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
    tell(teller, closed);
}

/// Waits for the command without reaping it.
fn wait_for(group: Pid) {
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
    }
}

fn feed(input: Option<impl Write>, job: &str) {
    // A command that does not want its input closes it.
    let _ = input.map(|mut input| input.write_all(job.as_bytes()));
}

/// Where answers to a command go, after its job.
fn answers(input: Option<Leashed<ChildStdin>>, job: String, waker: Cancel) -> io::Result<Answers> {
    let answers = Answers::new(waker);
    match input {
        Some(input) => listen("kauri-stdin", answers.write_to(input, job.into_bytes()))?,
        None => answers.give_up(),
    }
    Ok(answers)
}
