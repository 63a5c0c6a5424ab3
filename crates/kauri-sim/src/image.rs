//! What is on stable storage at one moment: names, and the files they lead to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::content::Content;

/// The state of a disk after a crash, or before a life. Clones share their bytes.
#[derive(Clone, Default, PartialEq)]
pub struct Image {
    pub(crate) names: BTreeMap<Arc<str>, FileId>,
    pub(crate) files: Vec<Content>,
}

/// A file, whatever its name: its place in the list of all files that one life knew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileId(pub(crate) usize);

impl Image {
    /// An image with no files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same image and a file of these bytes under this name.
    #[must_use]
    pub fn with_file(mut self, name: &str, bytes: &[u8]) -> Self {
        let mut content = Content::default();
        content.write(0, bytes);
        self.names.insert(name.into(), FileId(self.files.len()));
        self.files.push(content);
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(AsRef::as_ref)
    }

    /// The bytes of the file with this name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.names.get(name).map(|file| self.file(*file).to_vec())
    }

    /// The length of the file with this name.
    #[must_use]
    pub fn len_of(&self, name: &str) -> Option<u64> {
        self.names.get(name).map(|file| self.file(*file).len())
    }

    pub(crate) fn file(&self, file: FileId) -> &Content {
        &self.files[file.0]
    }

    pub(crate) fn file_mut(&mut self, file: FileId) -> &mut Content {
        // A file that was created but never synced is known by its number before it has bytes.
        if self.files.len() <= file.0 {
            self.files.resize(file.0 + 1, Content::default());
        }
        &mut self.files[file.0]
    }

    /// Forgets files without a name, and numbers the others anew: what a reader of the disk can see.
    pub(crate) fn visible(mut self) -> Self {
        let mut files = Vec::with_capacity(self.names.len());
        for file in self.names.values_mut() {
            let content = self.files.get(file.0).cloned().unwrap_or_default();
            *file = FileId(files.len());
            files.push(content);
        }
        Self { names: self.names, files }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |(name, file): (&Arc<str>, &FileId)| (name.clone(), self.files.get(file.0).map(Content::len));
        f.debug_map().entries(self.names.iter().map(file)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_name_are_not_visible() {
        let mut image = Image::new().with_file("a", b"1").with_file("b", b"22").with_file("c", b"333");
        image.names.remove("a");
        let image = image.visible();
        assert_eq!(image.names().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!((image.files.len(), image.bytes("c"), image.len_of("b")), (2, Some(b"333".to_vec()), Some(2)));
        assert_eq!(format!("{image:?}"), r#"{"b": Some(2), "c": Some(3)}"#);
    }
}
