//! The verdict: what a pull would do now, in one sentence.

use super::{BudgetHold, Explanation, PullPolicy};
use crate::human_duration;

/// Durations are shown in whole seconds, so a shorter one counts as a second.
const LEAST_MS: u64 = 1_000;

impl Explanation {
    /// Makes the verdict from the other fields.
    #[must_use]
    pub fn in_one_sentence(&self) -> String {
        let looks = self.policy != PullPolicy::Always.as_str();
        let never = self.policy == PullPolicy::Never.as_str();
        match self {
            Self { inspect_error: Some(_), .. } if looks => {
                "it would fail with ImageInspectError: the runtime cannot determine whether the image is present".to_owned()
            }
            Self { present: Some(true), .. } if looks => "it is on the node: nothing would be pulled".to_owned(),
            _ if never => "it would fail with ErrImageNeverPull: it is not on the node".to_owned(),
            Self { next_attempt_ms: Some(left), in_flight, budget_hold, .. } => {
                let then = budget_hold.as_ref().map(|hold| format!("; then it would wait for its registry's budget: {}", hold.cause));
                let then = then.unwrap_or_default();
                let now = if *in_flight { "it is being pulled now; unless that succeeds, another pull" } else { "it" };
                let next = human_duration((*left).max(LEAST_MS));
                match (&self.probed_by, self.waits, *left) {
                    (Some(prober), true, _) => {
                        format!("{now} would wait for the attempt of {prober}: one node alone reports the failure{then}")
                    }
                    (None, true, ..LEAST_MS) => {
                        format!("{now} would be attempted here, or by another node that waits: one node alone reports the failure{then}")
                    }
                    (None, true, _) => format!("{now} would wait for {next} before an attempt: one node alone reports the failure{then}"),
                    (_, false, _) => format!("{now} would be refused with ImagePullBackOff for another {next}{then}"),
                }
            }
            Self { in_flight: true, .. } => "it is being pulled now: a pull would wait for that one".to_owned(),
            Self { budget_hold: Some(BudgetHold { wait_ms, cause }), .. } => {
                let long = wait_ms.map(|wait| format!(" for {}", human_duration(wait.max(LEAST_MS)))).unwrap_or_default();
                format!("it would wait for its registry's budget{long}: {cause}")
            }
            Self { class: Some(class), unenforced_because, .. } => {
                // An older agent does not say which.
                let why = unenforced_because.as_deref().unwrap_or("this node only observes or sharing is paused");
                format!("it would be pulled: the fleet knows of a failure ({class}), but {why}")
            }
            _ => "it would be pulled".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureClass;

    #[test]
    fn verdict_names_whatever_stops_a_pull() {
        let free = Explanation { policy: PullPolicy::IfNotPresent.to_string(), present: Some(false), ..Explanation::default() };
        let budget_hold = Some(BudgetHold { wait_ms: Some(52_000), cause: "quota 0 of 100 left, resets in 52s".to_owned() });
        let refusal = Explanation { next_attempt_ms: Some(12_400), class: Some(FailureClass::NotFound), ..free.clone() };
        let table = [
            (free.clone(), "it would be pulled"),
            (
                Explanation { present: Some(true), budget_hold: budget_hold.clone(), ..free.clone() },
                "it is on the node: nothing would be pulled",
            ),
            (
                Explanation { budget_hold: budget_hold.clone(), ..free.clone() },
                "it would wait for its registry's budget for 52s: quota 0 of 100 left, resets in 52s",
            ),
            (
                Explanation { in_flight: true, budget_hold: budget_hold.clone(), ..free },
                "it is being pulled now: a pull would wait for that one",
            ),
            (
                Explanation { budget_hold, ..refusal.clone() },
                "it would be refused with ImagePullBackOff for another 12s; then it would wait for its registry's budget: quota 0 of 100 left, resets in 52s",
            ),
            (Explanation { waits: true, ..refusal.clone() }, "it would wait for 12s before an attempt: one node alone reports the failure"),
            (
                Explanation { waits: true, next_attempt_ms: Some(0), ..refusal.clone() },
                "it would be attempted here, or by another node that waits: one node alone reports the failure",
            ),
            (
                Explanation { waits: true, next_attempt_ms: Some(0), probed_by: Some("n2".to_owned()), ..refusal.clone() },
                "it would wait for the attempt of n2: one node alone reports the failure",
            ),
            (Explanation { next_attempt_ms: Some(300), ..refusal.clone() }, "it would be refused with ImagePullBackOff for another 1s"),
            (
                Explanation {
                    next_attempt_ms: None,
                    unenforced_because: Some("sharing of r.example is paused for 29m more".to_owned()),
                    ..refusal.clone()
                },
                "it would be pulled: the fleet knows of a failure (not_found), but sharing of r.example is paused for 29m more",
            ),
            (
                Explanation { in_flight: true, ..refusal },
                "it is being pulled now; unless that succeeds, another pull would be refused with ImagePullBackOff for another 12s",
            ),
        ];
        for (explanation, expected) in table {
            assert_eq!(explanation.in_one_sentence(), expected);
        }
    }
}
