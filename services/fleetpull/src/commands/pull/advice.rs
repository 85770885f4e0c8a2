//! Gives advice about failures. It is separate, because the errors of kubelet and the runtimes are kept unchanged.

use contract::{FailureClass, Reason};
use image::{Reference, ReferenceError};

use crate::cli::{OutputFormat, PullArgs};
use crate::output;
use crate::output::outcome::Row;

/// The variables that name a proxy, the most likely first.
const PROXIES: [&str; 6] = ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
/// The login that a pull without a login reports.
const ANONYMOUS: &str = "anonymous";
/// The form of an image's name.
const FORM: &str = "[HOST[:PORT]/]NAME[:TAG][@sha256:64 HEX DIGITS], for example registry.example/team/app:v2";
/// Go's error for a socket that cannot be reached, before and after its path.
const DIAL: (&str, &str) = ("dial unix ", ": connect: ");

/// Writes each piece of advice once to stderr, in text output and without `--quiet`.
pub(in crate::commands) fn give(args: &PullArgs, rows: &[Row]) {
    if args.output.quiet || args.output.format != OutputFormat::Text {
        return;
    }
    let mut given: Vec<String> = Vec::new();
    let proxy = if args.has_target() { None } else { of_proxy(rows, |name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) };
    for advice in rows.iter().filter_map(advice).chain(rows.iter().filter_map(of_refusal)).chain(proxy) {
        if !given.contains(&advice) {
            output::remark(&format!("hint: {advice}"));
            given.push(advice);
        }
    }
}

fn advice(row: &Row) -> Option<String> {
    match row.outcome.reason? {
        Reason::InvalidImageName => of_name(&row.image),
        Reason::ErrImageNeverPull => Some("the policy Never asks no registry: pull it with --policy IfNotPresent".to_owned()),
        Reason::ImageInspectError | Reason::ErrImagePull => of_socket(&row.outcome.message),
        _ => None,
    }
}

/// Advice for a name that cannot be parsed: the name without its scheme or in lower case if that is valid, else the form of a name.
pub(in crate::commands) fn of_name(image: &str) -> Option<String> {
    let error = Reference::parse(image).err()?;
    let bare = image.split_once("://").map_or(image, |(_, bare)| bare).trim();
    let candidates = [bare.to_owned(), bare.to_lowercase()];
    if let Some(readable) = candidates.into_iter().find(|candidate| Reference::parse(candidate).is_ok()) {
        return Some(format!("an image is named without scheme, without blanks and in lower case: {readable}"));
    }
    Some(match error {
        ReferenceError::HexIdentifier { .. } => "64 hex digits are the id of an image: pull it by its name".to_owned(),
        _ => format!("an image is named {FORM}"),
    })
}

/// Advice for the most frequent causes of a registry's refusal: a missing login, or a missing tag.
fn of_refusal(row: &Row) -> Option<String> {
    let reference = Reference::parse(&row.image).ok()?;
    match row.outcome.class? {
        FailureClass::Denied if row.outcome.auth == ANONYMOUS => {
            let registry = reference.registry();
            Some(format!(
                "no login was sent to {registry}: run `skopeo login {registry}` (or docker login) where the pull runs, and pull again"
            ))
        }
        FailureClass::NotFound if reference.requested() != reference.runtime_reference() => {
            Some(format!("{} has no tag, so {} was asked for", row.image, reference.runtime_reference()))
        }
        _ => None,
    }
}

/// Advice for a proxy that may not answer, which looks like a registry that does not. Only the variable is named, because its value may
/// hold a password.
fn of_proxy(rows: &[Row], is_set: impl Fn(&str) -> bool) -> Option<String> {
    let unreached = |row: &Row| row.outcome.class == Some(FailureClass::RegistryUnavailable);
    let variable = PROXIES.into_iter().find(|name| is_set(name)).filter(|_| rows.iter().any(unreached))?;
    Some(format!("{variable} is set: registries are asked through that proxy, unless NO_PROXY names them; does it answer?"))
}

pub(in crate::commands) fn of_socket(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(DIAL.0)?;
    let (path, _) = rest.split_once(DIAL.1)?;
    Some(format!("nothing answers on {path}: start the container runtime, or name its socket with --runtime-endpoint unix://PATH"))
}

#[cfg(test)]
mod tests {
    use contract::messages::pull_coordinator::PullOutcome;

    use super::*;

    #[test]
    fn a_name_that_would_be_valid_is_advised() {
        let table = [
            ("ftp://busybox", Some("busybox")),
            ("https://registry.example/team/app:v2", Some("registry.example/team/app:v2")),
            (" busybox", Some("busybox")),
            ("Team/App:V2", Some("team/app:v2")),
            ("docker://Team/App", Some("team/app")),
            ("busybox:v1", None),
        ];
        for (image, advised) in table {
            let advice = of_name(image);
            assert_eq!(advice.as_deref().and_then(|advice| advice.rsplit(": ").next()), advised, "{image}");
        }
    }

    #[test]
    fn every_other_name_that_cannot_be_parsed_gets_the_form_of_a_name() {
        for image in ["app:v1:", "host//app", "a b", "://", "app@sha256:123", ""] {
            assert!(of_name(image).is_some_and(|advice| advice.contains(FORM)), "{image}");
        }
        assert_eq!(of_name(&"a".repeat(64)).as_deref(), Some("64 hex digits are the id of an image: pull it by its name"));
    }

    #[test]
    fn a_missing_login_and_a_missing_tag_are_named() {
        let row = |image: &str, class, auth: &str| Row {
            image: image.to_owned(),
            node: "n1".parse().expect("a name"),
            outcome: PullOutcome { class: Some(class), auth: auth.to_owned(), ..PullOutcome::default() },
            at_ms: 0,
            under_way: None,
            not_begun: false,
        };
        let (denied, not_found) = (FailureClass::Denied, FailureClass::NotFound);
        for (row, advised) in [
            (row("registry.example/app:v1", denied, "anonymous"), Some("run `skopeo login registry.example` (or docker login)")),
            (row("busybox", denied, "anonymous"), Some("`skopeo login docker.io`")),
            (row("busybox", denied, "login for docker.io in /root/.docker/config.json"), None),
            (row("registry.example/app", not_found, ""), Some("registry.example/app:latest was asked for")),
            (row("registry.example/app:latest", not_found, ""), None),
            (row("not an image", not_found, ""), None),
        ] {
            let advice = of_refusal(&row);
            assert_eq!(advice.is_some(), advised.is_some(), "{}: {advice:?}", row.image);
            assert!(advised.is_none_or(|advised| advice.is_some_and(|advice| advice.contains(advised))), "{}", row.image);
        }
    }

    #[test]
    fn a_proxy_is_named_when_a_registry_was_not_reached() {
        let outcome = |class| PullOutcome { class: Some(class), ..PullOutcome::default() };
        let row = |class| Row {
            image: "a".to_owned(),
            node: "n1".parse().expect("a name"),
            outcome: outcome(class),
            at_ms: 0,
            under_way: None,
            not_begun: false,
        };
        let unreached = [row(FailureClass::NotFound), row(FailureClass::RegistryUnavailable)];
        let advice = of_proxy(&unreached, |name| name == "HTTP_PROXY");
        assert!(advice.is_some_and(|advice| advice.starts_with("HTTP_PROXY is set: ")));
        assert_eq!(of_proxy(&unreached, |_| false), None);
        assert_eq!(of_proxy(&unreached[..1], |_| true), None);
    }

    #[test]
    fn a_socket_that_does_not_answer_is_named() {
        let text = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/x.sock: connect: no such file or directory\"";
        assert!(of_socket(text).is_some_and(|advice| advice.contains("nothing answers on /run/x.sock: ")));
        assert_eq!(of_socket("manifest unknown"), None);
    }
}
