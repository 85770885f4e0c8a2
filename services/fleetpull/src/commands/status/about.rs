//! What a back-off entry is about, in the words of a row.

use contract::FailureClass;
use contract::messages::backoff_tracker::BackoffEntry;

use super::row::What;

/// What it is about, and how far it reaches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) what: What,
    pub(super) scope: String,
}

/// Of a shared entry, whose text says it.
pub(super) fn about(entry: &BackoffEntry) -> About {
    let registry = entry.view.as_ref().map(|view| view.registry.clone()).unwrap_or_default();
    let text = entry.about.as_str();
    let of_registry = |scope: String| About { what: What::Registry(registry.clone()), scope };
    let of_image = |image: &str, scope: &str| About { what: What::Image(image.to_owned()), scope: scope.to_owned() };
    let word = |rest: &str| rest.split_whitespace().next().unwrap_or_default().to_owned();
    let zone = text.split_once(" from zone ").map(|(_, zone)| zone).filter(|zone| !zone.is_empty());
    let in_zone = |part: &str| zone.map_or_else(|| part.to_owned(), |zone| format!("{part}, zone {zone}"));
    if text.starts_with("registry ") {
        return of_registry(zone.map_or_else(|| "registry".to_owned(), |zone| format!("zone {zone}")));
    }
    if text.starts_with("token server ") {
        return of_registry(in_zone("token server"));
    }
    if text.starts_with("blobs ") {
        return of_registry(in_zone("blobs"));
    }
    if text.starts_with("budget ") {
        return of_registry("rate".to_owned());
    }
    if let Some(rest) = text.strip_prefix("repository ") {
        let scope = match rest.rsplit_once(' ') {
            Some((_, "login")) if rest.ends_with("without a login") => "no login",
            Some((_, "login")) => "login",
            _ => "repository",
        };
        return of_image(&word(rest), scope);
    }
    if let Some(rest) = text.strip_prefix("image ") {
        let platform = rest.split_once(" for ").map(|(_, platform)| platform);
        return of_image(&word(rest), platform.unwrap_or("image"));
    }
    for scope in ["content", "signature"] {
        if let Some(rest) = text.strip_prefix(scope).and_then(|rest| rest.strip_prefix(" of ")) {
            return of_image(&word(rest), scope);
        }
    }
    // What a newer version is about.
    of_image(text, "-")
}

/// A class of failures as a state.
pub(super) fn state_in_words(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimited => "rate limited",
        FailureClass::RegistryUnavailable => "unavailable",
        FailureClass::NotFound => "not found",
        FailureClass::Denied => "denied",
        FailureClass::ContentInvalid => "bad content",
        FailureClass::SignatureInvalid => "bad signature",
        FailureClass::NodeLocal => "node fails",
        FailureClass::Unknown => "fails",
    }
}

#[cfg(test)]
mod tests {
    use contract::View;

    use super::*;

    #[test]
    fn an_entry_is_about_a_registry_or_an_image() {
        let (registry, image) = (|| What::Registry("r.example".to_owned()), |image: &str| What::Image(image.to_owned()));
        for (text, what, scope) in [
            ("registry r.example:443 from zone a", registry(), "zone a"),
            ("registry r.example:443 from zone ", registry(), "registry"),
            ("registry r.example", registry(), "registry"),
            ("token server of registry r.example:443 from zone a", registry(), "token server, zone a"),
            ("blobs of registry r.example:443 from zone ", registry(), "blobs"),
            ("budget default|r.example||||e of registry r.example", registry(), "rate"),
            ("repository r.example/a of registry r.example", image("r.example/a"), "repository"),
            ("repository r.example/a of registry r.example without a login", image("r.example/a"), "no login"),
            ("repository r.example/a of registry r.example with the present login", image("r.example/a"), "login"),
            ("image r.example/a:1", image("r.example/a:1"), "image"),
            ("image r.example/a:1 for linux/arm64", image("r.example/a:1"), "linux/arm64"),
            ("content of r.example/a:1 from m.example:443", image("r.example/a:1"), "content"),
            ("signature of r.example/a:1", image("r.example/a:1"), "signature"),
            ("moon of r.example", image("moon of r.example"), "-"),
            ("", image(""), "-"),
        ] {
            let view = Some(View { registry: "r.example".to_owned(), ..View::default() });
            let entry = BackoffEntry { about: text.to_owned(), view, ..BackoffEntry::default() };
            assert_eq!(about(&entry), About { what, scope: scope.to_owned() }, "{text}");
        }
    }
}
