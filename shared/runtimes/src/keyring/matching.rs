//! Kubelet's rule by which entries match a repository.
//!
//! An entry matches if its port is equal, its host has as many labels and each matches as a glob, and its path is a plain prefix of the
//! image's path (`/foo` matches `/foobar`, as in kubelet). Longer entries come first because entries are searched in reverse alphabetical
//! order. Images of the default registry fall back to `index.docker.io`.

/// The normalised key of entries for the default registry.
pub(super) const DEFAULT_REGISTRY_KEY: &str = "index.docker.io";
/// The domain of all hosts of Docker Hub that get logins.
const DOCKER_HUB_DOMAIN: &str = "docker.io";
/// The name of the default registry in the docker tools' questions to a helper.
pub(super) const DEFAULT_REGISTRY_SERVER: &str = "https://index.docker.io/v1/";

/// The key of an entry, without scheme, `/v1/` or `/v2/`, user, query and an empty path. `None` if the entry is no address.
pub(super) fn normalise(entry: &str) -> Option<String> {
    let rest = entry.strip_prefix("https://").or_else(|| entry.strip_prefix("http://")).unwrap_or(entry);
    let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = without_login(authority);
    if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "\\^`{|}%".contains(letter)) {
        return None;
    }
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") { &path["/v1".len()..] } else { path };
    Some(if path == "/" { host.to_owned() } else { format!("{host}{path}") })
}

/// An entry without a login in it, for texts. Its login ends at the last `@`, because a password may contain `@` and `/`, and what stands
/// before a digest may be a login.
pub(crate) fn without_login(entry: &str) -> &str {
    entry.rsplit_once('@').map_or(entry, |(_, place)| place)
}

/// Whether the entry with this key matches `repository` (registry and path, no tag).
pub(super) fn matches(key: &str, repository: &str) -> bool {
    let (key_host, key_path) = split_path(key);
    let (host, path) = split_path(repository);
    let (key_name, key_port) = split_port(key_host);
    let (name, port) = split_port(host);
    key_port == port
        && path.starts_with(key_path)
        && key_name.split('.').count() == name.split('.').count()
        && key_name.split('.').zip(name.split('.')).all(|(pattern, label)| glob(pattern, label))
}

/// Whether `repository` belongs to the default registry by kubelet's rule: the part before the first slash is no host.
pub(super) fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("", _)) => false,
        Some(("docker.io" | DEFAULT_REGISTRY_KEY, _)) => true,
        Some((first, _)) => !first.contains(['.', ':']),
    }
}

/// Whether an entry, server or host is Docker Hub's: any name in its domain.
pub(super) fn is_docker_hub(entry: &str) -> bool {
    let key = normalise(entry).unwrap_or_default().to_ascii_lowercase();
    let (host, _) = split_path(&key);
    let (name, _) = split_port(host);
    name == DOCKER_HUB_DOMAIN || name.strip_suffix(DOCKER_HUB_DOMAIN).is_some_and(|rest| rest.ends_with('.'))
}

/// The server in a question to a helper about `repository`: its host, or `DEFAULT_REGISTRY_SERVER`.
pub(super) fn server_of(repository: &str) -> &str {
    let (host, _) = split_path(repository);
    if matches!(host, "docker.io" | DEFAULT_REGISTRY_KEY) { DEFAULT_REGISTRY_SERVER } else { host }
}

fn split_path(address: &str) -> (&str, &str) {
    address.split_at(address.find('/').unwrap_or(address.len()))
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        // A colon within the brackets of an IPv6 address starts no port.
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    }
}

/// Matches one label; `*` matches any characters of it.
fn glob(pattern: &str, label: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == label };
    let Some(rest) = label.strip_prefix(head) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| glob(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_normalised_as_in_kubelet() {
        for (entry, key) in [
            ("https://index.docker.io/v1/", Some("index.docker.io")),
            ("http://quay.io/v2/", Some("quay.io")),
            ("https://quay.io/v2/team", Some("quay.io/team")),
            ("quay.io/coreos", Some("quay.io/coreos")),
            ("quay.io/v1", Some("quay.io/v1")),
            ("localhost:5000", Some("localhost:5000")),
            ("registry.example/", Some("registry.example")),
            ("*.azurecr.io", Some("*.azurecr.io")),
            ("https://user:word@registry.example/x?y=z", Some("registry.example/x")),
            ("[::1]:5000", Some("[::1]:5000")),
            ("", None),
            ("https://", None),
            ("/only/a/path", None),
            ("two words", None),
        ] {
            assert_eq!(normalise(entry).as_deref(), key, "{entry}");
        }
    }

    #[test]
    fn text_of_an_entry_has_no_login_whatever_its_password_contains() {
        let with_digest = format!("user:word@sha256:{}", "0a".repeat(32));
        for (entry, text) in [
            ("registry.example/x", "registry.example/x"),
            ("https://user:word@registry.example/x", "registry.example/x"),
            ("user:wo@rd@registry.example", "registry.example"),
            ("https://user:wo/rd@registry.example", "registry.example"),
            (with_digest.as_str(), &with_digest["user:word@".len()..]),
        ] {
            assert_eq!(without_login(entry), text);
        }
    }

    #[test]
    fn entries_match_as_in_kubelet() {
        for (key, repository, expected) in [
            ("registry.example", "registry.example/app", true),
            ("registry.example", "registry.example:443/app", false),
            ("registry.example:5000", "registry.example:5000/app", true),
            ("registry.example:5000", "registry.example/app", false),
            ("registry.example/foo", "registry.example/foobar", true),
            ("registry.example/foo/", "registry.example/foobar", false),
            ("registry.example/foo", "registry.example/bar", false),
            ("*.azurecr.io", "team.azurecr.io/app", true),
            ("*.azurecr.io", "a.b.azurecr.io/app", false),
            ("*.azurecr.io", "azurecr.io/app", false),
            ("*.dkr.ecr.*.amazonaws.com", "1234.dkr.ecr.eu-west-1.amazonaws.com/app", true),
            ("prefix-*-x.example", "prefix-abc-x.example/app", true),
            ("prefix-*-x.example", "prefix-abc-y.example/app", false),
            ("*", "localhost/app", true),
            ("*", "registry.example/app", false),
            ("[::1]:5000", "[::1]:5000/app", true),
            ("[::1]:5000", "[::1]:5001/app", false),
            ("docker.io", "docker.io/library/busybox", true),
            ("index.docker.io", "docker.io/library/busybox", false),
        ] {
            assert_eq!(matches(key, repository), expected, "{key} for {repository}");
        }
    }

    #[test]
    fn default_registry_is_recognised_by_the_first_part() {
        for (repository, expected) in [
            ("busybox", true),
            ("docker.io/library/busybox", true),
            ("index.docker.io/library/busybox", true),
            ("library/busybox", true),
            ("localhost/busybox", true),
            ("localhost:5000/busybox", false),
            ("quay.io/busybox", false),
            ("/busybox", false),
            ("", false),
        ] {
            assert_eq!(is_default_registry(repository), expected, "{repository}");
        }
    }

    #[test]
    fn helpers_are_asked_with_the_host() {
        assert_eq!(server_of("docker.io/library/busybox"), "https://index.docker.io/v1/");
        assert_eq!(server_of("localhost:5000/team/app"), "localhost:5000");
    }
}
