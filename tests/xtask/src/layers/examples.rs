//! Checks that examples in the documentation run.
//!
//! In a crate without examples, `[lib] doctest = false` saves a call of rustdoc.

use super::Violation;
use super::workspace::Workspace;

/// Checks that a crate with examples in its documentation tests them.
pub(super) fn tested(workspace: &Workspace) -> Vec<Violation> {
    let untested = workspace.packages.iter().filter(|package| !package.examples_run);
    let of_untested = untested.flat_map(|package| {
        let below = format!("{}/", package.folder);
        workspace.sources.iter().filter(move |source| source.path.starts_with(&below))
    });
    let with_example = of_untested.filter(|source| source.text.lines().any(begins_example));
    with_example.map(|source| Violation::new(&source.path, "has an example that never runs: remove `doctest = false`")).collect()
}

fn begins_example(line: &str) -> bool {
    let line = line.trim_start();
    let documentation = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    documentation.is_some_and(|text| matches!(text.trim().strip_prefix("```"), Some("" | "rust" | "should_panic" | "no_run")))
}

#[cfg(test)]
mod tests {
    use super::super::workspace::made_up::{package, source};
    use super::*;

    #[test]
    fn an_example_that_never_runs_is_found() {
        let with = source("shared/image/src/lib.rs", "//! ```\n//! assert!(true);\n//! ```\n");
        let without = source("shared/clock/src/lib.rs", "/// ```text\nlet fence = \"```\";\n");
        let mut packages = vec![package("shared/image", &[]), package("shared/clock", &[])];
        packages.iter_mut().for_each(|package| package.examples_run = true);
        let mut workspace = Workspace { packages, sources: vec![with, without], ..Workspace::default() };
        assert_eq!(tested(&workspace), []);
        workspace.packages.iter_mut().for_each(|package| package.examples_run = false);
        let found = tested(&workspace);
        assert!(found.len() == 1 && found[0].place == "shared/image/src/lib.rs", "{found:?}");
    }
}
