//! Authentication: which login is sent to an endpoint, and which is next after a refusal.
//!
//! A registry refuses the first request with a challenge. Logins are then tried in the keyring's order. All connections of a pull share
//! this state.

use http::HeaderValue;
use tokio::sync::Mutex;

use super::Session;
use super::answer::Answer;
use super::challenge::Challenge;
use super::tokens::{NoToken, TokenKey, basic, bearer};
use crate::keyring::Credential;
use crate::oci_layout::failure::StepFailure;

/// The name of a pull without a login.
const ANONYMOUS: &str = "anonymous";

/// The state of authentication at one endpoint.
pub(in crate::oci_layout) struct Access {
    /// The logins in the order of use; a single `None` if there are none.
    logins: Vec<Option<Credential>>,
    state: Mutex<State>,
}

struct State {
    pass: Pass,
    /// The index of the pass's login, or of the next one to try.
    login: usize,
    /// The logins that were sent to the registry or its token server, in order.
    shown: Vec<usize>,
    challenge: Option<Challenge>,
    /// Whether the pass is a token from a token server.
    given: bool,
    /// Whether the endpoint has accepted the pass before; then a refusal means that it has expired.
    proven: bool,
}

impl State {
    fn show(&mut self, login: usize) {
        if !self.shown.contains(&login) {
            self.shown.push(login);
        }
    }
}

/// The authorization of a request.
#[derive(Clone, Default)]
pub(super) struct Pass {
    pub(super) header: Option<HeaderValue>,
    /// Numbers the passes of an endpoint, so that one refused twice is replaced once.
    number: u64,
}

impl Access {
    pub(super) fn new(logins: Vec<Credential>) -> Self {
        let logins: Vec<_> = if logins.is_empty() { vec![None] } else { logins.into_iter().map(Some).collect() };
        let state = State { pass: Pass::default(), login: 0, shown: Vec::new(), challenge: None, given: false, proven: false };
        Self { logins, state: Mutex::new(state) }
    }

    /// The source of the login that was used last.
    pub(super) async fn source(&self) -> String {
        self.sent().await.pop().unwrap_or_else(|| ANONYMOUS.to_owned())
    }

    /// The sources of the logins that were sent, in order; empty if none was sent.
    pub(super) async fn sent(&self) -> Vec<String> {
        let state = self.state.lock().await;
        let logins = state.shown.iter().filter_map(|shown| self.logins.get(*shown)?.as_ref());
        logins.map(|login| login.source().to_owned()).collect()
    }

    /// Whether a token server has given a token for this pull.
    pub(super) async fn has_token(&self) -> bool {
        self.state.lock().await.given
    }

    /// The pass for the next request. It is empty before a challenge, unless an earlier pull met one and its token is still good.
    pub(super) async fn current(&self, session: &Session) -> Pass {
        let mut state = self.state.lock().await;
        if state.challenge.is_none() {
            state.challenge = session.registries.challenges.get(session);
            let challenge = state.challenge.as_ref();
            let key = challenge.and_then(|challenge| self.key(session, challenge, 0));
            if let Some(header) = key.and_then(|key| session.registries.kept_token(&key)) {
                state.pass = Pass { header: Some(header), number: 1 };
                state.show(0);
                state.proven = true;
            } else {
                state.challenge = None;
            }
        }
        state.pass.clone()
    }

    /// How often a request may be refused: once for the challenge, once for each login, once for an expired token.
    pub(super) fn rounds(&self) -> usize {
        self.logins.len() + 2
    }

    /// The endpoint accepted the pass.
    pub(super) async fn accepted(&self, pass: &Pass) {
        let mut state = self.state.lock().await;
        if state.pass.number == pass.number {
            state.proven = true;
        }
    }

    /// The next pass after `pass` was refused; none if no login is left.
    pub(super) async fn after_refusal(&self, session: &Session, pass: &Pass, answer: &Answer) -> Result<Option<Pass>, StepFailure> {
        let mut state = self.state.lock().await;
        if state.pass.number != pass.number {
            // Another connection of this pull was refused too, and has made a new pass.
            return Ok(Some(state.pass.clone()));
        }
        let first = state.challenge.is_none();
        if let Some(challenge) = Challenge::of(answer.headers()) {
            session.registries.challenges.remember(session, &challenge);
            state.challenge = Some(challenge);
        }
        let Some(challenge) = state.challenge.clone() else { return Ok(None) };
        if !first {
            if let Some(key) = self.key(session, &challenge, state.login) {
                session.registries.forget_token(&key);
            }
            if !state.proven {
                state.login += 1;
            }
        }
        state.proven = false;
        let mut refusal = None;
        while state.login < self.logins.len() {
            let header = self.header(session, &challenge, state.login).await;
            if !matches!(header, Ok(None)) {
                let login = state.login;
                state.show(login);
            }
            match header {
                Ok(Some(header)) => {
                    state.given |= matches!(challenge, Challenge::Bearer { .. });
                    state.pass = Pass { header: Some(header), number: state.pass.number + 1 };
                    return Ok(Some(state.pass.clone()));
                }
                Ok(None) => {}
                Err(NoToken::Refused(failure)) => refusal = Some(failure),
                Err(NoToken::Failed(failure)) => return Err(failure),
            }
            state.login += 1;
        }
        state.login = self.logins.len() - 1;
        refusal.map_or(Ok(None), Err)
    }

    /// The header with a login; none if the login does not fit this challenge.
    async fn header(&self, session: &Session, challenge: &Challenge, login: usize) -> Result<Option<HeaderValue>, NoToken> {
        let credential = self.logins.get(login).and_then(Option::as_ref);
        if let Some(token) = credential.map(Credential::registry_token).filter(|token| !token.is_empty()) {
            return Ok(bearer(token));
        }
        match self.key(session, challenge, login) {
            None => Ok(credential.and_then(basic)),
            Some(key) => session.registries.token(key, &session.endpoint).await.map(Some),
        }
    }

    /// The token that a challenge asks for; none if it asks for name and password.
    fn key(&self, session: &Session, challenge: &Challenge, login: usize) -> Option<TokenKey> {
        let Challenge::Bearer { realm, service, scope } = challenge else { return None };
        let scope = if scope.is_empty() { format!("repository:{}:pull", session.path) } else { scope.clone() };
        let login = self.logins.get(login).cloned().flatten();
        Some(TokenKey { realm: realm.clone(), service: service.clone(), scope, login })
    }
}
