//! Authentication of clients.

use std::collections::BTreeMap;

use serde_json::json;

/// Which clients may pull.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Anybody.
    #[default]
    None,
    /// Clients that send this name and password with each request.
    Basic {
        /// Name.
        user: String,
        /// Password.
        password: String,
    },
    /// Clients with a token of the registry's own token server (`/token`).
    Token(TokenAuth),
}

/// The logins that the token server accepts.
#[derive(Clone, Debug)]
pub struct TokenAuth {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
    /// A refresh token that is accepted too; empty for none.
    pub identity_token: String,
    /// Whether an anonymous token may pull.
    pub anonymous: bool,
    /// The stated lifetime of a token, as JSON: seconds, or anything else that a server may send. Empty: none is stated.
    pub expires_in: String,
}

/// The issued tokens and their repositories.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    made: u64,
    scope_of: BTreeMap<String, String>,
}

impl Tokens {
    fn issue(&mut self, scope: &str) -> String {
        self.made += 1;
        let token = format!("memory-token-{}", self.made);
        self.scope_of.insert(token.clone(), scope.to_owned());
        token
    }

    pub(crate) fn revoke_all(&mut self) {
        self.scope_of.clear();
    }

    fn allows(&self, token: &str, repository: &str) -> bool {
        self.scope_of.get(token).is_some_and(|scope| scope.split(' ').any(|scope| scope == format!("repository:{repository}:pull")))
    }
}

/// A request to the token server.
pub(crate) struct TokenRequest {
    /// The Basic login of a GET, `name:password`.
    pub(crate) login: Option<String>,
    /// Fields of the query or of a posted form.
    pub(crate) fields: BTreeMap<String, String>,
}

impl TokenAuth {
    /// The token server's answer: status and body.
    pub(crate) fn answer(&self, request: &TokenRequest, tokens: &mut Tokens) -> (u16, String) {
        let scope = request.fields.get("scope").map_or("", String::as_str);
        let refresh = request.fields.get("refresh_token");
        let good = match (&request.login, refresh) {
            (Some(login), _) => *login == format!("{}:{}", self.user, self.password),
            (None, Some(token)) => !self.identity_token.is_empty() && *token == self.identity_token,
            (None, None) => self.anonymous,
        };
        if good {
            let token = tokens.issue(scope);
            let lifetime = if self.expires_in.is_empty() { String::new() } else { format!(r#","expires_in":{}"#, self.expires_in) };
            (200, format!(r#"{{"token":"{token}","access_token":"{token}"{lifetime}}}"#))
        } else {
            (401, json!({"errors": [{"code": "UNAUTHORIZED", "message": "incorrect username or password"}]}).to_string())
        }
    }
}

/// Why a request is refused.
pub(crate) struct Refusal {
    pub(crate) challenge: String,
    pub(crate) code: &'static str,
}

impl Auth {
    /// Checks whether a request with this `Authorization` may read the repository. `own` is the registry's URL.
    pub(crate) fn check(&self, authorization: Option<&str>, repository: &str, own: &str, tokens: &Tokens) -> Result<(), Refusal> {
        match self {
            Self::None => Ok(()),
            Self::Basic { user, password } => {
                let good = basic_login(authorization).is_some_and(|login| login == format!("{user}:{password}"));
                if good { Ok(()) } else { Err(Refusal { challenge: "Basic realm=\"memory\"".to_owned(), code: "UNAUTHORIZED" }) }
            }
            Self::Token(_) => {
                let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
                if token.is_some_and(|token| tokens.allows(token, repository)) {
                    return Ok(());
                }
                let challenge = format!("Bearer realm=\"{own}/token\",service=\"memory\",scope=\"repository:{repository}:pull\"");
                Err(Refusal { challenge, code: "UNAUTHORIZED" })
            }
        }
    }
}

/// `name:password` of a Basic header.
pub(crate) fn basic_login(authorization: Option<&str>) -> Option<String> {
    let encoded = authorization?.strip_prefix("Basic ")?;
    String::from_utf8(decode_base64(encoded.trim())?).ok()
}

/// Decodes standard base64 with padding, without a crate for it.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.trim_end_matches('=').bytes().map(digit).collect::<Option<Vec<_>>>()?;
    let mut decoded = Vec::new();
    for group in digits.chunks(4) {
        let word = group.iter().enumerate().fold(0_u32, |word, (place, digit)| word | u32::from(*digit) << (18 - 6 * place));
        decoded.extend(word.to_be_bytes()[1..].iter().take(group.len() - 1));
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_logins_are_parsed() {
        assert_eq!(basic_login(Some("Basic dXNlcjpwYXNzOndvcmQ=")).as_deref(), Some("user:pass:word"));
        assert_eq!(basic_login(Some("Basic dTpw")).as_deref(), Some("u:p"));
        assert_eq!(basic_login(Some("Bearer dTpw")), None);
        assert_eq!(basic_login(None), None);
    }
}
