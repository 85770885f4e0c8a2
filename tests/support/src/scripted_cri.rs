//! A CRI service that answers by a script and records its calls.
//!
//! A [`Script`] is plain data, so that a JSON file can have a table of answers:
//! `{"image_status": [null, {"id": "sha256:a", "size": 5}], "pull_image": [{"code": "NotFound", "message": "gone"}]}`.
//! Each call takes the next answer of its method; the last answer is repeated.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use runtimes::cri::proto::runtime as cri;
use runtimes::cri::proto::runtime::image_service_server::{ImageService, ImageServiceServer};
use runtimes::cri::proto::runtime::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

/// The answers of each method.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// To `ImageStatus`. If empty: no image is present.
    pub image_status: Vec<StatusAnswer>,
    /// To `ImageStatus` after the first successful pull.
    pub once_pulled: Option<PresentImage>,
    /// To `PullImage`. If empty: the id `sha256:scripted`.
    pub pull_image: Vec<PullAnswer>,
    /// To `Version`. If empty: `scripted` 1.0.
    pub version: Vec<VersionAnswer>,
    /// To `Status`: its `info` if the request is verbose. If empty: no info.
    pub status: Vec<InfoAnswer>,
}

/// An answer to `ImageStatus`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StatusAnswer {
    /// The call fails.
    Failed(Failure),
    /// The image is present.
    Present(PresentImage),
    /// The image is absent: `null`.
    Absent,
}

/// An answer to `PullImage`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PullAnswer {
    /// The call fails.
    Failed(Failure),
    /// The image was pulled.
    Pulled {
        /// The runtime's name of the image.
        image_ref: String,
    },
}

/// An answer to `Version`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VersionAnswer {
    /// The call fails.
    Failed(Failure),
    /// The runtime and its version.
    Named {
        /// The name of the runtime.
        name: String,
        /// The version of the runtime.
        version: String,
    },
}

/// An answer to `Status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum InfoAnswer {
    /// The call fails.
    Failed(Failure),
    /// The info by name: containerd reports its settings as JSON under `config`.
    Info(BTreeMap<String, String>),
}

/// The failure of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Go's name of the gRPC code: `NotFound`.
    pub code: String,
    /// The text, byte for byte.
    pub message: String,
}

/// A present image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresentImage {
    /// The id of the image.
    pub id: String,
    /// The size in bytes.
    #[serde(default)]
    pub size: u64,
    /// The digests, each as `repository@digest`.
    #[serde(default)]
    pub repo_digests: Vec<String>,
}

/// A received call.
#[derive(Clone, Debug)]
pub struct Call {
    /// `ImageStatus`, `PullImage`, ...
    pub method: &'static str,
    /// The image named in the request; empty if the method names none.
    pub image: String,
    /// The login of a pull.
    pub auth: Option<cri::AuthConfig>,
}

impl Failure {
    /// A failure with the Go name of its code.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned() }
    }

    fn status(&self) -> Status {
        let code = CODES.iter().position(|name| *name == self.code).unwrap_or_else(|| panic!("{} is no code of gRPC", self.code));
        Status::new(Code::from_i32(i32::try_from(code).expect("there are few codes")), &self.message)
    }
}

/// The Go names of the gRPC codes, indexed by number.
pub const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A running service; dropping it ends it.
pub struct ScriptedCri {
    state: Arc<State>,
    server: JoinHandle<()>,
    folder: TempDir,
}

struct State {
    script: Mutex<Script>,
    calls: watch::Sender<Vec<Call>>,
    held: watch::Sender<Held>,
    places: Mutex<[usize; 4]>,
    pulled: AtomicBool,
    metadata: Mutex<Vec<BTreeMap<String, String>>>,
}

/// Which calls are not answered at present.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    None,
    Pulls,
    All,
}

impl Held {
    fn holds(self, method: &str) -> bool {
        self == Self::All || self == Self::Pulls && method == "PullImage"
    }
}

impl ScriptedCri {
    /// Starts a service on its own socket. Must be called within a tokio runtime.
    ///
    /// # Panics
    /// When no socket can be made.
    #[must_use]
    pub fn start(script: Script) -> Self {
        let folder = TempDir::with_prefix("cri-").expect("a folder for the socket can be made");
        let listener = UnixListener::bind(folder.path().join("cri.sock")).expect("the socket can be bound");
        let script = Mutex::new(script);
        let (calls, held) = (watch::Sender::default(), watch::Sender::new(Held::None));
        let state =
            Arc::new(State { script, calls, held, places: Mutex::default(), pulled: AtomicBool::new(false), metadata: Mutex::default() });
        let service = Service(Arc::clone(&state));
        let serving = tonic::transport::Server::builder()
            .add_service(ImageServiceServer::new(service.clone()))
            .add_service(RuntimeServiceServer::new(service))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async { serving.await.expect("the service runs until it is stopped") });
        Self { state, server, folder }
    }

    /// The socket, as `unix:///path`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The path of the socket.
    #[must_use]
    pub fn socket(&self) -> Box<Path> {
        self.folder.path().join("cri.sock").into_boxed_path()
    }

    /// Every call so far, in the order in which they arrived.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state.calls.borrow().clone()
    }

    /// The metadata of each pull so far.
    ///
    /// # Panics
    /// When a call has panicked.
    #[must_use]
    pub fn metadata_of_pulls(&self) -> Vec<BTreeMap<String, String>> {
        self.state.metadata.lock().expect("no holder panics").clone()
    }

    /// Waits until `count` calls of a method have arrived.
    ///
    /// # Panics
    /// When the service ends first.
    pub async fn wait_for_calls(&self, method: &str, count: usize) {
        let enough = |calls: &Vec<Call>| calls.iter().filter(|call| call.method == method).count() >= count;
        self.state.calls.subscribe().wait_for(enough).await.expect("the service runs");
    }

    /// Replaces the script; the new one begins with its first answers.
    ///
    /// # Panics
    /// When a call has panicked.
    pub fn turn_to(&self, script: Script) {
        *self.state.script.lock().expect("no holder panics") = script;
        *self.state.places.lock().expect("no holder panics") = [0; 4];
    }

    /// From now on calls are recorded but not answered.
    pub fn hold(&self) {
        self.state.held.send_replace(Held::All);
    }

    /// From now on pulls are recorded but not answered; other calls are answered.
    pub fn hold_pulls(&self) {
        self.state.held.send_replace(Held::Pulls);
    }

    /// Waits until the callers have abandoned all unanswered calls.
    pub async fn wait_until_given_up(&self) {
        self.state.held.closed().await;
    }

    /// Answers the waiting calls, and from now on every call.
    pub fn release(&self) {
        self.state.held.send_replace(Held::None);
    }
}

impl Drop for ScriptedCri {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Clone)]
struct Service(Arc<State>);

impl Service {
    async fn note(&self, method: &'static str, image: Option<cri::ImageSpec>, auth: Option<cri::AuthConfig>) {
        let image = image.map(|spec| spec.image).unwrap_or_default();
        let mut held = self.0.held.subscribe();
        self.0.calls.send_modify(|calls| calls.push(Call { method, image, auth }));
        // `held` is subscribed before the call is recorded, so that a test that saw the call can wait until it is abandoned.
        held.wait_for(|held| !held.holds(method)).await.expect("the sender is ours");
    }

    /// The next answer of the method at `place`; the last answer is repeated.
    fn next<T: Clone>(&self, place: usize, answers: impl FnOnce(&Script) -> &[T]) -> Option<T> {
        let script = self.0.script.lock().expect("no holder panics");
        let mut places = self.0.places.lock().expect("no holder panics");
        let at = places[place];
        places[place] += 1;
        let answers = answers(&script);
        answers.get(at).or(answers.last()).cloned()
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn image_status(&self, request: Request<cri::ImageStatusRequest>) -> Result<Response<cri::ImageStatusResponse>, Status> {
        self.note("ImageStatus", request.into_inner().image, None).await;
        let once_pulled = self.0.script.lock().expect("no holder panics").once_pulled.clone();
        let present = match once_pulled.filter(|_| self.0.pulled.load(Ordering::SeqCst)).map(StatusAnswer::Present) {
            None => self.next(0, |script| &script.image_status),
            pulled => pulled,
        };
        let image = match present {
            Some(StatusAnswer::Failed(failure)) => return Err(failure.status()),
            Some(StatusAnswer::Present(PresentImage { id, size, repo_digests })) => {
                Some(cri::Image { id, size, repo_digests, ..cri::Image::default() })
            }
            Some(StatusAnswer::Absent) | None => None,
        };
        Ok(Response::new(cri::ImageStatusResponse { image, ..cri::ImageStatusResponse::default() }))
    }

    async fn pull_image(&self, request: Request<cri::PullImageRequest>) -> Result<Response<cri::PullImageResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let text = |value: &tonic::codegen::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let metadata = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        self.0.metadata.lock().expect("no holder panics").push(metadata);
        let request = request.into_inner();
        self.note("PullImage", request.image, request.auth).await;
        let image_ref = match self.next(1, |script| &script.pull_image) {
            Some(PullAnswer::Failed(failure)) => return Err(failure.status()),
            Some(PullAnswer::Pulled { image_ref }) => image_ref,
            None => "sha256:scripted".to_owned(),
        };
        self.0.pulled.store(true, Ordering::SeqCst);
        Ok(Response::new(cri::PullImageResponse { image_ref }))
    }

    async fn list_images(&self, _: Request<cri::ListImagesRequest>) -> Result<Response<cri::ListImagesResponse>, Status> {
        self.note("ListImages", None, None).await;
        Ok(Response::new(cri::ListImagesResponse::default()))
    }

    async fn remove_image(&self, request: Request<cri::RemoveImageRequest>) -> Result<Response<cri::RemoveImageResponse>, Status> {
        self.note("RemoveImage", request.into_inner().image, None).await;
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<cri::ImageFsInfoRequest>) -> Result<Response<cri::ImageFsInfoResponse>, Status> {
        self.note("ImageFsInfo", None, None).await;
        Ok(Response::new(cri::ImageFsInfoResponse::default()))
    }
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Result<Response<cri::VersionResponse>, Status> {
        let (name, version) = match self.next(2, |script| &script.version) {
            Some(VersionAnswer::Failed(failure)) => return Err(failure.status()),
            Some(VersionAnswer::Named { name, version }) => (name, version),
            None => ("scripted".to_owned(), "1.0".to_owned()),
        };
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: name,
            runtime_version: version,
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Result<Response<cri::StatusResponse>, Status> {
        self.note("Status", None, None).await;
        let info = match self.next(3, |script| &script.status) {
            Some(InfoAnswer::Failed(failure)) => return Err(failure.status()),
            Some(InfoAnswer::Info(info)) if request.into_inner().verbose => info.into_iter().collect(),
            _ => HashMap::new(),
        };
        Ok(Response::new(cri::StatusResponse { info }))
    }
}
