//! The way from the root of a tree to a leaf.

use super::DEPTH_MAX;

/// The branches on the way, from the root down, and which child was taken in each.
pub(crate) struct Way {
    steps: [(u32, u16); Self::SHALLOW],
    /// Steps of a deeper tree than most.
    deep: Vec<(u32, u16)>,
    len: usize,
}

impl Way {
    /// As many as the branches above a billion rows in pages of 4 KiB.
    const SHALLOW: usize = 6;

    pub(crate) const fn new() -> Self {
        Self { steps: [(0, 0); Self::SHALLOW], deep: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn push(&mut self, page: u32, child: usize) {
        assert!(self.len < DEPTH_MAX, "a way as deep as no tree is");
        let child = u16::try_from(child).expect("a page of 64 KiB has fewer than 2^16 slots");
        match self.steps.get_mut(self.len) {
            Some(step) => *step = (page, child),
            None => self.deep.push((page, child)),
        }
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, usize)> {
        self.len = self.len.checked_sub(1)?;
        let step = self.step(self.len);
        self.deep.truncate(self.len.saturating_sub(Self::SHALLOW));
        Some(step)
    }

    #[inline]
    pub(crate) fn step(&self, depth: usize) -> (u32, usize) {
        let (page, child) = match self.steps.get(depth) {
            Some(step) => *step,
            None => self.deep[depth - Self::SHALLOW],
        };
        (page, child.into())
    }

    /// Says that a branch of the way is another page now.
    pub(crate) fn set_page(&mut self, depth: usize, page: u32) {
        match self.steps.get_mut(depth) {
            Some(step) => step.0 = page,
            None => self.deep[depth - Self::SHALLOW].0 = page,
        }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, usize)> {
        (0..self.len).map(|depth| self.step(depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_ways_are_like_shallow_ones() {
        let (mut way, mut model) = (Way::new(), Vec::new());
        for (page, depth) in (7..).zip(0..DEPTH_MAX) {
            let step = (page, depth * 3);
            way.push(step.0, step.1);
            model.push(step);
            assert!(way.iter().eq(model.iter().copied()) && way.iter().rev().eq(model.iter().rev().copied()));
        }
        for (page, depth) in [(70, 3), (71, Way::SHALLOW), (72, DEPTH_MAX - 1)] {
            way.set_page(depth, page);
            model[depth].0 = page;
        }
        assert!(way.iter().eq(model.iter().copied()));
        way.pop();
        way.push(1, 2);
        assert_eq!((way.step(DEPTH_MAX - 1), way.len()), ((1, 2), DEPTH_MAX));
        assert_eq!(way.pop(), Some((1, 2)));
        for step in model[..DEPTH_MAX - 1].iter().rev() {
            assert_eq!(way.pop(), Some(*step));
        }
        assert_eq!(way.pop(), None);
    }
}
