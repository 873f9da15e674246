//! ExecutionService.

use std::time::Duration;

use proto::execution::v1 as wire;
use proto::execution::v1::execution_service_server::ExecutionService;
use tonic::{Request, Response, Status};
use types::{Priority, TxHash, format_amount};
use uuid::Uuid;

use super::parse::{Mistakes, one, required};
use crate::job::{
    Approval, Attempt, AttemptKind, AttemptStatus, Evidence, Finding, ImportedJob, Job, JobFilter, JobQueue,
    Jobs, LaneView, NewWithdrawal, Receipt, Renewal, State, Statistics, Verdict, VoidProof,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 86_400);
const MAX_PAGE: u32 = 500;
const MAX_REASON: usize = 500;
const MAX_APPROVALS: usize = types::MOST_APPROVALS as usize;

#[derive(Debug)]
pub(super) struct ExecutionRpc {
    jobs: Jobs,
}

impl ExecutionRpc {
    pub(super) fn new(jobs: Jobs) -> Self {
        Self { jobs }
    }
}

#[tonic::async_trait]
impl ExecutionService for ExecutionRpc {
    async fn enqueue_withdrawal(
        &self,
        request: Request<wire::EnqueueWithdrawalRequest>,
    ) -> Result<Response<wire::EnqueueWithdrawalResponse>, Status> {
        let new = parse_withdrawal(&request.into_inner())?;
        let job = self.jobs.enqueue(new).await?;
        Ok(Response::new(wire::EnqueueWithdrawalResponse { job_id: job.to_string() }))
    }

    async fn renew_approvals(
        &self,
        request: Request<wire::RenewApprovalsRequest>,
    ) -> Result<Response<wire::RenewApprovalsResponse>, Status> {
        let job = self.jobs.renew_approvals(&parse_renewal(&request.into_inner())?).await?;
        Ok(Response::new(wire::RenewApprovalsResponse { job_id: job.to_string() }))
    }

    async fn record_verdict(
        &self,
        request: Request<wire::RecordVerdictRequest>,
    ) -> Result<Response<wire::RecordVerdictResponse>, Status> {
        let verdict = parse_verdict(required("verdict", request.into_inner().verdict)?)?;
        self.jobs.record_verdict(&verdict).await?;
        Ok(Response::new(wire::RecordVerdictResponse {}))
    }

    async fn import_job(
        &self,
        request: Request<wire::ImportJobRequest>,
    ) -> Result<Response<wire::ImportJobResponse>, Status> {
        let new = parse_import(&request.into_inner())?;
        let job = self.jobs.import(&new).await?;
        Ok(Response::new(wire::ImportJobResponse { job_id: job.to_string() }))
    }

    async fn get_job(
        &self,
        request: Request<wire::GetJobRequest>,
    ) -> Result<Response<wire::GetJobResponse>, Status> {
        let (job, attempts) = match required("key", request.into_inner().key)? {
            wire::get_job_request::Key::JobId(id) => self.jobs.get(one("job_id", &id)?).await?,
            wire::get_job_request::Key::WithdrawalId(id) => {
                self.jobs.get_by_withdrawal(one("withdrawal_id", &id)?).await?
            }
        };
        Ok(Response::new(wire::GetJobResponse { job: Some(show_job(&job, &attempts)) }))
    }

    async fn list_jobs(
        &self,
        request: Request<wire::ListJobsRequest>,
    ) -> Result<Response<wire::ListJobsResponse>, Status> {
        let request = request.into_inner();
        let size = rpc::page::size(request.page_size)?.min(MAX_PAGE);
        let (mut filter, key) = parse_filter(&request)?;
        let position = rpc::page::decode::<1>(key, &request.page_token)?;
        filter.before = position.map(|[id]| one("page_token", &id)).transpose()?;
        let jobs = self.jobs.list(&filter, size).await?;
        let more = jobs.len() == usize::try_from(size).unwrap_or(usize::MAX);
        let next = jobs.last().filter(|_| more).map(|last| rpc::page::encode(key, &[&last.id.to_string()]));
        Ok(Response::new(wire::ListJobsResponse {
            jobs: jobs.iter().map(|job| show_job(job, &[])).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn retry_job(
        &self,
        request: Request<wire::RetryJobRequest>,
    ) -> Result<Response<wire::RetryJobResponse>, Status> {
        let job = self.jobs.retry(one("job_id", &request.into_inner().job_id)?).await?;
        Ok(Response::new(wire::RetryJobResponse { job: Some(show_job(&job, &[])) }))
    }

    async fn cancel_job(
        &self,
        request: Request<wire::CancelJobRequest>,
    ) -> Result<Response<wire::CancelJobResponse>, Status> {
        let request = request.into_inner();
        let id = one("job_id", &request.job_id)?;
        if request.reason.trim().is_empty() || request.reason.chars().count() > MAX_REASON {
            return Err(rpc::error::invalid("reason", format!("must have 1 to {MAX_REASON} characters")));
        }
        if request.reason.chars().any(char::is_control) {
            return Err(rpc::error::invalid("reason", "must not have control characters"));
        }
        let job = self.jobs.cancel(id, request.reason).await?;
        Ok(Response::new(wire::CancelJobResponse { job: Some(show_job(&job, &[])) }))
    }

    async fn list_lanes(
        &self,
        request: Request<wire::ListLanesRequest>,
    ) -> Result<Response<wire::ListLanesResponse>, Status> {
        let mut mistakes = Mistakes::default();
        let chain = mistakes.parse_opt("chain", &request.into_inner().chain);
        mistakes.none()?;
        let lanes = self.jobs.lanes(chain.as_ref()).await?;
        Ok(Response::new(wire::ListLanesResponse { lanes: lanes.into_iter().map(show_lane).collect() }))
    }

    async fn resume_lane(
        &self,
        request: Request<wire::ResumeLaneRequest>,
    ) -> Result<Response<wire::ResumeLaneResponse>, Status> {
        let request = request.into_inner();
        let lane = self.jobs.resume_lane(&one("chain", &request.chain)?, &request.address).await?;
        Ok(Response::new(wire::ResumeLaneResponse { lane: Some(show_lane(lane)) }))
    }

    async fn get_statistics(
        &self,
        request: Request<wire::GetStatisticsRequest>,
    ) -> Result<Response<wire::GetStatisticsResponse>, Status> {
        let window = request.into_inner().window.map(|window| proto::time::span(&window)).transpose();
        let window = window.map_err(|error| rpc::error::invalid("window", error.to_string()))?.unwrap_or(DAY);
        if window.is_zero() || window > LONGEST_WINDOW {
            return Err(rpc::error::invalid("window", "must be above zero and at most 366 days"));
        }
        let statistics = self.jobs.statistics(window).await?;
        Ok(Response::new(show_statistics(&statistics)))
    }
}

fn parse_withdrawal(request: &wire::EnqueueWithdrawalRequest) -> Result<NewWithdrawal, Status> {
    let mut mistakes = Mistakes::default();
    let id = mistakes.parse("withdrawal_id", &request.withdrawal_id);
    let chain = mistakes.parse("chain", &request.chain);
    let asset = mistakes.parse("asset", &request.asset);
    let amount = mistakes.parse("amount_raw", &request.amount_raw);
    let priority = mistakes.parse_opt::<Priority>("priority", &request.priority).unwrap_or_default();
    let approvals = parse_approvals(&mut mistakes, &request.approvals);
    let parsed = (|| {
        Some(NewWithdrawal {
            id: id?,
            chain: chain?,
            asset: asset?,
            amount: amount?,
            destination: request.destination.clone(),
            priority,
            requested_by: request.requested_by.clone(),
            on_behalf_of: request.on_behalf_of.clone(),
            approvals,
            trace: telemetry::propagation::current(),
        })
    })();
    mistakes.done(parsed)
}

fn parse_approvals(mistakes: &mut Mistakes, proofs: &[wire::ApprovalProof]) -> Vec<Approval> {
    if proofs.len() > MAX_APPROVALS {
        mistakes.note("approvals", format!("at most {MAX_APPROVALS}"));
    }
    let mut approvals = Vec::with_capacity(proofs.len());
    for (index, approval) in proofs.iter().enumerate() {
        let expires = approval.expires_at.as_ref().map(proto::time::datetime);
        match expires {
            Some(Ok(expires_at)) => approvals.push(Approval {
                approver: approval.approver.clone(),
                signature: hex::encode(&approval.signature),
                expires_at,
            }),
            Some(Err(_)) | None => mistakes.note(&format!("approvals[{index}].expires_at"), "must be a time"),
        }
    }
    approvals
}

fn parse_renewal(request: &wire::RenewApprovalsRequest) -> Result<Renewal, Status> {
    let mut mistakes = Mistakes::default();
    let withdrawal = mistakes.parse("withdrawal_id", &request.withdrawal_id);
    let approvals = parse_approvals(&mut mistakes, &request.approvals);
    if request.approvals.is_empty() {
        mistakes.note("approvals", "must not be empty");
    }
    if request.revision == 0 || i64::try_from(request.revision).is_err() {
        mistakes.note("revision", "must be above zero");
    }
    let revision = request.revision;
    mistakes.done(withdrawal.map(|withdrawal| Renewal { withdrawal, approvals, revision }))
}

fn parse_import(request: &wire::ImportJobRequest) -> Result<ImportedJob, Status> {
    let mut mistakes = Mistakes::default();
    let withdrawal = mistakes.parse("withdrawal_id", &request.withdrawal_id);
    let chain = mistakes.parse("chain", &request.chain);
    let asset = mistakes.parse("asset", &request.asset);
    let amount = mistakes.parse("amount_raw", &request.amount_raw);
    let tx_hash = mistakes.parse("tx_hash", &request.tx_hash);
    let created = request.created_at.as_ref().map(proto::time::datetime).transpose();
    let created_at = created.map_err(|error| mistakes.note("created_at", error)).ok().flatten();
    let parsed = (|| {
        Some(ImportedJob {
            withdrawal: withdrawal?,
            chain: chain?,
            asset: asset?,
            amount: amount?,
            destination: request.destination.clone(),
            from: request.from_address.clone(),
            tx_hash: tx_hash?,
            created_at: created_at.unwrap_or_else(chrono::Utc::now),
        })
    })();
    mistakes.done(parsed)
}

fn parse_filter(request: &wire::ListJobsRequest) -> Result<(JobFilter, rpc::page::Filter), Status> {
    let mut mistakes = Mistakes::default();
    let queue = match request.queue() {
        wire::Queue::Unspecified => None,
        wire::Queue::Withdrawal => Some(JobQueue::Withdrawal),
        wire::Queue::Consolidation => Some(JobQueue::Consolidation),
        wire::Queue::Gas => Some(JobQueue::Gas),
    };
    let statuses: Vec<&'static str> = request.statuses().filter_map(status_name).collect();
    let chain = mistakes.parse_opt("chain", &request.chain);
    let wallet = mistakes.parse_opt("wallet_id", &request.wallet_id);
    mistakes.none()?;
    let key = rpc::page::Filter::of(
        "jobs",
        &[
            ("queue", queue.map_or("", JobQueue::as_str)),
            ("statuses", &statuses.join(",")),
            ("chain", &request.chain),
            ("wallet", &request.wallet_id),
        ],
    );
    Ok((JobFilter { queue, statuses, chain, wallet, before: None }, key))
}

fn status_name(status: wire::JobStatus) -> Option<&'static str> {
    match status {
        wire::JobStatus::Unspecified => None,
        wire::JobStatus::Pending => Some("pending"),
        wire::JobStatus::Processing => Some("processing"),
        wire::JobStatus::Confirming => Some("confirming"),
        wire::JobStatus::Confirmed => Some("confirmed"),
        wire::JobStatus::Failed => Some("failed"),
        wire::JobStatus::Parked => Some("parked"),
    }
}

fn status_of(name: &str) -> wire::JobStatus {
    use wire::JobStatus as S;
    let all = [S::Pending, S::Processing, S::Confirming, S::Confirmed, S::Failed, S::Parked];
    all.into_iter().find(|status| status_name(*status) == Some(name)).unwrap_or(S::Unspecified)
}

fn parse_receipt(mistakes: &mut Mistakes, hash: &str, block: u64, gas: &str, price: &str) -> Option<Receipt> {
    let tx_hash = mistakes.parse("tx_hash", hash);
    let gas_used = mistakes.parse("gas_used", gas);
    let gas_price = mistakes.parse("gas_price", price);
    Some(Receipt {
        tx_hash: tx_hash?,
        block_number: block,
        gas_used: gas_used?,
        gas_price: gas_price?,
        fee: None,
    })
}

/// All that was taken; a service that does not say leaves it to gas and price.
fn parse_fee(mistakes: &mut Mistakes, receipt: Receipt, fee: &str) -> Option<Receipt> {
    if fee.is_empty() {
        return Some(receipt);
    }
    Some(Receipt { fee: Some(mistakes.parse("fee", fee)?), ..receipt })
}

fn parse_proof(
    mistakes: &mut Mistakes,
    hashes: &[String],
    signature: &[u8],
    attested_at: Option<&prost_types::Timestamp>,
) -> Option<VoidProof> {
    if signature.is_empty() {
        return None;
    }
    let tx_hashes = hashes.iter().filter_map(|hash| mistakes.parse("tx_hashes", hash)).collect();
    match attested_at.map(proto::time::datetime) {
        Some(Ok(attested_at)) => {
            Some(VoidProof { tx_hashes, signature: hex::encode(signature), attested_at })
        }
        Some(Err(_)) | None => {
            mistakes.note("attested_at", "must be a time");
            None
        }
    }
}

fn parse_verdict(verdict: wire::Verdict) -> Result<Verdict, Status> {
    let mut mistakes = Mistakes::default();
    let id: Option<Uuid> = mistakes.parse("verdict.id", &verdict.id);
    let job = mistakes.parse("verdict.job_id", &verdict.job_id);
    let at = verdict.at.as_ref().map(proto::time::datetime).transpose();
    let at = at.map_err(|error| mistakes.note("verdict.at", error)).ok().flatten();
    let finding = required("verdict.finding", verdict.finding)?;
    let mut proof = None;
    let found = parse_finding(&mut mistakes, finding, &mut proof);
    let parsed = (|| {
        let (finding, evidence) = found?;
        Some(Verdict {
            id: id?,
            job: job?,
            at: at.unwrap_or_else(chrono::Utc::now),
            finding,
            evidence,
            proof,
        })
    })();
    mistakes.done(parsed)
}

fn parse_finding(
    mistakes: &mut Mistakes,
    finding: wire::verdict::Finding,
    proof: &mut Option<VoidProof>,
) -> Option<(Finding, Evidence)> {
    use wire::verdict::Finding as F;
    Some(match finding {
        F::Settled(it) => {
            let receipt = parse_receipt(mistakes, &it.tx_hash, it.block_number, &it.gas_used, &it.gas_price)?;
            let receipt = parse_fee(mistakes, receipt, &it.fee)?;
            (Finding::Settled { tx_hash: receipt.tx_hash }, Evidence::Receipt(receipt))
        }
        F::Reverted(it) => {
            let receipt = parse_receipt(mistakes, &it.tx_hash, it.block_number, &it.gas_used, &it.gas_price)?;
            let receipt = parse_fee(mistakes, receipt, &it.fee)?;
            *proof = parse_proof(mistakes, &it.void_tx_hashes, &it.attestation, it.attested_at.as_ref());
            (Finding::Reverted { reason: it.reason, value_moved: it.value_moved }, Evidence::Receipt(receipt))
        }
        F::Void(it) => {
            let hashes: Vec<TxHash> =
                it.tx_hashes.iter().filter_map(|hash| mistakes.parse("tx_hashes", hash)).collect();
            *proof = parse_proof(mistakes, &it.tx_hashes, &it.attestation, it.attested_at.as_ref());
            // Somebody else's transaction closed it, or time did.
            let finding = if it.foreign_tx_hash.is_empty() {
                Finding::Expired { reason: it.reason }
            } else {
                Finding::Void { reason: it.reason }
            };
            (finding, Evidence::Void(hashes))
        }
        F::Stuck(it) => (Finding::Stuck, Evidence::Hash(Some(mistakes.parse("tx_hash", &it.tx_hash)?))),
        F::Reopened(it) => (Finding::Reopened, Evidence::Hash(Some(mistakes.parse("tx_hash", &it.tx_hash)?))),
        F::Cancelled(it) => {
            let receipt = parse_receipt(mistakes, &it.tx_hash, it.block_number, &it.gas_used, &it.gas_price)?;
            *proof = parse_proof(mistakes, &it.void_tx_hashes, &it.attestation, it.attested_at.as_ref());
            (Finding::Cancelled, Evidence::Receipt(receipt))
        }
        F::Contradicted(it) => {
            // An end that nothing of ours had landed for, such as a foreign transaction that is gone, has no hash to name.
            let hash = match it.tx_hash.as_str() {
                "" => None,
                text => Some(mistakes.parse("tx_hash", text)?),
            };
            (Finding::Contradicted { reason: it.reason }, Evidence::Hash(hash))
        }
    })
}

fn show_job(job: &Job, attempts: &[Attempt]) -> wire::Job {
    let queue = match job.queue {
        JobQueue::Withdrawal => wire::Queue::Withdrawal,
        JobQueue::Consolidation => wire::Queue::Consolidation,
        JobQueue::Gas => wire::Queue::Gas,
    };
    let error = match &job.state {
        State::Failed { reason } | State::Parked { reason } => Some(reason.clone()),
        State::Pending { .. } | State::Processing | State::Confirming | State::Confirmed { .. } => {
            job.error.clone()
        }
    };
    wire::Job {
        id: job.id.to_string(),
        queue: queue.into(),
        withdrawal_id: job.withdrawal.map(|id| id.to_string()).unwrap_or_default(),
        chain: job.chain.to_string(),
        asset: job.symbol.to_string(),
        wallet_id: job.payer.as_ref().map(|payer| payer.wallet.to_string()).unwrap_or_default(),
        from_address: job.payer.as_ref().map(|payer| payer.address.to_string()).unwrap_or_default(),
        to_address: job.to.to_string(),
        amount: format_amount(job.amount, job.decimals),
        amount_raw: job.amount.to_string(),
        status: status_of(job.state.name()).into(),
        priority: job.priority.to_string(),
        tries: job.tries,
        max_tries: job.max_tries,
        error: error.unwrap_or_default(),
        blocked_reason: job.blocked.clone().unwrap_or_default(),
        tx_hash: job.tx_hash.map(|hash| hash.in_format(job.to.format())).unwrap_or_default(),
        attempts: attempts.iter().map(show_attempt).collect(),
        due_at: job.due_at.map(proto::time::timestamp),
        created_at: Some(proto::time::timestamp(job.created_at)),
        updated_at: Some(proto::time::timestamp(job.updated_at)),
        finished_at: job.finished_at.map(proto::time::timestamp),
        fee_paid: job.fee_paid.to_string(),
    }
}

fn show_attempt(attempt: &Attempt) -> wire::Attempt {
    let kind = match attempt.kind {
        AttemptKind::Pay => wire::AttemptKind::Pay,
        AttemptKind::Cancel => wire::AttemptKind::Cancel,
    };
    let status = match attempt.status {
        AttemptStatus::Reserved => wire::AttemptStatus::Reserved,
        AttemptStatus::Signed => wire::AttemptStatus::Signed,
        AttemptStatus::Broadcast => wire::AttemptStatus::Broadcast,
        AttemptStatus::Settled => wire::AttemptStatus::Settled,
        AttemptStatus::Reverted => wire::AttemptStatus::Reverted,
        AttemptStatus::Void => wire::AttemptStatus::Void,
    };
    wire::Attempt {
        id: attempt.id.to_string(),
        number: attempt.number,
        kind: kind.into(),
        status: status.into(),
        nonce: attempt.nonce.filter(|_| attempt.window.is_none()),
        tx_hash: attempt.tx_hash.map(|hash| hash.in_format(attempt.address.format())).unwrap_or_default(),
        raw_transaction: attempt.raw.clone().unwrap_or_default(),
        max_fee_per_gas: attempt.fee.map(|fee| fee.max_fee_per_gas.to_string()).unwrap_or_default(),
        last_error: attempt.last_error.clone().unwrap_or_default(),
        created_at: Some(proto::time::timestamp(attempt.created_at)),
        broadcast_at: attempt.broadcast_at.map(proto::time::timestamp),
        sends: attempt.sends,
        gas_used: attempt.gas_used.map(|gas| gas.to_string()).unwrap_or_default(),
        gas_price: attempt.gas_price.map(|price| price.to_string()).unwrap_or_default(),
        block_number: attempt.block_number.unwrap_or_default(),
    }
}

fn show_lane(lane: LaneView) -> wire::Lane {
    wire::Lane {
        chain: lane.chain,
        address: lane.address,
        next_nonce: lane.next_nonce,
        final_nonce: lane.final_nonce,
        open_nonces: lane.open_nonces,
        spent_nonces: lane.spent_nonces,
        halted_reason: lane.halted_reason.unwrap_or_default(),
    }
}

fn show_statistics(statistics: &Statistics) -> wire::GetStatisticsResponse {
    let counts = statistics.counts.iter().map(|count| wire::JobCount {
        queue: match count.queue {
            JobQueue::Withdrawal => wire::Queue::Withdrawal,
            JobQueue::Consolidation => wire::Queue::Consolidation,
            JobQueue::Gas => wire::Queue::Gas,
        }
        .into(),
        chain: count.chain.to_string(),
        status: status_of(&count.status).into(),
        count: count.count,
    });
    let span = |span: Duration| prost_types::Duration::try_from(span).unwrap_or_default();
    wire::GetStatisticsResponse {
        counts: counts.collect(),
        stuck: statistics.stuck,
        retry_rate_basis_points: statistics.retry_rate_basis_points,
        average_confirmation_time: statistics.average_confirmation.map(span),
        average_gas_used: statistics.average_gas.to_string(),
    }
}
