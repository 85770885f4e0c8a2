//! Rules about the folders in which some code may be.

use super::Violation;
use super::workspace::Workspace;

/// A rule about text: all text with one of the marks must be in the home.
struct Spelling {
    home: &'static str,
    marks: &'static [&'static str],
    /// The folder for which the rule holds; empty: all folders.
    within: &'static str,
    /// A folder that is exempt, for a reason of its own.
    except: Option<&'static str>,
    what: &'static str,
}

/// The parts of Fleetpull's subjects.
const SUBJECTS: Spelling = Spelling {
    home: "shared/contract",
    marks: &[".v1.cmd", ".v1.evt", ".v1.know", "\"cmd.", "\"evt.", "\"know.", "$SRV"],
    within: "",
    // Help texts show commands of other programs.
    except: Some("services/fleetpull/src/cli/"),
    what: "subjects are spelled in shared/contract alone: add a function there",
};

/// Text that only code which completes a reference contains.
const REFERENCES: Spelling = Spelling {
    home: "shared/image",
    marks: &["\"library/", "\"latest\"", "docker.io/library"],
    within: "",
    except: None,
    what: "references are completed in shared/image alone: use image::Reference",
};

/// Text that only code which parses a reference contains; below the services an `@` has other uses, such as URLs.
const DIGESTS: Spelling = Spelling {
    home: "shared/image",
    marks: &["'@'", "\"@\"", "\"@sha256:", "\"sha256:\""],
    within: "services/",
    except: None,
    what: "references are parsed in shared/image alone: use image::Reference",
};

const CLOCKS: Spelling = Spelling {
    home: "shared/clock",
    marks: &["Instant::now", "SystemTime::now", "now_utc(", "now_local(", "Utc::now", "Local::now"],
    within: "",
    except: None,
    what: "clocks are read in shared/clock alone: take a clock::Clock or a `now`",
};

/// Checks that subjects are spelled only in shared/contract.
pub(super) fn subjects(workspace: &Workspace) -> Vec<Violation> {
    SUBJECTS.violations(workspace)
}

/// Checks that references are parsed only in shared/image.
pub(super) fn references(workspace: &Workspace) -> Vec<Violation> {
    [REFERENCES.violations(workspace), DIGESTS.violations(workspace)].concat()
}

/// Checks that clocks are read only in shared/clock.
pub(super) fn clocks(workspace: &Workspace) -> Vec<Violation> {
    CLOCKS.violations(workspace)
}

impl Spelling {
    fn violations(&self, workspace: &Workspace) -> Vec<Violation> {
        let is_bound = |path: &str| path.starts_with(self.within) && !self.except.is_some_and(|except| path.starts_with(except));
        let elsewhere = workspace.sources.iter().filter(|source| source.folder() != self.home && is_bound(&source.path));
        let mut found = Vec::new();
        for source in elsewhere {
            for (number, line) in source.lines() {
                if let Some(mark) = self.marks.iter().find(|mark| line.contains(**mark)) {
                    found.push(Violation::new(format!("{}:{number}", source.path), format!("{mark}: {}", self.what)));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::workspace::made_up::file;
    use super::*;

    /// Each rule finds its mark in another crate, but neither at home, nor in a comment, nor in a unit test.
    #[test]
    fn forbidden_spelling_is_found_only_outside_its_own_crate() {
        let rules: [(&Spelling, &str); 4] = [
            (&SUBJECTS, "let subject = format!(\"{fleet}.v1.cmd.{node}\");"),
            (&REFERENCES, "let path = format!(\"library/{name}\");"),
            (&DIGESTS, "let (name, digest) = reference.split_once('@')?;"),
            (&CLOCKS, "let now = std::time::Instant::now();"),
        ];
        for (rule, line) in rules {
            let found = |path: &str, text: &str| rule.violations(&file(path, text));
            let there = found("services/throttler/src/core.rs", &format!("//! Doc.\n    {line}\n"));
            assert_eq!(there.len(), 1, "{line}");
            assert_eq!(there[0].place, "services/throttler/src/core.rs:2");
            assert_eq!(found(&format!("{}/src/lib.rs", rule.home), line), []);
            assert_eq!(found("services/throttler/src/lib.rs", &format!("// {line}")), []);
            assert_eq!(found("services/throttler/src/lib.rs", &format!("a\n#[cfg(test)]\nmod tests {{\n{line}\n}}")), []);
        }
    }

    #[test]
    fn rule_exempts_only_its_stated_folders() {
        let help = "nats sub 'fleetpull.v1.evt.>'";
        assert_eq!(subjects(&file("services/fleetpull/src/cli/queries.rs", help)), []);
        assert_eq!(subjects(&file("services/fleetpull/src/node.rs", help)).len(), 1);
        let user_info = "let host = authority.rsplit_once('@');";
        assert_eq!(references(&file("shared/bus/src/nats.rs", user_info)), []);
        assert_eq!(references(&file("services/fleetpull/src/node.rs", user_info)).len(), 1);
    }
}
