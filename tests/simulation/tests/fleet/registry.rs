//! The simulated registry: its condition, and the record of each pull.

mod runtime;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{Clock, Random};
use contract::messages::throttler::RegistryLimit;
use contract::{DEADLINES, PermitId, TraceContext};
use throttler::core::budget::Effect;

use self::runtime::SimulatedRuntime;
use crate::latency::{ANSWER, Latency};
use crate::quota::Quota;

/// The Retry-After of a registry that answers 429.
pub const RETRY_AFTER: Duration = Duration::from_secs(20);
/// The Retry-After of a registry that is overloaded, and of one that limits an address.
const RETRY_AFTER_OF_OVERLOAD: Duration = Duration::from_secs(1);
pub const RETRY_AFTER_OF_ADDRESS: Duration = Duration::from_secs(60);

/// The probability that a request fails if the registry fails by chance.
const FAILING_SHARE: f64 = 0.8;

/// The registry with a quota.
const HUB_HOST: &str = "hub.example";
/// The scope of logins for private images.
const MINTED: &str = "minted";

/// The condition of the registry, and the result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behaviour {
    /// It serves requests.
    Serves,
    /// The image does not exist.
    NotFound,
    /// 429 with Retry-After.
    Limited,
    /// 503 with an error body.
    Unavailable,
    /// The connection is refused.
    Refused,
    /// Requests get no answer.
    Hang,
    /// 401.
    Denied,
    /// The token server answers 503; without it manifests would be served.
    TokenUnavailable,
    /// Manifests are served; blobs get 503 without an error body of the registry.
    BlobUnavailable,
    /// Manifests are served; requests for blobs get no answer.
    BlobHang,
    /// Manifests are served; blobs have wrong bytes.
    WrongBytes,
    /// A proxy in front of it answers 503.
    ProxyUnavailable,
    /// Four of five requests get the proxy's 503, by chance.
    FailsByChance,
    /// It serves this many pulls in each second, and answers further ones with [`Self::SlowDown`].
    Overloaded(u32),
    /// The same with [`Self::ProxyUnavailable`].
    OverloadedProxy(u32),
    /// 429 with a Retry-After of 1 s.
    SlowDown,
    /// 429 with a Retry-After of 60 s, because the address of the node is limited.
    AddressLimited,
}

/// The source of a pull's permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitFrom {
    /// The budget's leader granted a permit.
    Leader,
    /// The node granted it itself, because it reached no leader.
    NoLeader,
    /// The pull had no permit.
    None,
}

/// The first request of a pull, and the course of the pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRecord {
    pub at: Duration,
    pub node: usize,
    pub image: String,
    /// The span of the attempt.
    pub span: TraceContext,
    pub got: Behaviour,
    pub permit_from: PermitFrom,
    permit: Option<PermitId>,
    /// When the first blob was answered, so that other nodes could learn that the registry serves.
    pub answered: Option<Duration>,
    /// When the pull ended; none if it is still running.
    pub over: Option<Duration>,
    /// When the permit ran out during the pull.
    pub ran_out: Option<Duration>,
    /// The window of the registry's quota, if it has one.
    pub window: Option<u64>,
}

impl PullRecord {
    /// The name of the budget: private images have another login than the others, and each login has its own budget.
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
    /// The factor by which everything takes longer on a slow node.
    slow: BTreeMap<usize, f64>,
    /// The condition of the registry for images whose name contains the key.
    behaviours: BTreeMap<&'static str, Behaviour>,
    /// The image with large layers, if there is one.
    large: Option<&'static str>,
    /// The quota of the registry [`HUB_HOST`].
    quota: Option<Quota>,
    /// Nodes that reach no registry.
    sick: BTreeSet<usize>,
    /// Nodes whose login was changed and is wrong.
    rotated: BTreeSet<usize>,
    /// Nodes whose address is limited.
    limited: BTreeSet<usize>,
    /// How long an answer takes.
    answer: Latency,
    /// The present second of an overloaded registry, and how many pulls it has served in it.
    second: (u64, u32),
    asked: Vec<PullRecord>,
    present_since: BTreeMap<(usize, String), Duration>,
    /// The number of the present start of each running node.
    lives: BTreeMap<usize, u64>,
    /// The permits of each node and budget that have not been used yet, and all permits that were granted.
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
            behaviours: BTreeMap::new(),
            quota: None,
            sick: BTreeSet::new(),
            rotated: BTreeSet::new(),
            limited: BTreeSet::new(),
            answer: ANSWER,
            second: (0, 0),
            asked: Vec::new(),
            present_since: BTreeMap::new(),
            lives: BTreeMap::new(),
            granted: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn set_behaviour(&self, image: &'static str, behaviour: Behaviour) {
        self.state().behaviours.insert(image, behaviour);
    }

    /// From now on everything takes `slowness` times as long on a node.
    pub fn set_slowness(&self, node: usize, slowness: f64) {
        self.state().slow.insert(node, slowness);
    }

    /// Makes pulls of this image take seconds.
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

    pub fn set_limited(&self, nodes: impl IntoIterator<Item = usize>) {
        self.state().limited = nodes.into_iter().collect();
    }

    pub fn set_answer(&self, answer: Latency) {
        self.state().answer = answer;
    }

    /// Starts a node again: its running pulls end.
    pub fn start(&self, node: usize) -> SimulatedRuntime {
        let mut state = self.state();
        let life = state.lives.entry(node).or_default();
        *life += 1;
        SimulatedRuntime { registry: self.clone(), node, life: *life }
    }

    /// Suspends a node: its permits are not renewed. The last renewal was at most 1 s ago.
    pub fn suspend(&self, node: usize) {
        let mut state = self.state();
        let runs_out = state.clock.now().monotonic + DEADLINES.budget_permit_lease.saturating_sub(DEADLINES.budget_permit_renewed_every);
        let open = state.asked.iter_mut().filter(|one| one.node == node && one.over.is_none());
        open.for_each(|one| one.ran_out = Some(one.ran_out.unwrap_or(runs_out).min(runs_out)));
    }

    /// Ends the pulls of a crashed node.
    pub fn stop(&self, node: usize) {
        let mut state = self.state();
        *state.lives.entry(node).or_default() += 1;
        let now = state.clock.now().monotonic;
        state.asked.iter_mut().filter(|one| one.node == node && one.over.is_none()).for_each(|one| one.over = Some(now));
        state.granted.retain(|(of, _), _| *of != node);
    }

    /// Records the decisions of a node's budgets.
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

    pub fn asked(&self) -> Vec<PullRecord> {
        self.state().asked.clone()
    }

    pub fn is_present(&self, node: usize, image: &str) -> bool {
        self.state().present_since.contains_key(&(node, image.to_owned()))
    }

    /// When each node had each image.
    pub fn present_since(&self) -> BTreeMap<(usize, String), Duration> {
        self.state().present_since.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn request(&mut self, node: usize, image: &str, span: TraceContext) -> (Behaviour, Vec<RegistryLimit>) {
        let at = self.clock.now().monotonic;
        let behaviour =
            self.behaviours.iter().find(|(part, _)| image.contains(**part)).map_or(Behaviour::Serves, |(_, behaviour)| *behaviour);
        let got = if self.sick.contains(&node) {
            Behaviour::Refused
        } else if self.limited.contains(&node) {
            Behaviour::AddressLimited
        } else if matches!(behaviour, Behaviour::Serves | Behaviour::NotFound) && image.contains("private") && self.rotated.contains(&node)
        {
            Behaviour::Denied
        } else {
            self.answer(at, behaviour)
        };
        let granted = self.granted.get_mut(&(node, budget_of(image))).and_then(|granted| granted.unused.pop_back());
        let permit_from = match granted {
            Some((_, alone)) => {
                if alone {
                    PermitFrom::NoLeader
                } else {
                    PermitFrom::Leader
                }
            }
            None => PermitFrom::None,
        };
        let permit = granted.map(|(permit, _)| permit);
        let quota = self.quota.as_mut().filter(|_| image.starts_with(HUB_HOST) && got == Behaviour::Serves);
        let (got, limits, window) = match quota.map(|quota| (quota.ask(at), quota.window)) {
            Some(((got, limit), window)) => (got, vec![limit], Some(window)),
            None => (got, Vec::new(), None),
        };
        let (image, answered, over, ran_out) = (image.to_owned(), None, None, None);
        self.asked.push(PullRecord { at, node, image, span, got, permit_from, permit, answered, over, ran_out, window });
        (got, limits)
    }

    /// The answer of a registry in this condition.
    fn answer(&mut self, at: Duration, condition: Behaviour) -> Behaviour {
        let (most, beyond) = match condition {
            Behaviour::FailsByChance if self.random.fraction() < FAILING_SHARE => return Behaviour::ProxyUnavailable,
            Behaviour::FailsByChance => return Behaviour::Serves,
            Behaviour::Overloaded(most) => (most, Behaviour::SlowDown),
            Behaviour::OverloadedProxy(most) => (most, Behaviour::ProxyUnavailable),
            always => return always,
        };
        if self.second.0 != at.as_secs() {
            self.second = (at.as_secs(), 0);
        }
        if self.second.1 >= most {
            return beyond;
        }
        self.second.1 += 1;
        Behaviour::Serves
    }
}
