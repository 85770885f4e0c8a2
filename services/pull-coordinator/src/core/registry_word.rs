//! What a pull has shown of its registry, for the fleet's budget.

use std::time::Duration;

use contract::FailureClass;
use contract::messages::throttler::RegistryLimit;

use super::step::{Failure, ImageFacts, PulledFacts};

/// A registry that asks a node to stay away for longer counts what this node's address does: others may be served meanwhile.
const LIMIT_OF_ITS_OWN: Duration = Duration::from_secs(10);

/// What the throttler is told with a permit that goes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryWord {
    /// What the registry said of its limits during the pull.
    pub limits: Vec<RegistryLimit>,
    /// Whether it could do what was asked; none: it was not asked, or how the pull ended says nothing of it.
    pub served: Option<bool>,
}

impl RegistryWord {
    /// By how an attempt ended that was made; one that was not has no word.
    pub(super) fn of(result: &Result<(PulledFacts, ImageFacts), Failure>) -> Self {
        match result {
            Ok((pulled, _)) => Self { limits: pulled.limits.clone(), served: Some(true) },
            Err(failure) => Self { limits: failure.limits.clone(), served: served(failure) },
        }
    }
}

fn served(failure: &Failure) -> Option<bool> {
    match failure.class {
        FailureClass::RegistryUnavailable => Some(false),
        // A quota is the budget's own matter, and so is a limit of one address that of its nodes.
        FailureClass::RateLimited if failure.limits.iter().any(|limit| limit.remaining == 0) => None,
        FailureClass::RateLimited => failure.retry_after.is_none_or(|after| after <= LIMIT_OF_ITS_OWN).then_some(false),
        FailureClass::NotFound | FailureClass::Denied => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_refuses_for_its_load_did_not_serve_and_one_that_says_no_did() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let spent = RegistryLimit { limit: 100, remaining: 0, ..RegistryLimit::default() };
        for (class, retry_after, limits, served) in [
            (FailureClass::RegistryUnavailable, None, vec![], Some(false)),
            (FailureClass::RateLimited, None, vec![], Some(false)),
            (FailureClass::RateLimited, seconds(1), vec![], Some(false)),
            (FailureClass::RateLimited, seconds(60), vec![], None),
            (FailureClass::RateLimited, None, vec![spent], None),
            (FailureClass::NotFound, None, vec![], Some(true)),
            (FailureClass::Denied, None, vec![], Some(true)),
            (FailureClass::NodeLocal, None, vec![], None),
            (FailureClass::Unknown, None, vec![], None),
        ] {
            let failure = Failure { class, retry_after, limits: limits.clone(), ..Failure::default() };
            assert_eq!(RegistryWord::of(&Err(failure)), RegistryWord { limits, served }, "{class:?} {retry_after:?}");
        }
        assert_eq!(RegistryWord::of(&Ok((PulledFacts::default(), ImageFacts::default()))).served, Some(true));
    }
}
