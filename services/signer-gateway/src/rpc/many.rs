//! Many signing requests in one call: each keeps its own trace, answer and refusal.

use http::{HeaderMap, HeaderValue};
use proto::signer::v1 as pb;
use proto::signer::v1::sign_transactions_outcome::Outcome;
use telemetry::propagation;
use tonic::Status;
use tracing::Span;

use super::parse::Item;
use super::{show, status};
use crate::policy::Asker;
use crate::signing::Signing;

/// Signs those that can be read, and answers all in their order.
pub(super) async fn sign(
    signing: &Signing,
    asker: &Asker,
    items: Vec<Item>,
) -> Vec<pb::SignTransactionsOutcome> {
    let (mut readable, mut spans, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for Item { request, traceparent } in items {
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
    let mut answers = signing.sign_many(asker, readable).await.into_iter();
    let mut next = || match answers.next() {
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

/// A span of the trace the payment belongs to. An empty or broken one begins a trace of its own under the call's span.
fn open(traceparent: &str) -> Span {
    let span = tracing::info_span!("signer.sign");
    if let Ok(value) = HeaderValue::from_str(traceparent) {
        propagation::extract(&HeaderMap::from_iter([(TRACEPARENT, value)]), &span);
    }
    span
}

const TRACEPARENT: http::HeaderName = http::HeaderName::from_static("traceparent");

fn outcome(answer: Result<pb::SignTransactionResponse, Status>) -> pb::SignTransactionsOutcome {
    // Under the target of whole calls: each of these is one to whoever follows its trace.
    let outcome = match answer {
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
