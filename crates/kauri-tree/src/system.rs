//! A store by the path of its file in the operating system.

use std::io;
use std::path::Path;

use crate::disk::OsDisk;
use crate::error::{Error, Result};
use crate::store::{Options, Store};

impl Store {
    /// Opens the store in this file; makes it, with the default [`Options`], if there is none.
    ///
    /// # Errors
    /// If the disk fails, the store is open already, damaged, or of a newer format.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STARTS: Table<str, u64> = Table::new("starts");
    /// let folder = std::env::temp_dir().join(format!("kauri-example-{}", std::process::id()));
    /// std::fs::create_dir_all(&folder)?;
    /// for start in 1..=3 {
    ///     let store = Store::open(folder.join("shop.kauri"))?;
    ///     let mut txn = store.begin();
    ///     let before = txn.get(&STARTS, "all")?.unwrap_or(0);
    ///     txn.put(&STARTS, "all", before + 1)?;
    ///     txn.commit()?;
    ///     assert_eq!(before + 1, start);
    /// }
    /// std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let wrong = || Error::Io(io::Error::new(io::ErrorKind::InvalidInput, "expected the path of a file"));
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Options::new().open(&OsDisk::new(folder)?, name)
    }
}
