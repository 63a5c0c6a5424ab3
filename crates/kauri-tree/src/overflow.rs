//! Values too long for a leaf, in runs of pages of their own.
//!
//! ```text
//!  run:        0          8       16     17           20          24         28          32
//!              | checksum | birth | kind | reserved 0 | pages u32 | next u32 | bytes u32 | the value, or a part of it |
//!  reference:  | length u32 | first page u32 |
//! ```
//!
//! A run lies in one piece of memory, so that a value in one run is read in place. A value longer than the longest run has
//! several; each names the first page of the next, the last names page 0.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use kauri_arena::CHUNK_PAGES;

use crate::error::{Error, Fault, Result};
use crate::pager::Run;

/// The bytes of a reference.
pub(crate) const REFERENCE_BYTES: usize = 8;
/// The longest value.
pub(crate) const VALUE_BYTES_MAX: usize = u32::MAX as usize;

const HEADER_BYTES: usize = 32;
const KIND_AT: usize = 16;
const PAGES_AT: usize = 20;
const NEXT_AT: usize = 24;
const BYTES_AT: usize = 28;
const KIND_OVERFLOW: u8 = 2;

/// Runs to read.
pub(crate) trait Runs {
    fn run(&self, run: Run) -> Result<&[u8]>;
}

/// Runs to read and to make.
pub(crate) trait RunsMut: Runs {
    /// A run of the transaction's own.
    fn make_run(&mut self, pages: u32) -> Result<(u32, &mut [u8])>;
    /// A run that is filled now and not changed later: it need not be in memory. Its first page.
    fn write_run(&mut self, pages: u32, fill: impl FnOnce(&mut [u8])) -> Result<u32>;
    /// A run that is in the file when the transaction commits: its first page, and its checksum.
    fn write_run_through(&mut self, pages: u32, fill: impl FnOnce(&mut [u8])) -> Result<(u32, u64)>;
    /// A run that is given up: its bytes if it is in memory, where it is not brought for this. These pages are in use, or it is an error.
    fn run_in_use(&self, run: Run) -> Result<Option<&[u8]>>;
    /// Gives a run up.
    fn retire_run(&mut self, run: Run);
}

/// Where a value lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    bytes: u32,
    first: u32,
}

impl Reference {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let fault = Fault::new("a reference of 8 bytes", bytes.len() as u64);
        let bytes: [u8; REFERENCE_BYTES] = bytes.try_into().map_err(|_| Error::Corrupt { page: 0, fault })?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok(Self { bytes: u32::from_le_bytes([a, b, c, d]), first: u32::from_le_bytes([e, f, g, h]) })
    }

    pub(crate) const fn new(bytes: u32, first: u32) -> Self {
        Self { bytes, first }
    }

    /// The first page of the value's first run.
    pub(crate) const fn first(self) -> u32 {
        self.first
    }

    /// The length of the value.
    pub(crate) const fn len(self) -> usize {
        self.bytes as usize
    }

    pub(crate) fn encode(self) -> [u8; REFERENCE_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (self.bytes.to_le_bytes(), self.first.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Writes a value into runs of its own.
pub(crate) fn write(runs: &mut impl RunsMut, page_bytes: usize, value: &[u8]) -> Result<Reference> {
    let bytes =
        u32::try_from(value.len()).map_err(|_| Error::ValueTooLong { most: VALUE_BYTES_MAX, found: value.len() })?;
    // The last part first, so that each run can name the next.
    let part_bytes = run_value_bytes_max(page_bytes);
    let mut next = 0;
    for part in value.chunks(part_bytes).rev() {
        let pages = part_pages(page_bytes, part.len());
        next = runs.write_run(pages, |run| begin_part(run, pages, part.len(), next).copy_from_slice(part))?;
    }
    Ok(Reference { bytes, first: next })
}

/// Writes a value that lies in one run, so that it is in the file when the transaction commits; tells the checksum of the run.
pub(crate) fn write_through(runs: &mut impl RunsMut, page_bytes: usize, value: &[u8]) -> Result<(Reference, u64)> {
    let pages = part_pages(page_bytes, value.len());
    let fill = |run: &mut [u8]| begin_part(run, pages, value.len(), 0).copy_from_slice(value);
    let (first, sum) = runs.write_run_through(pages, fill)?;
    Ok((Reference { bytes: u32::try_from(value.len()).expect("a value of one run"), first }, sum))
}

/// How many pages the run of a part of a value has.
fn part_pages(page_bytes: usize, bytes: usize) -> u32 {
    u32::try_from((bytes + HEADER_BYTES).div_ceil(page_bytes)).expect("at most a chunk of pages")
}

/// Begins a run for a part of a value: where the part goes, whatever is there now.
fn begin_part(run: &mut [u8], pages: u32, bytes: usize, next: u32) -> &mut [u8] {
    run[KIND_AT..HEADER_BYTES].fill(0);
    run[KIND_AT] = KIND_OVERFLOW;
    put(run, PAGES_AT, pages);
    put(run, NEXT_AT, next);
    put(run, BYTES_AT, u32::try_from(bytes).expect("a part of a value of at most 4 GiB"));
    &mut run[HEADER_BYTES..HEADER_BYTES + bytes]
}

/// The longest value that lies in one run.
pub(crate) const fn run_value_bytes_max(page_bytes: usize) -> usize {
    CHUNK_PAGES as usize * page_bytes - HEADER_BYTES
}

/// Writes a value that lies in one run: zeros, which `fill` changes. If that panics, the run is given up.
pub(crate) fn fill(
    runs: &mut impl RunsMut,
    page_bytes: usize,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<Reference> {
    assert!(bytes <= run_value_bytes_max(page_bytes), "a value of one run");
    let pages = part_pages(page_bytes, bytes);
    let (first, run) = runs.make_run(pages)?;
    let value = begin_part(run, pages, bytes, 0);
    value.fill(0);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| fill(value))) {
        runs.retire_run(Run { first, pages });
        resume_unwind(panic);
    }
    Ok(Reference { bytes: u32::try_from(bytes).expect("a value of one run"), first })
}

fn put(run: &mut [u8], at: usize, number: u32) {
    run[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// How many pages the run has that begins with this page, by what it says.
pub(crate) fn pages_of(page: &[u8]) -> Option<u32> {
    let pages = || Some(u32::from_le_bytes(page.get(PAGES_AT..PAGES_AT + 4)?.try_into().ok()?));
    if page[KIND_AT] == KIND_OVERFLOW { pages() } else { Some(1) }
}

/// One run of a value, checked.
struct Part<'a> {
    run: Run,
    next: u32,
    bytes: &'a [u8],
}

/// The run that begins at a page, of a value of which so many bytes are left.
fn part(runs: &impl Runs, page_bytes: usize, first: u32, left: usize) -> Result<Part<'_>> {
    let part_bytes = left.min(run_value_bytes_max(page_bytes));
    let run = Run { first, pages: part_pages(page_bytes, part_bytes) };
    let bytes = runs.run(run)?;
    let next = check_header(bytes, run, part_bytes)?;
    Ok(Part { run, next, bytes: &bytes[HEADER_BYTES..HEADER_BYTES + part_bytes] })
}

/// Whether a run begins as one of so many bytes of a value does; where the next part is.
fn check_header(header: &[u8], run: Run, part_bytes: usize) -> Result<u32> {
    let corrupt = |expected, found| Error::Corrupt { page: run.first, fault: Fault::new(expected, found) };
    let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[KIND_AT] != KIND_OVERFLOW {
        return Err(corrupt("a run of a value", header[KIND_AT].into()));
    }
    if field(PAGES_AT) != run.pages || field(BYTES_AT) as usize != part_bytes {
        return Err(corrupt("a run as long as its value needs", field(BYTES_AT).into()));
    }
    Ok(field(NEXT_AT))
}

/// A value; borrowed if it lies in one run.
pub(crate) fn read<'a>(runs: &'a impl Runs, page_bytes: usize, reference: Reference) -> Result<Cow<'a, [u8]>> {
    let length = reference.bytes as usize;
    let first = part(runs, page_bytes, reference.first, length)?;
    if first.bytes.len() == length {
        return Ok(Cow::Borrowed(first.bytes));
    }
    let mut value = first.bytes.to_vec();
    let mut next = first.next;
    while value.len() < length {
        let more = part(runs, page_bytes, next, length - value.len())?;
        value.extend_from_slice(more.bytes);
        next = more.next;
    }
    Ok(Cow::Owned(value))
}

/// How many pages the run of a value has, if it has only one.
pub(crate) fn run_pages(page_bytes: usize, bytes: usize) -> Option<u32> {
    (bytes <= run_value_bytes_max(page_bytes)).then(|| part_pages(page_bytes, bytes))
}

/// The run of a value that has one, by its reference.
pub(crate) fn single(page_bytes: usize, reference: Reference) -> Option<Run> {
    let pages = run_pages(page_bytes, reference.len())?;
    Some(Run { first: reference.first, pages })
}

/// The value in a copy of its only run.
pub(crate) fn value_of(mut bytes: Vec<u8>, run: Run, reference: Reference) -> Result<Vec<u8>> {
    check_header(&bytes, run, reference.len())?;
    bytes.truncate(HEADER_BYTES + reference.len());
    bytes.drain(..HEADER_BYTES);
    Ok(bytes)
}

/// The runs of a value.
pub(crate) fn each(runs: &impl Runs, page_bytes: usize, reference: Reference, mut see: impl FnMut(Run)) -> Result<()> {
    let (mut left, mut next) = (reference.bytes as usize, reference.first);
    while left > 0 {
        let part = part(runs, page_bytes, next, left)?;
        left -= part.bytes.len();
        next = part.next;
        see(part.run);
    }
    Ok(())
}

/// The only run of a value, if it has one. It is not read for this.
pub(crate) fn only_run(runs: &impl RunsMut, page_bytes: usize, reference: Reference) -> Result<Option<Run>> {
    let Some(run) = single(page_bytes, reference) else { return Ok(None) };
    if let Some(bytes) = runs.run_in_use(run)? {
        check_header(bytes, run, reference.len())?;
    }
    Ok(Some(run))
}

/// Gives the runs of a value up.
pub(crate) fn retire(runs: &mut impl RunsMut, page_bytes: usize, reference: Reference) -> Result<()> {
    if let Some(run) = only_run(runs, page_bytes, reference)? {
        runs.retire_run(run);
        return Ok(());
    }
    let mut found = Vec::new();
    each(runs, page_bytes, reference, |run| found.push(run))?;
    for run in found {
        runs.retire_run(run);
    }
    Ok(())
}
