//! Explains a pull by this process. It asks no registry and writes nothing.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clock::Clock;
use contract::FailureClass;
use contract::messages::pull_coordinator::{Explanation, PullPolicy};
use image::Reference;
use runtimes::oci_layout::{StoreView, check_writable};
use settings::RuntimeKind;

use crate::cli::{ExplainArgs, RegistryArgs};
use crate::commands::pull::advice;
use crate::configuration::Configuration;
use crate::node::{logins, open_runtime};
use crate::output;

/// A pull by this process starts without back-off entries, because there is no fleet. Only local obstacles are checked here.
pub(super) async fn explain(configuration: &Configuration, args: &ExplainArgs, reference: &Reference) -> Explanation {
    let policy = args.policy.unwrap_or(if reference.is_latest() { PullPolicy::Always } else { PullPolicy::IfNotPresent });
    let mut explanation = Explanation { policy: policy.to_string(), ..Explanation::default() };
    match find_out(configuration, reference, policy, &mut explanation).await {
        Ok(()) => explanation.verdict = explanation.in_one_sentence(),
        Err(error) => {
            explanation.class = Some(FailureClass::NodeLocal);
            explanation.cause = Some(output::error_text(&error));
            "it would fail before any registry is asked".clone_into(&mut explanation.verdict);
        }
    }
    explanation
}

async fn find_out(configuration: &Configuration, reference: &Reference, policy: PullPolicy, explanation: &mut Explanation) -> Result<()> {
    let settings = configuration.settings();
    let store = match settings.runtime.kind {
        RuntimeKind::OciLayout => Some(settings.store.dir_on(&configuration.host)?),
        RuntimeKind::Cri => None,
    };
    let found = match &store {
        Some(store) => match StoreView::open(store).with_context(|| unusable(store))? {
            Some(view) => view.image_status(reference, None),
            None => Ok(None),
        },
        None => open_runtime(configuration, RegistryArgs::default(), &Clock::host())?.image_status(reference, None).await,
    };
    match found {
        Ok(found) => explanation.present = Some(found.is_some()),
        Err(failure) => inspection_failed(explanation, policy, failure.text)?,
    }
    let looks = policy != PullPolicy::Always;
    let would_pull = policy != PullPolicy::Never && !(looks && (explanation.present == Some(true) || explanation.inspect_error.is_some()));
    if would_pull {
        if let Some(store) = &store {
            check_writable(store).with_context(|| unusable(store))?;
        }
        explanation.logins = logins(configuration, reference).await?;
    }
    Ok(())
}

/// A pull that inspects the image first fails with this error, in kubelet's words. With the policy Always it goes on, unless the socket
/// cannot be reached.
fn inspection_failed(explanation: &mut Explanation, policy: PullPolicy, text: String) -> Result<()> {
    match advice::of_socket(&text) {
        Some(advice) if policy == PullPolicy::Always => bail!("{text}; {advice}"),
        _ => explanation.inspect_error = Some(text),
    }
    Ok(())
}

fn unusable(store: &Path) -> String {
    format!("the store {} cannot be used", store.display())
}
