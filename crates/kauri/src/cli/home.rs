//! Which home is meant, and its store.

use std::ffi::OsString;
use std::path::PathBuf;

use kauri::Layout;
use kauri::runtime::substrate::TreeSubstrate;
use kauri::tree::disk::OsDisk;
use kauri::tree::{Error, Options};

use super::Trouble;

/// How much of a store is kept in memory while it is looked at.
const CACHE_BYTES: usize = 64 << 20;

/// Which home.
#[derive(clap::Args)]
pub(super) struct HomeArgs {
    /// The home directory; otherwise `$KAURI_HOME`, otherwise `.kauri`
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
}

impl HomeArgs {
    pub(super) fn layout(&self) -> Layout {
        let named = |name: OsString| Some(name).filter(|name| !name.is_empty()).map(PathBuf::from);
        let meant = self.home.clone().or_else(|| std::env::var_os("KAURI_HOME").and_then(named));
        Layout::of(meant.unwrap_or_else(|| ".kauri".into()))
    }
}

/// The store of a home to be read, if there is one. Somebody else may be writing it.
pub(super) fn open_store(layout: &Layout) -> Result<Option<TreeSubstrate>, Error> {
    let path = layout.store();
    if !path.try_exists()? {
        return Ok(None);
    }
    if path.is_dir() {
        return Err(std::io::Error::other("expected a file, found a folder").into());
    }
    let disk = OsDisk::new(layout.runtime())?;
    let store = Options::new().read_only(true).cache_bytes(CACHE_BYTES).open(&disk, "store.kauri")?;
    Ok(Some(TreeSubstrate::new(store)))
}

/// The home that is meant, which must be there.
pub(super) fn there(home: &HomeArgs) -> Result<Layout, Trouble> {
    let layout = home.layout();
    let shown = layout.home().display();
    match std::fs::metadata(layout.home()) {
        Ok(found) if found.is_dir() => Ok(layout),
        Ok(_) => Err(Trouble::Wrong(format!("{shown}: expected a directory, found a file"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Trouble::Wrong(format!("{shown}: there is no such home; name it with --home or $KAURI_HOME")))
        }
        Err(error) => Err(Trouble::Wrong(format!("{shown}: {error}"))),
    }
}
