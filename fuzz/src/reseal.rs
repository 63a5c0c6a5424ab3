//! Checksums of a store's file, made right again after its bytes were changed: what a person with bad intentions would do. As
//! `docs/format.md` draws it; nothing here is shared with the store, which must cope with whatever comes of it.

use twox_hash::XxHash3_64;

const META_BYTES: usize = 256;
const LOG_PAGE: usize = 2;
const RECORD_HEADER_BYTES: usize = 24;

/// Makes the checksums of metas and of the log's records right, as far as they can be found.
pub fn metas_and_log(file: &mut [u8]) {
    if let Some((page_bytes, meta)) = reseal_metas(file) {
        let log_pages = half(file, meta + 44);
        reseal_log(file, page_bytes, log_pages, meta);
    }
}

/// Makes the checksums of metas and pages right, and the log empty: doing again what it says, in a tree that is not one, is more
/// than the store promises to survive.
pub fn metas_and_pages(file: &mut [u8]) {
    if let Some((page_bytes, meta)) = reseal_metas(file) {
        let first = LOG_PAGE.saturating_add(half(file, meta + 44));
        let log_end = first.saturating_mul(page_bytes).min(file.len());
        if let Some(log) = file.get_mut(LOG_PAGE * page_bytes..log_end) {
            log.fill(0);
        }
        let bitmap = [half(file, meta + 84), half(file, meta + 88)];
        reseal_pages(file, page_bytes, first, bitmap);
    }
}

/// The size of a page, and where the newer meta begins.
fn reseal_metas(file: &mut [u8]) -> Option<(usize, usize)> {
    let page_bytes = page_bytes(file)?;
    for page in 0..2 {
        if let Some(meta) = file.get_mut(page * page_bytes..page * page_bytes + META_BYTES) {
            seal(meta, page);
        }
    }
    let meta = if number(file, 24) >= number(file, page_bytes + 24) { 0 } else { page_bytes };
    Some((page_bytes, meta))
}

/// As the first meta page says, or the second, wherever it is.
fn page_bytes(file: &[u8]) -> Option<usize> {
    let sizes = (8..=16).map(|bits| 1_usize << bits);
    let says = |at: usize, size: usize| file.get(at + 8..at + 16) == Some(b"KauriDB\0") && half(file, at + 20) == size;
    sizes.clone().find(|size| says(0, *size)).or_else(|| sizes.clone().find(|size| says(*size, *size)))
}

/// Reads 8 bytes; zeros if the file ends before.
fn number(file: &[u8], at: usize) -> u64 {
    file.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

fn half(file: &[u8], at: usize) -> usize {
    file.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
}

fn seal(run: &mut [u8], first: usize) {
    let sum = XxHash3_64::oneshot_with_seed(first as u64, &run[8..]);
    run[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Pages one by one, but long values and the bitmap by runs.
fn reseal_pages(file: &mut [u8], page_bytes: usize, first: usize, [bitmap, bitmap_pages]: [usize; 2]) {
    let pages = file.len() / page_bytes;
    let mut page = first;
    while page < pages {
        let at = page * page_bytes;
        let run = match file[at + 16] {
            _ if page == bitmap => bitmap_pages,
            2 => half(file, at + 20),
            _ => 1,
        };
        let run = run.clamp(1, pages - page);
        seal(&mut file[at..at + run * page_bytes], page);
        page += run;
    }
}

/// Records one after the other, as long as they have the numbers that they should have.
fn reseal_log(file: &mut [u8], page_bytes: usize, pages: usize, meta: usize) {
    let (mut offset, mut count, mut chain) =
        (number(file, meta + 48), number(file, meta + 56), number(file, meta + 64));
    let start = LOG_PAGE * page_bytes;
    let end = start.saturating_add(pages.saturating_mul(page_bytes)).min(file.len());
    let Some(ring) = file.get_mut(start..end) else { return };
    for _ in 0..ring.len() / page_bytes.min(512) {
        let found = [offset, 0].into_iter().find(|at| {
            let at = usize::try_from(*at).unwrap_or(usize::MAX);
            at.checked_add(RECORD_HEADER_BYTES).is_some_and(|end| end <= ring.len()) && number(ring, at + 8) == count
        });
        let Some(at) = found.and_then(|at| usize::try_from(at).ok()) else { return };
        let bytes = RECORD_HEADER_BYTES.saturating_add(half(ring, at + 16));
        let Some(record) = at.checked_add(bytes).and_then(|end| ring.get_mut(at..end)) else { return };
        chain = XxHash3_64::oneshot_with_seed(chain, &record[8..]);
        record[..8].copy_from_slice(&chain.to_le_bytes());
        offset = (at + bytes.next_multiple_of(page_bytes.min(512))) as u64;
        count = count.wrapping_add(1);
    }
}
