//! Tools that are not part of the toolchain: installed when missing, and only then.

use crate::failure::{Failure, Result};
use crate::invocation::{Invocation, cargo};

/// A cargo subcommand a step needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Rustfmt,
    Clippy,
    Nextest,
    Deny,
    Fuzz,
}

impl Tool {
    fn subcommand(self) -> &'static str {
        match self {
            Tool::Rustfmt => "fmt",
            Tool::Clippy => "clippy",
            Tool::Nextest => "nextest",
            Tool::Deny => "deny",
            Tool::Fuzz => "fuzz",
        }
    }

    /// The package and the version that is installed here; none for what comes with the toolchain.
    fn package(self) -> Option<(&'static str, &'static str)> {
        match self {
            Tool::Rustfmt | Tool::Clippy => None,
            Tool::Nextest => Some(("cargo-nextest", "0.9.143")),
            Tool::Deny => Some(("cargo-deny", "0.20.2")),
            Tool::Fuzz => Some(("cargo-fuzz", "0.13.2")),
        }
    }

    /// Makes sure the tool is there. Any version will do: the pin is for machines that have none.
    pub(crate) fn ensure(self) -> Result<()> {
        let subcommand = self.subcommand();
        if cargo(&[subcommand, "--version"]).succeeds() {
            return Ok(());
        }
        let Some(install) = self.install() else {
            let component = if self == Tool::Rustfmt { "rustfmt" } else { "clippy" };
            let advice = format!("it is part of the toolchain, add it with `rustup component add {component}`");
            return Err(Failure::Failed(format!("`cargo {subcommand}` is missing: {advice}")));
        };
        println!("`cargo {subcommand}` is missing, installing it: {install}");
        install.run()
    }

    fn install(self) -> Option<Invocation> {
        let (package, version) = self.package()?;
        Some(cargo(&["install", "--locked", package, "--version", version]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_tool_installs_with_its_lock_file() {
        let install = Tool::Fuzz.install().unwrap();
        assert!(install.to_string().starts_with("cargo install --locked cargo-fuzz --version "), "{install}");
        assert!(Tool::Clippy.install().is_none());
    }
}
