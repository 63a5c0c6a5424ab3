//! Rule for links in Markdown: what they point to inside the repository exists.

use super::{Finding, Found, in_files, markdown, numbered};
use crate::tree::Tree;

pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    in_files(tree, ".md", |path, text| {
        let mut found = Found::new();
        for (line, content) in numbered(&markdown::prose(text)) {
            let broken = targets(content).into_iter().filter_map(|target| Some((target, trouble(tree, path, target)?)));
            found.extend(broken.map(|(target, why)| (line, format!("the link `{target}` leads nowhere; {why}"))));
        }
        found
    })
}

/// Targets of `[text](target)` and of `[name]: target`, those with a scheme left out.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let defined = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
    let all = inline.chain(defined).map(|target| target.trim_matches(['<', '>']));
    all.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// What was expected of a link that does not resolve.
fn trouble(tree: &Tree, page: &str, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(page, file).filter(|file| tree.holds(file)) else {
        return Some("expected the path of a file, relative to this page".to_owned());
    };
    // An anchor in another kind of file, such as a line number, is the viewer's business.
    if anchor.is_empty() || !file.ends_with(".md") {
        return None;
    }
    let anchors = markdown::anchors(tree.text(&file).unwrap_or_default());
    (!anchors.iter().any(|known| known == anchor)).then(|| format!("expected a heading of {file}"))
}

/// The path from the root that a link on `page` means; none if it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { page.split('/').collect() };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(link: &str, resolves: bool) {
        let page = format!("# Top\n\n{link}\n");
        let tree = Tree::of(&[("README.md", "# Kauri\n"), ("docs/format.md", &page), ("docs/a/b.bin", "")]);
        assert_eq!(links(&tree).len(), usize::from(!resolves), "{link}: {:?}", links(&tree));
    }

    #[test]
    fn link_to_what_is_there_resolves() {
        for target in ["../README.md", "../README.md#kauri", "#top", "format.md", "./a/", "a/b.bin", "..", "/README.md"]
        {
            check(&format!("see [it]({target})"), true);
            check(&format!("[it]: {target}"), true);
        }
        check("[`a`](https://kauri.example/x) [b](mailto:ann@kauri.example) [c](a/b.bin \"title\")", true);
    }

    #[test]
    fn link_to_what_is_not_there_is_found() {
        for target in ["README.md", "../README.md#oak", "#bottom", "../../README.md", "a/b"] {
            check(&format!("see [it]({target})"), false);
            check(&format!("[it]: {target}"), false);
        }
    }

    #[test]
    fn link_in_code_is_not_a_link() {
        check("`[it](nowhere)`\n```\n[it](nowhere)\n```", true);
    }
}
