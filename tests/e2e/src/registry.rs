//! A memory registry for a test that blocks.

use std::ops::Deref;

use memory_registry::{MemoryRegistry, Options};
use tokio::runtime::Runtime;

/// A memory registry on a thread of its own.
pub struct Registry {
    registry: MemoryRegistry,
    // Dropped last: the registry serves on it.
    _runtime: Runtime,
}

impl Registry {
    /// Starts a registry that requires no login.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    /// Starts a registry with these options.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn with(options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread can be had");
        let registry = runtime.block_on(MemoryRegistry::start(options)).expect("a port can be had");
        Self { registry, _runtime: runtime }
    }

    /// `host:port/name`.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.host())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Registry {
    type Target = MemoryRegistry;

    fn deref(&self) -> &MemoryRegistry {
        &self.registry
    }
}
