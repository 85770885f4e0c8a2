//! A pod on the command line: `shop/web-0`, or in kubectl's form `pod/web-0 -n shop`.

use contract::PodRef;

use crate::exit::UsageError;

/// kubectl's names for the kind pod.
const KINDS: [&str; 3] = ["pod", "pods", "po"];

/// Reads `NAMESPACE/NAME`.
pub(super) fn pod(text: &str) -> Result<PodRef, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() })
        }
        _ => Err("a pod is NAMESPACE/NAME, like shop/web-0".to_owned()),
    }
}

/// True if a word is one of kubectl's names for the kind pod.
pub(super) fn is_kind(word: &str) -> bool {
    KINDS.contains(&word)
}

/// The name after `pod/`.
pub(super) fn name_of(text: &str) -> Option<&str> {
    text.split_once('/').filter(|(kind, _)| is_kind(kind)).map(|(_, name)| name)
}

/// The pod with this name. Its namespace is given either in the name or separately.
pub(super) fn in_namespace(name: &str, namespace: Option<&str>) -> Result<PodRef, UsageError> {
    let full = match (name.contains('/'), namespace) {
        (true, None) => name.to_owned(),
        (false, Some(namespace)) => format!("{namespace}/{name}"),
        (true, Some(_)) => return Err(UsageError(format!("{name} has its namespace already: leave out -n"))),
        (false, None) => return Err(UsageError(format!("which namespace is the pod {name} in? Give -n NAMESPACE, or NAMESPACE/{name}"))),
    };
    pod(&full).map_err(UsageError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_namespace_and_name() {
        assert_eq!(pod("a/b").map(|pod| pod.to_string()), Ok("a/b".to_owned()));
        for wrong in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(pod(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_namespace_is_named_once() {
        let read = |text: &str, namespace| in_namespace(name_of(text).unwrap_or(text), namespace).map(|pod| pod.to_string()).ok();
        for (text, namespace, expected) in [
            ("pod/web-0", Some("shop"), Some("shop/web-0")),
            ("po/shop/web-0", None, Some("shop/web-0")),
            ("web-0", Some("shop"), Some("shop/web-0")),
            ("pod/web-0", None, None),
            ("pod/shop/web-0", Some("shop"), None),
            ("pod/", Some("shop"), None),
        ] {
            assert_eq!(read(text, namespace).as_deref(), expected, "{text} {namespace:?}");
        }
        assert_eq!(name_of("node/n1"), None);
    }
}
