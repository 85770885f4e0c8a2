//! Compiles our own definitions of the runtimes' protocols; nothing has to be installed for it.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    // Servers of CRI are for those who stand in for a runtime; nobody stands in for containerd's store.
    // A login is never printed, so it gets no Debug that would.
    let cri = protox::compile(["proto/cri.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(true).skip_debug([".runtime.v1.AuthConfig"]).compile_fds(cri)?;
    let content = protox::compile(["proto/containerd_content.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(content)?;
    Ok(())
}
