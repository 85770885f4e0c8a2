//! Opens the runtime with which a node pulls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clock::Clock;
use contract::messages::pull_coordinator::EndpointLogins;
use image::Reference;
use metrics::Instruments;
use runtimes::RuntimeRef;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Audience, FleetKey, Keyring, KeyringOptions};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions, Timeouts};
use settings::{RuntimeKind, Settings};

use crate::cli::RegistryArgs;
use crate::configuration::Configuration;

/// Opens the configured runtime. Must be called within a tokio runtime.
///
/// # Errors
/// The store cannot be used, or no runtime's socket is known.
pub fn open_runtime(configuration: &Configuration, registry: RegistryArgs, clock: &Clock) -> Result<RuntimeRef> {
    open_shared_runtime(configuration, registry, clock, FleetKey::new(), &Instruments::default())
}

/// Like [`open_runtime`], but identifies its logins to the fleet with `fleet_key`, which may be filled later. `instruments` count its
/// requests to registries.
///
/// # Errors
/// Those of [`open_runtime`].
pub fn open_shared_runtime(
    configuration: &Configuration,
    registry: RegistryArgs,
    clock: &Clock,
    fleet_key: FleetKey,
    instruments: &Instruments,
) -> Result<RuntimeRef> {
    let settings = configuration.settings();
    let keyring = Keyring::new(KeyringOptions::of_process(settings.auth.file.clone()));
    let keyring = keyring.shared_under(fleet_key, settings.fleet.credential_group.as_deref().unwrap_or_default());
    match settings.runtime.kind {
        RuntimeKind::OciLayout => {
            let store = settings.store.dir_on(&configuration.host)?;
            let unusable = format!("the store {} cannot be used", store.display());
            let options = layout_options(settings, store, keyring, registry, clock.clone());
            let options = OciLayoutOptions { instruments: instruments.clone(), ..options };
            Ok(Arc::new(OciLayout::open(options).context(unusable)?))
        }
        RuntimeKind::Cri => {
            let endpoint = settings.runtime.endpoint_on(Path::exists)?;
            let options = cri_options(settings, endpoint, keyring, clock.clone());
            let options = CriOptions { instruments: instruments.clone(), ..options };
            Ok(Arc::new(CriRuntime::new(options).context("runtime.endpoint is not valid")?))
        }
    }
}

/// The logins that a pull by this process would send, and to which endpoints. Makes no store.
///
/// # Errors
/// The logins cannot be determined.
pub async fn logins(configuration: &Configuration, reference: &Reference) -> Result<Vec<EndpointLogins>> {
    let settings = configuration.settings();
    let keyring = Keyring::new(KeyringOptions::of_process(settings.auth.file.clone()));
    match settings.runtime.kind {
        RuntimeKind::OciLayout => {
            let store = settings.store.dir_on(&configuration.host)?;
            Ok(layout_options(settings, store, keyring, RegistryArgs::default(), Clock::host()).logins(reference).await?)
        }
        RuntimeKind::Cri => {
            // As of an agent: the runtime decides which endpoint sees them.
            Ok(vec![keyring.explain(&Audience::runtime(reference.repository()), reference.registry()).await?])
        }
    }
}

/// The options of the `cri` runtime from the settings.
fn cri_options(settings: &Settings, endpoint: String, keyring: Keyring, clock: Clock) -> CriOptions {
    let config_path = settings.registry.config_path.clone().unwrap_or_default();
    CriOptions { config_path, timeouts: timeouts(settings), ..CriOptions::new(endpoint, keyring, clock) }
}

fn timeouts(settings: &Settings) -> Timeouts {
    Timeouts {
        connect: settings.registry.connect_timeout,
        first_byte: settings.registry.first_byte_timeout,
        no_progress: settings.registry.no_progress_timeout,
    }
}

/// The options of the embedded runtime from the settings and the command line.
fn layout_options(settings: &Settings, store: PathBuf, keyring: Keyring, registry: RegistryArgs, clock: Clock) -> OciLayoutOptions {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    OciLayoutOptions {
        store,
        keyring,
        config_path: settings.registry.config_path.clone().unwrap_or_default(),
        plain_http: registry.plain_http,
        tls_verify: registry.tls_verify,
        timeouts: timeouts(settings),
        connections_per_pull: count(settings.pull.connections),
        connections_per_registry: count(settings.registry.connections),
        fsync: settings.store.fsync,
        clock,
        instruments: Instruments::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runtimes::keyring::Environment;
    use serde::Serialize;
    use settings::Host;

    use super::*;

    fn options(settings: &Settings, registry: RegistryArgs) -> OciLayoutOptions {
        let nowhere = KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: PathBuf::new() };
        let store = settings.store.dir_on(&Host::default()).expect("a store is set");
        layout_options(settings, store, Keyring::new(nowhere), registry, Clock::host())
    }

    /// Ensures that no new key is forgotten.
    fn assert_every_key_is_set_anew<T: Serialize>(section: &T, default: &T) {
        let [section, default] = [section, default].map(|keys| serde_json::to_value(keys).expect("settings are written"));
        for (key, value) in default.as_object().expect("a section has keys") {
            assert_ne!(&section[key], value, "{key} has its default");
        }
    }

    #[test]
    fn every_setting_of_the_store_and_of_registries_reaches_the_embedded_runtime() {
        let mut settings = Settings::default();
        let second = Duration::from_secs(1);
        (settings.store.dir, settings.store.fsync) = (Some("/somewhere/images".into()), false);
        settings.registry.config_path = Some("/somewhere/hosts".into());
        (settings.registry.connect_timeout, settings.registry.first_byte_timeout) = (second, 2 * second);
        (settings.registry.no_progress_timeout, settings.registry.connections) = (3 * second, 5);
        settings.pull.connections = 7;
        let default = Settings::default();
        assert_every_key_is_set_anew(&settings.store, &default.store);
        assert_every_key_is_set_anew(&settings.registry, &default.registry);
        // Each field is named, so that no new field is forgotten.
        let OciLayoutOptions {
            store,
            keyring: _,
            config_path,
            plain_http,
            tls_verify,
            timeouts,
            connections_per_pull,
            connections_per_registry,
            fsync,
            clock: _,
            instruments: _,
        } = options(&settings, RegistryArgs { plain_http: true, tls_verify: false });
        assert_eq!((store, config_path), ("/somewhere/images".into(), "/somewhere/hosts".into()));
        assert_eq!((plain_http, tls_verify, fsync), (true, false, false));
        assert_eq!(timeouts, Timeouts { connect: second, first_byte: 2 * second, no_progress: 3 * second });
        assert_eq!((connections_per_pull, connections_per_registry), (7, 5));
    }

    #[test]
    fn the_settings_of_routes_and_time_outs_reach_the_cri_runtime() {
        let mut settings = Settings::default();
        let second = Duration::from_secs(1);
        settings.registry.config_path = Some("/somewhere/hosts".into());
        (settings.registry.connect_timeout, settings.registry.first_byte_timeout) = (second, 2 * second);
        settings.registry.no_progress_timeout = 3 * second;
        let nowhere = KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: PathBuf::new() };
        // Each field is named, so that no new field is forgotten.
        let CriOptions { endpoint, keyring: _, config_path, timeouts, clock: _, instruments: _ } =
            cri_options(&settings, "/run/x.sock".to_owned(), Keyring::new(nowhere), Clock::host());
        assert_eq!((endpoint.as_str(), config_path), ("/run/x.sock", "/somewhere/hosts".into()));
        assert_eq!(timeouts, Timeouts { connect: second, first_byte: 2 * second, no_progress: 3 * second });
    }

    #[test]
    fn unset_config_path_reads_no_folder_and_keeps_flags() {
        let mut settings = Settings::default();
        (settings.store.dir, settings.registry.config_path) = (Some("/somewhere".into()), None);
        let options = options(&settings, RegistryArgs::default());
        assert_eq!((options.config_path, options.plain_http, options.tls_verify), (PathBuf::new(), false, true));
    }
}
