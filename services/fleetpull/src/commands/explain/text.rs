//! Explanations as text: first why the image waits, then the verdict of each node, then the details of each cause.

use clock::Clock;
use contract::NodeName;
use contract::messages::pull_coordinator::{EndpointLogins, PullPolicy};
use image::Reference;

use super::{Findings, Verdict, summary};
use crate::commands::pull::digests::{self, Present};
use crate::commands::{backoff, status};
use crate::output::known_failures::named_few;
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
    let shown = verdicts.get(..VERDICTS_SHOWN).unwrap_or(&verdicts);
    let logins = common_logins(shown);
    for verdict in shown {
        print_verdict(verdict, findings.known.is_empty(), logins.is_none());
    }
    if let Some((nodes, logins)) = &logins {
        logins.iter().for_each(|login| output::fact(&one_line(&format!("{}: {login}", named_few(nodes)))));
    }
    if verdicts.len() > VERDICTS_SHOWN {
        output::fact(&format!("and {} more nodes: --node NAME or --output json shows them", verdicts.len() - VERDICTS_SHOWN));
    }
    different_digests(reference, &findings.verdicts).iter().for_each(|warning| output::fact(warning));
    backoff::show(&findings.known, Clock::host().now().wall_ms());
    print_reference(reference);
}

/// Says which nodes have which digest, if nodes of one platform have the image with several.
fn different_digests(reference: &Reference, verdicts: &[Verdict]) -> Vec<String> {
    let present = verdicts.iter().filter_map(|verdict| {
        let (node, explanation) = (verdict.node.as_ref()?, verdict.explanation.as_ref().ok()?);
        let (platform, digest) = (explanation.platform.as_deref().unwrap_or_default(), explanation.digest.as_deref()?);
        Some(Present { node, image: reference.runtime_reference(), platform, digest })
    });
    digests::warnings(present)
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

/// The logins that a pull would send, in lines. Empty if the image is present and will not be requested.
fn login_lines(verdict: &Verdict) -> Vec<String> {
    let Ok(explanation) = &verdict.explanation else { return Vec::new() };
    let is_requested = explanation.present != Some(true) || explanation.policy == PullPolicy::Always.as_str();
    explanation.logins.iter().filter(|_| is_requested).map(login_line).collect()
}

/// The nodes that would send logins and these in lines, if there are several such nodes and all would send the same.
fn common_logins(verdicts: &[&Verdict]) -> Option<(Vec<NodeName>, Vec<String>)> {
    let of_node = |verdict: &&Verdict| Some((verdict.node.clone()?, login_lines(verdict)));
    let (nodes, logins): (Vec<NodeName>, Vec<Vec<String>>) =
        verdicts.iter().filter_map(of_node).filter(|(_, lines)| !lines.is_empty()).unzip();
    let first = logins.first().filter(|first| logins.len() > 1 && logins.iter().all(|other| other == *first))?;
    Some((nodes, first.clone()))
}

/// Prints a verdict, with its cause unless the details below contain it, and with its logins unless they are those of other nodes too.
fn print_verdict(verdict: &Verdict, with_cause: bool, with_logins: bool) {
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
            login_lines(verdict).iter().filter(|_| with_logins).for_each(|login| output::fact(&format!("  {}", one_line(login))));
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::messages::pull_coordinator::Explanation;

    use super::*;

    #[test]
    fn nodes_with_another_digest_of_the_tag_are_named() {
        let verdict = |node: &str, digest: Option<&str>, platform: &str| {
            let (digest, platform) = (digest.map(str::to_owned), Some(platform.to_owned()));
            let explanation = Explanation { present: Some(digest.is_some()), digest, platform, ..Explanation::default() };
            Verdict { node: Some(node.parse().expect("a name")), explanation: Ok(explanation) }
        };
        let reference = Reference::parse("r.example/app").expect("a reference");
        let (a, b, amd64) = (Some("sha256:a"), Some("sha256:b"), "linux/amd64");
        let mut verdicts = vec![verdict("n1", a, amd64), verdict("n2", None, amd64), verdict("n3", b, "linux/arm64")];
        assert!(different_digests(&reference, &verdicts).is_empty());
        verdicts.extend([verdict("n4", b, amd64), verdict("n5", b, amd64)]);
        let warnings = different_digests(&reference, &verdicts);
        assert_eq!(warnings.len(), 1);
        let expected = "r.example/app:latest is not the same everywhere: sha256:b on n4, n5; sha256:a on n1. The tag was moved";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }

    #[test]
    fn logins_that_several_nodes_would_send_are_given_once() {
        let verdict = |node: &str, present, login: &str| {
            let logins = vec![EndpointLogins { endpoint: "r.example".to_owned(), logins: vec![login.to_owned()], none_because: None }];
            let explanation = Explanation { present: Some(present), logins, ..Explanation::default() };
            Verdict { node: Some(node.parse().expect("a name")), explanation: Ok(explanation) }
        };
        let (one, two, other) = (verdict("n1", false, "a"), verdict("n2", false, "a"), verdict("n4", false, "b"));
        let there = verdict("n3", true, "b");
        let names = |verdicts: &[&Verdict]| common_logins(verdicts).map(|(nodes, logins)| (named_few(&nodes), logins));
        assert_eq!(names(&[&one, &two, &there]), Some(("n1, n2".to_owned(), vec!["login: r.example gets the a".to_owned()])));
        assert_eq!([names(&[&one]), names(&[&one, &there]), names(&[&one, &two, &other])], [None, None, None]);
    }
}
