//! Which runtime a node pulls with.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clock::Clock;
use runtimes::RuntimeRef;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{FleetKey, Keyring, KeyringOptions};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions, Timeouts};
use settings::{RuntimeKind, Settings};

use crate::cli::RegistryArgs;
use crate::configuration::Configuration;

/// Opens the runtime that is set. Must be called within a tokio runtime.
///
/// # Errors
/// The store cannot be used, or no runtime's socket is known.
pub fn open_runtime(configuration: &Configuration, registry: RegistryArgs, clock: &Clock) -> Result<RuntimeRef> {
    open_shared_runtime(configuration, registry, clock, FleetKey::new())
}

/// As [`open_runtime`]; whose logins it uses is told to the fleet under `fleet_key`, which may be filled later.
///
/// # Errors
/// As [`open_runtime`].
pub fn open_shared_runtime(
    configuration: &Configuration,
    registry: RegistryArgs,
    clock: &Clock,
    fleet_key: FleetKey,
) -> Result<RuntimeRef> {
    let settings = configuration.settings();
    let keyring = Keyring::new(KeyringOptions::of_process(settings.auth.file.clone()));
    let keyring = keyring.shared_under(fleet_key, settings.fleet.credential_group.as_deref().unwrap_or_default());
    match settings.runtime.kind {
        RuntimeKind::OciLayout => open_layout(configuration, settings, keyring, registry, clock),
        RuntimeKind::Cri => {
            let endpoint = settings.runtime.endpoint_on(Path::exists)?;
            let runtime = CriRuntime::new(CriOptions { endpoint, keyring }).context("runtime.endpoint is not valid")?;
            Ok(Arc::new(runtime))
        }
    }
}

fn open_layout(
    configuration: &Configuration,
    settings: &Settings,
    keyring: Keyring,
    registry: RegistryArgs,
    clock: &Clock,
) -> Result<RuntimeRef> {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let mut options = OciLayoutOptions::new(settings.store.dir_on(&configuration.host)?, keyring, clock.clone());
    options.plain_http = registry.plain_http;
    options.tls_verify = registry.tls_verify;
    options.timeouts = Timeouts {
        connect: settings.registry.connect_timeout,
        first_byte: settings.registry.first_byte_timeout,
        no_progress: settings.registry.no_progress_timeout,
    };
    options.connections_per_pull = count(settings.pull.connections);
    options.connections_per_registry = count(settings.registry.connections);
    options.fsync = settings.store.fsync;
    options.config_path = settings.registry.config_path.clone().unwrap_or_default();
    let store = options.store.display().to_string();
    let runtime = OciLayout::open(options).with_context(|| format!("the store {store} cannot be used"))?;
    Ok(Arc::new(runtime))
}
