//! After every run: what the chain shows is held against what was ordered and against what the services say of themselves.
//!
//! Owns the five invariants, and knows the services only by their contracts:
//! - I1 each payment has one transfer, of the exact amount, and nothing else left our wallets;
//! - I2 one nonce per payment, unless what was signed at the old one is proven void, and one payment per nonce;
//! - I3 every transaction of our wallets is one whose bytes and hash were stored;
//! - I4 the services say what the chain says;
//! - I5 nothing is stuck in silence: every job has ended or is parked with its reason, no lane holds an open nonce.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proto::execution::v1 as pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::signer::v1 as signer_pb;
use proto::signer::v1::signer_service_client::SignerServiceClient;

use crate::ledger::{Ledger, Node};
use crate::payments::{Customer, Ordered, retried};
use crate::stack::{Stack, metric_at};

/// Two services learn of a final payment one after the other; a message of a killed one waits for its lease.
const SETTLING: Duration = Duration::from_secs(150);

/// What a test has done on purpose and the judge must not be surprised by.
#[derive(Debug, Default)]
pub struct Expected {
    /// Transactions that somebody else sent from our wallets.
    pub foreign: BTreeSet<String>,
    /// Whether jobs may have been parked for a person.
    pub parked: bool,
}

/// Judges the whole stack; `orders` are the payments that must have been made.
pub async fn judge(stack: &Stack, customer: &Customer, orders: &[Ordered]) -> Result<Ledger> {
    judge_but(stack, customer, orders, &Expected::default()).await
}

/// As [`judge`], with something that the test has done on purpose.
pub async fn judge_but(
    stack: &Stack,
    customer: &Customer,
    orders: &[Ordered],
    expected: &Expected,
) -> Result<Ledger> {
    let mut execution = ExecutionServiceClient::new(stack.client("execution", "auditor")?);
    let node = stack.part("bsc")?.url;
    settled(&execution, &node, expected).await?;
    let ledger = Ledger::read(&node).await?;
    ledger.paid_once(orders)?;
    let jobs = jobs(&execution).await?;
    let mut known = BTreeSet::new();
    let mut owners: BTreeMap<(String, u64), String> = BTreeMap::new();
    for job in &jobs {
        one_nonce(job, &mut owners)?;
        as_the_chain_says(job, &ledger)?;
        known.extend(job.attempts.iter().map(|attempt| attempt.tx_hash.to_lowercase()));
    }
    let lanes = execution.list_lanes(pb::ListLanesRequest::default()).await?.into_inner().lanes;
    let own: BTreeSet<String> = lanes.iter().map(|lane| lane.address.to_lowercase()).collect();
    for sent in own.iter().flat_map(|wallet| ledger.sent_by(wallet)) {
        if expected.foreign.contains(&sent.hash) {
            continue;
        }
        let (hash, from, receiver) = (&sent.hash, &sent.from, sent.receiver());
        ensure!(known.contains(hash), "{hash} of {from} is on the chain, and execution never stored it");
        // A cancellation goes to the wallet itself.
        let ordered = own.contains(&receiver) || stack.destinations.hold(&receiver);
        ensure!(ordered || !sent.succeeded, "{hash} of {from} pays {receiver}, which nobody asked for");
    }
    for order in orders {
        let shown = customer.status(&order.id).await?;
        let paid = ledger.transaction(&shown.final_tx_hash);
        let paid = paid.with_context(|| format!("{} names {:?}", order.id, shown.final_tx_hash))?;
        ensure!(paid.succeeded, "{} was completed by {}, which failed", order.id, paid.hash);
        ensure!(paid.block == shown.final_block, "{} names another block", order.id);
    }
    unbroken(stack).await?;
    Ok(ledger)
}

/// The signer's log holds together, and no service has given a message up.
pub async fn unbroken(stack: &Stack) -> Result<()> {
    let mut signer = SignerServiceClient::new(stack.client("signer-gateway", "auditor")?);
    let mut part = signer_pb::VerifyAuditRequest::default();
    loop {
        let audit = signer.verify_audit(part.clone()).await?.into_inner();
        let (bad, problem) = (audit.first_bad_sequence, audit.problem);
        ensure!(problem.is_empty(), "the signer's log is broken at {bad}: {problem}");
        if audit.intact {
            return nothing_parked_in_an_outbox(stack).await;
        }
        (part.after_sequence, part.after_hash) = (audit.next_sequence, audit.next_hash);
    }
}

/// Waits until every job has come to rest and no lane holds a nonce that the chain has not used.
async fn settled(
    execution: &ExecutionServiceClient<rpc::Client>,
    node: &str,
    expected: &Expected,
) -> Result<()> {
    let node = Node::new(node)?;
    let mut open = vec![pb::JobStatus::Pending, pb::JobStatus::Processing, pb::JobStatus::Confirming];
    if !expected.parked {
        open.push(pb::JobStatus::Parked);
    }
    let open: Vec<i32> = open.into_iter().map(i32::from).collect();
    testkit::wait_for("every job to end and every lane to close", SETTLING, || async {
        let mut client = execution.clone();
        let request = pb::ListJobsRequest { statuses: open.clone(), ..Default::default() };
        let Ok(jobs) = client.list_jobs(request).await else { return false };
        let Ok(lanes) = client.list_lanes(pb::ListLanesRequest::default()).await else { return false };
        for lane in lanes.into_inner().lanes {
            let used = node.nonce(&lane.address).await.unwrap_or_default();
            if !lane.halted_reason.is_empty() || !lane.open_nonces.is_empty() || used != lane.next_nonce {
                return false;
            }
        }
        jobs.into_inner().jobs.is_empty()
    })
    .await;
    Ok(())
}

pub async fn jobs(execution: &ExecutionServiceClient<rpc::Client>) -> Result<Vec<pb::Job>> {
    let mut jobs = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListJobsRequest { page_size: 500, page_token, ..Default::default() };
        let page = retried(|| async { execution.clone().list_jobs(request.clone()).await }).await?;
        for job in page.jobs {
            jobs.push(job_of(execution, pb::get_job_request::Key::JobId(job.id)).await?);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(jobs);
        }
    }
}

/// One job with its attempts.
pub async fn job_of(
    execution: &ExecutionServiceClient<rpc::Client>,
    key: pb::get_job_request::Key,
) -> Result<pb::Job> {
    let request = pb::GetJobRequest { key: Some(key) };
    let found = retried(|| async { execution.clone().get_job(request.clone()).await });
    found.await?.job.context("the answer holds no job")
}

fn one_nonce(job: &pb::Job, owners: &mut BTreeMap<(String, u64), String>) -> Result<()> {
    use pb::AttemptStatus as S;
    let stored = job.attempts.iter().filter(|attempt| !attempt.tx_hash.is_empty());
    // What was proven void or ended without effect has given its nonce up, and a cancellation pays nobody.
    let live = stored.clone().filter(|attempt| {
        attempt.kind() == pb::AttemptKind::Pay && !matches!(attempt.status(), S::Void | S::Reverted)
    });
    let nonces: BTreeSet<u64> = live.filter_map(|attempt| attempt.nonce).collect();
    ensure!(nonces.len() <= 1, "job {} was signed at the nonces {nonces:?}", job.id);
    for attempt in stored {
        ensure!(!attempt.raw_transaction.is_empty(), "job {} has a hash without bytes", job.id);
        let Some(nonce) = attempt.nonce else { continue };
        let owner = owners.entry((job.from_address.clone(), nonce)).or_insert_with(|| job.id.clone());
        ensure!(*owner == job.id, "nonce {nonce} of {} serves {owner} and {}", job.from_address, job.id);
    }
    Ok(())
}

fn as_the_chain_says(job: &pb::Job, ledger: &Ledger) -> Result<()> {
    let landed: Vec<_> = job
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt, ledger.transaction(&attempt.tx_hash)?)))
        .collect();
    let pays =
        landed.iter().filter(|(attempt, tx)| attempt.kind() == pb::AttemptKind::Pay && tx.succeeded).count();
    match job.status() {
        pb::JobStatus::Confirmed => {
            let (_, tx) = landed
                .iter()
                .find(|(attempt, _)| attempt.tx_hash == job.tx_hash)
                .with_context(|| format!("job {} is confirmed by {:?}", job.id, job.tx_hash))?;
            ensure!(tx.succeeded, "job {} is confirmed by a transaction that failed", job.id);
        }
        pb::JobStatus::Failed => ensure!(pays == 0, "job {} is called failed and was paid", job.id),
        pb::JobStatus::Parked => {
            ensure!(!job.error.is_empty(), "job {} is parked without a reason", job.id);
        }
        other => anyhow::bail!("job {} is still {}", job.id, other.as_str_name()),
    }
    Ok(())
}

/// A service that shows no such number has not been asked. One that was just started counts within moments.
async fn nothing_parked_in_an_outbox(stack: &Stack) -> Result<()> {
    for service in ["intent", "execution", "confirmation"] {
        let url = stack.part(service)?.url;
        let what = format!("{service} to count its outbox");
        let shown = testkit::wait_for_value(&what, SETTLING, || async {
            let shown = metric_at(&url, &["bursar_outbox_parked_lanes"]).await.ok()?;
            (!shown.is_empty()).then_some(shown)
        });
        let parked: f64 = shown.await.iter().sum();
        ensure!(parked == 0.0, "{service} gave {parked} messages up");
    }
    Ok(())
}
