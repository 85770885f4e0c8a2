//! Compiles our own definitions of the runtimes' protocols; no tool has to be installed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    // CRI servers are for scripted runtimes; containerd's store needs a client only.
    // A login must not be printed, so `AuthConfig` gets no derived Debug.
    let cri = protox::compile(["proto/cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(true).skip_debug([".runtime.v1.AuthConfig"]).compile_fds(cri)?;
    let content = protox::compile(["proto/containerd_content.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(content)?;
    Ok(())
}
