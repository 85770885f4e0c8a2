//! Counts the tests in the tests' own output.

use anyhow::bail;

/// The text that a test without its part writes to stderr, before its name and the reason.
const SKIPPED: &str = "SKIPPED: ";

/// How many tests passed, failed and did not run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// The names and reasons of skipped tests.
    pub(super) left_out: Vec<String>,
}

impl Account {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.left_out.extend(other.left_out);
        self.left_out.sort();
    }

    pub(super) fn count_line(&mut self, line: &str) {
        if let Some(at) = line.find(SKIPPED) {
            self.left_out.push(line[at + SKIPPED.len()..].trim_end().to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let count = |what: &str| {
            let words: Vec<&str> = result.split([' ', ';']).collect();
            words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse().ok()).unwrap_or(0_usize)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
    }

    /// The sum as text. The test harness counts a skipped test as passed; this does not.
    pub(super) fn sum(&self) -> String {
        let not_run = self.left_out.len() + self.ignored;
        let rest = if not_run == 0 { String::new() } else { format!(", {not_run} not run") };
        format!("{} passed, {} failed{rest}", self.passed.saturating_sub(self.left_out.len()), self.failed)
    }

    pub(super) fn verdict(&self, succeeded: bool, must_have_all: bool, missing: &[String]) -> anyhow::Result<()> {
        if !succeeded {
            bail!("tests failed, or could not be built: see above");
        }
        if must_have_all && !missing.is_empty() {
            bail!("CI=true and {} required programs could not be installed", missing.len());
        }
        let not_run = self.left_out.len() + self.ignored;
        if must_have_all && not_run > 0 {
            bail!("CI=true and {not_run} tests did not run");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> Account {
        let mut account = Account::default();
        lines.iter().for_each(|line| account.count_line(line));
        account
    }

    #[test]
    fn results_are_summed_and_left_out_tests_are_not_called_passed() {
        let account = counted(&[
            "running 8 tests\n",
            "test a ... ok\n",
            "test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.08s\n",
            "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s\n",
            "SKIPPED: pulls_through_cri: containerd needs root\n",
            "test b ... SKIPPED: b: no nats-server here\n",
        ]);
        assert_eq!(account.left_out, ["pulls_through_cri: containerd needs root", "b: no nats-server here"]);
        assert_eq!(account.sum(), "13 passed, 2 failed, 3 not run");
        assert_eq!(counted(&["test result: ok. 2 passed; 0 failed; 0 ignored\n"]).sum(), "2 passed, 0 failed");
    }

    #[test]
    fn ci_fails_where_something_did_not_run() {
        let all = counted(&["test result: ok. 2 passed; 0 failed; 0 ignored\n"]);
        let some = counted(&["SKIPPED: a: b\n"]);
        let ignored = counted(&["test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n"]);
        let part = ["MISSING containerd".to_owned()];
        assert!(all.verdict(true, true, &[]).is_ok());
        assert!(all.verdict(false, false, &[]).is_err());
        assert!(all.verdict(true, true, &part).is_err());
        assert!(all.verdict(true, false, &part).is_ok());
        assert!(some.verdict(true, true, &[]).is_err());
        assert!(some.verdict(true, false, &part).is_ok());
        assert!(ignored.verdict(true, true, &[]).is_err() && ignored.verdict(true, false, &[]).is_ok());
    }
}
