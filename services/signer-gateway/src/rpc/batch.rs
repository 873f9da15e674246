//! Many signing requests in one call: each keeps its own trace, result and refusal.

use http::{HeaderMap, HeaderValue};
use proto::signer::v1 as pb;
use proto::signer::v1::sign_transactions_outcome::Outcome;
use telemetry::propagation;
use tonic::Status;
use tracing::Span;

use super::parse::BatchItem;
use super::{show, status};
use crate::policy::SigningCaller;
use crate::signing::Signing;

/// Signs those that can be read, and returns all outcomes in their order.
pub(super) async fn sign(
    signing: &Signing,
    caller: &SigningCaller,
    items: Vec<BatchItem>,
) -> Vec<pb::SignTransactionsOutcome> {
    let (mut readable, mut spans, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for BatchItem { request, traceparent } in items {
        let span = open(&traceparent);
        spans.push(span.clone());
        match request {
            Ok(request) => {
                readable.push((request, span));
                refusals.push(None);
            }
            Err(refusal) => refusals.push(Some(refusal)),
        }
    }
    let mut results = signing.sign_batch(caller, readable).await.into_iter();
    let mut next = || match results.next() {
        Some(Ok(signed)) => Ok(show::signed(signed)),
        Some(Err(error)) => Err(status::signing(error)),
        None => Err(Status::internal("internal error")),
    };
    let outcomes = refusals.into_iter().zip(spans).map(|(refusal, span)| {
        let _within = span.entered();
        outcome(refusal.map_or_else(&mut next, Err))
    });
    outcomes.collect()
}

/// A span of the trace the payment belongs to. Without a valid `traceparent` it is a child of the call's own span.
fn open(traceparent: &str) -> Span {
    let span = tracing::info_span!("signer.sign");
    if let Ok(value) = HeaderValue::from_str(traceparent) {
        propagation::extract(&HeaderMap::from_iter([(TRACEPARENT, value)]), &span);
    }
    span
}

const TRACEPARENT: http::HeaderName = http::HeaderName::from_static("traceparent");

fn outcome(result: Result<pb::SignTransactionResponse, Status>) -> pb::SignTransactionsOutcome {
    // Logged under the target of whole calls, because in its own trace each request is a call.
    let outcome = match result {
        Ok(signed) => {
            tracing::debug!(target: "rpc", tx_hash = signed.tx_hash, code = "OK", "answered");
            Outcome::Signed(signed)
        }
        Err(refusal) => {
            tracing::info!(target: "rpc", code = ?refusal.code(), reason = refusal.message(), "refused");
            Outcome::Refused(pb::SignTransactionsRefusal {
                code: refusal.code().into(),
                message: refusal.message().to_owned(),
                details: refusal.details().to_vec(),
            })
        }
    };
    pb::SignTransactionsOutcome { outcome: Some(outcome) }
}
