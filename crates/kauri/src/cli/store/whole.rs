//! A store as a whole: described, examined, copied, made shorter.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use kauri::tree::{Checkpoint, Error, Options, Report, Store};
use serde_json::json;

use super::{AsOf, Manner, counted, missing, open_to_read, open_to_write, pins, split, wrong};
use crate::cli::Trouble;
use crate::cli::progress::Progress;

pub(super) fn stat(path: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let (stat, snapshot) = (store.stat(), store.snapshot());
    let length = std::fs::metadata(path).map_err(|error| wrong(path, &error.into()))?.len();
    let rows: u64 = snapshot.tables().filter_map(|name| snapshot.raw(name)).map(|table| table.len()).sum();
    let tables = snapshot.tables().count();
    let lines = [
        ("bytes", length),
        ("page_bytes", stat.page_bytes as u64),
        ("pages", stat.pages as u64),
        ("free_pages", stat.free_pages as u64),
        ("log_bytes", stat.log_bytes),
        ("log_used_bytes", stat.log_used_bytes),
        ("tables", tables as u64),
        ("rows", rows),
        ("pins", store.pins().len() as u64),
    ];
    if manner.json {
        let object: serde_json::Map<_, _> =
            lines.iter().map(|(name, number)| ((*name).into(), json!(number))).collect();
        writeln!(out, "{}", json!(object))?;
    } else {
        for (name, number) in lines {
            writeln!(out, "{name:<15}{number:>12}")?;
        }
    }
    Ok(())
}

pub(super) fn tables(path: &Path, as_of: &AsOf, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = as_of.of(&store, path)?;
    for name in snapshot.tables() {
        let Some(table) = snapshot.raw(name) else { continue };
        match manner.json {
            true => writeln!(out, "{}", json!({ "table": name, "types": table.types(), "rows": table.len() }))?,
            false => writeln!(out, "{name}\t{}\t{}", table.len(), table.types())?,
        }
    }
    Ok(())
}

pub(super) fn verify(path: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    if !path.exists() {
        return Err(missing(path, ""));
    }
    let (disk, name) = split(path)?;
    let progress = Progress::of("looking at every page", manner.shows_progress());
    let report = Options::new().read_only(true).open(&disk, name).and_then(|store| store.verify());
    drop(progress);
    match report {
        Ok(report) => {
            let Report { tables, rows, pages, pins, kept_pages, .. } = report;
            let kept = match pins {
                0 => String::new(),
                1 => format!("; 1 pin keeps {kept_pages} more"),
                _ => format!("; {pins} pins keep {kept_pages} more"),
            };
            match manner.json {
                true => writeln!(
                    out,
                    "{}",
                    json!({ "sound": true, "tables": tables, "rows": rows, "pages": pages, "pins": pins, "kept_pages": kept_pages })
                )?,
                false => {
                    let (tables, rows) = (counted(tables as u64, "table"), counted(rows, "row"));
                    writeln!(out, "sound: {tables}, {rows} in {}{kept}", counted(pages as u64, "page"))?;
                }
            }
            Ok(())
        }
        Err(error) if error.is_corruption() => {
            match manner.json {
                true => writeln!(out, "{}", json!({ "sound": false, "fault": error.to_string() }))?,
                false => writeln!(out, "damaged: {error}")?,
            }
            Err(Trouble::No)
        }
        Err(error) => Err(wrong(path, &error)),
    }
}

pub(super) fn fork(
    path: &Path,
    as_of: &AsOf,
    new: &Path,
    page_bytes: Option<usize>,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    // Only who holds the file knows that nobody writes it; if somebody does, one version is read and copied.
    let store = open_to_write(path).or_else(|_| open_to_read(path))?;
    let (disk, name) = split(new)?;
    let options = Options::new().page_bytes(page_bytes.unwrap_or(store.stat().page_bytes)).keeper(false);
    let progress = Progress::of("copying", manner.shows_progress());
    let copy = match &as_of.as_of {
        None => store.fork(&options, &disk, name),
        Some(_) => as_of.of(&store, path)?.fork(&options, &disk, name),
    };
    let copy = copy.map_err(|error| wrong(new, &error))?;
    let content = copy.snapshot().content_hash().map_err(|error| wrong(new, &error))?.to_string();
    drop(progress);
    match manner.json {
        true => writeln!(out, "{}", json!({ "content": content }))?,
        false => writeln!(out, "content {content}")?,
    }
    Ok(())
}

/// What of a store is written out.
pub(super) enum Which {
    Version(AsOf),
    Since(String),
}

impl Which {
    fn write(&self, store: &Store, path: &Path, out: &mut impl Write) -> Result<Result<Checkpoint, Error>, Trouble> {
        match self {
            Self::Version(as_of) => Ok(as_of.of(store, path)?.checkpoint_to(out)),
            Self::Since(pin) => match store.checkpoint_since(pin, out).transpose() {
                Some(written) => Ok(written),
                None => Err(pins::missing(store, path, pin)),
            },
        }
    }
}

pub(super) fn checkpoint(
    path: &Path,
    which: &Which,
    stream: &Path,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let progress = Progress::of_bytes("writing", manner.shows_progress(), None);
    if stream == Path::new("-") {
        if std::io::stdout().is_terminal() {
            return Err(Trouble::Wrong("expected a file or a pipe for the stream, found a terminal".to_owned()));
        }
        return which.write(&store, path, &mut progress.write(out))?.map(drop).map_err(|error| match error {
            Error::Io(error) => Trouble::Output(error),
            error => wrong(path, &error),
        });
    }
    // As much of a secret as the store itself.
    let made = File::options().write(true).create_new(true).mode(0o600).open(stream);
    let file = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Trouble::Wrong(format!("{}: expected no file there yet", stream.display()))
        }
        _ => wrong(stream, &error.into()),
    })?;
    let mut buffer = BufWriter::new(progress.write(&file));
    let written = which.write(&store, path, &mut buffer).and_then(|written| {
        let synced = written.and_then(|checkpoint| {
            buffer.flush()?;
            file.sync_all()?;
            Ok(checkpoint)
        });
        synced.map_err(|error| wrong(path, &error))
    });
    drop(progress);
    match written {
        Ok(checkpoint) => tell(&checkpoint, manner, out),
        Err(trouble) => {
            // A stream without an end is of no use to anybody.
            let _ = std::fs::remove_file(stream);
            Err(trouble)
        }
    }
}

fn tell(checkpoint: &Checkpoint, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let Checkpoint { tables, rows, removed, bytes, content, .. } = checkpoint;
    let content = content.to_string();
    match manner.json {
        true => {
            let object =
                json!({ "tables": tables, "rows": rows, "removed": removed, "bytes": bytes, "content": content });
            writeln!(out, "{object}")?;
        }
        false => {
            let (tables, rows) = (counted(*tables, "table"), counted(*rows, "row"));
            let gone = if *removed > 0 { format!(", {removed} removed") } else { String::new() };
            writeln!(out, "{tables}, {rows}{gone}, {bytes} bytes, content {content}")?;
        }
    }
    Ok(())
}

/// The stream, and how long it is if that is known.
fn open_stream(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), Trouble> {
    if path == Path::new("-") {
        return Ok((Box::new(std::io::stdin().lock()), None));
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing(path, "")),
        opened => opened.map_err(|error| wrong(path, &error.into()))?,
    };
    let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok((Box::new(file), bytes))
}

/// Brings a store up to date with what changed elsewhere.
pub(super) fn update(path: &Path, stream: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let (read, bytes) = open_stream(stream)?;
    let progress = Progress::of_bytes("restoring", manner.shows_progress(), bytes);
    let store = open_to_write(path)?;
    let done = store.restore_from(&mut BufReader::new(progress.read(read)));
    drop(progress);
    tell(&done.map_err(|error| wrong(path, &error))?, manner, out)
}

pub(super) fn restore(
    path: &Path,
    stream: &Path,
    page_bytes: usize,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (read, bytes) = open_stream(stream)?;
    let progress = Progress::of_bytes("restoring", manner.shows_progress(), bytes);
    let mut read = BufReader::new(progress.read(read));
    let (disk, name) = split(path)?;
    let options = Options::new().page_bytes(page_bytes).keeper(false);
    let restored = options.restore(&disk, name, &mut read);
    drop(progress);
    let store = restored.map_err(|error| wrong(path, &error))?;
    let snapshot = store.snapshot();
    let rows: u64 = snapshot.tables().filter_map(|name| snapshot.raw(name)).map(|table| table.len()).sum();
    let tables = snapshot.tables().count();
    match manner.json {
        true => writeln!(out, "{}", json!({ "tables": tables, "rows": rows }))?,
        false => writeln!(out, "{}, {}", counted(tables as u64, "table"), counted(rows, "row"))?,
    }
    Ok(())
}

pub(super) fn compact(path: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    let progress = Progress::of("compacting", manner.shows_progress());
    let done = store.compact();
    drop(progress);
    let done = done.map_err(|error| wrong(path, &error))?;
    let (before, after) = (done.bytes_before, done.bytes_after);
    match manner.json {
        true => writeln!(out, "{}", json!({ "bytes_before": before, "bytes_after": after }))?,
        false => writeln!(out, "{before} bytes before, {after} after")?,
    }
    Ok(())
}
