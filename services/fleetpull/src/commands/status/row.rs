//! A row: one cause that delays pulls.

use contract::messages::throttler::RegistryLimit;

use super::waits::Waiting;

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The registry, as images name it.
    Registry(String),
    /// An image, or the images of a repository.
    Image(String),
}

/// The source of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The indices of the row's back-off entries.
    Entries(Vec<usize>),
    /// A budget. The row's figures describe it.
    Budget,
}

/// One cause that delays pulls.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// A stable hash.
    pub(super) key: String,
    /// The beginning of the key, used as the id.
    pub(super) id: String,
    pub(super) what: What,
    /// The scope in one or two words.
    pub(super) scope: String,
    /// The state in one word, for JSON.
    pub(super) state: &'static str,
    /// The state in words, for text.
    pub(super) state_in_words: String,
    /// The failure and the node that found it, for text.
    pub(super) cause: String,
    /// `<reason>: <message>` of the last failure, if something has failed.
    pub(super) message: Option<String>,
    pub(super) since_ms: Option<u64>,
    pub(super) next_attempt_ms: Option<u64>,
    pub(super) prober: Option<String>,
    /// The number of nodes with this entry or budget.
    pub(super) node_count: usize,
    pub(super) waiting: Waiting,
    /// True if it delays every node that has it until the next attempt. A budget only slows pulls down, unless its quota is used up.
    pub(super) holds_all: bool,
    /// True if it is only nodes' own back-off that is over, and nothing waits for its image: it holds nothing back.
    pub(super) is_over: bool,
    pub(super) figures: Option<BudgetFigures>,
    pub(super) source: Source,
}

/// The figures of a budget that delays pulls or is below its cap.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BudgetFigures {
    pub(super) owner: String,
    /// The rate in force in pulls per second. None if there is no limit, or if another node leads and does not answer.
    pub(super) rate: Option<f64>,
    /// The cap in pulls per second. None if there is no limit.
    pub(super) cap: Option<f64>,
    /// The quota with the smallest part left.
    pub(super) quota: Option<RegistryLimit>,
    pub(super) is_spent: bool,
    /// Why the rate is below the cap.
    pub(super) slowed_by: Option<&'static str>,
    pub(super) waiting_count: u64,
    pub(super) wait_ms: Option<u64>,
}
