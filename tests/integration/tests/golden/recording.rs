//! The recording in `kubelet/golden/golden.json`; its README describes each field.

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct Recording {
    pub(crate) source: Source,
    pub(crate) cases: Vec<Case>,
}

/// The back-off of the recorded kubelet.
#[derive(Debug, Deserialize)]
pub(crate) struct Source {
    pub(crate) back_off_initial_ms: u64,
    pub(crate) back_off_max_ms: u64,
}

/// One image, one policy and one scripted runtime, with the calls in order.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
    pub(crate) image: String,
    pub(crate) policy: String,
    pub(crate) throttle: Option<Throttle>,
    #[serde(default)]
    pub(crate) credentials: Vec<Login>,
    pub(crate) script: Answers,
    pub(crate) runtime_image: String,
    pub(crate) calls: Vec<Call>,
}

/// Kubelet's registryPullQPS and registryBurst.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Throttle {
    pub(crate) qps: f64,
    pub(crate) burst: u32,
}

/// One entry of `auths`.
#[derive(Debug, Deserialize)]
pub(crate) struct Login {
    pub(crate) registry: String,
    pub(crate) username: String,
    pub(crate) password: String,
}

/// The runtime's answers: each call takes the next answer of its method; the last answer is repeated.
#[derive(Debug, Deserialize)]
pub(crate) struct Answers {
    pub(crate) image_status: Vec<StatusAnswer>,
    pub(crate) pull_image: Vec<PullAnswer>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum StatusAnswer {
    Failed(Failed),
    Image { image: Option<Image> },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum PullAnswer {
    Failed(Failed),
    Pulled { image_ref: String },
}

/// A gRPC status.
#[derive(Debug, Deserialize)]
pub(crate) struct Failed {
    pub(crate) code: usize,
    pub(crate) message: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) size: u64,
}

/// One call of `EnsureImageExists`.
#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) pod: String,
    pub(crate) advance_ms: u64,
    #[serde(flatten)]
    pub(crate) result: CallResult,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct CallResult {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) image_ref: String,
    pub(crate) events: Vec<Event>,
    pub(crate) cri_calls: Vec<String>,
    #[serde(default)]
    pub(crate) pull_users: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Event {
    pub(crate) r#type: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Recording {
    /// Reads the file.
    pub(crate) fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kubelet/golden/golden.json");
        let text = std::fs::read(path).expect("the recording can be read");
        serde_json::from_slice(&text).expect("the recording is of the form documented")
    }
}

impl Case {
    pub(crate) fn is(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Whether the image is absent when the runtime is asked right after a pull that it reported as successful.
    pub(crate) fn pull_without_an_image(&self) -> bool {
        let mut statuses = 0;
        for call in &self.calls {
            let mut pulled = false;
            for method in &call.result.cri_calls {
                if method == "PullImage" {
                    pulled = true;
                    continue;
                }
                let answers = &self.script.image_status;
                let answer = &answers[statuses.min(answers.len() - 1)];
                statuses += 1;
                if pulled && matches!(answer, StatusAnswer::Image { image: None }) {
                    return true;
                }
            }
        }
        false
    }
}
