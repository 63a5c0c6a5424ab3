//! What this tool needs to know of a `Cargo.toml`: the names in it.

use toml::{Table, Value};

use crate::tree::Tree;

/// One package of the repository.
pub(crate) struct Package {
    /// Folder from the root: `crates/kauri-wire`.
    pub(crate) folder: String,
    pub(crate) name: String,
    pub(crate) bins: Vec<String>,
    pub(crate) examples: Vec<String>,
    pub(crate) has_library: bool,
    pub(crate) has_property_tests: bool,
}

impl Package {
    /// Whether it belongs to the workspace: the fuzz crate and packages inside a crate, such as guests, do not.
    pub(crate) fn is_member(&self) -> bool {
        self.folder == "xtask" || self.folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
    }
}

/// Every package, the fuzz crate included. A manifest that cannot be read is Cargo's to report.
pub(crate) fn packages(tree: &Tree) -> Vec<Package> {
    let manifests = tree.files().filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text)));
    manifests.filter_map(|(folder, text)| package(tree, folder, &text.parse().ok()?)).collect()
}

/// The features that a package has unless one says otherwise, by the path of its manifest.
pub(crate) fn features(tree: &Tree, manifest: &str) -> Vec<String> {
    let text = tree.files().find(|(path, _)| *path == manifest).map(|(_, text)| text);
    let manifest: Option<Table> = text.and_then(|text| text.parse().ok());
    let features = manifest.as_ref().and_then(|manifest| manifest.get("features")?.get("default")?.as_array());
    features.into_iter().flatten().filter_map(|name| name.as_str().map(String::from)).collect()
}

fn package(tree: &Tree, folder: &str, manifest: &Table) -> Option<Package> {
    let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
    let mut bins = declared(manifest, "bin");
    bins.extend(found(tree, &format!("{folder}/src/bin/")));
    if bins.is_empty() && tree.holds(&format!("{folder}/src/main.rs")) {
        bins.push(name.clone());
    }
    let mut examples = declared(manifest, "example");
    examples.extend(found(tree, &format!("{folder}/examples/")));
    let depends_on = |what: &str| {
        ["dependencies", "dev-dependencies"]
            .iter()
            .any(|kind| manifest.get(*kind).and_then(|all| all.get(what)).is_some())
    };
    Some(Package {
        has_library: tree.holds(&format!("{folder}/src/lib.rs")),
        has_property_tests: depends_on("proptest"),
        folder: folder.to_owned(),
        name,
        bins,
        examples,
    })
}

/// Names in `[[bin]]` or `[[example]]` sections.
fn declared(manifest: &Table, section: &str) -> Vec<String> {
    let sections = manifest.get(section).and_then(Value::as_array).into_iter().flatten();
    sections.filter_map(|target| target.get("name")?.as_str().map(String::from)).collect()
}

/// Names Cargo finds by itself: `folder/name.rs` and `folder/name/main.rs`.
fn found(tree: &Tree, folder: &str) -> Vec<String> {
    let names = tree.files().filter_map(|(path, _)| {
        let path = path.strip_prefix(folder)?;
        let name = path.strip_suffix("/main.rs").or_else(|| path.strip_suffix(".rs"))?;
        (!name.contains('/')).then(|| name.to_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_manifest_and_from_the_folders() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"kauri\"\n[dev-dependencies]\nproptest = \"1\"\n"),
            ("crates/a/src/main.rs", ""),
            ("crates/a/examples/orders.rs", ""),
            ("crates/a/examples/guest/main.rs", ""),
            ("crates/a/examples/guest/part.rs", ""),
            ("fuzz/Cargo.toml", "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"frame\"\n[[bin]]\nname = \"key\"\n"),
        ]);
        let [kauri, fuzz] = &packages(&tree)[..] else { panic!("two packages") };
        assert_eq!(
            (&kauri.folder[..], &kauri.name[..], &kauri.bins[..]),
            ("crates/a", "kauri", &["kauri".to_owned()][..])
        );
        assert_eq!(kauri.examples, ["guest", "orders"]);
        assert!(kauri.is_member() && kauri.has_property_tests && !kauri.has_library);
        assert!(!fuzz.is_member());
        assert_eq!(fuzz.bins, ["frame", "key"]);
    }
}
