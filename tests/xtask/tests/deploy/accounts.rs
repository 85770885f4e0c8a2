//! The example of accounts: the server takes it, and nats-setup makes it.

use std::process::Command;

use support::nats::{Accounts, current_program};
use support::requirement::met;
use tempfile::TempDir;

use super::{deploy, read};

#[test]
fn the_example_of_accounts_is_taken_by_the_server_as_it_is() {
    let Some(program) = met(current_program()) else { return };
    let (accounts, folder) = (Accounts::new(), TempDir::new().unwrap());
    let file = folder.path().join("accounts.conf");
    std::fs::write(&file, accounts.text()).unwrap();
    let checked = Command::new(program).arg("-t").arg("-c").arg(file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Users in lines such as `nkey: U... # name` and, for the fleet's users, a line `# role node` below.
fn users_of(text: &str) -> Vec<(String, Option<String>, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of = |index: usize| {
        let line = lines[index].trim_start_matches("{ ").strip_prefix("nkey: ")?;
        let role = lines.get(index + 1).and_then(|next| next.strip_prefix("# role ")).map(str::to_owned);
        Some((line.rsplit(' ').next()?.to_owned(), role, line.split(' ').next()?.to_owned()))
    };
    (0..lines.len()).filter_map(of).collect()
}

#[test]
fn the_example_of_accounts_is_what_nats_setup_makes() {
    use nats_accounts::{Connections, ServerConfig, User};
    let accounts = read("nats/accounts.conf");
    let users = users_of(&accounts);
    let system = users.iter().find(|(name, ..)| name == "system").expect("the server's own login").2.clone();
    let user = |(name, role, key): &(String, Option<String>, String)| {
        Some(User { name: name.parse().unwrap(), role: role.as_ref()?.parse().unwrap(), public_key: key.clone() })
    };
    let users: Vec<User> = users.iter().filter_map(user).collect();
    assert!(users.len() >= 6, "{users:?}");
    let config = ServerConfig { fleet: contract::subject::Fleet::default(), system, users, callout: None };
    for (file, made) in [("nats/accounts.conf", config.render()), ("nats/nats-server.conf", Connections::default().render())] {
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(deploy(file), &made).unwrap();
        }
        assert_eq!(read(file), made, "run this test with UPDATE_REFERENCE=1");
    }
}
