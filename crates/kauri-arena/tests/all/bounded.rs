//! Threads on an arena that has fewer frames than its store has pages: pages leave and come back while they are read, written
//! anew and used again. Every page says in every word who wrote it.

#![expect(clippy::disallowed_methods, reason = "what is tested is threads against each other")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use kauri_arena::{Arena, InUse, Operation, Stamp, Writer};

const PAGE_BYTES: usize = 4096;
const VERSIONS: u64 = 4_000;
const PAGES: u32 = 200;
/// Pages of a version.
const PARTS: usize = 60;
const PAGES_MAX: usize = 20;

/// Which page is where, and when it was born.
type Root = Vec<(u32, u64)>;

/// The file: when the page was born whose bytes it holds at each place; 0 if nothing was written there.
type File = Vec<Mutex<u64>>;

fn word(born: u64, page: u32) -> [u8; 8] {
    (born << 32 | u64::from(page)).to_le_bytes()
}

fn write(bytes: &mut [u8], born: u64, page: u32) {
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word(born, page)));
}

fn check(bytes: &[u8], born: u64, page: u32) {
    let expected = word(born, page);
    assert!(bytes.chunks_exact(8).all(|chunk| chunk == expected), "page {page} is not as it was born at {born}");
}

fn load(arena: &Arena<Root>, file: &File, page: u32, loads: &AtomicU64) {
    let loaded = arena.load(page, 1, |bytes| {
        let born = *file[page as usize].lock().expect("nobody panics with it");
        write(bytes, born, page);
        loads.fetch_add(1, Ordering::Relaxed);
        Stamp::new(born).filter(|born| *born > Stamp::FIRST).ok_or("nothing was written there")
    });
    loaded.expect("a page of a version is in the file, or in memory");
    if arena.is_crowded() {
        arena.sweep();
    }
}

/// A page, wherever it is.
fn look<'a>(
    operation: &'a Operation<'_, Root>,
    arena: &Arena<Root>,
    file: &File,
    page: u32,
    loads: &AtomicU64,
) -> &'a [u8] {
    for _ in 0..1_000_000 {
        if let Some(bytes) = operation.page(page) {
            return bytes;
        }
        load(arena, file, page, loads);
        // Another may be bringing it, and need the processor for that.
        thread::yield_now();
    }
    panic!("page {page} does not come");
}

fn read(arena: &Arena<Root>, file: &File, done: &AtomicBool, loads: &AtomicU64) {
    while !done.load(Ordering::Relaxed) {
        let reader = arena.read();
        for round in reader.root().chunks(3) {
            let operation = reader.operation();
            let seen: Vec<_> = round.iter().map(|(page, _)| look(&operation, arena, file, *page, loads)).collect();
            thread::yield_now();
            for ((page, born), bytes) in round.iter().zip(seen) {
                check(bytes, *born, *page);
            }
        }
    }
}

struct Maker<'a> {
    arena: &'a Arena<Root>,
    file: &'a File,
    writer: Writer<Root>,
    root: Root,
    dead: Vec<u32>,
    free: Vec<u32>,
    /// Pages that are in memory only.
    dirty: Vec<u32>,
}

impl Maker<'_> {
    /// Replaces a few pages, after a look at each; now and then everything is written to the file.
    fn make(&mut self, number: u64, loads: &AtomicU64) {
        let born = self.writer.tick().number();
        for _ in 0..3 {
            let Some(page) = self.free.pop() else { break };
            if self.root.len() == PARTS {
                let (old, old_born) = self.root.remove(usize::try_from(number * 7 % PARTS as u64).expect("an index"));
                self.writer.take(page).expect("it is free");
                // It may leave between two looks, but not while we have it.
                while self.writer.from_to(old, page).is_none() {
                    load(self.arena, self.file, old, loads);
                }
                if let Some((from, to)) = self.writer.from_to(old, page) {
                    check(from, old_born, old);
                    write(to, born, page);
                } else {
                    write(self.writer.page_mut(page).expect("our own"), born, page);
                }
                self.writer.retire(old);
                self.dead.push(old);
            } else {
                write(self.writer.take(page).expect("it is free"), born, page);
            }
            self.root.push((page, born));
            self.dirty.push(page);
        }
        self.arena.publish(self.writer.seal(), self.root.clone());
        if number.is_multiple_of(5) {
            self.checkpoint();
        }
        if self.arena.is_crowded() {
            self.arena.sweep();
        }
        self.reclaim();
    }

    fn checkpoint(&mut self) {
        let reader = self.arena.read();
        for page in self.dirty.drain(..) {
            let operation = reader.operation();
            let Some((born, bytes)) = operation.whole(page) else { continue };
            check(bytes, born.number(), page);
            *self.file[page as usize].lock().expect("nobody panics with it") = born.number();
            drop(operation);
            reader.mark_written(page);
        }
    }

    fn reclaim(&mut self) {
        self.writer.scan();
        let (writer, free) = (&mut self.writer, &mut self.free);
        self.dead.retain(|page| match writer.reclaim(*page) {
            Ok(()) => {
                free.insert(0, *page);
                false
            }
            Err(InUse::Held(_)) => true,
            Err(InUse::Taken) => panic!("page {page} is dead"),
        });
    }
}

#[test]
fn pages_leave_and_come_back_under_readers_and_a_writer() {
    let (arena, writer) = Arena::bounded(PAGE_BYTES, PAGES_MAX, Stamp::FIRST, Root::new());
    let file: File = (0..PAGES).map(|_| Mutex::new(0)).collect();
    let (done, loads) = (AtomicBool::new(false), AtomicU64::new(0));
    let free = (0..PAGES).collect();
    let mut maker =
        Maker { arena: &arena, file: &file, writer, root: Root::new(), dead: Vec::new(), free, dirty: Vec::new() };
    thread::scope(|scope| {
        let (arena, file, done, loads) = (&arena, &file, &done, &loads);
        let readers = [(); 3].map(|()| scope.spawn(|| read(arena, file, done, loads)));
        let stop = OnDrop(done);
        for number in 0..100 * VERSIONS {
            if number >= VERSIONS && loads.load(Ordering::Relaxed) > 5_000 {
                break;
            }
            maker.make(number, loads);
        }
        drop(stop);
        for reader in readers {
            reader.join().expect("no thread panics");
        }
    });
    maker.checkpoint();
    arena.sweep();
    assert!(arena.resident_pages() <= PAGES_MAX, "{} pages are in memory", arena.resident_pages());
    assert!(loads.into_inner() > 5_000, "pages came back too seldom to mean anything");
}

/// Says that it is done when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
