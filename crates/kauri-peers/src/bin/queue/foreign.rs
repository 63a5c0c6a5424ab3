//! Queues that are measured by a program of their own: one that reads what to measure, a line each, and answers with a number.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::peer::{Queue, Result, Task};

/// Such a program, until this is dropped.
pub(crate) struct Foreign {
    name: &'static str,
    works_in_batches: bool,
    talk: Mutex<Talk>,
    child: Child,
}

struct Talk {
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Foreign {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let asks = child.stdin.take().ok_or("no way to ask")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no way to hear")?);
        Ok(Self { name, works_in_batches: false, talk: Mutex::new(Talk { asks, answers }), child })
    }

    /// It claims and ends several jobs in one commit.
    pub(crate) fn in_batches(mut self) -> Self {
        self.works_in_batches = true;
        self
    }

    fn ask(&self, question: &str) -> Result<f64> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(talk.asks, "{question}")?;
        let mut answer = String::new();
        talk.answers.read_line(&mut answer)?;
        answer.trim().parse().map_err(|_| format!("{} answered {answer:?} to {question:?}", self.name).into())
    }
}

impl Queue for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, task: Task, clients: usize, jobs: usize) -> Result<f64> {
        self.ask(&format!("{} {clients} {jobs}", task.name()))
    }

    fn wait(&self, count: usize) -> Result<f64> {
        self.ask(&format!("wait {count}"))
    }

    fn works_in_batches(&self) -> bool {
        self.works_in_batches
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
