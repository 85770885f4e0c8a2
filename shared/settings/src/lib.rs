//! Settings: one table of keys, one file format, one order of precedence.
//!
//! A value comes from the first of: a flag, `FLEETPULL_<KEY>` in the environment, the file, the nats CLI's own `NATS_<KEY>`
//! (for `nats.*` alone), the default. [`keys`] is the table; the reference file `config/fleetpull.toml` is
//! [`render_reference`] of it, and a test keeps the two equal.
//!
//! ```no_run
//! use settings::{ConfigFile, Host, Loaded, Settings, Sources};
//!
//! let environment = settings::process_environment();
//! let loaded: Loaded = Settings::load(Sources {
//!     file: ConfigFile::Default, // or `ConfigFile::At(path)` for `--config`, `ConfigFile::None`
//!     environment: environment.clone(),
//!     flags: vec![("store.dir".into(), "/srv/images".into()), ("node.labels".into(), "zone=a".into())],
//! })?;
//! for warning in &loaded.warnings {
//!     // to stderr or the log
//! }
//! let host = Host::of(&environment);
//! let store = loaded.settings.store.dir_on(&host)?;
//! let state = loaded.settings.state.dir_on(&store, "node-1");
//! let endpoint = loaded.settings.runtime.endpoint_on(std::path::Path::exists)?;
//! let toml = settings::print_toml(&loaded, &host); // `fleetpull config print`
//! let json = settings::print_json(&loaded, &host); // one object a line
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All problems are reported together, each with its place (file and line, variable or flag), its key and what is
//! allowed. An unknown key is a problem; an unknown `FLEETPULL_` variable is only a warning, because Kubernetes injects
//! variables such as `FLEETPULL_SERVICE_HOST` for a Service named `fleetpull`.
//!
//! Secrets are given by the path of a file. The one exception is a NATS URL with a password, which companies do use: only
//! [`ServerUrl::expose`] gives the password, and only the bus calls it.

mod check;
mod file;
mod key;
mod kind;
mod load;
mod model;
mod places;
mod print;
mod problem;
mod reference;
mod server_url;
mod suggest;
mod table;
mod text;

pub use key::Key;
pub use kind::Kind;
pub use load::{ConfigFile, DEFAULT_FILE, Loaded, Sources, process_environment};
pub use model::{
    Alone, Auth, Backoff, Budget, Bus, Events, Fleet, Log, LogFormat, LogLevel, Nats, Node, OnExhausted, Pull, Registry, Runtime,
    RuntimeKind, Settings, Share, State, Store, Throttle,
};
pub use places::{Host, PlaceError};
pub use print::{differing, print_json, print_toml};
pub use problem::{Origin, Problem, SettingsError};
pub use reference::render_reference;
pub use server_url::ServerUrl;
pub use table::keys;
