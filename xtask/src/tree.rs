//! The repository's files in memory: what [`crate::tidy`] judges, and what the steps ask about.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};

/// Path from the root, with `/`, to text. A binary file is there with no text: links may point to it.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

/// Folders that are not ours, for a checkout without git.
const NOT_OURS: &[&str] = &[".git", ".jj", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

/// The repository's root: the folder above this crate, as Cargo says it now. Where it was when this was built may be another
/// checkout, if both share a folder for builds.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().expect("xtask is a folder in the repository's root").to_path_buf()
}

impl Tree {
    /// Reads what git tracks or would track; without git, what lies there.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut files = BTreeMap::new();
        // A path that is listed but gone was deleted and not yet committed.
        for path in paths.into_iter().filter(|path| root.join(path).is_file()) {
            let bytes = fs::read(root.join(&path)).map_err(Failure::io(format!("read {path}")))?;
            files.insert(path, String::from_utf8(bytes).unwrap_or_default());
        }
        Ok(Tree { files })
    }

    /// Every path with its text, in path order.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether the path is a file, or a folder with files.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.holds_folder(path)
    }

    fn holds_folder(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty() || self.files.range(inside.clone()..).next().is_some_and(|(file, _)| file.starts_with(&inside))
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| listing.split_terminator('\0').map(String::from).collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for found in fs::read_dir(root.join(&folder)).map_err(Failure::io(format!("list {folder}")))? {
            let found = found.map_err(Failure::io(format!("list {folder}")))?;
            let name = found.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match found.file_type().map_err(Failure::io(format!("look at {path}")))? {
                kind if kind.is_dir() && !NOT_OURS.contains(&path.as_str()) => folders.push(path),
                kind if kind.is_file() => paths.push(path),
                _ => {}
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
impl Tree {
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_held_by_the_files_inside() {
        let tree = Tree::of(&[("docs/format.md", ""), ("docs.md", "")]);
        assert!(tree.holds("docs") && tree.holds("docs/format.md") && tree.holds(""));
        assert!(!tree.holds("doc") && !tree.holds("docs/format"));
    }

    #[test]
    fn walking_finds_what_git_lists_of_this_crate() {
        let ours = |paths: Vec<String>| paths.into_iter().filter(|path| path.starts_with("xtask/src/")).count();
        let walked = ours(walk(&root()).unwrap());
        assert!(walked > 0);
        assert!(listed_by_git(&root()).is_none_or(|listed| ours(listed) == walked));
    }
}
