//! The error if there is no connection: the cause, and what to do about it.

use async_nats::Server;

use super::target::shown_server;

/// The most servers in one message; a cluster may have many.
const MOST_SERVERS_SHOWN: usize = 5;

/// A part of an error of the client library or the server, and the advice for it.
const ADVICE: [(&str, &str); 11] = [
    ("onnection refused", "no server listens there: start it, or correct the URL"),
    ("uthorization violation", "the server refuses the login: check --nats-creds, --nats-nkey or the login in the URL"),
    ("uthentication expired", "the login has expired: get a new credentials file"),
    ("AuthError", "the login cannot be read"),
    ("UnknownIssuer", "the server's certificate is of an unknown authority: give that authority's with --nats-ca"),
    ("not valid for name", "the server's certificate is for another name: use that name in the URL"),
    ("ertificate expired", "a certificate has expired: renew it"),
    ("ertificateRequired", "the server wants a client certificate: give --nats-cert and --nats-key"),
    ("received fatal alert", "the server refuses our certificate: check --nats-cert and --nats-key"),
    (
        "InvalidContentType",
        "the server does not speak TLS: write nats:// instead of tls:// and leave out --nats-ca, or turn TLS on in the server",
    ),
    ("timed out", "nothing answers there: check the network, the port and whether the server hangs"),
];

/// Parts of errors that do not go away while a command waits: no server listens at the address, or the login is refused.
const FINAL: [&str; 2] = ["onnection refused", "uthorization violation"];

/// True if every server has refused. One that hangs may still answer.
pub(super) fn all_refuse(pool: &[Server]) -> bool {
    let refuses = |server: &Server| server.last_error.as_ref().is_some_and(|error| FINAL.iter().any(|part| error.contains(part)));
    pool.iter().all(refuses)
}

/// Why none of the servers is reached. Servers in the same trouble are named together. `tried` says whether a server was tried.
pub(super) fn no_connection(pool: &[Server], tried: impl Fn(&str) -> bool) -> String {
    let mut troubles: Vec<(String, Vec<String>)> = Vec::new();
    for server in pool.iter().take(MOST_SERVERS_SHOWN) {
        let name = shown_server(&server.addr);
        let trouble = match &server.last_error {
            Some(error) => explained(error),
            // The one failure that the client library does not report.
            None if tried(&name) => "the name cannot be resolved; correct the URL or the name service".to_owned(),
            None => "not tried yet".to_owned(),
        };
        match troubles.iter_mut().find(|(known, _)| *known == trouble) {
            Some((_, names)) => names.push(name),
            None => troubles.push((trouble, vec![name])),
        }
    }
    let mut parts: Vec<String> = troubles.iter().map(|(trouble, names)| format!("{}: {trouble}", names.join(", "))).collect();
    if pool.len() > MOST_SERVERS_SHOWN {
        parts.push(format!("and {} more", pool.len() - MOST_SERVERS_SHOWN));
    }
    format!("no NATS server is reached ({})", parts.join("; "))
}

/// An error of the client library with advice.
fn explained(error: &str) -> String {
    let error = error.strip_prefix("IO error: ").unwrap_or(error);
    match ADVICE.iter().find(|(part, _)| error.contains(part)) {
        Some((_, advice)) => format!("{error}; {advice}"),
        None => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Option<&str> = Some("IO error: Connection refused (os error 111)");

    fn pool(servers: &[(&str, Option<&str>)]) -> Vec<Server> {
        let server = |(name, last_error): &(&str, Option<&str>)| Server {
            addr: format!("nats://{name}:4222").parse().expect("an address"),
            failed_attempts: 0,
            did_connect: false,
            is_discovered: false,
            last_error: last_error.map(str::to_owned),
        };
        servers.iter().map(server).collect()
    }

    #[test]
    fn servers_in_the_same_trouble_are_named_together() {
        let refused = "Connection refused (os error 111); no server listens there: start it, or correct the URL";
        let cluster = pool(&[("a", REFUSED), ("b", REFUSED), ("c", REFUSED)]);
        let together = format!("no NATS server is reached (nats://a:4222, nats://b:4222, nats://c:4222: {refused})");
        assert_eq!(no_connection(&cluster, |_| true), together);
        let mixed = pool(&[("a", REFUSED), ("b", Some("timed out")), ("c", REFUSED), ("d", None), ("e", None), ("f", REFUSED)]);
        let expected = format!(
            "no NATS server is reached (nats://a:4222, nats://c:4222: {refused}; nats://b:4222: timed out; nothing answers there: check \
             the network, the port and whether the server hangs; nats://d:4222: the name cannot be resolved; correct the URL or the name \
             service; nats://e:4222: not tried yet; and 1 more)"
        );
        assert_eq!(no_connection(&mixed, |server| server == "nats://d:4222"), expected);
    }

    #[test]
    fn all_servers_refuse_only_if_none_of_them_may_still_answer() {
        let login = Some("server error: authorization violation");
        let many: Vec<(&str, Option<&str>)> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, REFUSED)).to_vec();
        for (servers, expected) in [
            (vec![("a", REFUSED)], true),
            (many, true),
            (vec![("a", REFUSED), ("b", login)], true),
            (vec![("a", REFUSED), ("b", Some("timed out"))], false),
            (vec![("a", REFUSED), ("b", None)], false),
        ] {
            assert_eq!(all_refuse(&pool(&servers)), expected, "{servers:?}");
        }
    }
}
