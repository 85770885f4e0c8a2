//! The users of the accounts.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use contract::NodeName;
use nats_accounts::Role;

use crate::cli::AccountsArgs;
use crate::exit::UsageError;

/// The user for the server's system account.
pub(super) const SYSTEM: &str = "system";
/// The user that makes buckets.
const SETUP: &str = "setup";
/// The user of `fleetpull nats-auth`.
pub(super) const AUTH_CALLOUT: &str = "auth-callout";
/// The file of the key with which `fleetpull nats-auth` signs.
pub(super) const ISSUER: &str = "auth-callout.issuer";

/// A user with a key.
pub(super) struct Named {
    pub(super) name: NodeName,
    /// None if the user is in none of the fleet's accounts.
    pub(super) role: Option<Role>,
}

impl Named {
    pub(super) fn role_name(&self) -> &'static str {
        match self.role {
            Some(role) => role.name(),
            None if self.name.as_str() == SYSTEM => SYSTEM,
            None => AUTH_CALLOUT,
        }
    }
}

/// All users, each once.
///
/// # Errors
/// A name is given twice, is reserved, or cannot be a file name; or a line of the file is invalid.
pub(super) fn of(args: &AccountsArgs) -> Result<Vec<Named>> {
    let given =
        [(Role::Node, &args.nodes), (Role::Operator, &args.operators), (Role::Puller, &args.pullers), (Role::Viewer, &args.viewers)];
    let mut users: Vec<(Role, NodeName)> =
        given.into_iter().flat_map(|(role, names)| names.iter().map(move |name| (role, name.clone()))).collect();
    if let Some(file) = &args.users {
        users.extend(listed(&read(file)?, &file.display().to_string())?);
    }
    let mut roles = BTreeMap::new();
    for (role, name) in &users {
        let text = name.as_str();
        if [SYSTEM, SETUP, AUTH_CALLOUT, ISSUER].contains(&text) {
            return usage(format!("{text} is the name of a login that is always there: give the {role} another"));
        }
        if text.starts_with('.') {
            return usage(format!("{text} cannot name a file: give the {role} a name that does not begin with a dot"));
        }
        // Some file systems do not distinguish upper and lower case.
        if let Some(before) = roles.insert(text.to_ascii_lowercase(), *role) {
            return usage(format!("the name {text} is given twice, to a {before} and to a {role}: each user has a name of its own"));
        }
    }
    if users.is_empty() {
        return usage("no users are named: name them by --node, --operator, --puller, --viewer or --users FILE".to_owned());
    }
    let always = |name: &str, role| Ok::<_, anyhow::Error>(Named { name: name.parse()?, role });
    let mut all: Vec<Named> = users.into_iter().map(|(role, name)| Named { name, role: Some(role) }).collect();
    all.push(always(SETUP, Some(Role::Setup))?);
    all.push(always(SYSTEM, None)?);
    if args.auth_callout {
        all.push(always(AUTH_CALLOUT, None)?);
    }
    Ok(all)
}

fn usage<T>(text: String) -> Result<T> {
    Err(UsageError(text).into())
}

fn read(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("the users cannot be read from stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("the users cannot be read from {}", file.display()))
}

/// Parses lines of `ROLE NAME`; `#` starts a comment.
fn listed(text: &str, file: &str) -> Result<Vec<(Role, NodeName)>> {
    let mut users = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |what: String| UsageError(format!("{file}, line {}: {what}", index + 1));
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [role, name] => {
                let role: Role = role.parse().map_err(|error| at(format!("{error}")))?;
                if role == Role::Setup {
                    return Err(at("the login setup is always there".to_owned()).into());
                }
                users.push((role, name.parse().map_err(|error| at(format!("{error}")))?));
            }
            _ => return Err(at("write ROLE NAME, such as: node n1".to_owned()).into()),
        }
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_role_and_a_name_a_line() {
        let users = listed("# the first rack\nnode n1.example # in the second row\n\n viewer\tgrafana\n", "f").unwrap();
        let users: Vec<_> = users.iter().map(|(role, name)| (*role, name.as_str())).collect();
        assert_eq!(users, [(Role::Node, "n1.example"), (Role::Viewer, "grafana")]);
        for (text, expected) in [
            ("node n1\nnode", "f, line 2: write ROLE NAME"),
            ("root n1", "f, line 1: \"root\" is not a role"),
            ("node a/b", "f, line 1: \"a/b\" is not a node name"),
            ("setup s", "f, line 1: the login setup is always there"),
        ] {
            let error = listed(text, "f").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
