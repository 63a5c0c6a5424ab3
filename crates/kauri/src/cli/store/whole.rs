//! A store as a whole: described, examined, copied, made shorter.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use kauri::tree::{Checkpoint, Options};
use serde_json::json;

use super::{Manner, missing, open_to_read, open_to_write, split, wrong};
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

pub(super) fn tables(path: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = store.snapshot();
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
            let (tables, rows, pages) = (report.tables, report.rows, report.pages);
            match manner.json {
                true => writeln!(out, "{}", json!({ "sound": true, "tables": tables, "rows": rows, "pages": pages }))?,
                false => writeln!(out, "sound: {tables} tables, {rows} rows in {pages} pages")?,
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
    new: &Path,
    page_bytes: usize,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let (disk, name) = split(new)?;
    let options = Options::new().page_bytes(page_bytes).keeper(false);
    let progress = Progress::of("copying", manner.shows_progress());
    let copy = store.snapshot().fork(&options, &disk, name).map_err(|error| wrong(new, &error))?;
    let content = copy.snapshot().content_hash().map_err(|error| wrong(new, &error))?.to_string();
    drop(progress);
    match manner.json {
        true => writeln!(out, "{}", json!({ "content": content }))?,
        false => writeln!(out, "content {content}")?,
    }
    Ok(())
}

pub(super) fn checkpoint(path: &Path, stream: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = store.snapshot();
    let progress = Progress::of_bytes("writing", manner.shows_progress(), None);
    if stream == Path::new("-") {
        if std::io::stdout().is_terminal() {
            return Err(Trouble::Wrong("expected a file or a pipe for the stream, found a terminal".to_owned()));
        }
        return snapshot.checkpoint_to(&mut progress.write(out)).map(drop).map_err(|error| match error {
            kauri::tree::Error::Io(error) => Trouble::Output(error),
            error => wrong(path, &error),
        });
    }
    let file = File::create_new(stream).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Trouble::Wrong(format!("{}: expected no file there yet", stream.display()))
        }
        _ => wrong(stream, &error.into()),
    })?;
    let mut buffer = BufWriter::new(progress.write(&file));
    let written = snapshot.checkpoint_to(&mut buffer).and_then(|checkpoint| {
        buffer.flush()?;
        file.sync_all()?;
        Ok(checkpoint)
    });
    drop(progress);
    match written {
        Ok(checkpoint) => tell(&checkpoint, manner, out),
        Err(error) => {
            // A stream without an end is of no use to anybody.
            let _ = std::fs::remove_file(stream);
            Err(wrong(path, &error))
        }
    }
}

fn tell(checkpoint: &Checkpoint, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let Checkpoint { tables, rows, bytes, content, .. } = checkpoint;
    let content = content.to_string();
    match manner.json {
        true => {
            writeln!(out, "{}", json!({ "tables": tables, "rows": rows, "bytes": bytes, "content": content }))?;
        }
        false => writeln!(out, "{tables} tables, {rows} rows, {bytes} bytes, content {content}")?,
    }
    Ok(())
}

fn open_stream(path: &Path) -> Result<File, Trouble> {
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(path, "")),
        opened => opened.map_err(|error| wrong(path, &error.into())),
    }
}

pub(super) fn restore(
    path: &Path,
    stream: &Path,
    page_bytes: usize,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (read, bytes): (Box<dyn Read>, _) = if stream == Path::new("-") {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = open_stream(stream)?;
        let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
        (Box::new(file), bytes)
    };
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
        false => writeln!(out, "{tables} tables, {rows} rows")?,
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
