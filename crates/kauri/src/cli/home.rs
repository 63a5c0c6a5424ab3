//! Which home is meant, and its store.

use std::ffi::OsString;
use std::path::PathBuf;

use kauri::Layout;
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{self, Look};
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
    /// The argument that names the same home again, with a space before it; nothing if it need not be named.
    pub(super) fn shown(&self) -> String {
        self.home.as_ref().map_or_else(String::new, |home| format!(" --home {}", home.display()))
    }

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
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Trouble::Wrong(format!(
            "{shown}: there is no such home; `kauri up` makes one, and --home or $KAURI_HOME names another"
        ))),
        Err(error) => Err(Trouble::Wrong(format!("{shown}: {error}"))),
    }
}

/// How often a store is opened again that somebody writes: its pages may be used for a newer version while they are read.
const TRIES_MAX: u32 = 3;

/// What `read` finds in the store of a home; nothing if there is no store yet. Takes no lock, starts nothing.
pub(super) fn look<T>(home: &HomeArgs, read: impl Fn(&Look<'_>) -> runtime::Result<T>) -> Result<Option<T>, Trouble> {
    let layout = there(home)?;
    let mut tries = 1;
    loop {
        let found = open_store(&layout).map_err(runtime::Error::from).and_then(|substrate| {
            substrate.map(|substrate| Look::at(&substrate).and_then(|look| read(&look))).transpose()
        });
        match found {
            Err(error) if error.is_corruption() && tries < TRIES_MAX => tries += 1,
            found => return found.map_err(|error| wrong(&layout, &error)),
        }
    }
}

fn wrong(layout: &Layout, error: &runtime::Error) -> Trouble {
    Trouble::Wrong(format!("{}: {error}", layout.store().display()))
}

/// A span of time as people write it: `90s`, `15m`, `2h`, `7d`. In milliseconds.
pub(super) fn span(text: &str) -> Result<i64, String> {
    let expected = || format!("expected a span of time such as 90s, 15m, 2h or 7d, found {text:?}");
    let unit = text.chars().last().ok_or_else(expected)?;
    let millis = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return Err(expected()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    i64::from(number).checked_mul(millis).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_are_read_as_people_write_them() {
        assert_eq!(["90s", "15m", "2h", "7d"].map(span), [90_000, 900_000, 7_200_000, 604_800_000].map(Ok));
        for bad in ["", "h", "2", "-2h", "2w", "2.5h", "9999999999d", "2ü"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
