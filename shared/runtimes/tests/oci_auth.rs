//! Authentication of the embedded runtime.
//!
//! Checks the number of requests that a login costs, the order of logins, and that no login is sent to a foreign host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use super::oci_support::{Node, keyring, registry};
use clock::Clock;
use contract::{FailureClass, Stage};
use memory_registry::{Auth, Fault, FaultAction, MadeImage, MemoryRegistry, Options, TokenAuth};

const SECRET: &str = "correct-horse";

async fn guarded(auth: Auth) -> MemoryRegistry {
    let registry = MemoryRegistry::start(Options { auth, ..Options::default() }).await.unwrap();
    registry.add_image("demo/app", "1", &MadeImage::of_layers([50_000, 60_000]));
    registry
}

fn tokens(anonymous: bool) -> Auth {
    tokens_for(anonymous, "300")
}

/// `expires_in` as JSON, or empty.
fn tokens_for(anonymous: bool, expires_in: &str) -> Auth {
    Auth::Token(TokenAuth {
        user: "deploy".to_owned(),
        password: SECRET.to_owned(),
        identity_token: "refresh-me".to_owned(),
        anonymous,
        expires_in: expires_in.to_owned(),
    })
}

fn node_with(logins: &str) -> Node {
    Node::with(|options| options.keyring = keyring(options.store.parent().unwrap(), Some(logins)))
}

/// The source text of the node's login under this entry.
fn source(node: &Node, entry: &str) -> String {
    format!("login for {entry} in {}", node.folder.path().join("logins/config.json").display())
}

fn login(entry: &str, user: &str, password: &str) -> String {
    format!(r#""{entry}":{{"username":"{user}","password":"{password}"}}"#)
}

fn auths(entries: &[String]) -> String {
    format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))
}

fn image(registry: &MemoryRegistry) -> String {
    format!("{}/demo/app:1", registry.host())
}

/// `status path scheme` of each request.
fn request_log(registry: &MemoryRegistry) -> Vec<String> {
    let line = |request: memory_registry::LoggedRequest| {
        let last = request.path.rsplit('/').find(|part| !part.starts_with("sha256:")).unwrap_or_default().to_owned();
        format!("{} {last} {}", request.status.unwrap_or_default(), request.authorization.unwrap_or_default()).trim_end().to_owned()
    };
    registry.requests().into_iter().map(line).collect()
}

#[tokio::test]
async fn token_is_fetched_once_and_cached() {
    let registry = guarded(tokens(false)).await;
    let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
    let pulled = node.pull(&image(&registry)).await.unwrap();
    assert_eq!(pulled.auth, source(&node, registry.host()));
    let log = request_log(&registry);
    assert_eq!(log[..3], ["401 1", "200 token Basic", "200 1 Bearer"]);
    assert!(log[3..].iter().all(|line| line == "200 blobs Bearer"), "{log:?}");
    assert_eq!(registry.counts().failing, 0);

    registry.reset_counts();
    node.pull(&image(&registry)).await.unwrap();
    assert_eq!(request_log(&registry), ["200 1 Bearer"], "token and challenge are remembered");

    registry.revoke_tokens();
    registry.reset_counts();
    node.pull(&image(&registry)).await.unwrap();
    assert_eq!(request_log(&registry), ["401 1 Bearer", "200 token Basic", "200 1 Bearer"], "a token that has run out is replaced");
}

#[tokio::test]
async fn token_with_any_stated_lifetime_is_used() {
    for (expires_in, kept) in [
        ("300", true),
        ("299.7", true),
        ("\"300\"", true),
        ("18446744073709551615", true),
        ("18446744073709551616", true),
        ("1e300", true),
        // Absent or malformed: 60 s, by the specification.
        ("", true),
        ("null", true),
        ("-1", true),
        ("-18446744073709551616", true),
        ("1e999", true),
        ("\"soon\"", true),
        ("[]", true),
        ("{\"s\": 5}", true),
        ("true", true),
        // Expired before its next use.
        ("0", false),
        ("5", false),
    ] {
        let registry = MemoryRegistry::start(Options { auth: tokens_for(false, expires_in), ..Options::default() }).await.unwrap();
        registry.add_image("demo/app", "1", &MadeImage::of_layers([5_000]));
        let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
        node.pull(&image(&registry)).await.unwrap_or_else(|failure| panic!("{expires_in}: {failure}"));
        let fetched = || registry.requests().iter().filter(|request| request.path == "/token").count();
        assert_eq!((fetched(), registry.counts().failing), (1, 0), "{expires_in}: {:?}", request_log(&registry));
        node.pull(&image(&registry)).await.unwrap_or_else(|failure| panic!("{expires_in}: {failure}"));
        assert_eq!(fetched(), if kept { 1 } else { 2 }, "{expires_in}");
    }
}

#[tokio::test]
async fn token_is_cached_for_at_most_12_h() {
    let registry = guarded(tokens_for(false, "18446744073709551615")).await;
    let (clock, driver) = Clock::driven();
    let node = Node::with(|options| {
        options.keyring = keyring(options.store.parent().unwrap(), Some(&auths(&[login(registry.host(), "deploy", SECRET)])));
        options.clock = clock;
    });
    let fetched = || registry.requests().iter().filter(|request| request.path == "/token").count();
    for (passed, expected) in [(Duration::ZERO, 1), (Duration::from_secs(3_600), 1), (Duration::from_secs(24 * 3_600), 2)] {
        driver.advance(passed);
        node.pull(&image(&registry)).await.unwrap();
        assert_eq!(fetched(), expected, "after another {passed:?}");
    }
}

#[tokio::test]
async fn anonymous_token_is_requested_without_a_login() {
    let registry = guarded(tokens(true)).await;
    let node = Node::new();
    assert_eq!(node.pull(&image(&registry)).await.unwrap().auth, "anonymous");
    assert_eq!(request_log(&registry)[..3], ["401 1", "200 token", "200 1 Bearer"]);
}

#[tokio::test]
async fn refresh_token_is_posted() {
    let registry = guarded(tokens(false)).await;
    let node = node_with(&format!(r#"{{"auths":{{"{}":{{"identitytoken":"refresh-me"}}}}}}"#, registry.host()));
    node.pull(&image(&registry)).await.unwrap();
    let posted: Vec<_> = registry.requests().into_iter().filter(|request| request.method == "POST").collect();
    assert_eq!(posted.len(), 1);
    assert_eq!((posted[0].path.as_str(), posted[0].query.as_str()), ("/token", ""), "nothing of it stands in the address");
}

#[tokio::test]
async fn registry_token_is_sent_unchanged() {
    let registry = guarded(tokens(false)).await;
    let node = node_with(&format!(r#"{{"auths":{{"{}":{{"registrytoken":"no-such-token"}}}}}}"#, registry.host()));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Denied);
    assert_eq!(request_log(&registry), ["401 1", "401 1 Bearer"]);
}

#[tokio::test]
async fn name_and_password_are_sent_after_a_basic_challenge() {
    let registry = guarded(Auth::Basic { user: "deploy".to_owned(), password: SECRET.to_owned() }).await;
    let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
    node.pull(&image(&registry)).await.unwrap();
    assert_eq!(request_log(&registry)[..2], ["401 1", "200 1 Basic"]);
    assert_eq!(registry.counts().challenges, 1, "the other requests bring the login at once");
}

#[tokio::test]
async fn logins_are_tried_in_the_keyrings_order() {
    for auth in [tokens(false), Auth::Basic { user: "deploy".to_owned(), password: SECRET.to_owned() }] {
        let registry = guarded(auth).await;
        let (narrow, wide) = (format!("{}/demo", registry.host()), registry.host().to_owned());
        let node = node_with(&auths(&[login(&narrow, "old", "stale-word"), login(&wide, "deploy", SECRET)]));
        let pulled = node.pull(&image(&registry)).await.unwrap();
        assert_eq!(pulled.auth, source(&node, registry.host()));
        assert_eq!(registry.counts().failing, 1, "the first login was refused: {:?}", request_log(&registry));
    }
}

#[tokio::test]
async fn refused_login_is_reported_and_costs_one_failing_request() {
    for auth in [tokens(true), Auth::Basic { user: "deploy".to_owned(), password: SECRET.to_owned() }] {
        let registry = guarded(auth).await;
        let node = node_with(&auths(&[login(registry.host(), "deploy", "wrong-word")]));
        let failure = node.pull(&image(&registry)).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Denied, "{failure}");
        assert_eq!(failure.auth, source(&node, registry.host()));
        assert!(failure.text.contains("401 Unauthorized (UNAUTHORIZED: "), "{failure}");
        assert!(!format!("{failure:?}").contains("wrong-word"));
        assert_eq!(registry.counts().failing, 1, "{:?}", request_log(&registry));
    }
}

#[tokio::test]
async fn missing_login_is_classed_as_denied() {
    let registry = guarded(Auth::Basic { user: "deploy".to_owned(), password: SECRET.to_owned() }).await;
    let node = Node::new();
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!((failure.class, failure.auth.as_str()), (FailureClass::Denied, "anonymous"));
    assert_eq!(registry.counts().requests, 1);
}

#[tokio::test]
async fn refusal_names_the_sent_login_or_that_none_was_sent() {
    for auth in [tokens(true), tokens(false), Auth::Basic { user: "deploy".to_owned(), password: SECRET.to_owned() }] {
        let registry = guarded(auth).await;
        registry.faults().add(Fault::answer(
            "/manifests/",
            403,
            &[("docker-distribution-api-version", "registry/2.0"), ("www-authenticate", "Basic realm=\"x\"")],
            r#"{"errors":[{"code":"DENIED","message":"no"}]}"#,
        ));
        let host = registry.host().to_owned();
        let narrow = format!("{host}/demo");
        let file = |node: &Node| node.folder.path().join("logins/config.json").display().to_string();
        let wrong = node_with(&auths(&[login(&host, "deploy", "wrong-word")]));
        let two = node_with(&auths(&[login(&narrow, "old", "stale-word"), login(&host, "deploy", "wrong-word")]));
        let other = node_with(&auths(&[login("other.example", "deploy", "wrong-word")]));
        for (node, expected, advice) in [
            (&wrong, format!("for manifest 1, though the {} was sent", source(&wrong, &host)), "this login is right"),
            (
                &two,
                format!("for manifest 1, though the {}, then the {} was sent", source(&two, &narrow), source(&two, &host)),
                "this login is right",
            ),
            (&other, format!("and no login was sent (none for {host} in {} (--authfile))", file(&other)), "log in with an account"),
            (&Node::new(), "and no login was sent (there is no file of registry logins)".to_owned(), "log in with an account"),
        ] {
            let failure = node.pull(&image(&registry)).await.unwrap_err();
            assert_eq!(failure.class, FailureClass::Denied, "{failure}");
            assert!(failure.text.contains(&expected) && failure.text.contains(advice), "{expected}: {failure}");
            for hidden in ["wrong-word", "stale-word", "deploy", "old "] {
                assert!(!format!("{failure:?}").contains(hidden), "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn login_of_a_local_registry_is_not_sent_unencrypted_over_a_network() {
    let registry = guarded(tokens(true)).await;
    let realm = "Bearer realm=\"http://auth.example/token\",service=\"memory\"";
    registry.faults().add(Fault::answer("/v2/", 401, &[("www-authenticate", realm)], ""));
    let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert!(failure.text.contains("names the token server auth.example:80 without TLS on another host"), "{failure}");
}

#[tokio::test]
async fn endless_challenges_end_after_few_requests() {
    let registry = guarded(tokens(true)).await;
    let challenge = r#"Bearer realm="http://{host}/token",service="memory""#;
    registry.faults().add(Fault::answer("/v2/", 401, &[("www-authenticate", challenge)], ""));
    let node = Node::new();
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert!(failure.text.contains("401"), "{failure}");
    assert!(registry.counts().requests <= 4, "{:?}", request_log(&registry));
}

#[tokio::test]
async fn missing_helper_does_not_lead_to_an_anonymous_pull() {
    let registry = guarded(tokens(true)).await;
    let node = node_with(&format!(r#"{{"credHelpers":{{"{}":"not-installed-here"}}}}"#, registry.host()));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("docker-credential-not-installed-here"), "{failure}");
    assert_eq!(registry.counts().requests, 0);
}

#[tokio::test]
async fn login_is_not_sent_after_a_redirect_to_another_host() {
    let (registry, storage) = (guarded(tokens(false)).await, registry().await);
    let made = MadeImage::of_layers([50_000, 60_000]);
    let added = storage.add_image("demo/app", "1", &made);
    for blob in added.manifests[0].blobs() {
        let location = format!("{}/v2/demo/app/blobs/{}?X-Signature=abc", storage.url(), blob.digest);
        registry.faults().add(Fault::answer(&blob.digest, 307, &[("location", &location)], ""));
    }
    let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
    node.pull(&image(&registry)).await.unwrap();
    assert_eq!(storage.counts().requests, 3);
    for request in storage.requests() {
        assert_eq!(request.authorization, None);
        assert!(!request.headers.contains_key("traceparent"), "what is ours stays with the registry");
    }
}

#[tokio::test]
async fn failed_token_server_is_the_endpoint_of_the_failure() {
    let registry = guarded(tokens(false)).await;
    registry.faults().add(Fault::answer("/token", 503, &[], "<html>sorry</html>"));
    let node = node_with(&auths(&[login(registry.host(), "deploy", SECRET)]));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::RegistryUnavailable);
    assert!(failure.text.starts_with("RegistryUnavailable: ") && failure.text.contains("token"), "{failure}");
    assert!(!failure.text.contains('<'));
    registry.faults().clear();
    registry.faults().add(Fault::new("/token", FaultAction::Close));
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::RegistryUnavailable);
}

/// Otherwise one registry's wrong setting would read as "no such image" on all nodes.
#[tokio::test]
async fn missing_token_server_says_nothing_about_the_image() {
    let registry = guarded(tokens(true)).await;
    registry.faults().add(Fault::answer("/token", 404, &[], r#"{"errors":[{"code":"NOT_FOUND","message":"no such path"}]}"#));
    let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
    let reported = (failure.class, failure.authoritative, failure.stage);
    assert_eq!(reported, (FailureClass::Unknown, false, Stage::Token), "{failure}");
    let expected = "404 Not Found (NOT_FOUND: no such path) for token repository:demo/app:pull; ask who runs the registry";
    assert!(failure.text.contains(expected), "{failure}");
}

#[tokio::test]
async fn requests_carry_trace_and_user_agent() {
    let registry = guarded(Auth::None).await;
    Node::new().pull(&image(&registry)).await.unwrap();
    for request in registry.requests() {
        assert!(request.headers["traceparent"].starts_with("00-"));
        assert!(request.headers["user-agent"].starts_with("fleetpull/"));
    }
}
