//! Code that the build generates from the protocol definitions in `proto/`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::disallowed_types, clippy::unwrap_used)]

/// CRI version 1: clients, and servers for scripted runtimes.
pub mod runtime {
    tonic::include_proto!("runtime.v1");

    impl std::fmt::Debug for AuthConfig {
        /// Prints no content: it may be a login.
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("AuthConfig")
        }
    }
}

/// containerd's content service: client only.
pub(crate) mod content {
    tonic::include_proto!("containerd.services.content.v1");
}
