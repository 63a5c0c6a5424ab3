//! The process groups of an instance.

use std::any::Any;
use std::sync::{Arc, Mutex};

use kauri_ledger::KillSwitch;
use kauri_runtime::run::script::Groups;
use rustix::process::{Pid, Signal, kill_process_group};

use super::lock;

/// Process groups that are under way: the kill switch ends them, and so does an instance in a hurry.
#[derive(Debug)]
pub(super) struct Children {
    switch: KillSwitch,
    going: Arc<Mutex<Going>>,
}

#[derive(Debug, Default)]
struct Going {
    groups: Vec<u32>,
    /// Why nothing goes on any more.
    over: Option<String>,
}

/// A group in both lists.
struct Listed {
    going: Arc<Mutex<Going>>,
    group: u32,
    _registration: kauri_ledger::Registration,
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.going).groups.retain(|group| *group != self.group);
    }
}

impl Children {
    pub(super) fn new(switch: KillSwitch) -> Self {
        Self { switch, going: Arc::default() }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.going).groups.len()
    }

    pub(super) fn kill_all(&self, why: &str) {
        // The list is held meanwhile: no group leaves it, and no number is used again, before it was killed.
        let mut going = lock(&self.going);
        going.over.get_or_insert_with(|| why.to_owned());
        for group in &going.groups {
            if let Some(pid) = i32::try_from(*group).ok().and_then(Pid::from_raw) {
                // It may have ended by itself in between.
                let _gone = kill_process_group(pid, Signal::KILL);
            }
        }
    }
}

impl Groups for Children {
    fn register(&self, group: u32) -> Result<Box<dyn Any + Send>, String> {
        let registration = self.switch.register(group).map_err(|error| error.to_string())?;
        let mut going = lock(&self.going);
        if let Some(why) = &going.over {
            return Err(why.clone());
        }
        going.groups.push(group);
        Ok(Box::new(Listed { going: Arc::clone(&self.going), group, _registration: registration }))
    }

    fn stopped(&self) -> Option<String> {
        let over = lock(&self.going).over.clone();
        over.or_else(|| self.switch.check().err().map(|error| error.to_string()))
    }
}
