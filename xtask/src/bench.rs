//! Measurements: kauri-bench, built as it ships.

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::invocation::cargo;
use crate::tree::Tree;

pub(crate) fn run(tree: &Tree, suite: Option<String>, quick: bool, json: Option<PathBuf>) -> Result<()> {
    if !tree.holds("crates/kauri-bench/Cargo.toml") {
        return Err(Failure::Failed("there is no crates/kauri-bench to run".to_owned()));
    }
    let mut call = cargo(&["run", "--release", "--locked", "-p", "kauri-bench", "--"]).arguments(suite);
    if quick {
        call = call.arguments(["--quick"]);
    }
    if let Some(file) = json {
        // The call runs from the root; the person may stand elsewhere.
        let file = std::path::absolute(&file).map_err(Failure::io(format!("find {}", file.display())))?;
        call = call.arguments(["--json".to_owned(), file.display().to_string()]);
    }
    call.run()
}
