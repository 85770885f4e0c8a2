//! The manual pages in deploy/man are those of the command line as it is defined. `cargo xtask man` writes them anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use fleetpull::cli::Cli;

/// What every help text begins with behind the options.
const EXAMPLES: &str = "Examples:\n";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/man")
}

/// The pages of a command and of those below it, by the names of their files.
fn add_pages(command: &Command, version: &str, pages: &mut BTreeMap<String, String>) {
    command.get_subcommands().for_each(|below| add_pages(below, version, pages));
    let man = Man::new(command.clone().after_help(None::<&str>)).source(format!("fleetpull {version}")).manual("Fleetpull");
    let mut page = Vec::new();
    man.render(&mut page).unwrap();
    if let Some(help) = command.get_after_help() {
        examples(&help.to_string()).to_writer(&mut page).unwrap();
    }
    pages.insert(man.get_filename(), String::from_utf8(page).unwrap());
}

/// Line by line, as the help shows them.
fn examples(help: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]).control("nf", []);
    help.strip_prefix(EXAMPLES).unwrap_or(help).lines().for_each(|line| {
        section.text([roman(line)]);
    });
    section.control("fi", []);
    section
}

fn pages() -> BTreeMap<String, String> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let version = command.get_version().unwrap_or_default().to_owned();
    let mut pages = BTreeMap::new();
    add_pages(&command, &version, &mut pages);
    pages
}

fn written() -> BTreeMap<String, String> {
    let Ok(folder) = std::fs::read_dir(folder()) else { return BTreeMap::new() };
    let files = folder.map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read_to_string(file.path()).unwrap())).collect()
}

#[test]
fn the_manual_pages_are_those_of_the_command_line() {
    let pages = pages();
    if std::env::var_os("BLESS").is_some() {
        let _ = std::fs::remove_dir_all(folder());
        std::fs::create_dir_all(folder()).unwrap();
        pages.iter().for_each(|(name, page)| std::fs::write(folder().join(name), page).unwrap());
    }
    let written = written();
    assert_eq!(written.keys().collect::<Vec<_>>(), pages.keys().collect::<Vec<_>>(), "`cargo xtask man` writes the pages anew");
    for (name, page) in &pages {
        assert!(written[name] == *page, "{name} is of an older command line: `cargo xtask man` writes the pages anew");
    }
}

#[test]
fn a_page_has_name_options_and_examples() {
    let page = &pages()["fleetpull-backoff-clear.1"];
    for part in ["fleetpull\\-backoff\\-clear \\- ", "\\fB\\-\\-node\\fR", ".SH EXAMPLES\n.nf", "fleetpull backoff clear app:v2"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
