//! `fleetpull policy`

mod changes;
mod document;

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use anyhow::{Context as _, Result, bail};
use bus::{KeyValue, KeyValueError};
use bytes::Bytes;
use clock::Clock;
use contract::know::{SharedBucket, decode, encode};
use contract::policy::{FleetPolicy, POLICY_KEY, StoredPolicy};
use serde::Serialize;

use super::user_at_host::user_at_host;
use crate::cli::{OutputFormat, PolicyArgs, PolicyCommand, PolicyDiffArgs, PolicyGetArgs, PolicySetArgs, QuestionArgs};
use crate::exit::{Exit, UsageError};
use crate::fleet::{ANSWER_WITHIN, ask_nats};
use crate::output::{self, units};
use changes::Change;

/// The error if an agent's socket is given.
const ONLY_BY_BUS: &str = "the policy is kept on the bus, which an agent's socket does not reach: give --nats URL. `fleetpull budget list` shows which caps this agent uses";

/// The policy in the bucket.
struct Standing {
    /// 0 if there is none.
    revision: u64,
    age: Duration,
    /// Empty if the policy cannot be read.
    stored: StoredPolicy,
    is_readable: bool,
}

/// The policy as JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonPolicy<'a> {
    kind: &'static str,
    /// 0 if no policy was set.
    revision: u64,
    /// Null if no policy was set.
    set_at: Option<String>,
    set_by: Option<&'a str>,
    policy: &'a FleetPolicy,
}

/// The result of `set` and `diff` as JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonChanges<'a> {
    kind: &'static str,
    /// The revision that the document was compared with. 0 if no policy was set.
    before: u64,
    /// The current revision.
    revision: u64,
    /// True if the document was stored.
    written: bool,
    changes: &'a [Change],
}

/// Prints, sets or compares the policy.
pub(super) fn carry_out(args: &PolicyArgs) -> Result<Exit> {
    match &args.command {
        PolicyCommand::Get(args) => get(args),
        PolicyCommand::Set(args) => set(args),
        PolicyCommand::Diff(args) => diff(args),
    }
}

fn get(args: &PolicyGetArgs) -> Result<Exit> {
    with_bucket(&args.question, async |bucket| {
        let standing = standing(&*bucket).await?;
        let Standing { revision, age, stored: StoredPolicy { policy, by }, .. } = &standing;
        let is_set = *revision > 0;
        match args.question.output.format {
            OutputFormat::Json => output::json(&JsonPolicy {
                kind: "policy",
                revision: *revision,
                set_at: is_set.then(|| units::rfc_3339(Clock::host().now().wall_ms().saturating_sub(milliseconds(*age)))),
                set_by: is_set.then_some(by.as_str()),
                policy,
            }),
            OutputFormat::Text if is_set => {
                let by = output::one_line(by);
                output::document(&format!("# revision {revision}, set {} ago by {by}", units::age(milliseconds(*age))));
                output::document(document::written(policy)?.trim_end());
            }
            OutputFormat::Text => output::remark("no policy is set: the median of the nodes' settings applies"),
        }
        Ok(Exit::Success)
    })
}

fn set(args: &PolicySetArgs) -> Result<Exit> {
    let policy = document::read(&args.file)?;
    with_bucket(&args.question, async |bucket| {
        let before = standing(&*bucket).await?;
        if let Some(wanted) = args.if_revision.filter(|wanted| *wanted != before.revision) {
            bail!(
                "the policy is at revision {}, not {wanted}: `fleetpull policy diff {}` shows what differs, then set it with --if-revision {}",
                before.revision,
                args.file,
                before.revision
            );
        }
        let changes = changes::between(&before.stored.policy, &policy);
        // An empty policy is also stored if there is no readable one yet.
        let write = !args.dry_run && (!changes.is_empty() || before.revision == 0 || !before.is_readable);
        let revision = if write { store(&*bucket, &before, policy).await? } else { before.revision };
        let format = args.question.output.format;
        print(format, "policy_set", &before, revision, &changes);
        if format == OutputFormat::Text && !args.question.output.quiet {
            output::remark(&match (write, args.dry_run) {
                (true, _) => {
                    format!("revision {revision} is set: nodes go by it within a second, `fleetpull budget list` names those that do not")
                }
                (false, true) => format!("this is a dry run: revision {revision} stays"),
                (false, false) => format!("nothing changes: revision {revision} stays"),
            });
        }
        Ok(Exit::Success)
    })
}

fn diff(args: &PolicyDiffArgs) -> Result<Exit> {
    let policy = document::read(&args.file)?;
    with_bucket(&args.question, async |bucket| {
        let before = standing(&*bucket).await?;
        let changes = changes::between(&before.stored.policy, &policy);
        let format = args.question.output.format;
        print(format, "policy_diff", &before, before.revision, &changes);
        if format == OutputFormat::Text && changes.is_empty() && !args.question.output.quiet {
            output::remark(&format!("nothing would change: revision {}", before.revision));
        }
        Ok(if changes.is_empty() { Exit::Success } else { Exit::Failure })
    })
}

fn print(format: OutputFormat, kind: &'static str, before: &Standing, revision: u64, changes: &[Change]) {
    match format {
        OutputFormat::Json => {
            let (before, written) = (before.revision, revision != before.revision);
            output::json(&JsonChanges { kind, before, revision, written, changes });
        }
        OutputFormat::Text => changes.iter().for_each(|change| output::fact(&change.line())),
    }
}

/// Opens the bucket of the policy and runs `work` with it.
fn with_bucket(question: &QuestionArgs, work: impl AsyncFnOnce(Arc<dyn KeyValue>) -> Result<Exit>) -> Result<Exit> {
    if question.fleet.selector.is_some() {
        return Err(UsageError("the policy is for every node of the fleet: leave out --selector".to_owned()).into());
    }
    ask_nats(question, ONLY_BY_BUS, async |client, bus| {
        let opened = bus.bucket(&bucket_spec(SharedBucket::policy(client.fleet()))).await;
        work(opened.context("the fleet's bucket of the policy cannot be opened")?).await
    })
}

async fn standing(bucket: &dyn KeyValue) -> Result<Standing> {
    let none = Standing { revision: 0, age: Duration::ZERO, stored: StoredPolicy::default(), is_readable: true };
    let read = tokio::time::timeout(ANSWER_WITHIN, bucket.snapshot(None)).await;
    let snapshot = read.context("the fleet's bucket of the policy is silent: may this login read it (deploy/nats/accounts.conf)?")?;
    let found = snapshot.context("the policy cannot be read")?.entries.into_iter().find(|stored| stored.entry.key == POLICY_KEY);
    let Some(found) = found else { return Ok(none) };
    let (revision, age) = (found.entry.revision, found.age);
    Ok(match decode(&found.entry.value) {
        Ok(stored) => Standing { revision, age, stored, is_readable: true },
        Err(error) => {
            output::warn(&format!("revision {revision} of the policy cannot be read, and counts as empty here: {error}"));
            Standing { revision, age, is_readable: false, ..none }
        }
    })
}

/// Replaces the policy in the bucket, and returns the new revision.
async fn store(bucket: &dyn KeyValue, before: &Standing, policy: FleetPolicy) -> Result<u64> {
    let value: Bytes = encode(&StoredPolicy { policy, by: user_at_host() })
        .context("the policy is too large: cap registries together in [budget], or shorten their names")?
        .into();
    let storing = async {
        match before.revision {
            0 => bucket.create(POLICY_KEY, value, None).await,
            revision => bucket.update(POLICY_KEY, value, revision, None).await,
        }
    };
    match tokio::time::timeout(ANSWER_WITHIN, storing).await {
        Ok(Ok(revision)) => Ok(revision),
        Ok(Err(KeyValueError::Conflict { .. })) => {
            bail!(
                "the policy was changed by another user meanwhile, and nothing was written: see `fleetpull policy get`, then set it again"
            )
        }
        Ok(Err(error)) => Err(error).context("the policy is not stored (operators alone may: role operator in deploy/nats/accounts.conf)"),
        Err(_) => {
            bail!("whether the policy is stored is not known, as the bus is silent for {ANSWER_WITHIN:?}: see `fleetpull policy get`")
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use bus::SharedState as _;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::policy::Caps;
    use contract::subject::Fleet;

    use super::*;

    fn capped(pulls_per_second: f64) -> FleetPolicy {
        FleetPolicy { budget: Caps { pulls_per_second: Some(pulls_per_second), ..Caps::NONE }, ..FleetPolicy::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn second_of_two_concurrent_changes_is_refused_and_overwrites_nothing() {
        let hub = MemoryBus::new(Clock::simulated(Duration::from_secs(1_700_000_000)));
        let bucket = hub.bucket(&bucket_spec(SharedBucket::policy(&Fleet::default()))).await.unwrap();
        let (one, other) = (standing(&*bucket).await.unwrap(), standing(&*bucket).await.unwrap());
        assert_eq!(one.revision, 0);
        let first = store(&*bucket, &one, capped(5.0)).await.unwrap();
        let refusal = store(&*bucket, &other, capped(7.0)).await.unwrap_err().to_string();
        assert!(refusal.contains("changed by another user"), "{refusal}");
        tokio::time::sleep(Duration::from_secs(7)).await;
        let found = standing(&*bucket).await.unwrap();
        assert_eq!((found.revision, found.age, &found.stored.policy), (first, Duration::from_secs(7), &capped(5.0)));
        let second = store(&*bucket, &found, capped(7.0)).await.unwrap();
        assert!(second > first && store(&*bucket, &found, capped(9.0)).await.is_err(), "by the revision it was read at");
        assert_eq!(standing(&*bucket).await.unwrap().stored.policy, capped(7.0));
    }

    #[tokio::test(start_paused = true)]
    async fn unreadable_policy_can_be_replaced() {
        let hub = MemoryBus::new(Clock::simulated(Duration::from_secs(1_700_000_000)));
        let bucket = hub.bucket(&bucket_spec(SharedBucket::policy(&Fleet::default()))).await.unwrap();
        let revision = bucket.put(POLICY_KEY, Bytes::from_static(b"rubbish"), None).await.unwrap();
        let found = standing(&*bucket).await.unwrap();
        assert_eq!((found.revision, &found.stored, found.is_readable), (revision, &StoredPolicy::default(), false));
        store(&*bucket, &found, capped(7.0)).await.unwrap();
        assert_eq!(standing(&*bucket).await.unwrap().stored.policy, capped(7.0));
    }
}
