//! The size of what people download: the release binary, with and without symbols.

use std::fs;

use crate::failure::{Failure, Result};
use crate::invocation::{Invocation, cargo, target_folder};
use crate::table::Table;

pub(crate) fn run() -> Result<()> {
    let mut table = Table::new(["kauri", "bytes", "MiB"]);
    // The shipped form is built last, so that it is the one left in the target folder.
    for (form, strip) in [("with symbols", "none"), ("as shipped", "symbols")] {
        build(strip).run()?;
        let bytes = size_of_binary()?;
        table.push([form.to_owned(), bytes.to_string(), mebibytes(bytes)]);
    }
    print!("{table}");
    Ok(())
}

fn build(strip: &str) -> Invocation {
    let build = cargo(&["build", "--release", "--locked", "-p", "kauri", "--bin", "kauri"]);
    build.environment("CARGO_PROFILE_RELEASE_STRIP", strip)
}

fn size_of_binary() -> Result<u64> {
    let binary = target_folder().join("release").join(format!("kauri{}", std::env::consts::EXE_SUFFIX));
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
