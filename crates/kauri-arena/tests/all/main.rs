//! What the crate promises, asked from outside: random operations against a model, threads against each other, and, built with
//! `--cfg loom`, every interleaving of a few steps under the memory model.

#[cfg(not(loom))]
mod bounded;
#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod stress;
