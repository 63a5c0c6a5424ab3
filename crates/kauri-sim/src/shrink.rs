//! Making a world that fails small: whatever is not needed for that is left out.

use kauri_runtime::testing::Faults;

/// A world of which parts can be left out.
pub(crate) trait Shrink: Clone {
    /// Whether something is wrong in it.
    fn fails(&self) -> bool;

    /// What goes wrong in it: its faults, and whether its disk fails.
    fn faults(&mut self) -> (&mut Faults, &mut bool);

    /// How much there is to do in it, at least 1.
    fn size(&mut self) -> &mut u64;
}

/// Each leaves out one kind of fault.
const WITHOUT: [fn(&mut Faults); 11] = [
    |faults| faults.crash_before = 0,
    |faults| faults.crash_after = 0,
    |faults| faults.crash_between = 0,
    |faults| faults.preemption = 0,
    |faults| faults.pause = 0,
    |faults| faults.conflict = 0,
    |faults| faults.jump_forward = 0,
    |faults| faults.jump_back = 0,
    |faults| faults.full = 0,
    |faults| faults.slow = 0,
    |faults| faults.stall = 0,
];

/// A world as small as can be found that fails as well.
pub(crate) fn shrunk<W: Shrink>(world: W) -> W {
    let mut best = world;
    keep_if_it_fails(&mut best, |smaller| *smaller.faults().1 = false);
    for leave_out in WITHOUT {
        keep_if_it_fails(&mut best, |smaller| leave_out(smaller.faults().0));
    }
    while *best.size() > 1 && keep_if_it_fails(&mut best, |smaller| *smaller.size() -= 1) {}
    best
}

/// Changes a world if it fails then, too. Tells whether it does.
fn keep_if_it_fails<W: Shrink>(best: &mut W, change: impl FnOnce(&mut W)) -> bool {
    let mut smaller = best.clone();
    change(&mut smaller);
    let fails = smaller.fails();
    if fails {
        *best = smaller;
    }
    fails
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the disk does, there are pauses, and at least three things to do.
    #[derive(Clone)]
    struct Trial {
        faults: Faults,
        disk_fails: bool,
        size: u64,
    }

    impl Shrink for Trial {
        fn fails(&self) -> bool {
            self.disk_fails && self.faults.pause > 0 && self.size >= 3
        }

        fn faults(&mut self) -> (&mut Faults, &mut bool) {
            (&mut self.faults, &mut self.disk_fails)
        }

        fn size(&mut self) -> &mut u64 {
            &mut self.size
        }
    }

    #[test]
    fn what_is_left_is_what_makes_the_world_fail() {
        let small = shrunk(Trial { faults: Faults::ALL, disk_fails: true, size: 9 });
        assert_eq!(small.faults, Faults { pause: Faults::ALL.pause, ..Faults::default() });
        assert_eq!((small.disk_fails, small.size), (true, 3));
    }
}
