//! The words before the completed one: they select the fleet and the store.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches};

use crate::cli::{Cli, FleetArgs, SettingsArgs};

/// The typed options that determine where to look.
#[derive(Debug, Default)]
pub(super) struct Typed {
    pub(super) settings: SettingsArgs,
    pub(super) fleet: FleetArgs,
    pub(super) store: Option<PathBuf>,
}

impl Typed {
    /// The words that the shell passes to this process after `--`.
    pub(super) fn of_process() -> Self {
        Self::of(std::env::args_os().skip_while(|word| word != "--").skip(1))
    }

    /// Reads as much as possible of incomplete words.
    fn of(words: impl Iterator<Item = OsString>) -> Self {
        let Ok(mut matches) = Cli::command().ignore_errors(true).try_get_matches_from(words) else { return Self::default() };
        while let Some((_, below)) = matches.remove_subcommand() {
            matches = below;
        }
        Self { settings: part(&matches), fleet: part(&matches), store: matches.try_get_one::<PathBuf>("store").ok().flatten().cloned() }
    }
}

/// A group of options, or its default if the command does not have the group.
fn part<A: Args + FromArgMatches + Default>(matches: &ArgMatches) -> A {
    let options = A::augment_args(clap::Command::default());
    let has_all = options.get_arguments().all(|option| matches.try_contains_id(option.get_id().as_str()).is_ok());
    if has_all { A::from_arg_matches(matches).unwrap_or_default() } else { A::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &str) -> Typed {
        Typed::of(words.split(' ').map(OsString::from))
    }

    #[test]
    fn unfinished_words_determine_where_to_look() {
        let nodes = typed("fleetpull nodes --nats nats://a:1 --fleet f --config ./c.toml ");
        assert_eq!((nodes.fleet.nats.nats.as_deref(), nodes.fleet.nats.fleet.as_deref()), (Some("nats://a:1"), Some("f")));
        assert_eq!(nodes.settings.config, Some("./c.toml".into()));
        let clear = typed("fleetpull backoff clear --agent=unix:///s --node ");
        assert_eq!(clear.fleet.agent.as_deref(), Some("unix:///s"), "a node without a name is wrong, and comes later");
        let remove = typed("fleetpull rm --store ./s app");
        assert_eq!((remove.store, remove.fleet.agent), (Some("./s".into()), None));
        for words in ["fleetpull", "fleetpull nonsense --nats x", "fleetpull pull --wait 1", ""] {
            assert_eq!(typed(words).fleet.nats.nats, None, "{words}");
        }
    }
}
