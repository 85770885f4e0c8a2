//! The URL of a NATS server, which may hold a password.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The text shown in place of a secret.
const HIDDEN: &str = "***";

/// The URL of a NATS server. It is shown and serialised without its password or token; [`ServerUrl::expose`] gives the whole URL.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The URL as given, with its password. Only for connecting.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hide_passwords(&self.0))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", hide_passwords(&self.0))
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A list of URLs without passwords. The text before the last `@` of each is taken for user and password (or a token), even if
/// the rest is not a URL.
pub(crate) fn hide_passwords(list: &str) -> String {
    if !list.contains('@') {
        return list.to_owned();
    }
    // A comma may be part of a password: a piece without a scheme before an `@` is hidden together with the piece before it.
    let (head, servers) = list.rsplit_once('@').unwrap_or(("", list));
    let mut shown = Vec::new();
    for piece in head.split('@') {
        shown.push(hide_userinfo(piece));
    }
    format!("{}@{servers}", shown.join("@"))
}

/// Hides the user info at the end of `piece`, which begins after the last `://` in it, or else at its beginning.
fn hide_userinfo(piece: &str) -> String {
    let (scheme, userinfo) = match piece.rfind("://") {
        Some(at) => piece.split_at(at + "://".len()),
        None => ("", piece),
    };
    match userinfo.split_once(':') {
        Some((user, _)) => format!("{scheme}{user}:{HIDDEN}"),
        None => format!("{scheme}{HIDDEN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_never_shown() {
        for (given, shown) in [
            ("nats://localhost:4222", "nats://localhost:4222"),
            ("nats://ann:s3cret@one:4222", "nats://ann:***@one:4222"),
            ("nats://t0ken@one:4222", "nats://***@one:4222"),
            ("ann:s3cret@one", "ann:***@one"),
            ("tls://ann:s3@cr/et@one", "tls://ann:***@***@one"),
            ("nats://a:s3cret@one,nats://b:s3cret@two", "nats://a:***@one,nats://b:***@two"),
            ("nats://a:s3,cret@one", "nats://a:***@one"),
        ] {
            assert_eq!(hide_passwords(given), shown);
        }
        let url = ServerUrl("nats://ann:s3cret@one".to_owned());
        assert_eq!(format!("{url:?} {url}"), "\"nats://ann:***@one\" nats://ann:***@one");
        assert_eq!(serde_json::to_string(&url).unwrap(), "\"nats://ann:***@one\"");
        assert_eq!(url.expose(), "nats://ann:s3cret@one");
    }
}
