//! Every interleaving of a few steps, and every value the memory model lets a thread read, as loom explores them.
//!
//! ```text
//! RUSTFLAGS='--cfg loom' cargo test -p kauri-arena --release --test all
//! ```
//!
//! Loom does not see plain memory. So beside each page and in each root stands a [`Trace`]: whoever reads or writes the bytes,
//! or drops the root, says so there, and loom complains if two of them are not ordered.

#![expect(unsafe_code, reason = "what stands for memory is shared like memory")]

use std::convert::Infallible;
use std::sync::Arc;

use kauri_arena::{Arena, InUse, Load, Reader, Sealed, Stamp, Writer};
use loom::cell::UnsafeCell;
use loom::thread;

const PAGES: usize = 4;
/// How often threads are interrupted where they need not be, with three of them: more takes minutes.
const PREEMPTIONS_MAX: usize = 3;

/// Who was here: stands for plain memory.
#[derive(Default)]
struct Trace(UnsafeCell<()>);

// SAFETY: there is nothing in it; that it is used like memory which is shared rightly is what loom checks.
unsafe impl Sync for Trace {}

impl Trace {
    fn read(&self) {
        self.0.with(|_| ());
    }

    fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

type Traces = Arc<[Trace; PAGES]>;
type Other = fn(&Arena<Root>, &Traces);

/// A version is found by its page.
struct Root {
    page: u32,
    version: u64,
    trace: Trace,
}

impl Drop for Root {
    fn drop(&mut self) {
        self.trace.write();
    }
}

/// One store of a few pages, and its writer.
struct Store {
    arena: Arc<Arena<Root>>,
    writer: Writer<Root>,
    traces: Traces,
}

impl Store {
    /// Its version 2 has page 1.
    fn new() -> Self {
        let (arena, writer) = Arena::new(256, Stamp::FIRST, root(0, 1));
        let mut store = Self { arena, writer, traces: Traces::default() };
        store.make(1, &[]);
        store
    }

    /// The same, in an arena in which no page may stay; page 1 is in the file too.
    fn bounded() -> Self {
        let (arena, writer) = Arena::bounded(256, 0, Stamp::FIRST, root(0, 1));
        let mut store = Self { arena, writer, traces: Traces::default() };
        store.make(1, &[]);
        store.arena.read().mark_written(1);
        store
    }

    /// Publishes a version that has this page in place of those.
    fn make(&mut self, page: u32, retired: &[u32]) {
        let (sealed, root) = self.seal(page, retired);
        self.arena.publish(sealed, root);
    }

    /// Seals such a version.
    fn seal(&mut self, page: u32, retired: &[u32]) -> (Sealed, Root) {
        self.take(page).expect("it is empty");
        let version = self.writer.tick().number();
        for page in retired {
            self.writer.retire(*page);
        }
        (self.writer.seal(), root(page, version))
    }

    fn take(&mut self, page: u32) -> Result<(), InUse> {
        let born = self.writer.tick().number();
        let bytes = self.writer.take(page)?;
        self.traces[page as usize].write();
        bytes[..8].copy_from_slice(&born.to_le_bytes());
        Ok(())
    }

    /// Uses a page again, if nobody sees it any more.
    fn reuse(&mut self, page: u32) {
        self.writer.scan();
        if self.writer.reclaim(page).is_ok() {
            self.take(page).expect("it was reclaimed");
        }
    }

    /// Does the writer's work here, and that of others in threads of their own.
    fn beside(mut self, others: &[Other], own: impl FnOnce(&mut Self)) {
        let others = others.iter().copied().map(|other| {
            let (arena, traces) = (Arc::clone(&self.arena), Arc::clone(&self.traces));
            thread::spawn(move || other(&arena, &traces))
        });
        let others: Vec<_> = others.collect();
        own(&mut self);
        for other in others {
            other.join().expect("the other thread does not panic");
        }
    }
}

fn root(page: u32, version: u64) -> Root {
    Root { page, version, trace: Trace::default() }
}

/// Explores everything that two threads can do.
fn check_two(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Explores what three threads can do with few interruptions; or two that do much.
fn check_three(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Reads a page as far as the reader gets it; its content says when it was born.
fn look_at(reader: &Reader<'_, Root>, page: u32, traces: &Traces) -> bool {
    let Some(bytes) = reader.page(page) else { return false };
    traces[page as usize].read();
    let born = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(born <= reader.version().number(), "page {page} is of a later version");
    true
}

/// Takes a version and looks at what it is found by, and at its page.
fn read_newest(arena: &Arena<Root>, traces: &Traces) {
    let reader = arena.read();
    let root = reader.root();
    root.trace.read();
    assert_eq!(root.version, reader.version().number(), "the root is another version's");
    assert!(look_at(&reader, root.page, traces), "the page of the version is gone");
}

/// Brings a page that is not in memory, as it was born with version 2.
fn load(arena: &Arena<Root>, page: u32, traces: &Traces) -> Load {
    let loaded = arena.load(page, 1, |bytes| {
        traces[page as usize].write();
        bytes[..8].copy_from_slice(&2_u64.to_le_bytes());
        Ok::<_, Infallible>(Stamp::FIRST.next())
    });
    let Ok(load) = loaded;
    load
}

#[test]
fn reader_keeps_its_root_and_its_page_while_the_writer_uses_old_ones_again() {
    check_two(|| {
        Store::new().beside(&[read_newest], |store| {
            store.make(2, &[1]);
            store.reuse(1);
        });
    });
}

#[test]
fn readers_that_share_a_slot_keep_their_pages() {
    let twice: Other = |arena, traces| {
        read_newest(arena, traces);
        read_newest(arena, traces);
    };
    check_two(move || {
        Store::new().beside(&[twice], |store| {
            store.make(2, &[1]);
            store.reuse(1);
        });
    });
}

#[test]
fn slot_taken_over_by_another_thread_hides_nobody() {
    check_three(|| {
        Store::new().beside(&[read_newest, read_newest], |store| {
            store.make(2, &[1]);
            store.reuse(1);
        });
    });
}

#[test]
fn reader_sees_one_version_and_no_mixture() {
    check_two(|| {
        Store::new().beside(&[read_newest], |store| {
            store.make(2, &[1]);
            store.make(3, &[2]);
        });
    });
}

#[test]
fn version_that_another_thread_publishes_is_seen_with_its_pages() {
    check_three(|| {
        let mut store = Store::new();
        let (sealed, root) = store.seal(2, &[1]);
        let arena = Arc::clone(&store.arena);
        let publisher = thread::spawn(move || arena.publish(sealed, root));
        store.beside(&[read_newest], |store| {
            store.reuse(1);
            publisher.join().expect("the publisher does not panic");
        });
    });
}

#[test]
fn version_that_is_read_before_it_is_published_keeps_its_pages() {
    check_two(|| {
        let mut store = Store::new();
        let (sealed, own) = store.seal(2, &[1]);
        let (early, page, version) = (sealed.early(), own.page, own.version);
        let (arena, traces) = (Arc::clone(&store.arena), Arc::clone(&store.traces));
        let other = thread::spawn(move || match arena.read_early(early, root(page, version)) {
            Some(reader) => {
                reader.root().trace.read();
                assert!(look_at(&reader, page, &traces), "the page of the version is gone");
            }
            None => read_newest(&arena, &traces),
        });
        let (later, last) = store.seal(3, &[2]);
        store.arena.publish(sealed, own);
        store.arena.publish(later, last);
        store.reuse(2);
        other.join().expect("the other thread does not panic");
    });
}

#[test]
fn stale_page_number_gives_nothing_while_its_frame_changes_hands() {
    check_two(|| {
        let mut store = Store::new();
        store.make(2, &[1]);
        store.writer.scan();
        let look: Other = |arena, traces| {
            assert!(!look_at(&arena.read(), 1, traces), "page 1 died before any version that can be read");
        };
        store.beside(&[look], |store| {
            store.writer.reclaim(1).expect("nobody holds it");
            store.take(1).expect("it was reclaimed");
        });
    });
}

#[test]
fn loader_and_writer_never_have_the_same_page() {
    let load_and_look: Other = |arena, traces| {
        if load(arena, 3, traces) == Load::Done {
            assert!(look_at(&arena.read(), 3, traces), "what was loaded is gone");
        }
    };
    check_two(move || {
        Store::new().beside(&[load_and_look], |store| {
            let _ = store.writer.reclaim(3);
            let _ = store.take(3);
        });
    });
}

#[test]
fn loaders_never_have_the_same_page() {
    let load_3: Other = |arena, traces| {
        load(arena, 3, traces);
    };
    check_three(move || Store::new().beside(&[load_3, load_3], |_| ()));
}

#[test]
fn page_that_another_thread_loaded_is_whole() {
    let load_3: Other = |arena, traces| {
        load(arena, 3, traces);
    };
    let look_at_3: Other = |arena, traces| {
        look_at(&arena.read(), 3, traces);
    };
    check_three(move || Store::new().beside(&[load_3, look_at_3], |_| ()));
}

#[test]
fn loader_fills_a_frame_after_its_last_reader_is_gone() {
    let load_1: Other = |arena, traces| {
        load(arena, 1, traces);
    };
    check_three(move || {
        Store::new().beside(&[read_newest, load_1], |store| {
            store.make(2, &[1]);
            store.writer.scan();
            let _ = store.writer.reclaim(1);
        });
    });
}

#[test]
fn page_in_place_of_a_run_does_not_lend_what_was_behind_it() {
    check_two(|| {
        let mut store = Store::new();
        store.writer.tick();
        store.writer.take_run(2, 2).expect("both are empty");
        store.writer.tick();
        store.writer.retire(2);
        store.arena.publish(store.writer.seal(), root(1, store.writer.newest().number()));
        store.writer.scan();
        let load_and_look: Other = |arena, traces| {
            load(arena, 2, traces);
            if arena.read().run(2, 2).is_some() {
                traces[3].read();
            }
        };
        store.beside(&[load_and_look], |store| {
            store.writer.reclaim(2).expect("nobody holds it");
            store.take(3).expect("it was reclaimed");
        });
    });
}

/// Lets pages leave, and brings page 1 back.
fn sweep_and_load(arena: &Arena<Root>, traces: &Traces) {
    arena.sweep();
    load(arena, 1, traces);
}

#[test]
fn page_that_an_operation_has_does_not_leave() {
    let operate: Other = |arena, traces| {
        let reader = arena.read();
        let operation = reader.operation();
        if operation.page(1).is_some() {
            traces[1].read();
        }
    };
    check_two(move || Store::bounded().beside(&[operate], |store| sweep_and_load(&store.arena, &store.traces)));
    check_three(move || Store::bounded().beside(&[operate, sweep_and_load], |store| store.arena.sweep()));
}

#[test]
fn page_that_the_writer_has_does_not_leave() {
    check_two(move || {
        Store::bounded().beside(&[sweep_and_load], |store| {
            for _ in 0..2 {
                store.writer.tick();
                if store.writer.page(1).is_some() {
                    store.traces[1].read();
                }
            }
        });
    });
}

#[test]
fn page_that_is_leaving_is_used_again_only_when_it_is_gone() {
    let operate: Other = |arena, traces| {
        let reader = arena.read();
        let operation = reader.operation();
        if operation.page(1).is_some() {
            traces[1].read();
        }
        drop(operation);
        drop(reader);
        arena.sweep();
    };
    check_three(move || {
        Store::bounded().beside(&[operate], |store| {
            store.make(2, &[1]);
            store.arena.sweep();
            store.reuse(1);
        });
    });
}
