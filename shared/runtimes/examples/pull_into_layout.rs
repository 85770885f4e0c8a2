//! Pulls an image into an OCI image layout with the embedded runtime alone:
//! `cargo run --release -p runtimes --example pull_into_layout -- IMAGE DIR [no-fsync]`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use clock::{Clock, Random};
use contract::TraceContext;
use image::Reference;
use runtimes::keyring::{Keyring, KeyringOptions};
use runtimes::oci_layout::{OciLayout, OciLayoutOptions};
use runtimes::{ImageRuntime, Progress, PullRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, folder, rest @ ..] = arguments.as_slice() else { return Err("usage: pull_into_layout IMAGE DIR [no-fsync]".into()) };
    let clock = Clock::host();
    let keyring = Keyring::new(KeyringOptions::of_process(None));
    let mut options = OciLayoutOptions::new(folder, keyring, clock.clone());
    options.fsync = rest.first().is_none_or(|word| word != "no-fsync");
    let runtime = OciLayout::open(options)?;
    let reference = Reference::parse(image)?;
    let request =
        PullRequest { reference: reference.clone(), platform: None, trace: TraceContext::root(&mut Random::from_system()), carried: None };
    let started = clock.now().monotonic;
    let pulled = runtime.pull(request, Progress::new()).await?;
    println!("{} in {:.3} s", pulled.image_ref, (clock.now().monotonic - started).as_secs_f64());
    let status = runtime.image_status(&reference, None).await?.ok_or("the image is not there")?;
    println!("{} bytes", status.size_bytes);
    Ok(())
}
