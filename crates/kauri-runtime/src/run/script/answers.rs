//! Answers on their way to a command that speaks run frames: all of them, in order, and in bounded memory.
//!
//! A command may write much before it reads anything. If whoever reads what it writes waited until it has read its answers, both would wait for
//! ever: so answers wait here. That files are kept, which is nearly every answer, is told by their numbers alone until it is written, and
//! numbers that follow each other take no room. What takes room is bounded: when there is too much of it, nothing more is read from the command until
//! it has read some. One that never does has its deadline, which nothing here keeps anybody from seeing.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kauri_wire::run::{FileWriteAck, RunFrame};

use super::stop::Cancel;

/// What may wait; one answer more can be there.
const BYTES_MAX: usize = 4 << 20;
/// What an answer takes beside its bytes.
const ANSWER_BYTES: usize = size_of::<Answer>();
/// How much is written at once.
const WRITE_BYTES: usize = 16 << 10;

/// Where answers wait. They are written by whoever [writes](Answers::write_to) them, on another thread.
pub(super) struct Answers(Arc<Desk>);

struct Desk {
    state: Mutex<State>,
    more: Condvar,
    /// Whoever stopped reading because there was too much is told when there is not.
    waker: Cancel,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Answer>,
    bytes: usize,
    /// Nobody reads them, or nobody answers any more.
    is_over: bool,
}

enum Answer {
    /// The files of these numbers are kept.
    Kept { first: u64, last: u64 },
    /// Anything else: a frame.
    Frame(Vec<u8>),
}

impl Answers {
    pub(super) fn new(waker: Cancel) -> Self {
        Self(Arc::new(Desk { state: Mutex::default(), more: Condvar::new(), waker }))
    }

    /// Tells that a file is kept.
    pub(super) fn push_kept(&self, write_id: u64) {
        let mut state = self.0.lock();
        match state.waiting.back_mut() {
            Some(Answer::Kept { last, .. }) if last.checked_add(1) == Some(write_id) => *last = write_id,
            _ => state.push(Answer::Kept { first: write_id, last: write_id }),
        }
        drop(state);
        self.0.more.notify_one();
    }

    /// Tells something else. Answers whether somebody reads it, as far as is known.
    pub(super) fn push(&self, frame: Vec<u8>) -> bool {
        let mut state = self.0.lock();
        state.push(Answer::Frame(frame));
        let is_read = !state.is_over;
        drop(state);
        self.0.more.notify_one();
        is_read
    }

    /// Whether so much waits that nothing more should be asked.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().is_full()
    }

    /// Nobody reads any more: whatever waits is dropped, and whatever comes.
    pub(super) fn give_up(&self) {
        self.0.end();
    }

    /// What writes the answers as they come, after these bytes, until nobody reads them or nobody answers any more. Dropped, nobody reads.
    pub(super) fn write_to<W: Write>(&self, mut input: W, first: Vec<u8>) -> impl FnOnce() + use<W> {
        let reading = Reading(Arc::clone(&self.0));
        move || {
            let mut next = Some(first);
            while let Some(bytes) = next
                && input.write_all(&bytes).and_then(|()| input.flush()).is_ok()
            {
                next = reading.0.next();
            }
        }
    }
}

/// That somebody reads the answers, as long as it is there.
struct Reading(Arc<Desk>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that are written next, once there are some; nothing if there will be none.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.is_over {
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let was_full = state.is_full();
        let bytes = state.take();
        let has_room = was_full && !state.is_full();
        drop(state);
        if has_room {
            self.waker.wake();
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    fn end(&self) {
        let mut state = self.lock();
        *state = State { is_over: true, ..State::default() };
        drop(state);
        self.more.notify_one();
        self.waker.wake();
    }
}

impl State {
    const fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    fn push(&mut self, answer: Answer) {
        if !self.is_over {
            self.bytes += answer.bytes();
            self.waiting.push_back(answer);
        }
    }

    /// Takes answers from the front, about as many as are written at once.
    fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < WRITE_BYTES
            && let Some(answer) = self.waiting.pop_front()
        {
            self.bytes -= answer.bytes();
            match answer {
                Answer::Frame(frame) => bytes.extend_from_slice(&frame),
                Answer::Kept { first, last } => {
                    append_kept(first, &mut bytes);
                    if first < last {
                        let rest = Answer::Kept { first: first + 1, last };
                        self.bytes += rest.bytes();
                        self.waiting.push_front(rest);
                    }
                }
            }
        }
        bytes
    }
}

impl Answer {
    const fn bytes(&self) -> usize {
        match self {
            Self::Kept { .. } => ANSWER_BYTES,
            Self::Frame(frame) => ANSWER_BYTES + frame.len(),
        }
    }
}

fn append_kept(write_id: u64, bytes: &mut Vec<u8>) {
    let ack = RunFrame::FileWriteAck(FileWriteAck { write_id, ok: true, error: None });
    ack.append_to(bytes).expect("a frame of a few numbers fits");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(answers: &Answers) -> Vec<u8> {
        std::iter::from_fn(|| {
            let bytes = answers.0.lock().take();
            (!bytes.is_empty()).then_some(bytes)
        })
        .flatten()
        .collect()
    }

    #[test]
    fn answers_come_out_whole_and_in_order_and_numbers_that_follow_each_other_take_no_room() {
        let answers = Answers::new(Cancel::default());
        let mut expected = Vec::new();
        for write_id in 1..=100_000 {
            answers.push_kept(write_id);
            append_kept(write_id, &mut expected);
        }
        assert!(answers.push(b"a frame".to_vec()));
        expected.extend(b"a frame");
        for write_id in [100_001, 100_003, u64::MAX] {
            answers.push_kept(write_id);
            append_kept(write_id, &mut expected);
        }
        assert_eq!(answers.0.lock().waiting.len(), 5);
        assert!(!answers.is_full());
        assert!(written(&answers) == expected, "all of it, in order");
        assert_eq!(answers.0.lock().bytes, 0);
    }

    #[test]
    fn too_much_is_told_until_some_was_taken_or_nobody_reads() {
        let answers = Answers::new(Cancel::default());
        while !answers.is_full() {
            answers.push(vec![7; 1 << 10]);
        }
        assert!(answers.0.lock().waiting.len() <= BYTES_MAX >> 10);
        assert_eq!(answers.0.next().map(|bytes| bytes.len()), Some(WRITE_BYTES));
        assert!(!answers.is_full());
        answers.give_up();
        assert!(!answers.push(vec![7; 2 * BYTES_MAX]) && !answers.is_full());
        assert_eq!(answers.0.next(), None);
    }
}
