//! Where nobody can watch: a commit is a commit.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::store::{State, Store};

/// No watches.
#[derive(Debug, Default)]
pub(crate) struct Watches;

impl Watches {
    #[expect(clippy::unused_self, reason = "as where somebody can")]
    pub(crate) fn around<T>(
        &self,
        _: &Catalog,
        state: &mut State,
        commit: impl FnOnce(&mut State) -> Result<(T, u64)>,
    ) -> Result<T> {
        commit(state).map(|(done, _)| done)
    }

    #[expect(clippy::unused_self, reason = "as where somebody can")]
    pub(crate) fn deliver(&self, _: &Store) {}
}
