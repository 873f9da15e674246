//! `IntentService`.

use std::pin::Pin;
use std::time::Duration;

use chrono::SubsecRound as _;
use futures::{Stream, stream};
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_server::IntentService;
use rpc::fields::{self, Fields};
use rpc::{Draining, Role, caller, page};
use tonic::{Request, Response, Status};
use types::{Address, WithdrawalId};

use super::convert::{self, to_micros};
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

type TransitionStream = Pin<Box<dyn Stream<Item = Result<pb::WatchWithdrawalResponse, Status>> + Send>>;

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
        let id = fields::parse("id", &request.get_ref().id)?;
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
        // One more row is queried than is shown: if it is there, there is another page.
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

    type WatchWithdrawalStream = TransitionStream;

    async fn watch_withdrawal(
        &self,
        request: Request<pb::WatchWithdrawalRequest>,
    ) -> Result<Response<TransitionStream>, Status> {
        let draining = Draining::of(&request);
        let id = fields::parse("id", &request.get_ref().id)?;
        let watcher = self.hub.watch(id, request.get_ref().after_sequence).await?;
        Ok(Response::new(follow(watcher, draining)))
    }

    async fn list_transitions(
        &self,
        request: Request<pb::ListTransitionsRequest>,
    ) -> Result<Response<pb::ListTransitionsResponse>, Status> {
        let id = fields::parse("id", &request.get_ref().id)?;
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
        let (id, reason) = ending(&request.get_ref().id, &request.get_ref().reason, 1)?;
        let withdrawal = self.withdrawals.reject(id, reason, &by).await?;
        Ok(Response::new(pb::RejectWithdrawalResponse { withdrawal: some(&withdrawal) }))
    }

    async fn cancel_withdrawal(
        &self,
        request: Request<pb::CancelWithdrawalRequest>,
    ) -> Result<Response<pb::CancelWithdrawalResponse>, Status> {
        let by = caller(&request)?;
        let (id, reason) = ending(&request.get_ref().id, &request.get_ref().reason, 0)?;
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
    let mut fields = Fields::new();
    let id = fields.parse("id", &request.id);
    let expires_at = fields.timestamp("expires_at", request.expires_at.as_ref());
    let signature = fields.bytes("signature", &request.signature);
    let parsed = id.zip(signature).zip(expires_at).map(|((id, signature), expires_at)| {
        // The signature covers whole seconds; a fraction of a second beyond it would be valid without being signed.
        (id, Consent { approver, signature, expires_at: expires_at.trunc_subsecs(0) })
    });
    fields.finish(parsed)
}

fn ending(id: &str, reason: &str, least: usize) -> Result<(WithdrawalId, String), Status> {
    let mut fields = Fields::new();
    let id = fields.parse("id", id);
    let reason = fields.text("reason", reason, least..=MAX_REASON_CHARS);
    fields.finish(id.zip(reason))
}

fn import_draft(request: pb::ImportWithdrawalRequest) -> Result<ImportDraft, Status> {
    let mut fields = Fields::new();
    let id = fields.parse("id", &request.id);
    let user_id = fields.parse("user_id", &request.user_id);
    let chain = fields.parse("chain", &request.chain);
    let asset = fields.parse("asset", &request.asset);
    let tx_hash = fields.parse("tx_hash", &request.tx_hash);
    let created_at = fields.timestamp("created_at", request.created_at.as_ref());
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
            created_at: to_micros(created_at?),
        })
    };
    let draft = build();
    fields.finish(draft)
}

fn window(request: &pb::GetStatisticsRequest) -> Result<Duration, Status> {
    let mut fields = Fields::new();
    let window = match &request.window {
        None => Some(DEFAULT_WINDOW),
        window => fields.duration("window", window.as_ref()),
    };
    let allowed = Duration::from_secs(1)..=MAX_WINDOW;
    fields.check(
        "window",
        window.is_none_or(|window| allowed.contains(&window)),
        "must be 1 second to 366 days",
    );
    fields.finish(window)
}

/// Everything that decides what the list contains, so that a token cannot be used with another filter.
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
    let mut fields = Fields::new();
    let size = fields.page_size(request.page_size).map(|size| size.min(MAX_PAGE) + 1);
    let after = fields.page_token::<2>(bound, &request.page_token).and_then(|[micros, id]| {
        let position = || {
            let created_at = chrono::DateTime::from_timestamp_micros(micros.parse().ok()?)?;
            Some((created_at, id.parse().ok()?))
        };
        fields.take("page_token", position().ok_or("is not a token from an earlier page of this list"))
    });
    let mut statuses = Vec::new();
    for value in &request.statuses {
        match pb::WithdrawalStatus::try_from(*value) {
            Ok(status) => statuses.push(convert::status_from(status)),
            Err(_) => fields.wrong("statuses", format_args!("{value} is not a status")),
        }
    }
    let filter = Filter {
        // One "any" among them admits all.
        statuses: statuses.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default(),
        user_id: fields.parse_optional("user_id", &request.user_id),
        chain: fields.parse_optional("chain", &request.chain),
        asset: fields.parse_optional("asset", &request.asset),
        destination: fields.parse_optional::<Address>("destination", &request.destination),
        created_from: fields.timestamp_optional("created_from", request.created_from.as_ref()).map(to_micros),
        created_to: fields.timestamp_optional("created_to", request.created_to.as_ref()).map(to_micros),
    };
    fields.finish(size.map(|size| Page { filter, after, size }))
}

/// When the server drains, the stream ends with an error and not as if the request had ended: the client resumes on another
/// instance after the last sequence it saw.
fn follow(watcher: Watcher, draining: Draining) -> TransitionStream {
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
