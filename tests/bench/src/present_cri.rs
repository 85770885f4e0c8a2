//! `present-cri`: a present image pulled through an agent's actors with the `cri` runtime, compared with the bare call on the same socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use actors::Delivery;
use anyhow::{Context as _, Result, ensure};
use bus::memory::MemoryBus;
use clock::Clock;
use hyper_util::rt::TokioIo;
use memory_registry::{MadeImage, MemoryRegistry, Options};
use runtimes::cri::proto::runtime::image_service_client::ImageServiceClient;
use runtimes::cri::proto::runtime::{ImageSpec, ImageStatusRequest, PullImageRequest};
use runtimes::cri::{CriOptions, CriRuntime};
use support::containerd::{self, Containerd, ContainerdConfig};
use support::scripted_cri::{PresentImage, Script, ScriptedCri, StatusAnswer};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

use crate::alternate::Rounds;
use crate::figure::{Bar, Figure, Unit};
use crate::node::{AskedNode, IMAGE, no_logins};
use crate::report::remark;

/// Each call follows the one before at once: the side that takes longer also finds the other side asleep more often.
const IN_A_ROW: Rounds = Rounds { rounds: 20, calls: 500, pause: Duration::ZERO };
/// Calls as they come to a node: one at a time, to an idle runtime.
const APART: Rounds = Rounds { rounds: 40, calls: 25, pause: Duration::from_millis(1) };
/// The bar.
const MOST: f64 = 1.2;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let service = AnsweringAtOnce::start()?;
    let mut figures = compare_with_bare_call("answers at once", &service.endpoint, IMAGE).await?;
    drop(service);
    match containerd::available() {
        Ok(()) => figures.extend(in_front_of_containerd().await?),
        Err(why) => remark(&format!("present-cri in front of containerd is left out: {why}")),
    }
    Ok(figures)
}

async fn in_front_of_containerd() -> Result<Vec<Figure>> {
    let (containerd, image) = containerd_with_an_image().await?;
    compare_with_bare_call("containerd", &containerd.endpoint(), &image).await
}

/// A containerd with an image, and the image's name.
pub(crate) async fn containerd_with_an_image() -> Result<(Containerd, String)> {
    let registry = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had for the registry")?;
    registry.add_image("team/app", "v1", &MadeImage::of_layers([10_000, 10_000]));
    let image = format!("{}/team/app:v1", registry.host());
    let containerd = Containerd::start(ContainerdConfig::default()).await;
    let spec = ImageSpec { image: image.clone(), ..ImageSpec::default() };
    let pull = PullImageRequest { image: Some(spec), auth: None };
    bare_client(&containerd.endpoint()).await?.pull_image(pull).await.context("containerd cannot pull from the registry")?;
    Ok((containerd, image))
}

async fn compare_with_bare_call(runtime: &str, endpoint: &str, image: &str) -> Result<Vec<Figure>> {
    let clock = Clock::host();
    let cri = CriRuntime::new(CriOptions::new(endpoint, no_logins(), clock::Clock::host()))?;
    let bus = Arc::new(MemoryBus::new(clock.clone()));
    let node = AskedNode::start(Arc::new(cri), bus, clock.clone(), Delivery::Local).await?;
    let bare = bare_client(endpoint).await?;
    let call = async || {
        let spec = ImageSpec { image: image.to_owned(), ..ImageSpec::default() };
        let answer = bare.clone().image_status(ImageStatusRequest { image: Some(spec), verbose: false }).await?;
        ensure!(answer.into_inner().image.is_some(), "{image} should be there");
        Ok(())
    };
    let mut figures = Vec::new();
    for (how, rounds) in [("in a row", IN_A_ROW), ("1 ms apart", APART)] {
        let sides = rounds.measure(&clock, async || node.pull_present(image).await, call).await?;
        let figure = Figure::new(format!("{runtime}, pulls {how}"), Unit::Microseconds, sides.ours_us());
        figures.push(figure.compared_with("bare ImageStatus", sides.reference_us()).with_bar(Bar::Ratio(MOST)));
    }
    Ok(figures)
}

async fn bare_client(endpoint: &str) -> Result<ImageServiceClient<Channel>> {
    let path = Path::new(endpoint.strip_prefix("unix://").context("the endpoint is a unix socket")?).to_owned();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await.context("the socket does not answer")?;
    Ok(ImageServiceClient::new(channel))
}

/// A CRI service with a thread of its own, as a runtime has a process of its own. Dropping it ends the service.
pub(crate) struct AnsweringAtOnce {
    pub(crate) endpoint: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl AnsweringAtOnce {
    pub(crate) fn start() -> Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, endpoint) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let image = PresentImage { id: "sha256:1".to_owned(), size: 1_000_000, ..PresentImage::default() };
                let service = ScriptedCri::start(Script { image_status: vec![StatusAnswer::Present(image)], ..Script::default() });
                // The receiver lives in the same function, so this cannot fail.
                let _ = started.send(service.endpoint());
                let _ = stopped.await;
            });
        });
        let endpoint = endpoint.recv().context("the service does not start")?;
        Ok(Self { endpoint, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for AnsweringAtOnce {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread ends at once; if it panicked, the measurement has failed already.
            let _ = thread.join();
        }
    }
}
