//! Durable steps of an executor in another process: what it asks for, and the answer.
//!
//! This extends the contract, and has a version of its own: [`STEPS_VERSION`]. An executor may ask only if it was told that it is
//! answered; whoever does not know these frames refuses them.

use crate::error::{self, Found, WireError};
use crate::pack::{Map, MapBuf, Value};
use crate::run::event::words;
use crate::run::fields::pick;
use crate::run::frame::{DATA_BYTES_MAX, check_data, check_texts};

/// The version of these two frames.
///
/// ```
/// use kauri_wire::run::STEPS_VERSION;
///
/// /// Whether a command may ask: by what `KAURI_STEPS` in its environment says.
/// fn may_ask(told: Option<&str>) -> bool {
///     told.and_then(|version| version.parse().ok()) == Some(STEPS_VERSION)
/// }
/// assert!(may_ask(Some("1")));
/// assert!(!may_ask(Some("2")) && !may_ask(None));
/// ```
pub const STEPS_VERSION: u32 = 1;

pub(crate) const STEP_REQUEST: &str = "step_request";
pub(crate) const STEP_ANSWER: &str = "step_answer";

words! {
    /// What an executor asks for.
    ///
    /// ```
    /// use kauri_wire::run::StepWish;
    ///
    /// assert_eq!(StepWish::SleepUntil.as_str(), "sleep_until");
    /// ```
    StepWish {
        /// What the step `name` recorded before, if it did.
        Recall = "recall",
        /// To record `data` as what the step `name` came to.
        Record = "record",
        /// To wait until `due_ms`.
        SleepUntil = "sleep_until",
        /// To wait for a signal `name`, and have what it says.
        WaitForSignal = "wait_for_signal",
        /// To wait for the end of the job `name`.
        WaitForJob = "wait_for_job",
        /// To wait for the end of the job that the run `name` belongs to.
        WaitForRun = "wait_for_run",
        /// Derived work in the step `name`: a job of the class `text` with `params`.
        Enqueue = "enqueue",
        /// To write down that the action `name`, which is `text`, is about to be done.
        BeginAction = "begin_action",
        /// To write down that it was done and came to `data`.
        ActionDone = "action_done",
        /// To write down that it was not done, because of `text`.
        ActionNotDone = "action_not_done",
        /// To write down that nobody knows whether it was done.
        ActionInDoubt = "action_in_doubt",
    }
}

words! {
    /// What a wish came to.
    ///
    /// ```
    /// use kauri_wire::run::StepStatus;
    ///
    /// assert_eq!(StepStatus::Absent.to_string(), "absent"); // the answer to a first `recall`
    /// ```
    StepStatus {
        /// It is so. `data` is a result or a signal; `text` is the run that was made, or how a job ended.
        Done = "done",
        /// Nothing is recorded: the step is to be done, and then recorded.
        Absent = "absent",
        /// The action may be done now, and `text` is its id.
        Begun = "begun",
        /// It has not come: the run waits, and begins anew when it has. The executor ends.
        Parked = "parked",
        /// It cannot be, and `text` says why.
        Failed = "failed",
        /// Another step is recorded in this place, and `text` says which.
        Diverged = "diverged",
        /// The run does not go on here, and `text` says why.
        Stopped = "stopped",
    }
}

/// What an executor asks for, one wish after the other: the next when this one was answered.
///
/// ```
/// use kauri_wire::run::{Frames, RunFrame, StepRequest, StepWish};
///
/// let request = StepRequest { data: Some(b"12 apples"), ..StepRequest::new(2, StepWish::Record, "count") };
/// let mut pipe = Vec::new();
/// RunFrame::StepRequest(request).append_to(&mut pipe)?;
/// assert_eq!(Frames::new(&pipe).next(), Some(Ok(RunFrame::StepRequest(request))));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepRequest<'a> {
    /// What the answer refers to: 1 or more, and greater than that of the wish before.
    pub request_id: u64,
    /// What it asks for.
    pub wish: StepWish,
    /// The name of a step, a signal or an action, or the id of a job or a run.
    pub name: &'a str,
    /// A result.
    pub data: Option<&'a [u8]>,
    /// A moment, in milliseconds since the Unix epoch.
    pub due_ms: Option<u64>,
    /// A class, what an action is, or why it was not done.
    pub text: Option<&'a str>,
    /// What derived work is given.
    pub params: Option<Map<'a>>,
}

impl<'a> StepRequest<'a> {
    /// A wish with a name alone.
    ///
    /// ```
    /// use kauri_wire::run::{RunFrame, StepRequest, StepWish};
    ///
    /// let encode = |wish| RunFrame::StepRequest(StepRequest::new(1, wish, "count")).append_to(&mut Vec::new());
    /// assert!(encode(StepWish::Recall).is_ok()); // a name is all it needs
    /// assert!(encode(StepWish::Record).is_err()); // of what?
    /// ```
    #[must_use]
    pub const fn new(request_id: u64, wish: StepWish, name: &'a str) -> Self {
        Self { request_id, wish, name, data: None, due_ms: None, text: None, params: None }
    }

    pub(crate) fn to_map(self) -> Result<MapBuf, WireError> {
        check_data(self.data.unwrap_or_default())?;
        check_texts(&[Some(self.name), self.text])?;
        if self.request_id == 0 || self.name.is_empty() {
            return Err(error::invalid("a request_id of 1 or more and a name", Found::Type("none")));
        }
        if self.params.is_some_and(|params| Value::Map(params).depth() >= crate::pack::DEPTH_MAX) {
            return Err(error::invalid("params of 63 levels at most", Found::Type("a deeper one")));
        }
        let [data, due_ms, text, params] = self.needs();
        let has = [self.data.is_some(), self.due_ms.is_some(), self.text.is_some(), self.params.is_some()];
        if [data, due_ms, text, params] != has {
            return Err(error::invalid("what the wish needs, and nothing else", Found::Type("something else")));
        }
        let mut map = MapBuf::new();
        map.put("type", STEP_REQUEST)
            .put("request_id", self.request_id)
            .put("wish", self.wish.as_str())
            .put("name", self.name)
            .put_some("data", self.data)
            .put_some("due_ms", self.due_ms)
            .put_some("text", self.text)
            .put_some("params", self.params);
        Ok(map)
    }

    /// Whether the wish needs data, a moment, a text and params.
    const fn needs(&self) -> [bool; 4] {
        match self.wish {
            StepWish::Recall
            | StepWish::WaitForSignal
            | StepWish::WaitForJob
            | StepWish::WaitForRun
            | StepWish::ActionInDoubt => [false, false, false, false],
            StepWish::Record | StepWish::ActionDone => [true, false, false, false],
            StepWish::SleepUntil => [false, true, false, false],
            StepWish::BeginAction | StepWish::ActionNotDone => [false, false, true, false],
            StepWish::Enqueue => [false, false, true, true],
        }
    }

    pub(crate) fn decode(map: Map<'a>) -> Result<Self, WireError> {
        let [request_id, wish, name, data, due_ms, text, params] = pick(
            map,
            [
                ("request_id", "request_id: an integer of 1 or more"),
                ("wish", "wish: what a step can ask for"),
                ("name", "name: a non-empty string"),
                ("data", "data: 8388608 bytes at most"),
                ("due_ms", "due_ms: an integer of 0 or more"),
                ("text", "text: a non-empty string"),
                ("params", "params: a map"),
            ],
        )?;
        let wish = wish.word(StepWish::from_word)?;
        let mut request = Self::new(request_id.at_least(1)?, wish, name.name()?);
        let [needs_data, needs_due, needs_text, needs_params] = request.needs();
        // What a wish does not need is not looked at.
        request.data = needs_data.then(|| data.bytes(DATA_BYTES_MAX)).transpose()?;
        request.due_ms = needs_due.then(|| due_ms.at_least(0)).transpose()?;
        request.text = needs_text.then(|| text.name()).transpose()?;
        request.params = needs_params.then(|| params.map()).transpose()?;
        Ok(request)
    }
}

/// The answer to a wish.
///
/// ```
/// use kauri_wire::run::{Frames, RunFrame, StepAnswer, StepStatus};
///
/// let answer = StepAnswer { request_id: 2, status: StepStatus::Done, data: Some(b"12 apples"), text: None };
/// let mut pipe = Vec::new();
/// RunFrame::StepAnswer(answer).append_to(&mut pipe)?;
/// let Some(Ok(RunFrame::StepAnswer(read))) = Frames::new(&pipe).next() else { panic!("an answer was written") };
/// assert_eq!((read.request_id, read.data), (2, Some(&b"12 apples"[..])));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepAnswer<'a> {
    /// Which wish.
    pub request_id: u64,
    /// What it came to.
    pub status: StepStatus,
    /// A result, or what a signal says.
    pub data: Option<&'a [u8]>,
    /// An id, how a job ended, or why not.
    pub text: Option<&'a str>,
}

impl<'a> StepAnswer<'a> {
    pub(crate) fn to_map(self) -> Result<MapBuf, WireError> {
        check_data(self.data.unwrap_or_default())?;
        check_texts(&[self.text])?;
        if self.request_id == 0 {
            return Err(error::invalid("a request_id of 1 or more", error::number(0)));
        }
        let mut map = MapBuf::new();
        map.put("type", STEP_ANSWER)
            .put("request_id", self.request_id)
            .put("status", self.status.as_str())
            .put_some("data", self.data)
            .put_some("text", self.text);
        Ok(map)
    }

    pub(crate) fn decode(map: Map<'a>) -> Result<Self, WireError> {
        let [request_id, status, data, text] = pick(
            map,
            [
                ("request_id", "request_id: an integer of 1 or more"),
                ("status", "status: what a wish came to"),
                ("data", "data: 8388608 bytes at most, or nil"),
                ("text", "text: a string or nil"),
            ],
        )?;
        Ok(Self {
            request_id: request_id.at_least(1)?,
            status: status.word(StepStatus::from_word)?,
            data: data.optional_bytes(DATA_BYTES_MAX)?,
            text: text.optional_text()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::run::{Frames, RunFrame};

    /// A whole wish of each kind.
    fn wishes(params: Map<'_>) -> Vec<StepRequest<'_>> {
        let of = |(at, wish): (usize, &StepWish)| {
            let mut request = StepRequest::new(at as u64 + 1, *wish, "charge");
            let [data, due_ms, text, with_params] = request.needs();
            request.data = data.then_some(&b"\0\xff"[..]);
            request.due_ms = due_ms.then_some(0);
            request.text = text.then_some("a card");
            request.params = with_params.then_some(params);
            request
        };
        StepWish::ALL.iter().enumerate().map(of).collect()
    }

    fn encode(frame: RunFrame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.append_to(&mut out).unwrap();
        out
    }

    #[test]
    fn wishes_and_answers_survive_the_trip() {
        for wish in wishes(Map::EMPTY) {
            let bytes = encode(RunFrame::StepRequest(wish));
            assert_eq!(Frames::new(&bytes).next(), Some(Ok(RunFrame::StepRequest(wish))));
        }
        for status in StepStatus::ALL {
            for (data, text) in [(None, None), (Some(&b"x"[..]), Some(""))] {
                let answer = RunFrame::StepAnswer(StepAnswer { request_id: 7, status: *status, data, text });
                assert_eq!(Frames::new(&encode(answer)).next(), Some(Ok(answer)));
            }
        }
    }

    #[test]
    fn wishes_without_what_they_need_are_refused_by_who_writes_and_who_reads() {
        for wish in wishes(Map::EMPTY) {
            let bare = StepRequest::new(wish.request_id, wish.wish, wish.name);
            let needs_nothing = bare == wish;
            assert_eq!(bare.to_map().is_ok(), needs_nothing, "{:?}", wish.wish);
            let mut map = MapBuf::new();
            map.put("type", STEP_REQUEST).put("request_id", 1_u64).put("wish", wish.wish.as_str()).put("name", "n");
            assert_eq!(RunFrame::decode(&map.view().encode()).is_ok(), needs_nothing, "{:?}", wish.wish);
        }
        for (request_id, name) in [(0, "charge"), (1, "")] {
            assert!(StepRequest::new(request_id, StepWish::Recall, name).to_map().is_err());
        }
        let mut unknown = MapBuf::new();
        unknown.put("type", STEP_REQUEST).put("request_id", 1_u64).put("wish", "fly").put("name", "n");
        assert!(RunFrame::decode(&unknown.view().encode()).is_err());
    }
}
