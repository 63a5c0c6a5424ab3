//! What each feature of the store adds to a program that does little; and the size of what people download: the release binary, with and
//! without symbols.

use std::fs;

use crate::failure::{Failure, Result};
use crate::gate::STORE;
use crate::invocation::{Invocation, cargo, target_folder};
use crate::manifest;
use crate::table::Table;
use crate::tree::Tree;

pub(crate) fn run(tree: &Tree) -> Result<()> {
    // First what takes least: each table is printed as soon as it is known.
    features(&manifest::features(tree, STORE))?;
    let mut table = Table::new(["kauri", "bytes", "MiB"]);
    // The shipped form is built last, so that it is the one left in the target folder.
    for (form, strip) in [("with symbols", "none"), ("as shipped", "symbols")] {
        build(strip).run()?;
        let bytes = size_of("kauri")?;
        table.push([form.to_owned(), bytes.to_string(), mebibytes(bytes)]);
    }
    print!("\n{table}");
    Ok(())
}

/// What a program with a store in memory grows by, feature by feature.
fn features(all: &[String]) -> Result<()> {
    let mut table = Table::new(["a program with a store", "bytes", "more"]);
    let least = size_with("")?;
    table.push(["in memory, no features".to_owned(), least.to_string(), String::new()]);
    for feature in all {
        let bytes = size_with(feature)?;
        table.push([format!("and {feature}"), bytes.to_string(), bytes.saturating_sub(least).to_string()]);
    }
    let bytes = size_with(&all.join(","))?;
    table.push(["and all of them".to_owned(), bytes.to_string(), bytes.saturating_sub(least).to_string()]);
    print!("{table}");
    Ok(())
}

/// The size of the store's example with these features, stripped.
fn size_with(features: &str) -> Result<u64> {
    let build = cargo(&["build", "--release", "--locked", "-p", "kauri-tree", "--example", "minimal"]);
    build.arguments(["--no-default-features", "--features", features]).run()?;
    size_of("examples/minimal")
}

fn build(strip: &str) -> Invocation {
    let build = cargo(&["build", "--release", "--locked", "-p", "kauri", "--bin", "kauri"]);
    build.environment("CARGO_PROFILE_RELEASE_STRIP", strip)
}

fn size_of(program: &str) -> Result<u64> {
    let binary = target_folder().join("release").join(format!("{program}{}", std::env::consts::EXE_SUFFIX));
    let metadata = fs::metadata(&binary).map_err(Failure::io(format!("look at {}", binary.display())))?;
    Ok(metadata.len())
}

/// Two decimals, in whole numbers: sizes are compared, and must not round twice.
fn mebibytes(bytes: u64) -> String {
    let hundredths = bytes * 100 / (1 << 20);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mebibytes_have_two_decimals() {
        assert_eq!(mebibytes(0), "0.00");
        assert_eq!(mebibytes(3 * (1 << 20) + (1 << 16)), "3.06");
    }
}
