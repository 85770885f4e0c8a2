//! Explanations as text: first why the image waits, then the verdict of each node, then the details of each cause.

use clock::Clock;
use contract::messages::pull_coordinator::{EndpointLogins, PullPolicy};
use image::Reference;

use super::{Findings, Verdict, summary};
use crate::commands::{backoff, status};
use crate::output::layout::wrapped;
use crate::output::listing::terminal_width;
use crate::output::{self, one_line};

/// Verdicts that fit on a screen.
const VERDICTS_SHOWN: usize = 8;

pub(super) fn print(reference: &Reference, findings: &Findings) {
    let width = terminal_width().unwrap_or(status::WIDTH_OF_FILES);
    for sentence in summary::sentences(findings) {
        wrapped(&one_line(&sentence), width).iter().for_each(|line| output::fact(line));
    }
    // If there are many verdicts, those of waiting nodes come first.
    let mut verdicts: Vec<&Verdict> = findings.verdicts.iter().collect();
    if verdicts.len() > VERDICTS_SHOWN {
        verdicts.sort_by_key(|verdict| verdict.explanation.as_ref().is_ok_and(|explanation| explanation.next_attempt_ms.is_none()));
    }
    for verdict in verdicts.iter().take(VERDICTS_SHOWN) {
        print_verdict(verdict, findings.known.is_empty());
    }
    if verdicts.len() > VERDICTS_SHOWN {
        output::fact(&format!("and {} more nodes: --node NAME or --output json shows them", verdicts.len() - VERDICTS_SHOWN));
    }
    backoff::show(&findings.known, Clock::host().now().wall_ms());
    print_reference(reference);
}

/// Shows the parsed reference.
fn print_reference(reference: &Reference) {
    output::fact(&format!("repository:         {}", reference.repository()));
    output::fact(&format!("tag:                {}", reference.tag().unwrap_or("-")));
    output::fact(&format!("digest:             {}", reference.digest().map_or_else(|| "-".to_owned(), ToString::to_string)));
    output::fact(&format!("registry:           {}", reference.registry()));
    output::fact(&format!("runtime_reference:  {}", reference.runtime_reference()));
}

/// The logins that an endpoint would get, so that a missing and a wrong login can be distinguished before a registry refuses.
fn login_line(EndpointLogins { endpoint, logins, none_because }: &EndpointLogins) -> String {
    match (logins.is_empty(), none_because) {
        (false, _) => format!("login: {endpoint} gets the {}", logins.join(", then the ")),
        (true, Some(why)) => format!("login: {endpoint} gets none ({why})"),
        (true, None) => format!("login: {endpoint} gets none"),
    }
}

/// Prints a verdict, with its cause unless the details below contain it.
fn print_verdict(verdict: &Verdict, with_cause: bool) {
    let place = verdict.node.as_ref().map_or_else(|| "here".to_owned(), ToString::to_string);
    match &verdict.explanation {
        Err(error) => output::fact(&format!("{place}: it is not known what would happen: {error}")),
        Ok(explanation) => {
            output::fact(&format!("{place}: with policy {}, {}", explanation.policy, explanation.verdict));
            let details =
                [("cause", explanation.cause.as_ref().filter(|_| with_cause)), ("inspect error", explanation.inspect_error.as_ref())];
            for (name, detail) in details {
                if let Some(detail) = detail {
                    output::fact(&format!("  {name}: {}", one_line(detail)));
                }
            }
            // Logins are left out if the image is present and will not be requested.
            let shown = explanation
                .logins
                .iter()
                .filter(|_| explanation.present != Some(true) || explanation.policy == PullPolicy::Always.as_str());
            shown.for_each(|logins| output::fact(&format!("  {}", one_line(&login_line(logins)))));
        }
    }
}
