//! ExecutionService.

use std::time::Duration;

use payment::Verdict;
use proto::execution::v1 as pb;
use proto::execution::v1::execution_service_server::ExecutionService;
use rpc::fields::{Fields, parse, required};
use tonic::{Request, Response, Status};
use types::Priority;

use super::show::{show_job, show_lane, show_statistics};
use crate::job::{Approval, ImportedJob, JobFilter, Jobs, NewWithdrawal, Renewal, Status as JobStatus};
use crate::queue::JobQueue;

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
        request: Request<pb::EnqueueWithdrawalRequest>,
    ) -> Result<Response<pb::EnqueueWithdrawalResponse>, Status> {
        let new = parse_withdrawal(&request.into_inner())?;
        let job = self.jobs.enqueue(new).await?;
        Ok(Response::new(pb::EnqueueWithdrawalResponse { job_id: job.to_string() }))
    }

    async fn renew_approvals(
        &self,
        request: Request<pb::RenewApprovalsRequest>,
    ) -> Result<Response<pb::RenewApprovalsResponse>, Status> {
        let job = self.jobs.renew_approvals(&parse_renewal(&request.into_inner())?).await?;
        Ok(Response::new(pb::RenewApprovalsResponse { job_id: job.to_string() }))
    }

    async fn record_verdict(
        &self,
        request: Request<pb::RecordVerdictRequest>,
    ) -> Result<Response<pb::RecordVerdictResponse>, Status> {
        let verdict = parse_verdict(required("verdict", request.into_inner().verdict)?)?;
        self.jobs.record_verdict(&verdict).await?;
        Ok(Response::new(pb::RecordVerdictResponse {}))
    }

    async fn import_job(
        &self,
        request: Request<pb::ImportJobRequest>,
    ) -> Result<Response<pb::ImportJobResponse>, Status> {
        let new = parse_import(&request.into_inner())?;
        let job = self.jobs.import(&new).await?;
        Ok(Response::new(pb::ImportJobResponse { job_id: job.to_string() }))
    }

    async fn get_job(
        &self,
        request: Request<pb::GetJobRequest>,
    ) -> Result<Response<pb::GetJobResponse>, Status> {
        let (job, attempts) = match required("key", request.into_inner().key)? {
            pb::get_job_request::Key::JobId(id) => self.jobs.get(parse("job_id", &id)?).await?,
            pb::get_job_request::Key::WithdrawalId(id) => {
                self.jobs.get_by_withdrawal(parse("withdrawal_id", &id)?).await?
            }
        };
        Ok(Response::new(pb::GetJobResponse { job: Some(show_job(&job, &attempts)) }))
    }

    async fn list_jobs(
        &self,
        request: Request<pb::ListJobsRequest>,
    ) -> Result<Response<pb::ListJobsResponse>, Status> {
        let request = request.into_inner();
        let size = rpc::page::size(request.page_size)?.min(MAX_PAGE);
        let (mut filter, key) = parse_filter(&request)?;
        let position = rpc::page::decode::<1>(key, &request.page_token)?;
        filter.before = position.map(|[id]| parse("page_token", &id)).transpose()?;
        let jobs = self.jobs.list(&filter, size).await?;
        let more = jobs.len() == usize::try_from(size).unwrap_or(usize::MAX);
        let next = jobs.last().filter(|_| more).map(|last| rpc::page::encode(key, &[&last.id.to_string()]));
        Ok(Response::new(pb::ListJobsResponse {
            jobs: jobs.iter().map(|job| show_job(job, &[])).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn retry_job(
        &self,
        request: Request<pb::RetryJobRequest>,
    ) -> Result<Response<pb::RetryJobResponse>, Status> {
        let job = self.jobs.retry(parse("job_id", &request.into_inner().job_id)?).await?;
        Ok(Response::new(pb::RetryJobResponse { job: Some(show_job(&job, &[])) }))
    }

    async fn cancel_job(
        &self,
        request: Request<pb::CancelJobRequest>,
    ) -> Result<Response<pb::CancelJobResponse>, Status> {
        let request = request.into_inner();
        let id = parse("job_id", &request.job_id)?;
        let mut fields = Fields::new();
        let reason = fields.line("reason", &request.reason, 1..=MAX_REASON);
        let reason = fields.finish(reason)?;
        let job = self.jobs.cancel(id, reason).await?;
        Ok(Response::new(pb::CancelJobResponse { job: Some(show_job(&job, &[])) }))
    }

    async fn list_lanes(
        &self,
        request: Request<pb::ListLanesRequest>,
    ) -> Result<Response<pb::ListLanesResponse>, Status> {
        let mut fields = Fields::new();
        let chain = fields.parse_optional("chain", &request.into_inner().chain);
        fields.done()?;
        let lanes = self.jobs.lanes(chain.as_ref()).await?;
        Ok(Response::new(pb::ListLanesResponse { lanes: lanes.into_iter().map(show_lane).collect() }))
    }

    async fn resume_lane(
        &self,
        request: Request<pb::ResumeLaneRequest>,
    ) -> Result<Response<pb::ResumeLaneResponse>, Status> {
        let request = request.into_inner();
        let lane = self.jobs.resume_lane(&parse("chain", &request.chain)?, &request.address).await?;
        Ok(Response::new(pb::ResumeLaneResponse { lane: Some(show_lane(lane)) }))
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> Result<Response<pb::GetStatisticsResponse>, Status> {
        let mut fields = Fields::new();
        let window = fields.duration("window", request.into_inner().window.as_ref());
        fields.done()?;
        let window = window.unwrap_or(DAY);
        if window.is_zero() || window > LONGEST_WINDOW {
            return Err(rpc::error::invalid("window", "must be above zero and at most 366 days"));
        }
        let statistics = self.jobs.statistics(window).await?;
        Ok(Response::new(show_statistics(&statistics)))
    }
}

fn parse_withdrawal(request: &pb::EnqueueWithdrawalRequest) -> Result<NewWithdrawal, Status> {
    let mut fields = Fields::new();
    let id = fields.parse("withdrawal_id", &request.withdrawal_id);
    let chain = fields.parse("chain", &request.chain);
    let asset = fields.parse("asset", &request.asset);
    let amount = fields.parse("amount_raw", &request.amount_raw);
    let priority = fields.parse_optional::<Priority>("priority", &request.priority).unwrap_or_default();
    let approvals = parse_approvals(&mut fields, &request.approvals);
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
    fields.finish(parsed)
}

fn parse_approvals(fields: &mut Fields, proofs: &[pb::ApprovalProof]) -> Vec<Approval> {
    if proofs.len() > MAX_APPROVALS {
        fields.wrong("approvals", format!("at most {MAX_APPROVALS}"));
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
            Some(Err(_)) | None => fields.wrong(format!("approvals[{index}].expires_at"), "must be a time"),
        }
    }
    approvals
}

fn parse_renewal(request: &pb::RenewApprovalsRequest) -> Result<Renewal, Status> {
    let mut fields = Fields::new();
    let withdrawal = fields.parse("withdrawal_id", &request.withdrawal_id);
    let approvals = parse_approvals(&mut fields, &request.approvals);
    if request.approvals.is_empty() {
        fields.wrong("approvals", "must not be empty");
    }
    if request.revision == 0 || i64::try_from(request.revision).is_err() {
        fields.wrong("revision", "must be above zero");
    }
    let revision = request.revision;
    fields.finish(withdrawal.map(|withdrawal| Renewal { withdrawal, approvals, revision }))
}

fn parse_import(request: &pb::ImportJobRequest) -> Result<ImportedJob, Status> {
    let mut fields = Fields::new();
    let withdrawal = fields.parse("withdrawal_id", &request.withdrawal_id);
    let chain = fields.parse("chain", &request.chain);
    let asset = fields.parse("asset", &request.asset);
    let amount = fields.parse("amount_raw", &request.amount_raw);
    let tx_hash = fields.parse("tx_hash", &request.tx_hash);
    let created = request.created_at.as_ref().map(proto::time::datetime).transpose();
    let created_at = created.map_err(|error| fields.wrong("created_at", error)).ok().flatten();
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
    fields.finish(parsed)
}

fn parse_filter(request: &pb::ListJobsRequest) -> Result<(JobFilter, rpc::page::Filter), Status> {
    let mut fields = Fields::new();
    let queue = JobQueue::of_contract(request.queue());
    let statuses: Vec<JobStatus> = request.statuses().filter_map(read_status).collect();
    let names: Vec<&'static str> = statuses.iter().map(Into::into).collect();
    let chain = fields.parse_optional("chain", &request.chain);
    let wallet = fields.parse_optional("wallet_id", &request.wallet_id);
    fields.done()?;
    let key = rpc::page::Filter::of(
        "jobs",
        &[
            ("queue", queue.map_or("", JobQueue::name)),
            ("statuses", &names.join(",")),
            ("chain", &request.chain),
            ("wallet", &request.wallet_id),
        ],
    );
    Ok((JobFilter { queue, statuses, chain, wallet, before: None }, key))
}

fn read_status(status: pb::JobStatus) -> Option<JobStatus> {
    match status {
        pb::JobStatus::Unspecified => None,
        pb::JobStatus::Pending => Some(JobStatus::Pending),
        pb::JobStatus::Processing => Some(JobStatus::Processing),
        pb::JobStatus::Confirming => Some(JobStatus::Confirming),
        pb::JobStatus::Confirmed => Some(JobStatus::Confirmed),
        pb::JobStatus::Failed => Some(JobStatus::Failed),
        pb::JobStatus::Parked => Some(JobStatus::Parked),
    }
}

fn parse_verdict(verdict: pb::Verdict) -> Result<Verdict, Status> {
    proto::payment::read_verdict(verdict, chrono::Utc::now()).map_err(|errors| {
        rpc::error::invalid_all(errors.into_iter().map(|error| (error.field, error.problem)))
    })
}
