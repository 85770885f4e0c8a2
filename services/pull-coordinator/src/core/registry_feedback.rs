//! What a pull has shown of its registry; the throttler gets it with the returned permit.

use std::time::Duration;

use contract::FailureClass;

use super::step::{Failure, ImageFacts, PulledFacts, RegistryFeedback};

/// The longest `Retry-After` that counts as overload. With a longer one the registry limits this node's address, and may serve other nodes.
const FLEET_RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

impl RegistryFeedback {
    /// The feedback of an attempt by its result.
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
        // Not overload: a spent quota, and a long `Retry-After`, which concerns one address.
        FailureClass::RateLimited if failure.limits.iter().any(|limit| limit.remaining == 0) => None,
        FailureClass::RateLimited => failure.retry_after.is_none_or(|after| after <= FLEET_RETRY_AFTER_MAX).then_some(false),
        FailureClass::NotFound | FailureClass::Denied => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use contract::messages::throttler::RegistryLimit;

    use super::*;

    #[test]
    fn overload_counts_as_not_served_and_a_plain_refusal_as_served() {
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
            assert_eq!(RegistryFeedback::of(&Err(failure)), RegistryFeedback { limits, served }, "{class:?} {retry_after:?}");
        }
        assert_eq!(RegistryFeedback::of(&Ok((PulledFacts::default(), ImageFacts::default()))).served, Some(true));
    }
}
