//! Page frames, and who may look at them: the one crate of Kauri with unsafe code.
//!
//! A store's pages live in frames of memory, page `n` in frame `n`. Readers borrow pages as plain slices, without a lock and
//! without a count; one writer makes new pages and gives old ones up. This crate keeps the promise that makes the slices
//! safe, whatever its callers do:
//!
//! - **A page that a reader can see does not change and is not used again.** Each page has two stamps, its *birth* and its
//!   *death*. A reader of version `r` gets a page only if `birth <= r < death`. The writer may change a page only if it was
//!   born in the writer's own, unsealed version, and may take a dead page again only when no reader holds a version of its
//!   life.
//! - **A reader's version is announced before it is used.** [`Arena::read`] stores the version into a slot, fences, and looks
//!   again whether it is still the newest; the writer scans the slots behind a fence of its own. Whichever fence comes
//!   first, either the reader sees that it is late, or the writer sees the reader. [`Arena::read_early`] does the same with a version
//!   that is sealed and not published: it is late if a later one is published.
//! - **A page leaves memory only when nobody can have a slice of it.** That is only in a [bounded](Arena::bounded) arena; `cache.rs`
//!   says how.
//!
//! A caller with a bug (a stale page number, a page given up too early) gets `None` or a refusal, never freed or moving bytes.
//!
//! ```
//! use kauri_arena::{Arena, Stamp};
//!
//! let (arena, mut writer) = Arena::new(4096, Stamp::FIRST, "empty");
//! writer.tick();
//! writer.take(7).expect("nobody uses page 7")[..5].copy_from_slice(b"hello");
//! let version = writer.seal();
//! assert!(arena.read().page(7).is_none(), "not published yet");
//!
//! arena.publish(version, "hello at 7");
//! let reader = arena.read();
//! assert_eq!((*reader.root(), &reader.page(7).expect("page 7 is in memory")[..5]), ("hello at 7", &b"hello"[..]));
//! ```

// An example imports what it needs, and nothing else.
#![doc(test(attr(deny(unused_imports, unused_mut, unused_variables))))]
#![expect(
    unsafe_code,
    reason = "frames are shared between threads as raw memory; every block is argued where it stands"
)]

mod cache;
mod frames;
mod sealed;
mod slots;
mod stamp;
mod sync;
mod versions;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use cache::Operation;
pub use frames::{CHUNK_PAGES, Load};
pub use sealed::{Early, Sealed};
pub use stamp::Stamp;
pub use versions::Reader;
pub use writer::{InUse, Writer};

use cache::Cache;
use frames::Frames;
use slots::Slots;
use versions::Ring;

/// Frames for the pages of one store, and the versions of it that readers hold. `R` is what a version is found by: its root.
///
/// ```
/// use kauri_arena::{Arena, Stamp};
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, "the first root");
/// let before = arena.read();
/// writer.tick();
/// arena.publish(writer.seal(), "the second");
/// assert_eq!((*before.root(), *arena.read().root()), ("the first root", "the second"));
/// ```
#[derive(Debug)]
pub struct Arena<R> {
    id: ArenaId,
    frames: Frames,
    slots: Slots,
    ring: Ring<R>,
    /// If pages may leave memory.
    cache: Option<Cache>,
}

/// Which arena of this process: a sealed version says it, so that no other arena shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ArenaId(u64);

impl ArenaId {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl<R: Send + Sync> Arena<R> {
    /// An arena for pages of `page_bytes`, whose first version is `version` with this root, and its one writer.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let opened = Stamp::new(41).expect("a version of an earlier process");
    /// let (arena, mut writer) = Arena::new(256, opened, ());
    /// assert_eq!(arena.read().version(), opened);
    /// assert_eq!(writer.tick().number(), 42);
    /// ```
    ///
    /// # Panics
    /// If `page_bytes` is not a power of two from 256 to 65536.
    pub fn new(page_bytes: usize, version: Stamp, root: R) -> (Arc<Self>, Writer<R>) {
        Self::with_cache(page_bytes, version, root, None)
    }

    /// As [`new`](Self::new), for pages that are also in a file: when there are more than `pages_max` in memory, [`sweep`](Self::sweep)
    /// lets some leave. Readers get pages through [`Reader::operation`] only.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 2, Stamp::FIRST, ());
    /// writer.tick();
    /// for page in 0..5 {
    ///     writer.take(page).expect("nobody uses it");
    /// }
    /// assert!(arena.is_crowded());
    /// arena.sweep();
    /// assert_eq!(arena.resident_pages(), 5, "what is not in the file stays");
    /// ```
    ///
    /// # Panics
    /// As `new`.
    pub fn bounded(page_bytes: usize, pages_max: usize, version: Stamp, root: R) -> (Arc<Self>, Writer<R>) {
        Self::with_cache(page_bytes, version, root, Some(Cache::new(pages_max)))
    }

    fn with_cache(page_bytes: usize, version: Stamp, root: R, cache: Option<Cache>) -> (Arc<Self>, Writer<R>) {
        let frames = Frames::new(page_bytes, cache.is_some());
        let arena = Self { id: ArenaId::new(), frames, slots: Slots::new(), ring: Ring::new(version, root), cache };
        let arena = Arc::new(arena);
        let writer = Writer::new(Arc::clone(&arena), version);
        (arena, writer)
    }

    /// Holds the newest published version until the reader is dropped. No lock, no system call.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let reader = arena.read();
    /// let next = writer.tick();
    /// arena.publish(writer.seal(), ());
    /// assert_eq!((reader.version(), arena.read().version()), (Stamp::FIRST, next));
    /// assert_eq!(writer.scan(), [Stamp::FIRST], "it is held");
    /// drop(reader);
    /// assert_eq!(writer.scan(), []);
    /// ```
    #[inline]
    pub fn read(&self) -> Reader<'_, R> {
        Reader::begin(self)
    }

    /// Holds a version that was sealed, whether it was published or not, with this root; `None` if a later one was published: then
    /// [`read`](Self::read) shows one that follows it.
    ///
    /// # Panics
    /// If it was sealed by the writer of another arena.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(4096, Stamp::FIRST, "empty");
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7")[..5].copy_from_slice(b"hello");
    /// let version = writer.seal();
    /// let reader = arena.read_early(version.early(), "hello at 7").expect("nothing later was published");
    /// assert_eq!(&reader.page(7).expect("page 7 is in memory")[..5], b"hello");
    /// assert!(arena.read().page(7).is_none(), "not published yet");
    /// ```
    pub fn read_early(&self, version: Early, root: R) -> Option<Reader<'_, R>> {
        // Readers of a version that our writer did not seal would see pages that it still changes.
        assert!(version.is_of(self.id), "version {} was sealed in another arena", version.version);
        Reader::begin_early(self, version.version, root)
    }

    /// Whether our writer sealed this version.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let (other, _) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// let early = writer.seal().early();
    /// assert!(arena.has_sealed(early) && !other.has_sealed(early));
    /// ```
    #[must_use]
    pub fn has_sealed(&self, version: Early) -> bool {
        version.is_of(self.id)
    }

    /// Makes a sealed version the one that readers begin with.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// let version = writer.seal();
    /// let before = arena.read();
    /// arena.publish(version, ());
    /// assert!(before.page(7).is_none() && arena.read().page(7).is_some());
    /// ```
    ///
    /// # Panics
    /// If a later one was published before, or it was sealed by the writer of another arena.
    #[expect(clippy::needless_pass_by_value, reason = "a sealed version is published once")]
    pub fn publish(&self, version: Sealed, root: R) {
        // Readers of a version that our writer did not seal would see pages that it still changes.
        assert!(version.is_of(self.id), "version {} was sealed in another arena", version.version());
        self.ring.publish(version.version(), root);
    }

    /// When the page in memory under this number was born, of whatever version.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let now = writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// assert_eq!((arena.birth(7), arena.birth(8)), (Some(now), None)); // whether it can be seen or not
    /// ```
    #[must_use]
    pub fn birth(&self, page: u32) -> Option<Stamp> {
        match self.frames.frame(page)?.stamps.birth() {
            frames::Birth::At(birth) => Some(birth),
            _ => None,
        }
    }

    /// How many bytes a page has.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(8192, Stamp::FIRST, ());
    /// writer.tick();
    /// assert_eq!(writer.take(7).map(|page| page.len()), Ok(arena.page_bytes()));
    /// ```
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.frames.page_bytes()
    }

    /// Brings a run of pages that is not in memory into its frames; one page is a run too. `fill` gets the bytes to write and
    /// returns when the run was born.
    ///
    /// ```
    /// use kauri_arena::{Arena, Load, Stamp};
    ///
    /// let version = Stamp::new(9).expect("a stamp");
    /// let (arena, _writer) = Arena::new(256, version, ());
    /// let reader = arena.read();
    /// let load = arena.load(7, 1, |bytes| {
    ///     bytes.fill(3); // read from the file
    ///     Stamp::new(5).ok_or("no stamp")
    /// });
    /// assert_eq!(load, Ok(Load::Done));
    /// assert_eq!((reader.page(7), reader.birth(7)), (Some(&[3; 256][..]), Stamp::new(5)));
    /// assert_eq!(arena.load(8, 1, |_| Err("the disk failed")), Err("the disk failed"));
    /// assert!(reader.page(8).is_none());
    /// ```
    ///
    /// # Errors
    /// What `fill` returns; the run is not in memory then.
    ///
    /// # Panics
    /// If the run crosses the end of a chunk, or was born at [`Stamp::FIRST`], as no page is.
    pub fn load<E>(&self, first: u32, pages: u32, fill: impl FnOnce(&mut [u8]) -> Result<Stamp, E>) -> Result<Load, E> {
        if self.revive(first) {
            return Ok(Load::Done);
        }
        let load = self.frames.load(first, pages, fill)?;
        if load == Load::Done {
            self.queue_loaded(first);
        }
        Ok(load)
    }
}
