//! The embedded runtime: pulls from a registry into an OCI image layout.
