//! Checks that each crate has one executable of integration tests, and that it contains every test file.
//!
//! Each executable is linked with all its dependencies, which took minutes when every file was an executable. Cargo does not find these
//! files by itself, so a file without its `mod` line would not be compiled, and nobody would notice.

use super::Violation;
use super::workspace::Workspace;

/// The one executable.
const ALL: &str = "all";

/// Separate executables: the crate, the name, and the reason why it cannot be part of the one.
const APART: [(&str, &str, &str); 2] = [
    ("tests/simulation", "storm", "it runs at the same time as the others"),
    ("tests/simulation", "fleet", "it runs at the same time as the others, with an allocator of its own"),
];

/// Checks that every test executable is `all` or one with a reason to be separate, and that every file is part of one.
pub(super) fn one_executable(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        for target in &package.test_targets {
            let apart = APART.iter().any(|(folder, name, _)| *folder == package.folder && name == target);
            if target != ALL && !apart {
                let what = format!("test executable {target}: make it a module of tests/main.rs (autotests = false, [[test]] {ALL})");
                found.push(Violation::new(format!("{}/Cargo.toml", package.folder), what));
            }
        }
        let names: Vec<&str> = package.test_files.iter().map(|file| file.path.as_str()).collect();
        for path in &names {
            let is_root = *path == format!("{}/tests/main.rs", package.folder) || is_apart(&package.folder, path);
            let contained = package.test_files.iter().any(|file| file.path != *path && declares(&file.path, &file.text, path));
            if !is_root && !contained {
                found.push(Violation::new(*path, "no executable contains it: add its `mod` line to its parent"));
            }
        }
    }
    found
}

fn is_apart(folder: &str, path: &str) -> bool {
    APART.iter().any(|(of, name, _)| {
        *of == folder && [format!("{folder}/tests/{name}.rs"), format!("{folder}/tests/{name}/main.rs")].iter().any(|root| root == path)
    })
}

/// Whether the file `parent` makes the file at `path` a module.
fn declares(parent: &str, text: &str, path: &str) -> bool {
    let Some((parent_folder, parent_name)) = parent.rsplit_once('/') else { return false };
    let modules = match parent_name {
        "main.rs" | "mod.rs" => parent_folder.to_owned(),
        name => format!("{parent_folder}/{}", name.trim_end_matches(".rs")),
    };
    let below = |folder: &str| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    let module = below(&modules).map(|rest| rest.trim_end_matches("/mod.rs").trim_end_matches(".rs"));
    let by_name = module.is_some_and(|name| {
        text.lines().any(|line| line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ") == format!("mod {name};"))
    });
    by_name || below(parent_folder).is_some_and(|rest| text.contains(&format!("#[path = \"{rest}\"]")))
}

#[cfg(test)]
mod tests {
    use super::super::workspace::made_up::{package, source};
    use super::*;

    fn found(targets: &[&str], files: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut made = package("shared/bus", &[]);
        made.test_targets = targets.iter().map(|name| (*name).to_owned()).collect();
        made.test_files = files.iter().map(|(path, text)| source(&format!("shared/bus/tests/{path}"), text)).collect();
        let violations = one_executable(&Workspace { packages: vec![made], ..Workspace::default() });
        violations.into_iter().map(|violation| (violation.place, violation.what)).collect()
    }

    #[test]
    fn a_second_executable_is_found() {
        assert_eq!(found(&["all"], &[]), []);
        let found = found(&["all", "socket"], &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == "shared/bus/Cargo.toml" && found[0].1.contains("socket"), "{found:?}");
    }

    #[test]
    fn a_file_that_nobody_contains_is_found() {
        let whole = [
            ("main.rs", "//! All.\n\nmod cluster;\nmod world;\n"),
            ("cluster.rs", "mod lost;\n#[path = \"odd/one.rs\"]\nmod one;\n"),
            ("cluster/lost.rs", ""),
            ("odd/one.rs", ""),
            ("world/mod.rs", "pub(crate) mod part;\n"),
            ("world/part.rs", ""),
        ];
        assert_eq!(found(&["all"], &whole), []);
        let table = [
            ("mod cluster;", "cluster.rs"),
            ("mod lost;", "cluster/lost.rs"),
            ("odd/one.rs", "odd/one.rs"),
            ("mod world;", "world/mod.rs"),
            ("mod part;", "world/part.rs"),
        ];
        for (declaration, missed) in table {
            let texts = whole.map(|(path, text)| (path, text.replace(declaration, "")));
            let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let places: Vec<String> = found(&["all"], &files).into_iter().map(|(place, _)| place).collect();
            assert_eq!(places, [format!("shared/bus/tests/{missed}")]);
        }
    }
}
