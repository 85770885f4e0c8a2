//! The simulated registry, and the runtime of each node that pulls from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clock::{Clock, Random};
use contract::messages::throttler::RegistryLimit;
use contract::{FailureClass, PermitId, Stage, TraceContext};
use image::{Platform, Reference};
use runtimes::{ImageRuntime, ImageStatus, InspectFailure, Progress, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription};
use throttler::core::budget::{Effect, FLEET_PERMIT_LEASE, RENEW_EVERY};

use crate::latency::{ANSWER, LARGE_LAYERS, LAYERS, Latency};
use crate::quota::Quota;

/// So long a runtime waits for an answer.
const TIME_OUT: Duration = Duration::from_secs(10);
/// What a registry asks for that limits its rate.
pub const RETRY_AFTER: Duration = Duration::from_secs(20);

/// The registry with a quota.
const HUB_HOST: &str = "hub.example";
/// The scope of logins for what is private.
const MINTED: &str = "minted";

/// How the registry is, or what a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// It serves.
    Well,
    /// The image is not there.
    NotFound,
    /// 429 with Retry-After.
    Limited,
    /// 503 with an error body.
    Unavailable,
    /// No connection.
    Refused,
    /// No answer.
    Hang,
    /// 401.
    Denied,
    /// The token server answers 503; manifests would be served.
    TokenUnavailable,
    /// Manifests are served; blobs get 503 without a word of the registry's own.
    BlobUnavailable,
    /// Manifests are served; a blob is never answered.
    BlobHang,
    /// Manifests are served; blobs have other bytes than they should.
    WrongBytes,
}

/// Who permitted a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitFrom {
    /// The budget's leader gave a permit.
    Leader,
    /// Its node reached no leader.
    Alone,
    /// Nobody's.
    None,
}

/// One request, and the pull that it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub at: Duration,
    pub node: usize,
    pub image: String,
    /// Of the attempt.
    pub span: TraceContext,
    pub got: Mood,
    pub permit_from: PermitFrom,
    permit: Option<PermitId>,
    /// When a blob had been answered, and so others could know that all is well.
    pub answered: Option<Duration>,
    /// When the pull was over; none: it goes on.
    pub over: Option<Duration>,
    /// When the permit ran out while it went on.
    pub ran_out: Option<Duration>,
    /// In which window of the registry's quota, if it has one.
    pub window: Option<u64>,
}

impl Asked {
    /// Each login has a budget of its own: that of private images, and that of the others.
    pub fn budget(&self) -> &'static str {
        budget_of(&self.image)
    }
}

fn budget_of(image: &str) -> &'static str {
    if image.starts_with(HUB_HOST) {
        HUB_HOST
    } else if image.contains("private") {
        MINTED
    } else {
        "anonymous"
    }
}

/// The registry of a fleet.
#[derive(Clone)]
pub struct Registry(Arc<Mutex<State>>);

struct State {
    clock: Clock,
    random: Random,
    /// How many times as long everything takes on a node that is slow.
    slow: BTreeMap<usize, f64>,
    /// How it is towards whom that asks for an image with this in its name.
    moods: BTreeMap<&'static str, Mood>,
    /// The image whose layers are large, if there is one.
    large: Option<&'static str>,
    /// Of the registry that has one.
    quota: Option<Quota>,
    /// Nodes that reach no registry.
    sick: BTreeSet<usize>,
    /// Whose login was changed and is wrong.
    rotated: BTreeSet<usize>,
    asked: Vec<Asked>,
    there: BTreeMap<(usize, String), Duration>,
    /// Which start of a node is the one that lives.
    lives: BTreeMap<usize, u64>,
    /// What has been granted to each node on each budget and not been begun with; all that were granted to it are remembered.
    granted: BTreeMap<(usize, &'static str), Granted>,
}

#[derive(Default)]
struct Granted {
    all: BTreeSet<PermitId>,
    unused: VecDeque<(PermitId, bool)>,
}

impl Registry {
    pub fn new(clock: Clock, random: Random) -> Self {
        let state = State {
            clock,
            random,
            slow: BTreeMap::new(),
            large: None,
            moods: BTreeMap::new(),
            quota: None,
            sick: BTreeSet::new(),
            rotated: BTreeSet::new(),
            asked: Vec::new(),
            there: BTreeMap::new(),
            lives: BTreeMap::new(),
            granted: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn set_mood(&self, image: &'static str, mood: Mood) {
        self.state().moods.insert(image, mood);
    }

    /// From now on everything takes so many times as long on a node as on others.
    pub fn set_slowness(&self, node: usize, slowness: f64) {
        self.state().slow.insert(node, slowness);
    }

    /// Pulls of this image take seconds.
    pub fn set_large(&self, image: &'static str) {
        self.state().large = Some(image);
    }

    pub fn set_quota(&self, limit: u64) {
        self.state().quota = Some(Quota::new(limit));
    }

    pub fn set_sick(&self, nodes: impl IntoIterator<Item = usize>) {
        self.state().sick = nodes.into_iter().collect();
    }

    pub fn set_rotated(&self, nodes: impl IntoIterator<Item = usize>) {
        self.state().rotated = nodes.into_iter().collect();
    }

    /// A node begins anew: what it was doing is over.
    pub fn start(&self, node: usize) -> SimulatedRuntime {
        let mut state = self.state();
        let life = state.lives.entry(node).or_default();
        *life += 1;
        SimulatedRuntime { registry: self.clone(), node, life: *life }
    }

    /// A node is suspended: nobody renews its permits, the last of which was renewed within the last second.
    pub fn suspend(&self, node: usize) {
        let mut state = self.state();
        let runs_out = state.clock.now().monotonic + FLEET_PERMIT_LEASE.saturating_sub(RENEW_EVERY);
        let open = state.asked.iter_mut().filter(|one| one.node == node && one.over.is_none());
        open.for_each(|one| one.ran_out = Some(one.ran_out.unwrap_or(runs_out).min(runs_out)));
    }

    /// A node has crashed.
    pub fn stop(&self, node: usize) {
        let mut state = self.state();
        *state.lives.entry(node).or_default() += 1;
        let now = state.clock.now().monotonic;
        state.asked.iter_mut().filter(|one| one.node == node && one.over.is_none()).for_each(|one| one.over = Some(now));
        state.granted.retain(|(of, _), _| *of != node);
    }

    /// What the budgets of a node decide.
    pub fn watch(&self, node: usize) -> throttler::Watch {
        let (registry, life) = (self.clone(), self.state().lives.get(&node).copied());
        Box::new(move |of_node, effect| match effect {
            Effect::Granted { owner, permit, alone } => {
                let budget = [HUB_HOST, MINTED].into_iter().find(|part| owner.contains(part)).unwrap_or(budget_of(""));
                let mut state = registry.state();
                if state.lives.get(&node).copied() != life {
                    return;
                }
                let granted = state.granted.entry((node, budget)).or_default();
                if granted.all.insert(*permit) {
                    granted.unused.push_back((*permit, *alone));
                }
            }
            Effect::RanOut { permit, at } => {
                let mut state = registry.state();
                let now = state.clock.now().monotonic;
                let held = state.asked.iter_mut().find(|one| one.node == node && one.permit == Some(*permit) && one.over.is_none());
                if let Some(one) = held {
                    one.ran_out.get_or_insert((now + *at).saturating_sub(of_node));
                }
            }
            _ => {}
        })
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    pub fn is_there(&self, node: usize, image: &str) -> bool {
        self.state().there.contains_key(&(node, image.to_owned()))
    }

    /// When each image was there, by node.
    pub fn there(&self) -> BTreeMap<(usize, String), Duration> {
        self.state().there.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn request(&mut self, node: usize, image: &str, span: TraceContext) -> (Mood, Vec<RegistryLimit>) {
        let at = self.clock.now().monotonic;
        let mood = self.moods.iter().find(|(part, _)| image.contains(**part)).map_or(Mood::Well, |(_, mood)| *mood);
        let got = if self.sick.contains(&node) {
            Mood::Refused
        } else if matches!(mood, Mood::Well | Mood::NotFound) && image.contains("private") && self.rotated.contains(&node) {
            Mood::Denied
        } else {
            mood
        };
        let granted = self.granted.get_mut(&(node, budget_of(image))).and_then(|granted| granted.unused.pop_back());
        let permit_from = match granted {
            Some((_, alone)) => {
                if alone {
                    PermitFrom::Alone
                } else {
                    PermitFrom::Leader
                }
            }
            None => PermitFrom::None,
        };
        let permit = granted.map(|(permit, _)| permit);
        let quota = self.quota.as_mut().filter(|_| image.starts_with(HUB_HOST) && got == Mood::Well);
        let (got, limits, window) = match quota.map(|quota| (quota.ask(at), quota.window)) {
            Some(((got, limit), window)) => (got, vec![limit], Some(window)),
            None => (got, Vec::new(), None),
        };
        let (image, answered, over, ran_out) = (image.to_owned(), None, None, None);
        self.asked.push(Asked { at, node, image, span, got, permit_from, permit, answered, over, ran_out, window });
        (got, limits)
    }
}

/// What pulls on one node, until that crashes.
pub struct SimulatedRuntime {
    registry: Registry,
    node: usize,
    life: u64,
}

impl SimulatedRuntime {
    fn request(&self, image: &str, span: TraceContext) -> (Mood, Vec<RegistryLimit>, Open<'_>) {
        let mut state = self.registry.state();
        let (got, limits) = state.request(self.node, image, span);
        (got, limits, Open { registry: &self.registry, number: state.asked.len() - 1 })
    }

    /// Waits as long as it takes on this node.
    async fn wait(&self, latency: Latency) {
        let takes = {
            let mut state = self.registry.state();
            let slowness = state.slow.get(&self.node).copied().unwrap_or(1.0);
            latency.draw(&mut state.random, slowness)
        };
        tokio::time::sleep(takes).await;
    }

    /// Waits for an answer that may not come.
    async fn wait_unless(&self, hangs: bool) {
        if hangs {
            tokio::time::sleep(TIME_OUT).await;
        } else {
            self.wait(ANSWER).await;
        }
    }

    fn lives(&self) -> bool {
        self.registry.state().lives.get(&self.node) == Some(&self.life)
    }
}

#[async_trait]
impl ImageRuntime for SimulatedRuntime {
    async fn image_status(&self, reference: &Reference, _: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        let key = (self.node, reference.normalised().to_owned());
        let there = self.registry.state().there.contains_key(&key);
        Ok(there.then(|| ImageStatus { image_ref: key.1, ..ImageStatus::default() }))
    }

    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure> {
        if !self.lives() {
            std::future::pending::<()>().await;
        }
        let image = request.reference.normalised().to_owned();
        let (got, limits, pull) = self.request(&image, request.trace);
        self.wait_unless(got == Mood::Hang).await;
        let failed = failure(got, &limits);
        if failed.as_ref().is_none_or(|failure| failure.stage != Stage::Token) && !matches!(got, Mood::Hang | Mood::Refused) {
            progress.token_given();
        }
        if let Some(failure) = failed.clone().filter(|failure| failure.stage <= Stage::Manifest) {
            return Err(failure);
        }
        if !limits.is_empty() {
            progress.tell_limits(limits.clone());
        }
        progress.resolved(Vec::new());
        progress.blob_asked();
        self.wait_unless(got == Mood::BlobHang).await;
        if let Some(failure) = failed.clone().filter(|failure| failure.class != FailureClass::ContentInvalid) {
            return Err(failure);
        }
        progress.blob_answered();
        pull.is_answered();
        let is_large = self.registry.state().large.is_some_and(|large| large == image);
        self.wait(if is_large { LARGE_LAYERS } else { LAYERS }).await;
        if let Some(failure) = failed {
            return Err(failure);
        }
        if !self.lives() {
            std::future::pending::<()>().await;
        }
        drop(pull);
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        state.there.entry((self.node, image.clone())).or_insert(now);
        Ok(PulledImage { image_ref: image, auth: "anonymous".to_owned(), limits, ..PulledImage::default() })
    }

    /// Who pulls something private does so with a login of the node's own, minted by one helper for all.
    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        let way = Route { hash: "direct".to_owned(), shows_blobs: true, ..Route::unknown(reference, platform) };
        if reference.normalised().contains("private") {
            return Route { scope: MINTED.to_owned(), fingerprint: format!("minted-for-{}", self.node), ..way };
        }
        way
    }

    async fn describe(&self) -> RuntimeDescription {
        RuntimeDescription { name: "simulated".to_owned(), ..RuntimeDescription::default() }
    }
}

/// A pull under way. Whatever ends it is seen.
struct Open<'a> {
    registry: &'a Registry,
    number: usize,
}

impl Open<'_> {
    fn is_answered(&self) {
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        if let Some(one) = state.asked.get_mut(self.number) {
            one.answered = Some(now);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        if let Some(one) = state.asked.get_mut(self.number) {
            one.over.get_or_insert(now);
        }
    }
}

fn failure(got: Mood, limits: &[RegistryLimit]) -> Option<PullFailure> {
    let (class, authoritative, text) = match got {
        Mood::Well => return None,
        Mood::NotFound => (FailureClass::NotFound, true, "manifest unknown"),
        Mood::Limited => (FailureClass::RateLimited, true, "too many requests"),
        Mood::Unavailable => (FailureClass::RegistryUnavailable, true, "503 service unavailable"),
        Mood::Refused => (FailureClass::RegistryUnavailable, false, "connection refused"),
        Mood::Hang => (FailureClass::RegistryUnavailable, false, "no answer"),
        Mood::Denied => (FailureClass::Denied, true, "unauthorized"),
        Mood::TokenUnavailable => (FailureClass::RegistryUnavailable, false, "token server: 503 service unavailable"),
        Mood::BlobUnavailable => (FailureClass::RegistryUnavailable, false, "blob: 503 service unavailable"),
        Mood::BlobHang => (FailureClass::RegistryUnavailable, false, "blob: no answer"),
        Mood::WrongBytes => (FailureClass::ContentInvalid, false, "what came for the blob has another digest"),
    };
    let stage = match got {
        Mood::TokenUnavailable => Stage::Token,
        Mood::BlobUnavailable | Mood::BlobHang | Mood::WrongBytes => Stage::Blob,
        _ => Stage::Manifest,
    };
    let stated = limits.first().and_then(|limit| limit.reset_ms).map(Duration::from_millis);
    let retry_after = (got == Mood::Limited).then_some(stated.unwrap_or(RETRY_AFTER));
    Some(PullFailure { text: text.to_owned(), class, authoritative, stage, retry_after, limits: limits.to_vec(), ..PullFailure::default() })
}
