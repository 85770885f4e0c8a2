//! Tests of the runtimes: OCI layout, CRI, keyring, failure classes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod class_examples;
mod cri_containerd;
mod cri_lookups;
mod cri_manifest_check;
mod cri_scripted;
mod failure_texts;
mod keyring_files;
mod keyring_helpers;
mod oci_auth;
mod oci_damage;
mod oci_docker_hub;
mod oci_docker_registry;
mod oci_external;
mod oci_failure_details;
mod oci_faults;
mod oci_proxies;
mod oci_prune_processes;
mod oci_pull;
mod oci_redirects;
mod oci_resume;
mod oci_routes;
mod oci_shared_folders;
mod oci_store;
mod oci_store_steps;
mod oci_support;
mod oci_upkeep;
mod route_views;
