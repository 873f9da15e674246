//! Many requests in one call: each judged, guarded and answered as if it had come alone.

use proto::signer::v1 as pb;
use proto::signer::v1::sign_transactions_outcome::Outcome;
use sqlx::{AssertSqlSafe, Executor};
use tonic::{Code, Status};

use crate::support::*;

/// Asks for these in one call; refusals as the statuses a call each would have got.
async fn sign_together(
    gateway: &Gateway,
    requests: &[pb::SignTransactionRequest],
) -> Result<Vec<Result<pb::SignTransactionResponse, Status>>, Status> {
    let item = |request: &pb::SignTransactionRequest| pb::SignTransactionsItem {
        request: Some(request.clone()),
        traceparent: String::new(),
    };
    let call = pb::SignTransactionsRequest { items: requests.iter().map(item).collect() };
    let outcomes = gateway.service.clone().sign_transactions(call).await?.into_inner().outcomes;
    Ok(outcomes
        .into_iter()
        .map(|outcome| match outcome.outcome.expect("an outcome") {
            Outcome::Signed(signed) => Ok(signed),
            Outcome::Refused(no) => {
                Err(Status::with_details(Code::from_i32(no.code), no.message, no.details.into()))
            }
        })
        .collect())
}

fn payment(gateway: &Gateway, nonce: u64) -> Withdrawal {
    Withdrawal { amount: 1, ..Withdrawal::new(gateway, nonce) }.approved_by(&["alice", "bob"])
}

#[tokio::test]
async fn each_is_answered_in_its_place_and_one_bad_one_spoils_no_other() {
    let gateway = Gateway::start().await;
    let mut requests: Vec<_> = (0..8).map(|nonce| payment(&gateway, nonce).request()).collect();
    // Approved for another amount, approved by too few, unreadable, and at a nonce of the first one.
    requests[2] = Withdrawal { amount: 2, ..payment(&gateway, 2) }.request();
    requests[3] =
        Withdrawal { amount: 3 * ETHER, ..Withdrawal::new(&gateway, 3) }.approved_by(&["alice"]).request();
    requests[4].chain = "NOT A CHAIN".to_owned();
    requests[5] = payment(&gateway, 0).request();
    let answers = sign_together(&gateway, &requests).await.expect("answered");
    let reasons: Vec<Option<String>> =
        answers.iter().map(|answer| answer.as_ref().err().and_then(rpc::error::reason_of)).collect();
    let signed: Vec<usize> = (0..8).filter(|place| answers[*place].is_ok()).collect();
    assert_eq!(signed, [0, 1, 6, 7], "{reasons:?}");
    assert_eq!(reasons[2].as_deref(), Some("APPROVALS_SIGNATURE"));
    assert_eq!(reasons[3].as_deref(), Some("APPROVALS_TOO_FEW"));
    assert_eq!(answers[4].as_ref().expect_err("unreadable").code(), Code::InvalidArgument);
    assert_eq!(answers[5].as_ref().expect_err("refused").code(), Code::FailedPrecondition);
    for place in signed {
        let alone = gateway.sign(&requests[place]).await.expect("replayed");
        let together = answers[place].as_ref().expect("signed");
        assert!(alone.replayed && !together.replayed);
        assert_eq!(alone.raw_transaction, together.raw_transaction);
    }
    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn a_request_that_cannot_be_written_takes_no_neighbour_down() {
    let gateway = Gateway::start().await;
    let requests: Vec<_> = (0..6).map(|nonce| payment(&gateway, nonce).request()).collect();
    let pool = gateway.database.pool().await;
    let spoil = format!(
        "ALTER TABLE signing_records ADD CONSTRAINT spoilt CHECK (idempotency_key <> '{}')",
        requests[2].idempotency_key
    );
    pool.execute(AssertSqlSafe(spoil)).await.expect("spoilt");
    let answers = sign_together(&gateway, &requests).await.expect("answered");
    let signed: Vec<usize> = (0..6).filter(|place| answers[*place].is_ok()).collect();
    assert_eq!(signed, [0, 1, 3, 4, 5], "{answers:?}");
    assert_eq!(answers[2].as_ref().expect_err("cannot be written").code(), Code::Internal);
    pool.execute("ALTER TABLE signing_records DROP CONSTRAINT spoilt").await.expect("mended");
    let late = gateway.sign(&requests[2]).await.expect("signed");
    assert!(!late.replayed, "nothing of it was kept before");
    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn the_same_request_twice_in_one_call_is_signed_once() {
    let gateway = Gateway::start().await;
    let request = payment(&gateway, 0).request();
    let answers = sign_together(&gateway, &[request.clone(), request]).await.expect("answered");
    let [first, second] = [0, 1].map(|place| answers[place].as_ref().expect("signed"));
    assert_eq!(first.raw_transaction, second.raw_transaction);
    assert_ne!(first.replayed, second.replayed);
}

#[tokio::test]
async fn a_call_with_none_or_too_many_is_refused_whole() {
    let gateway = Gateway::start().await;
    let request = payment(&gateway, 0).request();
    for count in [0, 257] {
        let refused = sign_together(&gateway, &vec![request.clone(); count]).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{count}");
    }
    assert!(!gateway.sign(&request).await.expect("signed").replayed, "nothing was signed before");
}
