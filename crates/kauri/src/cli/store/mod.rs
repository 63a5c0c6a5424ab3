//! `kauri store`: a store's file for people and scripts.

mod compare;
mod form;
mod pins;
mod rows;
mod whole;

use std::io::Write;
use std::path::{Path, PathBuf};

use kauri::tree::disk::OsDisk;
use kauri::tree::{Error, Options, Snapshot, Store};

use super::Trouble;
use super::table::Zone;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri store load --create stock.kauri fruit < rows.tsv    a line for each row: key, tab, value
  kauri store scan stock.kauri fruit --prefix ap --limit 10
  kauri store pin stock.kauri monday                        a name for what is there now
  kauri store diff stock.kauri --as-of monday               what changed since
  kauri store fork stock.kauri copy.kauri
  kauri store checkpoint stock.kauri - | ssh elsewhere kauri store restore stock.kauri -

Reading takes no lock: somebody else may be writing. Exit codes: 0; 1 where the answer is no (no such row or pin, stores that differ, a damaged
store); 2 where the question was wrong.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON: one object, or one a line
    #[arg(long, global = true)]
    json: bool,
    /// Read and print keys and values in hexadecimal, whatever their types
    #[arg(long, global = true)]
    hex: bool,
}

/// Which rows of a table.
#[derive(clap::Args)]
struct Range {
    /// Only keys not less than this
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Only keys less than this
    #[arg(long, value_name = "KEY")]
    until: Option<String>,
    /// Only keys that begin with this (text, or hexadecimal with --hex)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "until"])]
    prefix: Option<String>,
}

/// Which version.
#[derive(clap::Args)]
struct AsOf {
    /// Look at the store as it was when this pin was made
    #[arg(long, value_name = "PIN")]
    as_of: Option<String>,
}

impl AsOf {
    /// The version of the pin, or the newest.
    fn of<'s>(&self, store: &'s Store, path: &Path) -> Result<Snapshot<'s>, Trouble> {
        match &self.as_of {
            None => Ok(store.snapshot()),
            Some(pin) => pins::version(store, path, pin),
        }
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say how long the file is, what is free in it, and what it holds
    Stat {
        /// The store's file
        file: PathBuf,
    },
    /// List the tables with their types and how many rows they have
    Tables {
        /// The store's file
        file: PathBuf,
        #[command(flatten)]
        as_of: AsOf,
    },
    /// Print the value of a key; exit code 1, and why on standard error, if there is no such row
    ///
    /// Numbers are written as numbers, text and bytes as text in which \xNN is a byte and \\ a backslash.
    Get {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        /// The key
        key: String,
        #[command(flatten)]
        as_of: AsOf,
    },
    /// Print rows in order, a line for each: key, tab, value
    Scan {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        as_of: AsOf,
        /// At most so many
        #[arg(long, value_name = "ROWS")]
        limit: Option<u64>,
        /// From the last row to the first
        #[arg(long)]
        reverse: bool,
        /// Without values
        #[arg(long)]
        keys: bool,
    },
    /// Count rows; a range costs no more than a row
    Count {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        as_of: AsOf,
    },
    /// Write a row; a table that is missing is made, of bytes
    Put {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        /// The key
        key: String,
        /// The value
        value: String,
        /// Make the store if there is none
        #[arg(long)]
        create: bool,
    },
    /// Remove a row; exit code 1, and why on standard error, if there was none
    Del {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        /// The key
        key: String,
    },
    /// Write rows from standard input, all or none, in the form that `scan` prints
    Load {
        /// The store's file
        file: PathBuf,
        /// The table
        table: String,
        /// Make the store if there is none
        #[arg(long)]
        create: bool,
    },
    /// Look at every page; exit code 1 if one is damaged
    Verify {
        /// The store's file
        file: PathBuf,
    },
    /// Print which rows of two stores differ: `+` only in the second, `-` only in the first; exit code 1 if any
    ///
    /// With a pin and one store, print what changed in it since: that costs what changed, however much there is.
    Diff {
        /// The first store's file
        file: PathBuf,
        /// The second store's file
        #[arg(required_unless_present = "as_of")]
        other: Option<PathBuf>,
        #[command(flatten)]
        as_of: AsOf,
    },
    /// Copy a store with its pins, as it is at one moment, into a new file
    ///
    /// Where the file system lets files share their bytes, nothing is copied. As of a pin, only that version is copied, and no pins.
    Fork {
        /// The store's file
        file: PathBuf,
        /// The new store's file
        new: PathBuf,
        #[command(flatten)]
        as_of: AsOf,
        /// The size of its pages; that of the store, if nothing is said
        #[arg(long, value_name = "BYTES")]
        page_bytes: Option<usize>,
    },
    /// Write a store out as a stream that can be restored anywhere
    Checkpoint {
        /// The store's file
        file: PathBuf,
        /// Where the stream goes; `-` is standard output
        #[arg(value_name = "STREAM|-")]
        stream: PathBuf,
        #[command(flatten)]
        as_of: AsOf,
        /// Only what changed since this pin was made, to be restored with --update
        #[arg(long, value_name = "PIN", conflicts_with = "as_of")]
        since: Option<String>,
    },
    /// Make a store from a stream
    Restore {
        /// The new store's file
        file: PathBuf,
        /// Where the stream comes from; `-` is standard input
        #[arg(value_name = "STREAM|-")]
        stream: PathBuf,
        /// The size of its pages
        #[arg(long, value_name = "BYTES", default_value_t = 4096)]
        page_bytes: usize,
        /// Bring a store that is there up to date, with a stream of what changed since it was as it is
        #[arg(long, conflicts_with = "page_bytes")]
        update: bool,
    },
    /// List the pins with when they were made and how much there was
    Pins {
        /// The store's file
        file: PathBuf,
        #[command(flatten)]
        zone: Zone,
    },
    /// Give the store as it is now a name, under which it can be looked at until `unpin`
    Pin {
        /// The store's file
        file: PathBuf,
        /// The name
        name: String,
        /// When it was made, in milliseconds since 1970 (UTC); now, if nothing is said
        #[arg(long, value_name = "MS")]
        when: Option<u64>,
        #[command(flatten)]
        zone: Zone,
    },
    /// Take a pin away, and free what only it saw; exit code 1, and why on standard error, if there was none
    Unpin {
        /// The store's file
        file: PathBuf,
        /// The pin
        name: String,
    },
    /// Make a store's file as short as it can be
    Compact {
        /// The store's file
        file: PathBuf,
    },
}

/// How things are printed.
#[derive(Clone, Copy)]
struct Manner {
    json: bool,
    hex: bool,
}

impl Manner {
    /// Whether people are told how far long work is.
    const fn shows_progress(self) -> bool {
        !self.json
    }
}

pub(crate) fn run(args: Args, out: &mut impl Write) -> Result<(), Trouble> {
    let manner = Manner { json: args.json, hex: args.hex };
    match args.command {
        Command::Stat { file } => whole::stat(&file, manner, out),
        Command::Tables { file, as_of } => whole::tables(&file, &as_of, manner, out),
        Command::Verify { file } => whole::verify(&file, manner, out),
        Command::Fork { file, new, as_of, page_bytes } => whole::fork(&file, &as_of, &new, page_bytes, manner, out),
        Command::Checkpoint { file, stream, as_of, since } => {
            let which = since.map_or(whole::Which::Version(as_of), whole::Which::Since);
            whole::checkpoint(&file, &which, &stream, manner, out)
        }
        Command::Restore { file, stream, update: true, .. } => whole::update(&file, &stream, manner, out),
        Command::Restore { file, stream, page_bytes, .. } => whole::restore(&file, &stream, page_bytes, manner, out),
        Command::Compact { file } => whole::compact(&file, manner, out),
        Command::Pins { file, zone } => pins::list(&file, zone, manner, out),
        Command::Pin { file, name, when, zone } => pins::pin(&file, &name, when, zone, manner, out),
        Command::Unpin { file, name } => pins::unpin(&file, &name),
        Command::Get { file, table, key, as_of } => rows::get(&file, &as_of, &table, &key, manner, out),
        Command::Scan { file, table, range, as_of, limit, reverse, keys } => {
            rows::scan(&file, &as_of, &table, &range, rows::Shown { limit, reverse, keys }, manner, out)
        }
        Command::Count { file, table, range, as_of } => rows::count(&file, &as_of, &table, &range, manner, out),
        Command::Put { file, table, key, value, create } => rows::put(&file, create, &table, &key, &value, manner),
        Command::Del { file, table, key } => rows::del(&file, &table, &key, manner),
        Command::Load { file, table, create } => rows::load(&file, create, &table, manner, out),
        Command::Diff { file, other: Some(other), as_of } => compare::diff(&file, &as_of, &other, manner, out),
        Command::Diff { file, other: None, as_of } => compare::changes(&file, &as_of, manner, out),
    }
}

/// The folder and the name of a file.
fn split(path: &Path) -> Result<(OsDisk, &str), Trouble> {
    let wrong = |what: &dyn std::fmt::Display| Trouble::Wrong(format!("{}: {what}", path.display()));
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| wrong(&"expected the path of a file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(wrong(&format!("there is no folder `{}`", folder.display())));
    }
    if path.is_dir() {
        return Err(wrong(&"expected a file, found a folder"));
    }
    Ok((OsDisk::new(folder).map_err(|error| wrong(&error))?, name))
}

/// So many of something.
fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// What there is instead of what was asked for.
fn there_are<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const NAMES_MAX: usize = 8;
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => "there are none".to_owned(),
        count if count > NAMES_MAX => {
            format!("there are: {} and {} more", names[..NAMES_MAX].join(", "), count - NAMES_MAX)
        }
        _ => format!("there are: {}", names.join(", ")),
    }
}

/// What went wrong with a store.
fn wrong(path: &Path, error: &Error) -> Trouble {
    Trouble::Wrong(format!("{}: {error}", path.display()))
}

/// Says that there is no file where one was expected, and what can be done about it.
fn missing(path: &Path, hint: &str) -> Trouble {
    Trouble::Wrong(format!("{}: there is no such file{hint}", path.display()))
}

/// Opens a store to read it. Somebody else may be writing it.
fn open_to_read(path: &Path) -> Result<Store, Trouble> {
    if !path.exists() {
        return Err(missing(path, ""));
    }
    let (disk, name) = split(path)?;
    Options::new().read_only(true).open(&disk, name).map_err(|error| wrong(path, &error))
}

/// Opens a store to write it, which is there.
fn open_to_write(path: &Path) -> Result<Store, Trouble> {
    if !path.exists() {
        return Err(missing(path, ""));
    }
    open_or_make(path, true)
}

/// Opens a store to write it; one that is missing is made only if that was asked for.
fn open_or_make(path: &Path, create: bool) -> Result<Store, Trouble> {
    if !create && !path.exists() {
        return Err(missing(path, "; with --create it is made"));
    }
    let (disk, name) = split(path)?;
    Options::new().keeper(false).open(&disk, name).map_err(|error| wrong(path, &error))
}
