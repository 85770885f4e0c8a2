//! Logins at NATS: password, credentials, nkey, and the key of a client's certificate.

use std::path::Path;

use e2e::spans::Spans;
use e2e::{Agent, Signal, Workplace};
use support::nats::{Accounts, Authority, NatsConfig, NatsServer, Tenancy, current_program};
use support::requirement::met;

use super::at_each_level;
use super::places::Places;
use super::secrets::Secrets;

const PASSWORD: &str = "leaksbyurl7q2w9e";

/// A way to log in at the server, and the secrets that must not leak.
struct Login {
    server: NatsServer,
    /// The login's arguments of each command.
    arguments: Vec<String>,
    cores: Vec<(String, String)>,
    // The login's files.
    _accounts: Option<Accounts>,
    _authority: Option<Authority>,
}

impl Login {
    fn new(config: NatsConfig, arguments: impl FnOnce(&str) -> Vec<String>, cores: Vec<(String, String)>) -> Self {
        let server = NatsServer::start(config);
        let arguments = arguments(&server.address());
        Self { server, arguments, cores, _accounts: None, _authority: None }
    }

    fn password() -> Self {
        let config = NatsConfig::default().with(&format!("authorization {{ user: fleet, password: {PASSWORD} }}"));
        let url = |address: &str| vec!["--nats".to_owned(), format!("nats://fleet:{PASSWORD}@{address}")];
        Self::new(config, url, vec![("password".to_owned(), PASSWORD.to_owned())])
    }

    fn credentials(place: &Workplace) -> Self {
        let tenancy = Tenancy::new();
        let text = tenancy.credentials();
        let file = place.write("logins/user.creds", &text);
        let lines: Vec<&str> = text.lines().collect();
        let after = |mark: &str| lines[lines.iter().position(|line| line.contains(mark)).unwrap() + 1];
        let token = after("BEGIN NATS USER JWT").rsplit('.').next().unwrap();
        let cores = vec![
            ("seed".to_owned(), after("BEGIN USER NKEY SEED").to_owned()),
            // The part that makes the token valid.
            ("token's signature".to_owned(), longest_core(token)),
        ];
        let arguments = |address: &str| vec!["--nats".to_owned(), format!("nats://{address}"), "--nats-creds".to_owned(), file];
        Self::new(NatsConfig::default().with(&tenancy.configuration()), arguments, cores)
    }

    fn nkey(place: &Workplace) -> Self {
        let accounts = Accounts::new();
        let server = NatsServer::start(accounts.config());
        for user in ["n1", "setup"] {
            accounts.write_context(&place.path(".config"), user, &server.address());
        }
        let context = std::fs::read_to_string(place.path(".config/nats/context/n1.json")).unwrap();
        let context: serde_json::Value = serde_json::from_str(&context).unwrap();
        let seed = std::fs::read_to_string(context["nkey"].as_str().unwrap()).unwrap();
        place.run(&["nats-setup", "--nats-context", "setup"]).expect(0);
        Self {
            server,
            arguments: vec!["--nats-context".to_owned(), "n1".to_owned()],
            cores: vec![("seed".to_owned(), seed.trim().to_owned())],
            _accounts: Some(accounts),
            _authority: None,
        }
    }

    fn certificate() -> Self {
        let authority = Authority::new("of the fleet");
        let ((cert, key), (client_cert, client_key)) = (authority.issue("127.0.0.1"), authority.issue("client"));
        let text = |path: &Path| path.display().to_string();
        let (cert, key, ca) = (text(&cert), text(&key), text(&authority.certificate()));
        let tls = format!("tls {{ cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{ca}\", verify: true }}");
        let pem = std::fs::read_to_string(&client_key).unwrap();
        let lines = pem.lines().filter(|line| !line.starts_with('-')).map(|line| ("line of the key".to_owned(), longest_core(line)));
        let cores = lines.filter(|(_, core)| core.len() >= 12).collect();
        let arguments = |address: &str| {
            let files = [("--nats-ca", ca.clone()), ("--nats-cert", text(&client_cert)), ("--nats-key", text(&client_key))];
            let url = [("--nats", format!("tls://{address}"))];
            url.into_iter().chain(files).flat_map(|(name, value)| [name.to_owned(), value]).collect()
        };
        let login = Self::new(NatsConfig::default().with(&tls), arguments, cores);
        Self { _authority: Some(authority), ..login }
    }
}

/// The longest part of letters and digits.
fn longest_core(text: &str) -> String {
    let parts = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.max_by_key(|part| part.len()).unwrap_or_default().to_owned()
}

/// Runs an agent and commands that log in, lose the server, and find a server that refuses the login.
fn logins_at(level: &str, place: &Workplace, spans: &Spans, login: &mut Login) -> Places {
    let mut places = Places::default();
    let arguments: Vec<&str> = login.arguments.iter().map(String::as_str).collect();
    let store = format!("store-at-{level}");
    let agent = Agent::start_in(place, "n1", &store, &[&["--log-level", level], &arguments[..]].concat()).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    let run = |places: &mut Places, what: &str, question: &[&str]| {
        let done = place.run(&[question, &["--log-level", level], &arguments[..]].concat());
        assert_ne!(done.status, 2, "{done}");
        places.add(&format!("{what}: {}", question.join(" ")), done.output());
    };
    run(&mut places, "let in", &["nodes", "-o", "json"]);
    run(&mut places, "let in", &["nodes", "n1"]);
    run(&mut places, "let in", &["events", "--since", "1h", "-o", "json"]);
    places.add("/metrics", agent.asked(&["nodes", "n1", "--metrics"]).expect(0).stdout);
    login.server.kill();
    agent.until_state("it has seen that", |state| state.starts_with("degraded"));
    run(&mut places, "nobody there", &["nodes", "-o", "json"]);
    login.server.restart_with(NatsConfig::default().with("authorization { user: other, password: other }"));
    run(&mut places, "not let in", &["nodes"]);
    places.add("described", agent.described().to_string());
    places.add_files("state", &place.path(&store));
    agent.signal(Signal::Terminate);
    let (_, stdout, log) = agent.wait();
    places.add("log", stdout + &log);
    places.add("log of the server", login.server.log());
    let Spans::Receiver(collector, ..) = spans else { unreachable!("it is a receiver") };
    places.add("spans", collector.bodies());
    places
}

#[test]
fn a_login_at_nats_is_in_nothing_that_is_written() {
    if met(current_program()).is_none() {
        return;
    }
    at_each_level(|level| {
        let spans = Spans::receiver();
        let place = spans.place();
        let logins = [Login::password(), Login::credentials(&place), Login::nkey(&place), Login::certificate()];
        for mut login in logins {
            let secrets = Secrets::of(&login.cores);
            let leaks = logins_at(level, &place, &spans, &mut login).leaks(&secrets);
            assert!(leaks.is_empty(), "at log level {level}:\n{}", leaks.join("\n"));
        }
    });
}
