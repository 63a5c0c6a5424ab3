//! The system's allocator, with a count of what each thread asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes asked for by this thread since it began; never fewer, so freeing hides nothing.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    // A thread that is ending has no counter any more, and nothing left to measure.
    let _gone = ASKED.try_with(|asked| asked.set(asked.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to `System` unchanged, which keeps the contract; counting touches a constant-initialised
// thread-local without a destructor, so it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the contract is the trait's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the contract is the trait's.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the contract is the trait's.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: the block came from `System` through this allocator, and the caller keeps the rest of the contract.
        unsafe { System.realloc(block, layout, size) }
    }

    // SAFETY: the contract is the trait's.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `System` through this allocator with this layout, as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What `work` returns, and that it asked for no more than `most` bytes on the way.
pub fn within<T>(most: usize, work: impl FnOnce() -> T) -> T {
    let before = ASKED.get();
    let result = work();
    let asked = ASKED.get().wrapping_sub(before);
    assert!(asked <= most, "{asked} bytes were asked for, {most} allowed");
    result
}

/// What `work` returns, and that it allocated nothing on the way.
pub fn without<T>(work: impl FnOnce() -> T) -> T {
    within(0, work)
}
