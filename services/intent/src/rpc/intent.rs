//! `IntentService`.

use std::pin::Pin;
use std::time::Duration;

use chrono::SubsecRound as _;
use futures::{Stream, stream};
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_server::IntentService;
use rpc::{Draining, Role, caller, page};
use tonic::{Request, Response, Status};
use types::{Address, WithdrawalId};

use super::convert::{self, Reading};
use crate::withdrawal::approval::Consent;
use crate::withdrawal::list::{Filter, Page};
use crate::withdrawal::request::MAX_REASON_CHARS;
use crate::withdrawal::request::draft::WithdrawalDraft;
use crate::withdrawal::request::import::ImportDraft;
use crate::withdrawal::watch::{Hub, Watcher};
use crate::withdrawal::{Withdrawal, Withdrawals};

const MAX_PAGE: u32 = 500;
const DEFAULT_WINDOW: Duration = Duration::from_secs(24 * 3600);
const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 3600);

/// The handlers.
#[derive(Debug, Clone)]
pub struct IntentRpc {
    withdrawals: Withdrawals,
    hub: Hub,
}

impl IntentRpc {
    pub fn new(withdrawals: Withdrawals, hub: Hub) -> Self {
        Self { withdrawals, hub }
    }
}

fn some(withdrawal: &Withdrawal) -> Option<pb::Withdrawal> {
    Some(convert::withdrawal(withdrawal))
}

type Watching = Pin<Box<dyn Stream<Item = Result<pb::WatchWithdrawalResponse, Status>> + Send>>;

#[tonic::async_trait]
impl IntentService for IntentRpc {
    async fn create_withdrawal(
        &self,
        request: Request<pb::CreateWithdrawalRequest>,
    ) -> Result<Response<pb::CreateWithdrawalResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let draft = draft(request.into_inner());
        let withdrawal = self.withdrawals.create(draft, &by).await?;
        Ok(Response::new(pb::CreateWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn get_withdrawal(
        &self,
        request: Request<pb::GetWithdrawalRequest>,
    ) -> Result<Response<pb::GetWithdrawalResponse>, Status> {
        let id = convert::id("id", &request.get_ref().id)?;
        let withdrawal = self.withdrawals.get(id).await?;
        Ok(Response::new(pb::GetWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn list_withdrawals(
        &self,
        request: Request<pb::ListWithdrawalsRequest>,
    ) -> Result<Response<pb::ListWithdrawalsResponse>, Status> {
        let request = request.into_inner();
        let bound = token_filter(&request);
        let page = list_page(&request, bound)?;
        let mut found = self.withdrawals.list(&page).await?;
        // One more row was asked for than is shown: whether it is there says whether another page is.
        let more = u32::try_from(found.len()) == Ok(page.size);
        if more {
            found.pop();
        }
        let last = found.last().filter(|_| more);
        let next_page_token = last.map(|row| {
            page::encode(bound, &[&row.created_at.timestamp_micros().to_string(), &row.id.to_string()])
        });
        Ok(Response::new(pb::ListWithdrawalsResponse {
            withdrawals: found.iter().map(convert::withdrawal).collect(),
            next_page_token: next_page_token.unwrap_or_default(),
        }))
    }

    type WatchWithdrawalStream = Watching;

    async fn watch_withdrawal(
        &self,
        request: Request<pb::WatchWithdrawalRequest>,
    ) -> Result<Response<Watching>, Status> {
        let draining = Draining::of(&request);
        let id = convert::id("id", &request.get_ref().id)?;
        let watcher = self.hub.watch(id, request.get_ref().after_sequence).await?;
        Ok(Response::new(follow(watcher, draining)))
    }

    async fn list_transitions(
        &self,
        request: Request<pb::ListTransitionsRequest>,
    ) -> Result<Response<pb::ListTransitionsResponse>, Status> {
        let id = convert::id("id", &request.get_ref().id)?;
        let transitions = self.withdrawals.transitions(id).await?;
        let transitions = transitions.iter().map(convert::transition).collect();
        Ok(Response::new(pb::ListTransitionsResponse { transitions }))
    }

    async fn approve_withdrawal(
        &self,
        request: Request<pb::ApproveWithdrawalRequest>,
    ) -> Result<Response<pb::ApproveWithdrawalResponse>, Status> {
        let approver = caller(&request)?.name.clone();
        let (id, consent) = consent(approver, request.get_ref())?;
        let withdrawal = self.withdrawals.approve(id, consent).await?;
        Ok(Response::new(pb::ApproveWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn reject_withdrawal(
        &self,
        request: Request<pb::RejectWithdrawalRequest>,
    ) -> Result<Response<pb::RejectWithdrawalResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let (id, reason) = ending(&request.get_ref().id, &request.get_ref().reason, true)?;
        let withdrawal = self.withdrawals.reject(id, reason, &by).await?;
        Ok(Response::new(pb::RejectWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn cancel_withdrawal(
        &self,
        request: Request<pb::CancelWithdrawalRequest>,
    ) -> Result<Response<pb::CancelWithdrawalResponse>, Status> {
        let by = caller(&request)?;
        let (id, reason) = ending(&request.get_ref().id, &request.get_ref().reason, false)?;
        let withdrawal = self.withdrawals.cancel(id, reason, &by.name, !by.has(&Role::Operator)).await?;
        Ok(Response::new(pb::CancelWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn import_withdrawal(
        &self,
        request: Request<pb::ImportWithdrawalRequest>,
    ) -> Result<Response<pb::ImportWithdrawalResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let draft = import_draft(request.into_inner())?;
        let withdrawal = self.withdrawals.import(draft, &by).await?;
        Ok(Response::new(pb::ImportWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> Result<Response<pb::GetStatisticsResponse>, Status> {
        let window = window(request.get_ref())?;
        let found = self.withdrawals.statistics(window).await?;
        let span = |average: Option<Duration>| average.and_then(|average| average.try_into().ok());
        let count = |(status, count)| pb::StatusCount { status: convert::status(status).into(), count };
        Ok(Response::new(pb::GetStatisticsResponse {
            pending_approvals: found.pending_approvals,
            by_status: found.by_status.into_iter().map(count).collect(),
            average_approval_time: span(found.average_approval),
            average_completion_time: span(found.average_completion),
            completion_rate_basis_points: found.completion_rate_basis_points,
        }))
    }
}

fn draft(request: pb::CreateWithdrawalRequest) -> WithdrawalDraft {
    WithdrawalDraft {
        idempotency_key: request.idempotency_key,
        user_id: request.user_id,
        chain: request.chain,
        asset: request.asset,
        amount: request.amount,
        destination: request.destination,
        memo: request.memo,
        priority: convert::priority_from(request.priority),
        labels: request.labels.into_iter().collect(),
        on_behalf_of: request.on_behalf_of,
    }
}

fn consent(
    approver: String,
    request: &pb::ApproveWithdrawalRequest,
) -> Result<(WithdrawalId, Consent), Status> {
    let mut reading = Reading::default();
    let id = reading.read("id", &request.id);
    let expires_at = reading.time("expires_at", request.expires_at.as_ref());
    let signature: Option<[u8; 64]> = request.signature.as_slice().try_into().ok();
    if signature.is_none() {
        reading.wrong("signature", format_args!("has {} bytes, expected 64", request.signature.len()));
    }
    let parsed = id.zip(signature).zip(expires_at).map(|((id, signature), expires_at)| {
        // The signature covers whole seconds; a fraction beyond it would be valid without being signed.
        (id, Consent { approver, signature, expires_at: expires_at.trunc_subsecs(0) })
    });
    reading.finish(parsed)
}

fn ending(id: &str, reason: &str, required: bool) -> Result<(WithdrawalId, String), Status> {
    let mut reading = Reading::default();
    let id = reading.read("id", id);
    reading.text("reason", reason, MAX_REASON_CHARS);
    if required && reason.trim().is_empty() {
        reading.wrong("reason", "must have 1 to 500 characters");
    }
    reading.finish(id.map(|id| (id, reason.to_owned())))
}

fn import_draft(request: pb::ImportWithdrawalRequest) -> Result<ImportDraft, Status> {
    let mut reading = Reading::default();
    let id = reading.read("id", &request.id);
    let user_id = reading.read("user_id", &request.user_id);
    let chain = reading.read("chain", &request.chain);
    let asset = reading.read("asset", &request.asset);
    let tx_hash = reading.read("tx_hash", &request.tx_hash);
    let created_at = reading.time("created_at", request.created_at.as_ref());
    let build = || {
        Some(ImportDraft {
            id: id?,
            user_id: user_id?,
            chain: chain?,
            asset: asset?,
            amount: request.amount,
            destination: request.destination,
            from_address: request.from_address,
            tx_hash: tx_hash?,
            created_at: created_at?,
        })
    };
    let draft = build();
    reading.finish(draft)
}

fn window(request: &pb::GetStatisticsRequest) -> Result<Duration, Status> {
    let Some(asked) = &request.window else { return Ok(DEFAULT_WINDOW) };
    let window =
        proto::time::span(asked).map_err(|error| rpc::error::invalid("window", error.to_string()))?;
    if window < Duration::from_secs(1) || window > MAX_WINDOW {
        return Err(rpc::error::invalid("window", "must be 1 second to 366 days"));
    }
    Ok(window)
}

/// Everything that decides what the list contains, so that a token cannot be used under another filter.
fn token_filter(request: &pb::ListWithdrawalsRequest) -> page::Filter {
    let mut statuses: Vec<String> = request.statuses.iter().map(i32::to_string).collect();
    statuses.sort();
    statuses.dedup();
    let time = |at: &Option<prost_types::Timestamp>| {
        at.as_ref().map(|at| format!("{}.{:09}", at.seconds, at.nanos)).unwrap_or_default()
    };
    page::Filter::of(
        "withdrawals",
        &[
            ("statuses", &statuses.join(",")),
            ("user_id", &request.user_id),
            ("chain", &request.chain),
            ("asset", &request.asset),
            ("destination", &request.destination),
            ("created_from", &time(&request.created_from)),
            ("created_to", &time(&request.created_to)),
        ],
    )
}

fn list_page(request: &pb::ListWithdrawalsRequest, bound: page::Filter) -> Result<Page, Status> {
    let size = page::size(request.page_size)?.min(MAX_PAGE) + 1;
    let after = match page::decode::<2>(bound, &request.page_token)? {
        None => None,
        Some([micros, id]) => {
            let bad =
                || rpc::error::invalid("page_token", "is not a token from an earlier page of this list");
            let micros = micros.parse().map_err(|_| bad())?;
            let created_at = chrono::DateTime::from_timestamp_micros(micros).ok_or_else(bad)?;
            Some((created_at, id.parse().map_err(|_| bad())?))
        }
    };
    let mut reading = Reading::default();
    let mut statuses = Vec::new();
    for value in &request.statuses {
        match pb::WithdrawalStatus::try_from(*value) {
            Ok(status) => statuses.push(convert::status_from(status)),
            Err(_) => reading.wrong("statuses", format_args!("{value} is not a status")),
        }
    }
    let filter = Filter {
        // One "any" among them admits all.
        statuses: statuses.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default(),
        user_id: reading.read_opt("user_id", &request.user_id),
        chain: reading.read_opt("chain", &request.chain),
        asset: reading.read_opt("asset", &request.asset),
        destination: reading.read_opt::<Address>("destination", &request.destination),
        created_from: reading.time_opt("created_from", request.created_from.as_ref()),
        created_to: reading.time_opt("created_to", request.created_to.as_ref()),
    };
    reading.finish(Some(Page { filter, after, size }))
}

/// The stream of a watcher. When the server drains it ends with an error, never as if the request had ended: the client goes
/// on elsewhere from the last sequence it saw.
fn follow(watcher: Watcher, draining: Draining) -> Watching {
    let steps = stream::try_unfold((watcher, draining), |(mut watcher, draining)| async move {
        let next = tokio::select! {
            next = watcher.next() => next?,
            () = draining.begun() => {
                let reason = rpc::error::reason::DRAINING;
                let text = "the server is shutting down; resume after the last sequence";
                return Err(rpc::error::unavailable(reason, text, Duration::from_millis(200)));
            }
        };
        Ok(next.map(|(transition, withdrawal)| {
            let response = pb::WatchWithdrawalResponse {
                transition: Some(convert::transition(&transition)),
                withdrawal: some(&withdrawal),
            };
            (response, (watcher, draining))
        }))
    });
    Box::pin(steps)
}
