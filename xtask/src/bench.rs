//! Measurements: kauri-bench, built as it ships; and the store's, which a package of its own measures.

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::invocation::{Invocation, cargo, target_folder};
use crate::tree::Tree;

const PEERS: &str = "crates/kauri-peers/Cargo.toml";
/// A package of its own beside them: its SQLite and theirs are two, and cargo links one.
const APALIS: &str = "crates/kauri-peers/apalis/Cargo.toml";

/// How much is measured.
pub(crate) struct Extent {
    pub(crate) quick: bool,
    /// Of the store: what operations cost with ever more rows, up to so many.
    pub(crate) scaling: bool,
    pub(crate) rows: Option<u64>,
    /// Of the runtime: steps and memory with so many messages.
    pub(crate) depth: Option<u64>,
    /// Of the doctor: how large the home is.
    pub(crate) gib: Option<u16>,
    /// Of the queue: where servers are besides the path.
    pub(crate) servers: Option<PathBuf>,
    /// And how many clients at once.
    pub(crate) clients: Option<u16>,
}

impl Extent {
    fn arguments(&self) -> Vec<String> {
        let flags = [(self.quick, "--quick"), (self.scaling, "--scaling")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned());
        let flags = flags.chain(self.rows.map(|rows| format!("--rows={rows}")));
        let flags = flags.chain(self.depth.map(|depth| format!("--depth={depth}")));
        let flags = flags.chain(self.gib.map(|gib| format!("--gib={gib}")));
        let flags = flags.chain(self.clients.map(|clients| format!("--clients={clients}")));
        flags.chain(self.servers.as_ref().map(|folder| format!("--servers={}", folder.display()))).collect()
    }
}

pub(crate) fn run(tree: &Tree, suite: Option<String>, mut extent: Extent, json: Option<PathBuf>) -> Result<()> {
    let (is_doctor, is_queue) = (suite.as_deref() == Some("doctor"), suite.as_deref() == Some("queue"));
    // The call runs from the root; the person may stand elsewhere.
    let absolute = |file: PathBuf| std::path::absolute(&file).map_err(Failure::io(format!("find {}", file.display())));
    extent.servers = extent.servers.map(absolute).transpose()?;
    let mut call = call(tree, suite)?.arguments(extent.arguments());
    if is_doctor {
        // It measures the program itself.
        cargo(&["build", "--release", "--locked", "-p", "kauri", "--bin", "kauri"]).run()?;
        let program = target_folder().join("release/kauri");
        call = call.arguments(["--kauri".to_owned(), program.display().to_string()]);
        // Its home has many gigabytes, and is nothing of the repository's.
        call = call.arguments(["--folder".to_owned(), target_folder().display().to_string()]);
    }
    if is_queue && tree.holds(APALIS) {
        peers("build", APALIS).run()?;
    }
    if let Some(file) = json {
        let file = absolute(file)?;
        call = call.arguments(["--json".to_owned(), file.display().to_string()]);
    }
    call.run()
}

/// The call that measures a suite. The peers of store and queue are outside the workspace, so that only this builds them.
fn call(tree: &Tree, suite: Option<String>) -> Result<Invocation> {
    let program = match suite.as_deref() {
        Some("store") => Some("kauri-peers"),
        Some("queue") => Some("queue"),
        _ => None,
    };
    if let Some(program) = program
        && tree.holds(PEERS)
    {
        return Ok(peers("run", PEERS).arguments(["--bin", program, "--"]));
    }
    if !tree.holds("crates/kauri-bench/Cargo.toml") {
        return Err(Failure::Failed("there is no crates/kauri-bench to run".to_owned()));
    }
    Ok(cargo(&["run", "--release", "--locked", "-p", "kauri-bench", "--"]).arguments(suite))
}

/// A call for a package of peers, all of which are built in one folder: the suite queue looks for apalis beside itself.
fn peers(verb: &str, manifest: &str) -> Invocation {
    let folder = target_folder().join("peers").display().to_string();
    cargo(&[verb, "--release", "--locked", "--manifest-path", manifest, "--target-dir", &folder])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_passed_on() {
        let none =
            Extent { quick: false, scaling: false, rows: None, depth: None, gib: None, servers: None, clients: None };
        assert!(none.arguments().is_empty());
        let servers = Some("there".into());
        let (rows, depth, gib, clients) = (Some(7), Some(9), Some(3), Some(64));
        let all = Extent { quick: true, scaling: true, rows, depth, gib, servers, clients };
        let expected = ["--quick", "--scaling", "--rows=7", "--depth=9", "--gib=3", "--clients=64", "--servers=there"];
        assert_eq!(all.arguments(), expected);
    }

    #[test]
    fn suites_with_peers_are_a_package_of_their_own() {
        let tree = Tree::of(&[("crates/kauri-bench/Cargo.toml", ""), ("crates/kauri-peers/Cargo.toml", "")]);
        let line = |suite: &str| call(&tree, Some(suite.to_owned())).map(|call| call.to_string()).unwrap_or_default();
        assert!(line("wire").ends_with(" -p kauri-bench -- wire"), "{}", line("wire"));
        for (suite, program) in [("store", "kauri-peers"), ("queue", "queue")] {
            let line = line(suite);
            assert!(line.contains(" --manifest-path crates/kauri-peers/Cargo.toml "), "{line}");
            assert!(line.ends_with(&format!(" --bin {program} --")), "{line}");
        }
        let folder =
            |line: &str| line.split(" --target-dir ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        assert_eq!(folder(&peers("build", APALIS).to_string()), folder(&line("queue")), "apalis is beside its suite");
        assert!(folder(&line("queue")).is_some());
    }
}
