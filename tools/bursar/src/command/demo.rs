//! `bursar demo`: pays one withdrawal per kind of asset on a running stack and tells the story of each.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use proto::intent::v1 as pb;
use tokio_stream::StreamExt;

use crate::client::Connection;
use crate::command::withdraw::{is_final, status_name};
use crate::output::{self, Output};
use crate::stack::{BSC, TRON};

/// A payment on an idle development stack takes seconds; this is long enough to be sure that something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Args)]
pub struct Demo {}

/// What is paid: an amount small enough for any development wallet.
const PAYMENTS: &[(&str, &str, &str)] =
    &[(BSC, "BNB", "0.25"), (BSC, "USDT", "12.5"), (TRON, "TRX", "25"), (TRON, "USDT", "12.5")];

#[derive(Default)]
struct Step {
    at: DateTime<Utc>,
    service: &'static str,
    what: String,
    hash: String,
    block: Option<u64>,
}

impl Demo {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        // Side by side: each waits for blocks of its chain most of the time.
        let paying = PAYMENTS.iter().map(|(chain, asset, amount)| pay(connection, chain, asset, amount));
        let paid = futures::future::try_join_all(paying).await?;
        for withdrawal in paid.iter().filter(|_| !out.json) {
            let (amount, asset, chain) = (&withdrawal.amount, &withdrawal.asset, &withdrawal.chain);
            output::print(&format!("\nPaying {amount} {asset} on {chain}"))?;
            print_steps(&story(connection, withdrawal).await?)?;
        }
        if out.json {
            let list: Vec<_> = paid.iter().map(summary).collect();
            output::print(&serde_json::to_string_pretty(&list)?)?;
        }
        match paid.iter().find(|w| w.status() != pb::WithdrawalStatus::Completed) {
            Some(w) => {
                bail!("withdrawal {} ended as {}: {}", w.id, status_name(w.status()), w.failure_reason)
            }
            None => Ok(()),
        }
    }
}

/// Requests, approves with every approver needed, and waits for the end.
async fn pay(connection: &Connection, chain: &str, asset: &str, amount: &str) -> Result<pb::Withdrawal> {
    let mut requester = connection.intent("requester")?;
    let request = pb::CreateWithdrawalRequest {
        idempotency_key: format!("demo-{}", uuid::Uuid::now_v7()),
        user_id: uuid::Uuid::now_v7().to_string(),
        chain: chain.to_owned(),
        asset: asset.to_owned(),
        amount: amount.to_owned(),
        // A destination of its own for each payment: whoever looks at the chain sees at once what was paid.
        destination: fresh_address(chain),
        memo: "demo".to_owned(),
        ..Default::default()
    };
    let created = requester.create_withdrawal(request).await.context("cannot request the withdrawal")?;
    let created = created.into_inner().withdrawal.context("the answer holds no withdrawal")?;
    for number in 1..=created.required_approvals {
        let name = format!("approver-{number}");
        let approval = connection.approver(&name)?.approve(&created, Duration::from_secs(600))?;
        let mut approver = connection.intent(&name)?;
        approver.approve_withdrawal(approval).await.with_context(|| format!("{name} cannot approve"))?;
    }
    tokio::time::timeout(PATIENCE, finished(connection, &created.id)).await.with_context(|| {
        format!("withdrawal {} was not finished within {PATIENCE:?}; see `bursar job list`", created.id)
    })?
}

pub async fn finished(connection: &Connection, id: &str) -> Result<pb::Withdrawal> {
    let mut client = connection.intent("requester")?;
    let request = pb::WatchWithdrawalRequest { id: id.to_owned(), after_sequence: 0 };
    let mut updates = client.watch_withdrawal(request).await?.into_inner();
    while let Some(update) = updates.next().await {
        let update = update?;
        if update.transition.as_ref().is_some_and(|t| is_final(t.to())) {
            let request = pb::GetWithdrawalRequest { id: id.to_owned() };
            let found = client.get_withdrawal(request).await?.into_inner().withdrawal;
            return found.context("the withdrawal is gone");
        }
    }
    bail!("the watch ended before the withdrawal did")
}

/// What each service knows of it, in order of time.
async fn story(connection: &Connection, w: &pb::Withdrawal) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut intent = connection.intent("auditor")?;
    let history =
        intent.list_transitions(pb::ListTransitionsRequest { id: w.id.clone() }).await?.into_inner();
    for t in history.transitions {
        let done = t.to() == pb::WithdrawalStatus::Completed && t.from() != t.to();
        steps.push(Step {
            at: moment(t.at.as_ref()),
            service: "intent",
            what: format!("{} ({})", status_name(t.to()), t.detail),
            hash: if done { w.final_tx_hash.clone() } else { String::new() },
            block: done.then_some(w.final_block),
        });
    }
    steps.extend(execution_steps(connection, &w.id).await?);
    steps.sort_by_key(|s| s.at);
    Ok(steps)
}

async fn execution_steps(connection: &Connection, withdrawal: &str) -> Result<Vec<Step>> {
    use proto::execution::v1 as execution_pb;
    let mut execution = connection.execution("auditor")?;
    let key = execution_pb::get_job_request::Key::WithdrawalId(withdrawal.to_owned());
    let job = execution.get_job(execution_pb::GetJobRequest { key: Some(key) }).await?.into_inner();
    let job = job.job.context("the answer holds no job")?;
    let mut steps = vec![Step {
        at: moment(job.created_at.as_ref()),
        service: "execution",
        what: format!("job created, paid from {}", job.from_address),
        ..Step::default()
    }];
    for attempt in job.attempts {
        let nonce = attempt.nonce.map(|n| format!(" with nonce {n}")).unwrap_or_default();
        steps.push(Step {
            at: moment(attempt.created_at.as_ref()),
            service: "execution",
            what: format!("attempt {} reserved{nonce}", attempt.number),
            ..Step::default()
        });
        if attempt.broadcast_at.is_some() {
            steps.push(Step {
                at: moment(attempt.broadcast_at.as_ref()),
                service: "execution",
                what: format!("attempt {} broadcast", attempt.number),
                hash: attempt.tx_hash.clone(),
                ..Step::default()
            });
        }
    }
    steps.extend(verdict(connection, &job.id).await?);
    Ok(steps)
}

async fn verdict(connection: &Connection, job: &str) -> Result<Option<Step>> {
    use proto::confirmation::v1 as confirmation_pb;
    let mut confirmation = connection.confirmation("auditor")?;
    let answer = confirmation
        .get_watch(confirmation_pb::GetWatchRequest { job_id: job.to_owned() })
        .await?
        .into_inner();
    let Some(watch) = answer.watch else { return Ok(None) };
    let status = output::enum_name(watch.status().as_str_name(), "WATCH_STATUS_");
    Ok(watch.finished_at.as_ref().map(|at| Step {
        at: moment(Some(at)),
        service: "confirmation",
        what: format!("{status} after {} confirmations, effect checked", watch.confirmations),
        hash: watch.tx_hash.clone(),
        block: Some(watch.block_number),
    }))
}

fn print_steps(steps: &[Step]) -> Result<()> {
    let rows = steps.iter().map(|s| {
        let block = s.block.map(|b| b.to_string()).unwrap_or_default();
        [s.at.format("%H:%M:%S%.3f").to_string(), s.service.to_owned(), s.what.clone(), block, s.hash.clone()]
    });
    output::table(["TIME", "SERVICE", "WHAT HAPPENED", "BLOCK", "HASH"], rows)?;
    Ok(std::io::stdout().flush()?)
}

fn summary(w: &pb::Withdrawal) -> serde_json::Value {
    serde_json::json!({
        "id": w.id,
        "chain": w.chain,
        "asset": w.asset,
        "amount": w.amount,
        "to": w.destination,
        "status": status_name(w.status()),
        "tx_hash": w.final_tx_hash,
        "block": w.final_block,
    })
}

fn moment(at: Option<&prost_types::Timestamp>) -> DateTime<Utc> {
    at.and_then(|t| proto::time::datetime(t).ok()).unwrap_or_default()
}

/// Addresses are written as the chain writes them.
fn fresh_address(chain: &str) -> String {
    let format = if chain == TRON { types::AddressFormat::Tron } else { types::AddressFormat::Evm };
    types::Address::from_body(format, rand::random()).to_string()
}
