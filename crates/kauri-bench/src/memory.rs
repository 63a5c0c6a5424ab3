//! Memory that is there when it is asked for.

use memmap2::MmapMut;

/// More than any store of the suites grows by in a turn.
const BYTES: usize = 400 << 20;
/// What the system gives at a time, at least.
const PAGE_BYTES: usize = 4096;

/// Uses memory and gives it back, so that the next who asks for some gets what the machine really has.
///
/// A virtual machine tells its host what is free, in pieces as long as a huge page, and the host takes them. To get them again takes
/// twenty times as long as to fill them with zeros, so it would be what is measured, and only of those who use huge pages.
pub(crate) fn ready() {
    let mut memory = MmapMut::map_anon(BYTES).expect("there is memory");
    // That it may be refused does no harm: then there are no huge pages here.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
}
