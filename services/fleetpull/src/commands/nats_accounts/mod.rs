//! `fleetpull nats-setup --accounts`: writes the accounts of a server, and each user's key and context, as files.

mod files;
mod users;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use contract::subject::Fleet;
use nats_accounts::{CalloutConfig, Connections, ServerConfig, User, inbox_prefix};
use nkeys::KeyPairType;
use serde::Serialize;
use serde_json::json;
use settings::Settings;

use self::files::{Content, Files, State};
use self::users::{AUTH_CALLOUT, ISSUER, Named, SYSTEM};
use crate::cli::{NatsSetupArgs, OutputFormat};
use crate::exit::Exit;
use crate::output::{self, table};

/// The server in the contexts if none is given.
const DEFAULT_URL: &str = "tls://127.0.0.1:4222";

/// A file in JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonFile<'a> {
    kind: &'static str,
    file: String,
    /// `made`, `changed`, `unchanged`, `kept`; in a dry run or without --force `missing` and `differs`.
    state: &'static str,
    /// Null for a file of the server.
    user: Option<&'a str>,
    role: Option<&'a str>,
}

/// Writes the accounts into the folder.
pub(super) fn carry_out(args: &NatsSetupArgs, settings: &Settings, fleet: Fleet, directory: &Path) -> Result<Exit> {
    let named = users::of(&args.accounts)?;
    let directory = std::path::absolute(directory).context("the folder of the accounts has no path")?;
    let mut files = Files::new(&directory, args.dry_run);
    let accounts = keys(args, &mut files, &named, fleet)?;
    for one in &named {
        let path = PathBuf::from(format!("nats/context/{}.json", one.name));
        files.text(path, context(args, settings, &directory, one)?, Content::Ours, Some((one.name.as_str(), one.role_name())));
    }
    files.text("accounts.conf".into(), accounts.render(), Content::Ours, None);
    files.text("nats-server.conf".into(), connections(args)?.render(), Content::Theirs, None);
    let done = files.write(args.force)?;
    Ok(report(args, &done))
}

/// The users with their public keys. Missing keys are made.
fn keys(args: &NatsSetupArgs, files: &mut Files<'_>, named: &[Named], fleet: Fleet) -> Result<ServerConfig> {
    let (mut users, mut system, mut callout_user) = (Vec::new(), String::new(), String::new());
    for one in named {
        let public_key = files.key(format!("seeds/{}.nk", one.name).into(), KeyPairType::User, one.name.as_str(), one.role_name())?;
        match one.role {
            Some(role) => users.push(User { name: one.name.clone(), role, public_key }),
            None if one.name.as_str() == SYSTEM => system = public_key,
            None => callout_user = public_key,
        }
    }
    let callout = if args.accounts.auth_callout {
        let issuer = files.key(format!("seeds/{ISSUER}.nk").into(), KeyPairType::Account, AUTH_CALLOUT, "issuer")?;
        Some(CalloutConfig { issuer, user: callout_user })
    } else {
        None
    };
    Ok(ServerConfig { fleet, system, users, callout })
}

/// A context of the nats CLI. It names the file of the seed and contains no secret.
fn context(args: &NatsSetupArgs, settings: &Settings, directory: &Path, user: &Named) -> Result<String> {
    let seeds = args.accounts.seeds_at.clone().unwrap_or_else(|| directory.join("seeds"));
    // The shown form of a URL leaves out its login.
    if let Some(secret) = settings.nats.url.iter().find(|url| url.to_string() != url.expose()) {
        bail!("{secret} holds a login: each user has a key of its own, so give the URL without it");
    }
    let urls: Vec<&str> = settings.nats.url.iter().map(settings::ServerUrl::expose).collect();
    let url = if urls.is_empty() { DEFAULT_URL.to_owned() } else { urls.join(",") };
    let mut context = json!({
        "description": format!("{} of the fleet, made by fleetpull nats-setup --accounts", user.role_name()),
        "url": url,
        "nkey": seeds.join(format!("{}.nk", user.name)),
        "inbox_prefix": inbox_prefix(&user.name),
    });
    if let Some(ca) = &settings.nats.ca {
        context["ca"] = json!(std::path::absolute(ca).context("the file of nats.ca has no path")?);
    }
    Ok(serde_json::to_string_pretty(&context)? + "\n")
}

fn connections(args: &NatsSetupArgs) -> Result<Connections> {
    let set = &args.accounts;
    let default = Connections::default();
    let path = |given: &Option<PathBuf>, default: String| -> Result<String> {
        let Some(given) = given else { return Ok(default) };
        Ok(std::path::absolute(given)?.to_str().context("the server's configuration takes only paths that are text")?.to_owned())
    };
    Ok(Connections {
        server_name: default.server_name,
        listen: set.listen.clone().unwrap_or(default.listen),
        cert_file: path(&set.server_cert, default.cert_file)?,
        key_file: path(&set.server_key, default.key_file)?,
        client_ca_file: set.client_ca.as_ref().map(|_| path(&set.client_ca, String::new())).transpose()?,
        store_dir: path(&set.server_store, default.store_dir)?,
    })
}

fn report(args: &NatsSetupArgs, done: &[files::Done]) -> Exit {
    match args.output.format {
        OutputFormat::Json => done.iter().for_each(|one| {
            let user = one.user.as_ref();
            output::json(&JsonFile {
                kind: "file",
                file: one.path.display().to_string(),
                state: one.state.word(),
                user: user.map(|(name, _)| name.as_str()),
                role: user.map(|(_, role)| role.as_str()),
            });
        }),
        OutputFormat::Text => {
            let row = |one: &files::Done| {
                let (name, role) = one.user.clone().unwrap_or_else(|| ("-".to_owned(), "-".to_owned()));
                vec![one.path.display().to_string(), one.state.word().to_owned(), name, role]
            };
            let rows: Vec<Vec<String>> = done.iter().map(row).collect();
            table::columns(&["FILE", "STATE", "USER", "ROLE"], &rows).iter().for_each(|line| output::fact(line));
            if !args.output.quiet {
                output::remark(remark(args, done));
            }
        }
    }
    let left = done.iter().any(|one| matches!(one.state, State::Missing | State::Differs));
    if left { Exit::Failure } else { Exit::Success }
}

fn remark(args: &NatsSetupArgs, done: &[files::Done]) -> &'static str {
    let any = |state: State| done.iter().any(|one| one.state == state);
    match () {
        () if args.dry_run => "This is a dry run: nothing was written.",
        () if any(State::Differs) => "Nothing was written: what differs is there already, and --force changes it; seeds stay.",
        () if any(State::Made) => {
            "Check with `nats-server -t -c nats-server.conf`, start the server, then make the buckets as `setup`: fleetpull nats-setup --nats-context setup. Give each user its seed, and nobody else."
        }
        () if any(State::Changed) => "The server takes it up by `nats-server --signal reload`.",
        () => "Everything is there already: nothing was written.",
    }
}
