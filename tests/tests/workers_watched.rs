//! A stack whose workers are processes of their own, as an operator watches it: every number and every event is shown somewhere,
//! and `stack.json` says where.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::payments::{Customer, PATIENCE};
use tests::stack::{Stack, metric_at};

const PAYER: &str = "execution-withdrawal-bsc";
const FOLLOWER: &str = "confirmation-bsc";
const READER: &str = "indexer";

/// What a process must show: a name with labels, and whether one payment makes it more than zero.
struct Shown<'a> {
    /// A service or, after `worker/`, a worker.
    by: &'a str,
    words: &'a [&'a str],
    counts: bool,
}

const fn counts<'a>(by: &'a str, words: &'a [&'a str]) -> Shown<'a> {
    Shown { by, words, counts: true }
}

const fn is_there<'a>(by: &'a str, words: &'a [&'a str]) -> Shown<'a> {
    Shown { by, words, counts: false }
}

const PAYING: &str = "worker/execution-withdrawal-bsc";
const FOLLOWING: &str = "worker/confirmation-bsc";
const QUEUE: &str = r#"queue="withdrawal/bsc""#;
const WITHDRAWAL: &str = r#"queue="withdrawal""#;
const BSC: &str = r#"chain="bsc""#;

/// After one payment on bsc.
const AFTER_A_PAYMENT: [Shown<'static>; 35] = [
    // Jobs by status and age, and what must not be: parked jobs, halted lanes.
    is_there("execution", &["bursar_execution_jobs{", BSC, WITHDRAWAL, r#"status="pending""#]),
    is_there("execution", &["bursar_execution_jobs{", BSC, WITHDRAWAL, r#"status="parked""#]),
    is_there(
        "execution",
        &["bursar_execution_oldest_job_seconds{", BSC, WITHDRAWAL, r#"status="processing""#],
    ),
    is_there("execution", &["bursar_execution_blocked_jobs{", BSC, WITHDRAWAL]),
    is_there("execution", &["bursar_execution_lanes_halted{", BSC]),
    is_there("execution", &["bursar_execution_foreign_nonces{", BSC]),
    is_there("execution", &["bursar_execution_spent_nonces{", BSC]),
    is_there("execution", &["bursar_queue_due_jobs{", QUEUE]),
    is_there("execution", &["bursar_queue_future_jobs{", QUEUE]),
    is_there("execution", &["bursar_queue_leased_jobs{", QUEUE]),
    is_there("execution", &["bursar_queue_oldest_due_seconds{", QUEUE]),
    // Processed, and how long it took.
    counts("execution", &["bursar_execution_jobs_finished_total{", BSC, r#"status="confirmed""#]),
    is_there("execution", &["bursar_execution_jobs_finished_total{", BSC, r#"status="failed""#]),
    counts(PAYING, &["bursar_execution_jobs_sent_total{", BSC]),
    counts(PAYING, &["bursar_execution_processing_seconds_count", BSC]),
    counts("execution", &["bursar_execution_confirmation_seconds_count", BSC]),
    counts("execution", &["bursar_execution_gas_used_count", BSC]),
    // Retries and errors; locks and claims.
    is_there(PAYING, &["bursar_execution_tries_failed_total{", BSC]),
    counts(PAYING, &["bursar_execution_steps_total{", r#"step="fence""#, r#"outcome="held""#]),
    is_there(PAYING, &["bursar_execution_steps_total{", r#"step="fence""#, r#"outcome="lost""#]),
    counts(PAYING, &["bursar_queue_claimed_jobs_total{", QUEUE]),
    is_there(PAYING, &["bursar_queue_lapsed_leases_total{", QUEUE]),
    counts(PAYING, &["bursar_chain_broadcasts_total{", BSC]),
    // Verdicts, and nodes that disagree.
    is_there("confirmation", &["bursar_confirmation_watches{", BSC]),
    is_there("confirmation", &["bursar_confirmation_oldest_watch_seconds{", BSC]),
    is_there("confirmation", &["bursar_confirmation_chain_halted{", BSC]),
    counts(FOLLOWING, &["bursar_confirmation_time_seconds_count", BSC]),
    is_there(FOLLOWING, &["bursar_confirmation_disagreements_total{", BSC]),
    is_there(FOLLOWING, &["bursar_chain_disagreements_total{", BSC]),
    // Requests and approvals.
    is_there("intent", &["bursar_intent_pending_approvals"]),
    counts("intent", &["bursar_intent_approval_seconds_count"]),
    counts("intent", &["bursar_intent_average_approval_seconds"]),
    counts("intent", &["bursar_intent_completion_rate_basis_points"]),
    is_there("intent", &["bursar_intent_contradictions_total"]),
    is_there("worker/indexer", &["process_"]),
];

fn url(stack: &Stack, by: &str) -> Result<String> {
    match by.strip_prefix("worker/") {
        Some(id) => stack.worker_url(id),
        None => Ok(stack.part(by)?.url),
    }
}

/// Gauges are counted every few seconds, so each is waited for.
async fn shown(stack: &Stack, wanted: &Shown<'_>) -> Result<()> {
    let (url, what) = (url(stack, wanted.by)?, format!("{} to show {:?}", wanted.by, wanted.words));
    testkit::wait_for(&what, PATIENCE, || async {
        let values = metric_at(&url, wanted.words).await.unwrap_or_default();
        values.iter().any(|value| !wanted.counts || *value > 0.0)
    })
    .await;
    Ok(())
}

/// The lines of a worker's own log with this message.
fn events(stack: &Stack, worker: &str, message: &str) -> Result<Vec<Value>> {
    let log = std::fs::read_to_string(stack.dir().join(format!(".data/logs/{worker}.log")))?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter(|line| line["message"] == message).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_payment_every_number_and_every_event_is_shown_where_stack_json_says() -> Result<()> {
    let stack = Stack::start_orchestrated()?;
    let customer = Customer::of(&stack)?;
    let orders = customer.order_some(1).await?;
    customer.all_completed(&orders).await?;

    for wanted in &AFTER_A_PAYMENT {
        shown(&stack, wanted).await?;
    }
    let urls: BTreeSet<String> =
        [PAYER, FOLLOWER, READER].into_iter().map(|id| stack.worker_url(id)).collect::<Result<_>>()?;
    ensure!(urls.len() == 3, "each worker has an address of its own: {urls:?}");
    // Counted in one place: a worker that counted the same jobs would double every sum.
    let doubled = metric_at(&stack.worker_url(PAYER)?, &["bursar_execution_jobs{"]).await?;
    ensure!(doubled.is_empty(), "the worker counts jobs too: {doubled:?}");

    let fields = [
        ("job picked", &["job_id", "amount", "priority", "retry_count", "max_retries"][..]),
        ("lock acquired", &["job_id", "lock_until"]),
        ("transaction broadcast", &["job_id", "tx_hash", "from", "to", "amount"]),
    ];
    for (message, names) in fields {
        let logged = events(&stack, PAYER, message)?;
        let first = logged.first().with_context(|| format!("no {message:?} in the log of {PAYER}"))?;
        for name in names {
            ensure!(!first[name].is_null(), "{message:?} has no {name}: {first}");
        }
    }
    // Without a signer the next one has to wait, and says so.
    stack.kill("signer-gateway")?;
    let orders = customer.order_some(1).await?;
    testkit::wait_for("the error to be logged", PATIENCE, || async {
        events(&stack, PAYER, "job error").is_ok_and(|logged| !logged.is_empty())
    })
    .await;
    let logged = events(&stack, PAYER, "job error")?;
    ensure!(
        logged[0]["level"] == "WARN"
            && logged[0]["is_retryable"] == true
            && ["job_id", "error", "retry_count", "max_retries"]
                .iter()
                .all(|name| !logged[0][name].is_null()),
        "{}",
        logged[0]
    );
    stack.start_again("signer-gateway", &[])?;
    customer.all_completed(&orders).await?;

    // The orchestrator passes the same on with its fields, and the command line finds the worker's own.
    let control = std::fs::read_to_string(stack.part("worker-control")?.log)?;
    let lines = control.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let passed = lines.into_iter().find(|line| line["worker"] == PAYER && line["message"] == "job error");
    let passed = passed.context("worker control passes the worker's events on")?;
    ensure!(
        passed["level"] == "WARN" && passed["line"]["is_retryable"] == true,
        "without its fields: {passed}"
    );
    let logs = stack.bursar(&["logs", PAYER, "-n", "1000"])?;
    ensure!(logs.contains("lock acquired"), "bursar logs {PAYER} shows {logs}");
    Ok(())
}
