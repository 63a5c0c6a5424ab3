//! A store as a whole: described, examined, copied, made shorter.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use kauri::tree::{Checkpoint, Options};
use serde_json::json;

use super::{Manner, open_to_read, open_to_write, split, wrong};
use crate::cli::Trouble;

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
    let (disk, name) = split(path)?;
    let report = Options::new().read_only(true).open(&disk, name).and_then(|store| store.verify());
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
    let copy = store.snapshot().fork(&options, &disk, name).map_err(|error| wrong(new, &error))?;
    let content = copy.snapshot().content_hash().map_err(|error| wrong(new, &error))?.to_string();
    match manner.json {
        true => writeln!(out, "{}", json!({ "content": content }))?,
        false => writeln!(out, "content {content}")?,
    }
    Ok(())
}

pub(super) fn checkpoint(path: &Path, stream: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = store.snapshot();
    if stream == Path::new("-") {
        return snapshot.checkpoint_to(out).map(drop).map_err(|error| match error {
            kauri::tree::Error::Io(error) => Trouble::Output(error),
            error => wrong(path, &error),
        });
    }
    let file = File::create_new(stream).map_err(|error| wrong(stream, &error.into()))?;
    let mut file = BufWriter::new(file);
    let written = snapshot.checkpoint_to(&mut file).and_then(|checkpoint| {
        file.get_ref().sync_all()?;
        Ok(checkpoint)
    });
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

pub(super) fn restore(
    path: &Path,
    stream: &Path,
    page_bytes: usize,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let mut read: Box<dyn Read> = if stream == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(stream).map_err(|error| wrong(stream, &error.into()))?))
    };
    let (disk, name) = split(path)?;
    let options = Options::new().page_bytes(page_bytes).keeper(false);
    let store = options.restore(&disk, name, &mut read).map_err(|error| wrong(path, &error))?;
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
    let store = open_to_write(path, false)?;
    let done = store.compact().map_err(|error| wrong(path, &error))?;
    let (before, after) = (done.bytes_before, done.bytes_after);
    match manner.json {
        true => writeln!(out, "{}", json!({ "bytes_before": before, "bytes_after": after }))?,
        false => writeln!(out, "{before} bytes before, {after} after")?,
    }
    Ok(())
}
