//! What is kept beside the store for nobody: files of runs that are gone, bytes that nothing names.
//!
//! The directory is listed once. Then names are looked at in small steps, between which whoever collects may do something else: first the
//! files, so that all bytes are known that one of them names; then the bytes. What is written from before the list on is guarded, and not
//! touched.

use std::collections::BTreeSet;
use std::io;

use kauri_wire::RunId;

use super::artifact::{Collection, Digest, KeepError};
use super::files::{self, Files};
use super::index;
use super::keep::Removal;
use super::make;
use super::runs::Runs;
use super::share;
use crate::error::{Error, Result};
use crate::metrics::Counter;
use crate::read::View;

/// What was removed beside the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Files beside runs that are gone, or whose artifacts are.
    pub files: u64,
    /// Artifacts that nothing names.
    pub artifacts: u64,
}

/// A collection that is under way: see [`Runs::collector`].
#[derive(Debug)]
#[must_use = "nothing is collected before a step is done"]
pub struct Collector {
    runs: Runs,
    files: Files,
    collection: Collection,
    /// Files and bytes that are left to be looked at, the first of them last.
    lines: Vec<String>,
    bytes: Vec<Digest>,
    /// Bytes that files name which stay.
    named: BTreeSet<Digest>,
    /// The run whose files were looked at last, and whether these go: they stand side by side.
    last: Option<(RunId, bool)>,
}

type Kept<T> = std::result::Result<T, KeepError>;
type Tell<'a> = dyn FnMut(&Removal<'_>) -> Result<()> + 'a;

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn words(error: Error) -> KeepError {
    io::Error::other(error.to_string()).into()
}

impl Runs {
    /// Removes files beside runs that are gone, and artifacts that no event and no file names, all in one go. Runs may go on meanwhile.
    ///
    /// # Errors
    /// If the disk or the substrate fails.
    pub fn collect(&self, files: &Files) -> Kept<Collected> {
        self.collector(files)?.step(usize::MAX, |_| Ok(()))
    }

    /// Begins a collection that is done in steps. Only one can be under way.
    ///
    /// # Errors
    /// If the disk fails, or if another collection is going on.
    pub fn collector(&self, files: &Files) -> Kept<Collector> {
        let collection = Collection::begin(files.artifacts())?;
        // From here on what is written is guarded: so it may be in the list or not.
        let (mut lines, mut bytes) = (Vec::new(), Vec::new());
        for name in files.artifacts().disk().names()?.into_iter().rev() {
            if files::parts_of(&name).is_some() {
                lines.push(name);
            } else if let Ok(digest) = name.parse() {
                bytes.push(digest);
            }
        }
        let (runs, files) = (self.clone(), files.clone());
        Ok(Collector { runs, files, collection, lines, bytes, named: BTreeSet::new(), last: None })
    }
}

impl Collector {
    /// Looks at up to so many names, and tells of each thing before it is removed. If that fails, or the disk does, the collection is over; what it
    /// has not removed is found by the next.
    ///
    /// # Errors
    /// What the disk, the substrate or `tell` says.
    pub fn step(&mut self, names_max: usize, mut tell: impl FnMut(&Removal<'_>) -> Result<()>) -> Kept<Collected> {
        let (runs, mut collected) = (self.runs.clone(), Collected::default());
        let done = runs.read(|view| Ok(self.look(view, names_max, &mut tell, &mut collected)));
        let done = done.map_err(words).flatten();
        if done.is_err() {
            // A file that was not read may name any bytes.
            (self.lines, self.bytes) = (Vec::new(), Vec::new());
        }
        let metrics = &runs.shared().metrics;
        metrics.add(Counter::FilesCollected, collected.files);
        metrics.add(Counter::ArtifactsCollected, collected.artifacts);
        if collected != Collected::default() {
            self.files.artifacts().disk().sync_dir()?;
        }
        done.map(|()| collected)
    }

    /// Whether everything was looked at.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.lines.is_empty() && self.bytes.is_empty()
    }

    fn look(&mut self, view: &View<'_>, names_max: usize, tell: &mut Tell<'_>, done: &mut Collected) -> Kept<()> {
        for _ in 0..names_max {
            if let Some(name) = self.lines.pop() {
                done.files += u64::from(self.file(view, &name, tell)?);
            } else if let Some(digest) = self.bytes.pop() {
                done.artifacts += u64::from(self.artifact(view, digest, tell)?);
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes a file if it is not kept; else notes which bytes it names.
    fn file(&mut self, view: &View<'_>, name: &str, tell: &mut Tell<'_>) -> Kept<bool> {
        let Some((run, _)) = files::parts_of(name) else { return Ok(false) };
        if !self.is_gone(view, run).map_err(words)? {
            self.named.extend(self.files.digest_in(name)?);
            return Ok(false);
        }
        let file = match self.files.read(name) {
            Ok(Some(file)) => Some(file),
            Ok(None) => return Ok(false),
            // It goes, and names nothing that stays.
            Err(KeepError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(error),
        };
        tell(&Removal::File { run, name, file: file.as_ref() }).map_err(words)?;
        self.files.remove(name)?;
        Ok(true)
    }

    /// Whether the files of a run are kept no longer.
    fn is_gone(&mut self, view: &View<'_>, run: RunId) -> Result<bool> {
        match self.last {
            Some((last, is_gone)) if last == run => Ok(is_gone),
            _ => {
                let is_gone = make::find_run(view, run)?.is_none() || share::removed(view, run)?.artifacts;
                self.last = Some((run, is_gone));
                Ok(is_gone)
            }
        }
    }

    /// Removes bytes if nothing names or guards them.
    fn artifact(&self, view: &View<'_>, digest: Digest, tell: &mut Tell<'_>) -> Kept<bool> {
        let is_named = |view| Ok(!make::marked(view, &index::artifacts(&digest), 1)?.is_empty());
        if self.collection.keeps(digest) || self.named.contains(&digest) || is_named(view).map_err(words)? {
            return Ok(false);
        }
        let Some(size_bytes) = self.files.artifacts().size(digest)? else { return Ok(false) };
        tell(&Removal::Artifact { digest, size_bytes }).map_err(words)?;
        Ok(self.collection.remove(digest)?)
    }
}
