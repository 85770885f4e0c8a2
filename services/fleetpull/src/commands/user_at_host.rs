//! The user who runs a command, for events and answers.

use std::os::unix::fs::MetadataExt as _;

/// The system's list of users.
const USERS: &str = "/etc/passwd";

/// `user@host` of this process.
pub(super) fn user_at_host() -> String {
    let uid = std::fs::metadata("/proc/self").ok().map(|own| own.uid());
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let variables = ["USER", "LOGNAME"].map(|name| std::env::var(name).unwrap_or_default());
    let host = hostname::get().ok().map(|host| host.to_string_lossy().into_owned()).filter(|host| !host.is_empty());
    format!("{}@{}", user(uid, &users, &variables), host.as_deref().unwrap_or("unknown host"))
}

/// The user's name from the system's list, else from the environment (a directory service may know more users than the list), else the
/// user's number.
fn user(uid: Option<u32>, users: &str, variables: &[String]) -> String {
    let name_of = |uid: u32| {
        // The fields are name:password:uid:...
        let entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let own = entries.into_iter().find(|entry| entry.get(2).and_then(|number| number.parse().ok()) == Some(uid));
        own.and_then(|entry| entry.first().map(|name| (*name).to_owned())).filter(|name| !name.is_empty())
    };
    let listed = uid.and_then(name_of);
    let named = || variables.iter().find(|name| !name.is_empty()).cloned();
    let number = || uid.map_or_else(|| "unknown user".to_owned(), |uid| format!("uid {uid}"));
    listed.or_else(named).unwrap_or_else(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_a_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nbroken\n:x:7:7::/:\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        for (uid, users, variables, expected) in [
            (Some(0), users, ["", ""], "root"),
            (Some(0), users, ["alice", ""], "root"),
            (Some(1000), users, ["", "root"], "alice"),
            (Some(2000), users, ["", "bob"], "bob"),
            (Some(2000), users, ["", ""], "uid 2000"),
            (Some(7), users, ["", ""], "uid 7"),
            (Some(0), "", ["", ""], "uid 0"),
            (None, users, ["bob", ""], "bob"),
            (None, users, ["", ""], "unknown user"),
        ] {
            assert_eq!(user(uid, users, &variables.map(str::to_owned)), expected, "{uid:?} {variables:?}");
        }
    }
}
