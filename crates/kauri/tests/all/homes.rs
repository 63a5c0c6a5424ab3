//! Homes with known content, made by library calls.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kauri::ledger::{Artifact, AuditNote, Home, Ledger};
use kauri::runtime::run::{Class, Ending, Halt, LiveRun, Submission};
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Atomic, Failure, Policy, Runtime};
use kauri::tree::Options;
use kauri::tree::disk::OsDisk;
use kauri::wire::pack::Map;
use kauri::wire::{Message, MessageId, MessageRef, RunId, Timestamp, WorkerId};
use kauri::{Layout, SystemClock};

/// A home that is gone when the test is.
pub(crate) struct Scratch {
    pub(crate) layout: Layout,
}

impl Scratch {
    /// An empty one, for its owner alone.
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("home-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).expect("a folder");
        Self { layout: Layout::of(path) }
    }

    /// One in which an action was completed and a runtime has worked; everything is closed.
    pub(crate) fn filled(name: &str) -> Self {
        let scratch = Self::new(name);
        let ledger = scratch.ledger();
        let mut action = ledger.begin("mail-1", "order-1", "send the confirmation").expect("begun");
        action.record_started().expect("recorded");
        action.complete_with(Artifact::bytes(b"250 accepted")).expect("completed");
        ledger.audit().append(&AuditNote::new("SHOP_OPENED").with("by", "Ann")).expect("noted");
        ledger.audit().anchor().expect("anchored");
        drop((action, ledger));
        drop(scratch.runtime());
        scratch
    }

    pub(crate) fn path(&self) -> &str {
        self.layout.home().to_str().expect("text")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.layout.home().join(name)
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::open(Home::lock(self.layout.home()).expect("free")).expect("whole").0
    }

    /// An action that was begun and has no end.
    pub(crate) fn leave_orphan(&self, id: &str) {
        drop(self.ledger().begin(id, "order-2", "pay the bill").expect("begun"));
    }

    pub(crate) fn runtime(&self) -> Runtime {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.layout.runtime());
        made.expect("a folder");
        let disk = OsDisk::new(self.layout.runtime()).expect("a disk");
        let store = Options::new().keeper(false).open(&disk, "store.kauri").expect("a store");
        Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new())).start().expect("a runtime")
    }

    /// A copy of its files as they are now: what a crash of the whole machine could leave, if all writes had reached the disk.
    pub(crate) fn crashed(&self, name: &str) -> Self {
        let copy = Self::new(name);
        for (path, (mode, bytes, _)) in self.image() {
            let to = copy.layout.home().join(path.strip_prefix(self.layout.home()).expect("inside"));
            match path.is_dir() {
                true => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&to).expect("a folder"),
                false => std::fs::write(&to, bytes).expect("written"),
            }
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(mode)).expect("ours");
        }
        copy
    }

    /// Every path of the home with its mode, its bytes and when it was changed.
    pub(crate) fn image(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>, std::time::SystemTime)> {
        let mut image = BTreeMap::new();
        add(self.layout.home(), &mut image);
        image
    }
}

fn add(path: &Path, image: &mut BTreeMap<PathBuf, (u32, Vec<u8>, std::time::SystemTime)>) {
    let metadata = std::fs::metadata(path).expect("there");
    let bytes = if metadata.is_file() { std::fs::read(path).expect("readable") } else { Vec::new() };
    let changed = metadata.modified().expect("a time");
    image.insert(path.to_owned(), (metadata.permissions().mode(), bytes, changed));
    if metadata.is_dir() {
        std::fs::read_dir(path).expect("readable").flatten().for_each(|entry| add(&entry.path(), image));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.layout.home());
    }
}

pub(crate) const SALES: WorkerId = WorkerId(7);
pub(crate) const CRAWLER: WorkerId = WorkerId(8);

pub(crate) fn order(id: &str) -> Message {
    Message::command(SALES, MessageId::new(id).expect("an id"), "12 apples")
}

/// Two messages that wait, one dead letter, and a timer that was due long ago.
pub(crate) fn fill_messages(runtime: &Runtime) {
    runtime.send(&order("poison")).expect("sent");
    let refuse = |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::fatal("no such account"));
    runtime.worker(SALES, refuse).drain().expect("handled");
    for id in ["order-1", "order-2"] {
        runtime.send(&order(id)).expect("sent");
    }
    runtime.arm(Timestamp(1_000), &order("reminder")).expect("armed");
}

fn greet(run: &mut LiveRun) -> Result<Ending, Halt> {
    run.step("name", |_| Ok(b"Ann".to_vec()))?;
    Ok(Ending::success(run.now().wall, Map::EMPTY))
}

/// One run that has ended well and one that nobody has begun.
pub(crate) fn fill_runs(runtime: &Runtime) -> [RunId; 2] {
    let runs = runtime.runs();
    runs.define("greeting", &Class::new(CRAWLER)).expect("defined");
    let first = runs.submit(&Submission::new("greeting", "hello")).expect("submitted").run;
    runtime.run_worker(CRAWLER, Policy::default(), greet).drain().expect("driven");
    let second = runs.submit(&Submission::new("greeting", "again")).expect("submitted").run;
    [first, second]
}
