//! The documents are true: every command line in them parses, and every link and every path of the architecture page is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use clap::Parser as _;
use fleetpull::cli::Cli;

/// The pages that people read first.
const PAGES: [&str; 11] = [
    "README.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    "config/decisions/README.md",
    "deploy/README.md",
    "deploy/guide.md",
    "deploy/tracing.md",
    "services/README.md",
    "shared/contract/README.md",
    "tests/README.md",
    "tests/bench/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines that begin with `fleetpull ` or `sudo fleetpull `, in shell blocks and in help texts, without what follows them.
fn command_lines(text: &str) -> Vec<String> {
    // A backslash at the end of a line continues it.
    let text = text.split("\\\n").map(str::trim_start).collect::<String>();
    let lines = text.lines().map(|line| line.trim().trim_start_matches("sudo ")).filter(|line| line.starts_with("fleetpull "));
    let command = |line: &str| {
        let line = line.split("  ").next().unwrap_or(line).split(" > ").next().unwrap_or(line).split(" && ").next().unwrap_or(line);
        line.trim_end_matches("...").trim_end_matches("--nats ").trim().to_owned()
    };
    lines.map(command).collect()
}

/// The text between ```sh and ```.
fn shell_blocks(text: &str) -> String {
    text.split("```sh").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// As a shell splits it: between single quotes white space is part of a word.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            _ if character.is_whitespace() && !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn assert_parses(line: &str, place: &str) {
    if let Err(error) = Cli::try_parse_from(words(line)) {
        assert!(
            matches!(error.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion),
            "{place}: {line}\n{error}"
        );
    }
}

#[test]
fn every_command_line_of_the_readmes_parses() {
    for document in PAGES {
        for line in command_lines(&shell_blocks(&read(document))) {
            assert_parses(&line, document);
        }
    }
    assert!(command_lines(&shell_blocks(&read("README.md"))).len() >= 8);
}

#[test]
fn every_example_of_the_help_texts_parses() {
    use clap::CommandFactory as _;
    let mut examples = 0;
    let mut command = Cli::command();
    command.build();
    let mut commands = vec![command];
    while let Some(mut command) = commands.pop() {
        let help = command.render_long_help().to_string();
        for line in command_lines(&help).iter().filter(|line| !line.contains('[') && !line.contains('<')) {
            assert_parses(line, command.get_name());
            examples += 1;
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(examples >= 15, "only {examples} examples were found");
}

#[test]
fn every_link_of_the_readmes_leads_somewhere() {
    for page in PAGES {
        let (text, folder) = (read(page), page.rsplit_once('/').map_or("", |(folder, _)| folder));
        // What follows a # is a place on the page.
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            assert!(root().join(folder).join(target).exists(), "{page}: {target} is not there");
        }
    }
}

/// The crates that ship, each with the folder that it lies in.
fn shipped() -> Vec<(&'static str, String)> {
    let mut crates = Vec::new();
    for folder in ["services", "shared"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.path().is_dir());
        crates.extend(folders.map(|entry| (folder, entry.file_name().into_string().unwrap())));
    }
    crates
}

#[test]
fn a_newcomer_reads_the_readme_in_ten_minutes() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "{lines} lines: what is not for a newcomer has its place on another page");
}

/// The paths that a page names in backticks, each with the name that follows it and `::`, if one does. Blocks of code name none.
fn named_paths(page: &str) -> Vec<(&str, Option<&str>)> {
    let prose = page.split("```").step_by(2);
    let spans = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    let named = spans.map(|span| span.split_once("::").map_or((span, None), |(path, name)| (path, Some(name))));
    let of_repository = |path: &str| ["services/", "shared/", "tests/", "config/", "deploy/"].iter().any(|folder| path.starts_with(folder));
    named.filter(|(path, _)| path.contains('/') && (path.ends_with(".rs") || path.ends_with('/') || of_repository(path))).collect()
}

/// The keywords that begin the definition of an item.
const DEFINING: [&str; 6] = ["const", "enum", "fn", "struct", "trait", "type"];

/// True if a source file defines an item of this name. A use of an item that another file defines does not count.
fn defines(source: &str, name: &str) -> bool {
    let words: Vec<&str> = source.split(|character: char| !character.is_alphanumeric() && character != '_').collect();
    words.windows(2).any(|pair| DEFINING.contains(&pair[0]) && pair[1] == name)
}

#[test]
fn an_item_is_looked_for_where_it_is_defined() {
    let source = "use contract::is_from;\nconst LEAST: usize = 1;\n    pub(super) fn check<T>(&self) { is_from(self) }";
    assert_eq!(["is_from", "check", "LEAST", "self"].map(|name| defines(source, name)), [false, true, true, false]);
}

#[test]
fn paths_and_names_on_the_architecture_page_exist() {
    let page = read("services/README.md");
    let paths = named_paths(&page);
    assert!(paths.len() >= 150, "only {} paths were found", paths.len());
    for (path, name) in paths {
        assert!(root().join(path).exists(), "{path} is not there");
        if let Some(name) = name {
            assert!(defines(&read(path), name), "{path} does not define {name}");
        }
    }
    for (folder, name) in shipped() {
        assert!(page.contains(&format!("`{folder}/{name}/`")), "{folder}/{name} is not on the page");
    }
}

#[test]
fn architecture_page_says_where_a_pull_is_refused_a_permit_granted_and_an_event_published() {
    let page = read("services/README.md");
    let (_, places) = page.split_once("## Where to look").unwrap();
    for place in [
        "services/pull-coordinator/src/core/checks.rs::backoff_checked",
        "services/throttler/src/core/budget/leader/admission.rs::admit",
        "services/event-recorder/src/durable.rs::carry_out",
    ] {
        assert!(places.contains(&format!("`{place}`")), "{place}");
    }
}

#[test]
fn paths_in_code_blocks_are_ignored() {
    let page = "`shared/bus/`, `a.rs` and `tests/x.rs::look`\n```text\n`shared/none/`\n```\n`cmd.<node>`, `x/y`, `config/z.toml`";
    let expected = [("shared/bus/", None), ("tests/x.rs", Some("look")), ("config/z.toml", None)];
    assert_eq!(named_paths(page), expected);
}

/// The crates of others that a section of a manifest names.
fn dependencies<'a>(manifest: &'a str, section: &str) -> Vec<&'a str> {
    let section = manifest.split(section).nth(1).unwrap().split("\n[").next().unwrap();
    let entries = section.lines().filter_map(|line| line.split_once(" = "));
    entries.filter(|(_, value)| !value.contains("path = ")).map(|(name, _)| name).collect()
}

/// The crates that the record names: in the second column of its table, and as given.
fn recorded(record: &str) -> Vec<&str> {
    let given = record.split("Given: ").nth(1).unwrap().split('.').next().unwrap();
    let rows = record.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let cells = rows.filter(|cell| *cell != "crate").chain([given]);
    cells.flat_map(|cell| cell.split(&[',', ' ', '\n'][..])).filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_decision_record_has_the_same_form() {
    let folder = std::fs::read_dir(root().join("config/decisions")).unwrap();
    let mut names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "README.md");
    names.sort();
    assert!(names.len() >= 21, "{names:?}");
    for (number, name) in (1..).zip(&names) {
        let record = read(&format!("config/decisions/{name}"));
        let mut lines = record.lines().filter(|line| !line.is_empty());
        assert!(name.starts_with(&format!("{number:04}-")), "{name} is not record {number}");
        assert!(lines.next().unwrap().starts_with(&format!("# {number}. ")), "{name}: its first line is `# {number}. Title`");
        let status = lines.next().unwrap();
        assert!(status.starts_with("Status: ") && status.contains(" Date: 20"), "{name}: {status}");
        let headings: Vec<&str> = record.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, ["Context", "Decision", "Consequence"], "{name}");
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let (manifest, record) = (read("Cargo.toml"), read("config/decisions/0003-dependencies.md"));
    // Fuzzing has a workspace of its own.
    let fuzzing = read("tests/fuzz/libfuzzer/Cargo.toml");
    let used = [dependencies(&manifest, "[workspace.dependencies]"), dependencies(&fuzzing, "[dependencies]")].concat();
    let recorded = recorded(&record);
    assert!(used.len() > 50, "{used:?}");
    let without_reason: Vec<_> = used.iter().filter(|name| !recorded.contains(name)).collect();
    assert!(without_reason.is_empty(), "no line in 0003-dependencies.md says why there is {without_reason:?}");
    let not_used: Vec<_> = recorded.iter().filter(|name| !used.contains(name)).collect();
    assert!(not_used.is_empty(), "0003-dependencies.md names what Cargo.toml does not: {not_used:?}");
}

#[test]
fn every_crate_takes_its_dependencies_from_the_workspace() {
    for group in ["services", "shared", "tests"] {
        for entry in std::fs::read_dir(root().join(group)).unwrap() {
            let path = entry.unwrap().path().join("Cargo.toml");
            let Ok(manifest) = std::fs::read_to_string(&path) else { continue };
            let sections = manifest.split("dependencies]\n").skip(1).map(|rest| rest.split("\n[").next().unwrap());
            for line in sections.flat_map(str::lines).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                assert!(line.contains("workspace = true"), "{}: {line}: a version of its own has no reason on record", path.display());
            }
        }
    }
}
