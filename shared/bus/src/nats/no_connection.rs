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

/// Why none of the servers is reached. `tried` says whether a server was tried.
pub(super) fn no_connection(pool: &[Server], tried: impl Fn(&str) -> bool) -> String {
    let shown = pool.iter().take(MOST_SERVERS_SHOWN).map(|server| {
        let name = shown_server(&server.addr);
        let trouble = match &server.last_error {
            Some(error) => explained(error),
            // The one failure that the client library does not report.
            None if tried(&name) => "the name cannot be resolved; correct the URL or the name service".to_owned(),
            None => "not tried yet".to_owned(),
        };
        format!("{name}: {trouble}")
    });
    let mut parts: Vec<_> = shown.collect();
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
