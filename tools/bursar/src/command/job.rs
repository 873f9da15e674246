//! `bursar job`: look at execution's jobs, and let an operator retry or give one up.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use proto::execution::v1 as pb;

use crate::client::{Connection, pages};
use crate::output::{self, Output};

#[derive(Debug, Args)]
pub struct Job {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List jobs, newest first
    List {
        /// pending, processing, confirming, confirmed, failed or parked
        #[arg(long)]
        status: Vec<String>,
        #[arg(long, default_value = "")]
        chain: String,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one job with every attempt, by its own id or by its withdrawal's
    Show { id: String },
    /// Make a waiting or parked job due now
    Retry { id: String },
    /// Give a job up; with a nonce open it ends only when that is closed on chain
    Cancel {
        id: String,
        #[arg(long)]
        reason: String,
    },
}

impl Job {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let mut client = connection.execution("operator")?;
        let job = match self.action {
            Action::List { status, chain, limit } => {
                return list(connection, out, &status, &chain, limit).await;
            }
            Action::Show { id } => find(&mut client, &id).await?,
            Action::Retry { id } => {
                let request = pb::RetryJobRequest { job_id: id };
                client.retry_job(request).await?.into_inner().job.unwrap_or_default()
            }
            Action::Cancel { id, reason } => {
                let request = pb::CancelJobRequest { job_id: id, reason };
                client.cancel_job(request).await?.into_inner().job.unwrap_or_default()
            }
        };
        if out.json { output::json("bursar.execution.v1.Job", &job) } else { show(&job) }
    }
}

/// People hold a withdrawal's id as often as a job's; both are tried.
async fn find(client: &mut crate::client::Execution, id: &str) -> Result<pb::Job> {
    let by_job = pb::GetJobRequest { key: Some(pb::get_job_request::Key::JobId(id.to_owned())) };
    let answer = match client.get_job(by_job).await {
        Err(status) if status.code() == tonic::Code::NotFound => {
            let key = pb::get_job_request::Key::WithdrawalId(id.to_owned());
            client.get_job(pb::GetJobRequest { key: Some(key) }).await?
        }
        other => other?,
    };
    answer.into_inner().job.context("the answer holds no job")
}

async fn list(
    connection: &Connection,
    out: Output,
    status: &[String],
    chain: &str,
    limit: usize,
) -> Result<()> {
    let statuses = status.iter().map(|s| status_from(s).map(i32::from)).collect::<Result<Vec<_>>>()?;
    let mut client = connection.execution("operator")?;
    let jobs = pages(limit, async |page_size, page_token| {
        let (statuses, chain) = (statuses.clone(), chain.to_owned());
        let request = pb::ListJobsRequest { statuses, chain, page_size, page_token, ..Default::default() };
        let page = client.list_jobs(request).await?.into_inner();
        Ok((page.jobs, page.next_page_token))
    });
    let jobs = jobs.await?;
    if out.json {
        return output::json_list("bursar.execution.v1.Job", &jobs);
    }
    let rows = jobs.iter().map(|j| {
        let tries = format!("{}/{}", j.tries, j.max_tries);
        let why = if j.error.is_empty() { &j.blocked_reason } else { &j.error };
        [
            j.id.clone(),
            status_name(j.status()),
            j.chain.clone(),
            format!("{} {}", j.amount, j.asset),
            tries,
            why.clone(),
        ]
    });
    output::table(["JOB", "STATUS", "CHAIN", "AMOUNT", "TRIES", "WHY"], rows)
}

fn show(job: &pb::Job) -> Result<()> {
    let mut rows = vec![
        ("job", job.id.clone()),
        ("withdrawal", job.withdrawal_id.clone()),
        ("status", status_name(job.status())),
        ("amount", format!("{} {} on {}", job.amount, job.asset, job.chain)),
        ("from", job.from_address.clone()),
        ("to", job.to_address.clone()),
        ("tries", format!("{} of {}", job.tries, job.max_tries)),
        ("hash", job.tx_hash.clone()),
        ("waits for", job.blocked_reason.clone()),
        ("error", job.error.clone()),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    output::fields(&rows)?;
    output::print("")?;
    let attempts = job.attempts.iter().map(|a| {
        let kind = output::enum_name(a.kind().as_str_name(), "ATTEMPT_KIND_");
        let status = output::enum_name(a.status().as_str_name(), "ATTEMPT_STATUS_");
        let nonce = a.nonce.map(|n| n.to_string()).unwrap_or_default();
        [
            a.number.to_string(),
            kind,
            status,
            nonce,
            a.sends.to_string(),
            a.tx_hash.clone(),
            a.last_error.clone(),
        ]
    });
    output::table(["#", "KIND", "STATUS", "NONCE", "SENT", "HASH", "LAST ERROR"], attempts)
}

fn status_name(status: pb::JobStatus) -> String {
    output::enum_name(status.as_str_name(), "JOB_STATUS_")
}

fn status_from(text: &str) -> Result<pb::JobStatus> {
    pb::JobStatus::from_str_name(&format!("JOB_STATUS_{}", text.to_uppercase())).with_context(|| {
        format!("--status {text}: expected pending, processing, confirming, confirmed, failed or parked")
    })
}
