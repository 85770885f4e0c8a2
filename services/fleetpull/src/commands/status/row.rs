//! A row: one cause for which pulls do not go on.

use contract::messages::throttler::RegistryLimit;

use super::waits::Waiting;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// As images name it.
    Registry(String),
    /// An image, or the images of a repository.
    Image(String),
}

/// What a row was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Places in the list of what is known.
    Entries(Vec<usize>),
    /// Of a budget alone, as its figures say.
    Budget,
}

/// One cause for which pulls do not go on.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// A stable hash.
    pub(super) key: String,
    /// The beginning of it.
    pub(super) id: String,
    pub(super) what: What,
    /// How far it reaches, in a word or two.
    pub(super) scope: String,
    /// In a word, for JSON.
    pub(super) state: &'static str,
    /// The same for people.
    pub(super) state_in_words: String,
    /// What was met and who found out, for people.
    pub(super) cause: String,
    /// `<reason>: <message>` of the last failure, if something has failed.
    pub(super) message: Option<String>,
    pub(super) since_ms: Option<u64>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) prober: Option<String>,
    /// How many nodes know of it.
    pub(super) node_count: usize,
    pub(super) waiting: Waiting,
    pub(super) figures: Option<BudgetFigures>,
    pub(super) source: Source,
}

/// How a budget stands that holds pulls back, or lets fewer go than it may.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BudgetFigures {
    pub(super) owner: String,
    /// Pulls a second that are let go; none: no limit, or another node leads and does not answer.
    pub(super) rate: Option<f64>,
    /// Pulls a second at most; none: no limit.
    pub(super) cap: Option<f64>,
    /// Of which the least is left.
    pub(super) quota: Option<RegistryLimit>,
    pub(super) is_spent: bool,
    /// Why the rate is below the cap.
    pub(super) slowed_by: Option<&'static str>,
    pub(super) waiting_count: u64,
    pub(super) wait_ms: Option<u64>,
}
