//! What to do about a failure whose text cannot say it: kubelet's and the runtimes' words are kept letter for letter.

use contract::Reason;
use image::Reference;

use crate::cli::{OutputFormat, PullArgs};
use crate::output;
use crate::output::outcome::Row;

/// What Go says of a socket that cannot be reached, before and after its path.
const DIAL: (&str, &str) = ("dial unix ", ": connect: ");

/// Writes advice to stderr, each piece once. For people only, and not for those who want facts alone.
pub(in crate::commands) fn give(args: &PullArgs, rows: &[Row]) {
    if args.output.quiet || args.output.format != OutputFormat::Text {
        return;
    }
    let mut given: Vec<String> = Vec::new();
    for advice in rows.iter().filter_map(advice) {
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

/// A name that would be read without its scheme, or in lower case.
pub(in crate::commands) fn of_name(image: &str) -> Option<String> {
    let bare = image.split_once("://").map_or(image, |(_, bare)| bare).trim();
    let candidates = [bare.to_owned(), bare.to_lowercase()];
    let readable = candidates.into_iter().find(|candidate| candidate != image && Reference::parse(candidate).is_ok())?;
    Some(format!("an image is named without scheme, without blanks and in lower case: {readable}"))
}

fn of_socket(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(DIAL.0)?;
    let (path, _) = rest.split_once(DIAL.1)?;
    Some(format!("nothing answers on {path}: start the container runtime, or name its socket with --runtime-endpoint unix://PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_advised_only_if_it_would_be_read() {
        let table = [
            ("docker://busybox", Some("busybox")),
            ("https://registry.example/team/app:v2", Some("registry.example/team/app:v2")),
            (" busybox", Some("busybox")),
            ("Team/App:V2", Some("team/app:v2")),
            ("docker://Team/App", Some("team/app")),
            ("a b", None),
            ("://", None),
        ];
        for (image, advised) in table {
            let advice = of_name(image);
            assert_eq!(advice.as_deref().and_then(|advice| advice.rsplit(": ").next()), advised, "{image}");
        }
    }

    #[test]
    fn a_socket_that_does_not_answer_is_named() {
        let text = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/x.sock: connect: no such file or directory\"";
        assert!(of_socket(text).is_some_and(|advice| advice.contains("nothing answers on /run/x.sock: ")));
        assert_eq!(of_socket("manifest unknown"), None);
    }
}
