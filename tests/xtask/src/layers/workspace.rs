//! The workspace as the rules see it.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::command;

/// The folders of the crates that ship.
const SHIPPED: [&str; 2] = ["services", "shared"];

/// The crates and sources of the workspace.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) packages: Vec<Package>,
    /// The sources of the crates that ship, without their tests.
    pub(super) sources: Vec<Source>,
    /// The names of the files and folders in the root.
    pub(super) top_level: Vec<String>,
}

/// One crate.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// The folder, such as `services/throttler`.
    pub(super) folder: String,
    /// The dependencies, without those of tests.
    pub(super) dependencies: Vec<String>,
    /// Whether the examples in its documentation run as tests.
    pub(super) examples_run: bool,
    /// The names of its executables with integration tests.
    pub(super) test_targets: Vec<String>,
    /// The whole files in its `tests` folder.
    pub(super) test_files: Vec<Source>,
}

/// One Rust file.
#[derive(Debug)]
pub(super) struct Source {
    /// The path, such as `shared/bus/src/port.rs`.
    pub(super) path: String,
    /// The text without unit tests.
    pub(super) text: String,
}

impl Workspace {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let metadata = command::output(command::cargo(root).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
        let mut packages: Vec<Package> = array(&metadata["packages"]).iter().filter_map(|package| Package::of(package, root)).collect();
        for package in &mut packages {
            let tests = root.join(&package.folder).join("tests");
            if tests.is_dir() {
                whole_files(root, &tests, &mut package.test_files)?;
            }
        }
        let mut sources = Vec::new();
        for folder in SHIPPED {
            collect(root, &root.join(folder), &mut sources)?;
        }
        let mut top_level = Vec::new();
        for entry in fs::read_dir(root)? {
            top_level.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(Self { packages, sources, top_level })
    }

    /// The crates that ship.
    pub(super) fn shipped(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| SHIPPED.iter().any(|folder| package.folder.starts_with(folder)))
    }
}

impl Package {
    fn of(package: &Value, root: &Path) -> Option<Self> {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.strip_prefix(root).ok()?;
        let built = array(&package["dependencies"]).iter().filter(|dependency| dependency["kind"] != "dev");
        let dependencies = built.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned)).collect();
        let tests = array(&package["targets"]).iter().filter(|target| array(&target["kind"]).iter().any(|kind| kind == "test"));
        let examples_run = array(&package["targets"]).iter().any(|target| target["doctest"] == true);
        Some(Self {
            examples_run,
            name: package["name"].as_str()?.to_owned(),
            folder: folder.to_string_lossy().into_owned(),
            dependencies,
            test_targets: tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect(),
            test_files: Vec::new(),
        })
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "benches" || name == "examples");
        if is_test {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
            sources.push(Source { path, text: without_tests(&text).to_owned() });
        }
    }
    Ok(())
}

/// Adds every Rust file below a folder, including tests.
fn whole_files(root: &Path, folder: &Path, files: &mut Vec<Source>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            whole_files(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(Source { text: fs::read_to_string(&path)?, path: path.strip_prefix(root)?.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

/// The part before the module of unit tests, which is the last in a file.
fn without_tests(text: &str) -> &str {
    let ends = text.match_indices("\n#[cfg(test)]").filter(|(at, _)| {
        let rest = text[*at..].lines().skip(2);
        rest.map(str::trim_start).find(|line| !line.starts_with("#[")).is_some_and(|line| line.starts_with("mod "))
    });
    ends.last().map_or(text, |(at, _)| &text[..at])
}

impl Source {
    /// Lines of code with their numbers, without comments.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        numbered.filter(|(_, line)| !line.starts_with("//"))
    }

    /// The text with an empty line for each line of a comment.
    pub(super) fn without_comments(&self) -> String {
        let kept = self.text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
        kept.collect::<Vec<_>>().join("\n")
    }

    /// The crate's folder: `shared/bus` for `shared/bus/src/port.rs`.
    pub(super) fn folder(&self) -> &str {
        match self.path.match_indices('/').nth(1) {
            Some((at, _)) => &self.path[..at],
            None => &self.path,
        }
    }
}

#[cfg(test)]
pub(super) mod made_up {
    use super::*;

    /// A workspace with one file.
    pub(in crate::layers) fn file(path: &str, text: &str) -> Workspace {
        let source = Source { path: path.to_owned(), text: without_tests(text).to_owned() };
        Workspace { sources: vec![source], ..Workspace::default() }
    }

    /// A workspace with one crate.
    pub(in crate::layers) fn package(folder: &str, dependencies: &[&str]) -> Package {
        let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Package { name, folder: folder.to_owned(), dependencies, examples_run: false, test_targets: Vec::new(), test_files: Vec::new() }
    }

    /// A whole file.
    pub(in crate::layers) fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_at_the_end_are_left_out_and_nothing_else_is() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n}\n"), "a");
        assert_eq!(without_tests("a\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n"), "a");
        let one_function = "a\n#[cfg(test)]\nfn only_in_tests() {}\nb\n";
        assert_eq!(without_tests(one_function), one_function);
        assert_eq!(without_tests("a"), "a");
    }

    #[test]
    fn this_workspace_is_read() {
        let workspace = Workspace::read(&crate::workspace_root().unwrap()).unwrap();
        assert!(
            workspace.shipped().any(|package| package.folder == "shared/bus" && package.dependencies.contains(&"async-nats".to_owned()))
        );
        assert!(workspace.packages.iter().any(|package| package.name == "xtask" && !package.dependencies.contains(&"tempfile".to_owned())));
        assert!(workspace.sources.iter().any(|source| source.path == "shared/clock/src/lib.rs" && source.folder() == "shared/clock"));
        assert!(workspace.top_level.contains(&"Cargo.toml".to_owned()));
    }
}
