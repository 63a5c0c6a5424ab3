//! Writing a stream.

use std::hash::Hasher;
use std::io;

use twox_hash::XxHash3_64;

use super::{
    CHANGED, CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, DROP, END_BYTES, FORMAT, HEADER_BYTES, Kind, MAGIC, PUT, REMOVE,
    TABLE, Totals,
};
use crate::btree::Root;
use crate::content::{self, ContentHash, Summing};
use crate::diff::{Difference, TableChange, TableDiff};
use crate::error::Result;
use crate::read::Source;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table;

/// The bodies of our chunks: long enough for any disk, short enough to keep in memory.
const BODY_BYTES: usize = 256 << 10;
const _: () = assert!(BODY_BYTES <= CHUNK_BYTES_MAX);

/// What a checkpoint stream holds.
///
/// ```
/// use kauri_tree::{Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.load_sorted(&STOCK, [("apples", 12), ("pears", 5)])?;
/// txn.commit()?;
/// store.pin("sent", 0)?;
/// let mut txn = store.begin();
/// txn.remove(&STOCK, "pears")?;
/// txn.commit()?;
///
/// let mut stream = Vec::new();
/// let checkpoint = store.checkpoint_since("sent", &mut stream)?.expect("it was pinned");
/// assert_eq!((checkpoint.tables, checkpoint.rows, checkpoint.removed), (1, 0, 1));
/// assert_eq!(checkpoint.bytes, stream.len() as u64);
/// assert_eq!(checkpoint.content, store.snapshot().content_hash()?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// How many tables it names.
    pub tables: u64,
    /// How many rows it has.
    pub rows: u64,
    /// How many rows it says are gone, each by its key.
    pub removed: u64,
    /// How long it is.
    pub bytes: u64,
    /// The content of the version that it was made of.
    pub content: ContentHash,
}

impl Store {
    /// Writes out what changed since a pin, as [`Snapshot::checkpoint_since`] does. The first time after opening the store, all of the
    /// pin is read, to say what the stream is to be restored on; who has kept the [content](Checkpoint::content) of the pin's own
    /// stream calls that one instead. `None` if there is no such pin.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let (store, copy) = (Store::in_memory()?, Store::in_memory()?);
    /// store.pin("sent", 0)?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let mut stream = Vec::new();
    /// store.checkpoint_since("sent", &mut stream)?.expect("it was pinned");
    /// copy.restore_from(&mut &stream[..])?;
    /// assert_eq!(copy.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Snapshot::checkpoint_since`].
    pub fn checkpoint_since(&self, pin: &str, write: &mut impl io::Write) -> Result<Option<Checkpoint>> {
        let Some(since) = self.as_of(pin)? else { return Ok(None) };
        let content = since.pinned_content()?;
        self.snapshot().checkpoint_since(&since, content, write).map(Some)
    }
}

impl Snapshot<'_> {
    /// The content of a pin's version: known since it was asked for last, or read.
    fn pinned_content(&self) -> Result<ContentHash> {
        let pinned = self.pinned().expect("only pins are asked");
        if let Some(content) = pinned.content.get() {
            return Ok(*content);
        }
        let content = self.content_hash()?;
        Ok(*pinned.content.get_or_init(|| content))
    }
}

impl Snapshot<'_> {
    /// Writes this version out as a stream, from which a store with any size of pages can be
    /// [made](crate::Options::restore), on any machine. Others read and write the store meanwhile.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let mut stream = Vec::new();
    /// let checkpoint = store.snapshot().checkpoint_to(&mut stream)?;
    /// assert_eq!((checkpoint.tables, checkpoint.rows), (1, 1));
    ///
    /// let copy = Options::new().page_bytes(8192).restore(&MemoryDisk::new(), "copy", &mut &stream[..])?;
    /// assert_eq!(copy.snapshot().get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(copy.snapshot().content_hash()?, checkpoint.content);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or the stream cannot be written: then it has no end, and is refused.
    pub fn checkpoint_to(&self, write: &mut impl io::Write) -> Result<Checkpoint> {
        let mut stream = Output::begin(write, Kind::Whole, Summing::default())?;
        for (name, types, root) in self.catalog().iter() {
            stream.whole_table(self, name, types, root)?;
        }
        stream.end()
    }

    /// Writes out what changed since another version, of which a stream exists already: as short as the changes are, and as
    /// fast. It can be [restored](crate::Store::restore_from) where the other version was. Tables in an order of their own are
    /// in it whole, if anything in them changed.
    ///
    /// `content` is the other version's [`Checkpoint::content`]. It is not looked at here: where the stream is restored it is compared.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let (store, copy) = (Store::in_memory()?, Store::in_memory()?);
    /// let before = store.snapshot();
    /// let mut first = Vec::new();
    /// let base = before.checkpoint_to(&mut first)?;
    /// copy.restore_from(&mut &first[..])?;
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// let mut second = Vec::new();
    /// store.snapshot().checkpoint_since(&before, base.content, &mut second)?;
    /// copy.restore_from(&mut &second[..])?;
    /// assert_eq!(copy.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherStore`](crate::Error::OtherStore) if the other is no version of this store; else as for
    /// [`checkpoint_to`](Self::checkpoint_to).
    pub fn checkpoint_since(
        &self,
        since: &Snapshot<'_>,
        content: ContentHash,
        write: &mut impl io::Write,
    ) -> Result<Checkpoint> {
        let tables = self.diff_tables(since)?;
        let mut stream = Output::begin(write, Kind::Since(content), Summing::from(content))?;
        for diff in &tables {
            stream.changed_table(since, self, diff)?;
        }
        stream.end()
    }
}

/// A stream that is being written.
struct Output<'w, W> {
    write: &'w mut W,
    body: Vec<u8>,
    chunks: u64,
    bytes: u64,
    /// Of all bytes so far.
    whole: XxHash3_64,
    summing: Summing,
    totals: Totals,
}

impl<'w, W: io::Write> Output<'w, W> {
    fn begin(write: &'w mut W, kind: Kind, summing: Summing) -> Result<Self> {
        let (number, base) = match kind {
            Kind::Whole => (0_u32, ContentHash::default()),
            Kind::Since(base) => (1, base),
        };
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT.to_le_bytes());
        header.extend_from_slice(&number.to_le_bytes());
        header.extend_from_slice(&base.to_bytes());
        header.extend_from_slice(&XxHash3_64::oneshot(&header).to_le_bytes());
        assert_eq!(header.len(), HEADER_BYTES);
        let (body, whole) = (Vec::with_capacity(BODY_BYTES), XxHash3_64::new());
        let mut stream = Self { write, body, chunks: 0, bytes: 0, whole, summing, totals: Totals::default() };
        stream.emit(&header)?;
        Ok(stream)
    }

    fn emit(&mut self, bytes: &[u8]) -> Result<()> {
        self.write.write_all(bytes)?;
        self.whole.write(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Adds a part of a record.
    #[inline]
    fn add(&mut self, mut bytes: &[u8]) -> Result<()> {
        while self.body.len() + bytes.len() > BODY_BYTES {
            let (now, later) = bytes.split_at(BODY_BYTES - self.body.len());
            self.body.extend_from_slice(now);
            self.end_chunk()?;
            bytes = later;
        }
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<()> {
        if self.body.is_empty() {
            return Ok(());
        }
        let mut body = std::mem::take(&mut self.body);
        let sum = XxHash3_64::oneshot_with_seed(self.chunks, &body);
        self.emit(&chunk_header(body.len(), sum))?;
        self.emit(&body)?;
        self.chunks += 1;
        body.clear();
        self.body = body;
        Ok(())
    }

    /// A table with all its rows.
    fn whole_table(&mut self, of: &Snapshot<'_>, name: &str, types: &str, root: Root) -> Result<()> {
        self.summing.table(name, types);
        self.name(TABLE, name, types)?;
        content::for_each(of.access(), root, |key, value| {
            self.summing.row(key, value);
            self.put(key, value)
        })
    }

    /// There is no such table any more, nor its rows.
    fn forget_table(&mut self, of: &Snapshot<'_>, name: &str, types: &str, root: Root) -> Result<()> {
        self.summing.no_table(name, types);
        content::for_each(of.access(), root, |key, value| {
            self.summing.no_row(key, value);
            Ok(())
        })
    }

    fn changed_table(&mut self, old: &Snapshot<'_>, new: &Snapshot<'_>, diff: &TableDiff<'_>) -> Result<()> {
        let (name, types, (old_root, new_root)) = (diff.name(), diff.types(), diff.roots());
        match diff.change() {
            TableChange::Created => self.whole_table(new, name, types, new_root),
            TableChange::Dropped => {
                self.forget_table(old, name, types, old_root)?;
                self.add(&[DROP])?;
                self.add(&short(name))?;
                self.add(name.as_bytes())
            }
            TableChange::Written if table::is_bytewise(types) => self.changed_rows(diff),
            TableChange::Written => {
                self.forget_table(old, name, types, old_root)?;
                self.whole_table(new, name, types, new_root)
            }
        }
    }

    fn changed_rows(&mut self, diff: &TableDiff<'_>) -> Result<()> {
        self.summing.same_table(diff.name(), diff.types());
        self.name(CHANGED, diff.name(), diff.types())?;
        let mut rows = diff.rows();
        while let Some(difference) = rows.next()? {
            match difference {
                Difference::Inserted { key, value } => {
                    self.summing.row(key, &value);
                    self.put(key, &value)?;
                }
                Difference::Changed { key, old, new } => {
                    self.summing.no_row(key, &old);
                    self.summing.row(key, &new);
                    self.put(key, &new)?;
                }
                Difference::Removed { key, value } => {
                    self.summing.no_row(key, &value);
                    if !planted!(StreamNoRemovals) {
                        self.remove(key)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn name(&mut self, record: u8, name: &str, types: &str) -> Result<()> {
        self.totals.tables += 1;
        self.add(&[record])?;
        self.add(&short(types))?;
        self.add(&short(name))?;
        self.add(types.as_bytes())?;
        self.add(name.as_bytes())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.totals.rows += 1;
        let mut lengths = [PUT; 9];
        lengths[1..5].copy_from_slice(&long(key));
        lengths[5..].copy_from_slice(&long(value));
        self.add(&lengths)?;
        self.add(key)?;
        self.add(value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.totals.removed += 1;
        self.add(&[REMOVE])?;
        self.add(&long(key))?;
        self.add(key)
    }

    fn end(mut self) -> Result<Checkpoint> {
        self.end_chunk()?;
        let (Totals { tables, rows, removed }, content) = (self.totals, self.summing.hash());
        let mut end = Vec::with_capacity(END_BYTES);
        for number in [tables, rows, removed, self.bytes] {
            end.extend_from_slice(&number.to_le_bytes());
        }
        end.extend_from_slice(&content.to_bytes());
        end.extend_from_slice(&self.whole.finish().to_le_bytes());
        assert_eq!(end.len(), END_BYTES);
        let sum = XxHash3_64::oneshot_with_seed(self.chunks, &end);
        self.emit(&chunk_header(0, sum))?;
        self.emit(&end)?;
        self.write.flush()?;
        Ok(Checkpoint { tables, rows, removed, bytes: self.bytes, content })
    }
}

fn chunk_header(length: usize, sum: u64) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[..4].copy_from_slice(&u32::try_from(length).expect("a chunk is short").to_le_bytes());
    header[8..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn short(name: &str) -> [u8; 2] {
    u16::try_from(name.len()).expect("names are shorter than 64 KiB").to_le_bytes()
}

fn long(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("keys and values are shorter than 4 GiB").to_le_bytes()
}

/// A stream with these records and totals, whatever they are, and no content.
#[cfg(test)]
pub(super) fn seal(kind: Kind, body: &[u8], totals: Totals) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = Output::begin(&mut bytes, kind, Summing::default()).expect("memory");
    stream.add(body).expect("memory");
    stream.totals = totals;
    stream.end().expect("memory");
    bytes
}
