//! Checks the files and folders in the root.

use super::Violation;
use super::workspace::Workspace;

const ALLOWED: [&str; 14] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "config",
    "deploy",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "services",
    "shared",
    "target",
    "tests",
];

/// Checks that the root has only these files and folders, so that a reader sees all of it at once.
pub(super) fn top_level(workspace: &Workspace) -> Vec<Violation> {
    let is_allowed = |name: &&String| ALLOWED.contains(&name.as_str()) || name.starts_with('.');
    let others = workspace.top_level.iter().filter(|name| !is_allowed(name));
    others.map(|name| Violation::new(name.as_str(), "has its place in one of the folders, not in the root")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_top_level_entry_is_found() {
        let names = ["Cargo.toml", ".git", "target", "tests", "docs", "notes.txt"];
        let workspace = Workspace { top_level: names.map(str::to_owned).to_vec(), ..Workspace::default() };
        let found: Vec<String> = top_level(&workspace).into_iter().map(|violation| violation.place).collect();
        assert_eq!(found, ["docs", "notes.txt"]);
    }
}
