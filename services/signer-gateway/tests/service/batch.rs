//! Many requests in one call: each is judged, guarded and answered as if it had come alone.

use std::collections::{BTreeSet, HashMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
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

#[tokio::test]
async fn each_is_answered_in_its_place_and_one_bad_one_spoils_no_other() {
    let gateway = Gateway::start().await;
    let mut requests: Vec<_> = (0..8).map(|nonce| Withdrawal::small(&gateway, nonce).request()).collect();
    // Approved for another amount, approved by too few, unreadable, and at a nonce of the first one.
    requests[2] = Withdrawal { amount: 2, ..Withdrawal::small(&gateway, 2) }.request();
    requests[3] =
        Withdrawal { amount: 3 * ETHER, ..Withdrawal::new(&gateway, 3) }.approved_by(&["alice"]).request();
    requests[4].chain = "NOT A CHAIN".to_owned();
    requests[5] = Withdrawal::small(&gateway, 0).request();
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
    let requests: Vec<_> = (0..6).map(|nonce| Withdrawal::small(&gateway, nonce).request()).collect();
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
    let request = Withdrawal::small(&gateway, 0).request();
    let answers = sign_together(&gateway, &[request.clone(), request]).await.expect("answered");
    let [first, second] = [0, 1].map(|place| answers[place].as_ref().expect("signed"));
    assert_eq!(first.raw_transaction, second.raw_transaction);
    assert_ne!(first.replayed, second.replayed);
}

#[tokio::test]
async fn a_call_with_none_or_too_many_is_refused_whole() {
    let gateway = Gateway::start().await;
    let request = Withdrawal::small(&gateway, 0).request();
    for count in [0, 257] {
        let refused = sign_together(&gateway, &vec![request.clone(); count]).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{count}");
    }
    assert!(!gateway.sign(&request).await.expect("signed").replayed, "nothing was signed before");
}

/// One random request: which of the round's payments it is for, and what it proposes.
#[derive(Debug, Clone)]
struct RandomRequest {
    payment: usize,
    attempt: u32,
    nonce: u64,
    fee: u128,
    cancels: bool,
    amount: u128,
    epoch: u64,
    attests: bool,
    approvals: usize,
}

fn random_request() -> impl Strategy<Value = RandomRequest> {
    let amount = prop_oneof![8 => Just(1), 1 => Just(2), 2 => Just(4 * ETHER)];
    let approvals = prop_oneof![6 => Just(2usize), 1 => Just(0)];
    let money = (0..4usize, 1..5u32, 0..4u64, 1..5u128, proptest::bool::weighted(0.25));
    (money, amount, 1..3u64, any::<bool>(), approvals).prop_map(
        |((payment, attempt, nonce, fee, cancels), amount, epoch, attests, approvals)| RandomRequest {
            payment,
            attempt,
            nonce,
            fee,
            cancels,
            amount,
            epoch,
            attests,
            approvals,
        },
    )
}

/// The payments of one round, and the transactions that were signed for their jobs so far.
struct Round {
    payments: [Withdrawal; 4],
    first_nonce: u64,
    signed: HashMap<String, BTreeSet<String>>,
}

impl Round {
    fn new(gateway: &Gateway, first_nonce: u64) -> Self {
        let payments = [0; 4].map(|_| Withdrawal::new(gateway, 0));
        Self { payments, first_nonce, signed: HashMap::new() }
    }

    fn request(&self, random: &RandomRequest) -> pb::SignTransactionRequest {
        let payment = &self.payments[random.payment];
        let job = payment.job.to_string();
        let hashes: Vec<&str> = self.signed.get(&job).into_iter().flatten().map(String::as_str).collect();
        let withdrawal = Withdrawal {
            attempt: random.attempt,
            nonce: self.first_nonce + random.nonce,
            max_fee: random.fee * 1_000_000_000,
            amount: random.amount,
            epoch: random.epoch,
            void: random.attests.then(|| attestation(payment.job, &hashes, &confirmation())),
            ..payment.clone()
        };
        let withdrawal = withdrawal.approved_by(&["alice", "bob"][..random.approvals]);
        if random.cancels { withdrawal.cancellation() } else { withdrawal.request() }
    }
}

type Comparable = Result<(Vec<u8>, String, bool), (Code, String, Option<String>)>;

fn comparable(result: &Result<pb::SignTransactionResponse, Status>) -> Comparable {
    match result {
        Ok(signed) => Ok((signed.raw_transaction.clone(), signed.tx_hash.clone(), signed.replayed)),
        Err(status) => Err((status.code(), status.message().to_owned(), rpc::error::reason_of(status))),
    }
}

/// Every row that signing writes, without times and without the ids of groups, which differ between two gateways.
async fn rows(gateway: &Gateway) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT 'payment ' || (to_jsonb(payments) - 'first_paid_at' - 'updated_at')::text FROM payments \
         UNION ALL SELECT 'slot ' || to_jsonb(slots)::text FROM slots \
         UNION ALL SELECT 'fence ' || to_jsonb(fences)::text FROM fences \
         UNION ALL SELECT 'record ' || (to_jsonb(signing_records) - 'request' - 'signed_at')::text \
             FROM signing_records \
         UNION ALL SELECT concat_ws(' ', 'usage', chain, counter, sum(amount)) FROM limit_usage GROUP BY chain, counter \
         UNION ALL SELECT concat_ws(' ', 'log', sequence, caller, action, decision, reason) FROM audit_log \
         ORDER BY 1",
    )
    .fetch_all(&gateway.database.pool().await)
    .await
    .expect("read")
}

#[tokio::test]
async fn random_batches_decide_and_write_what_the_same_requests_do_one_by_one() {
    let (mut runner, batches) = (TestRunner::default(), vec(random_request(), 1..12));
    let (batch_gateway, single_gateway) = tokio::join!(Gateway::start(), Gateway::start());
    let (mut granted, mut refused) = (0, HashSet::new());
    for round in 0..24 {
        let mut payments = Round::new(&batch_gateway, 10 * round);
        // The second batch of a round meets what the first one left.
        for _ in 0..2 {
            let batch = batches.new_tree(&mut runner).expect("a batch").current();
            let requests: Vec<_> = batch.iter().map(|random| payments.request(random)).collect();
            let together = sign_together(&batch_gateway, &requests).await.expect("answered");
            for (request, result) in requests.iter().zip(&together) {
                let wallet_group_id = single_gateway.operation_group.clone();
                let alone = pb::SignTransactionRequest { wallet_group_id, ..request.clone() };
                let alone = single_gateway.sign(&alone).await;
                assert_eq!(comparable(result), comparable(&alone), "{batch:#?}");
                match comparable(result) {
                    Ok((_, tx_hash, _)) => {
                        granted += 1;
                        payments.signed.entry(request.job_id.clone()).or_default().insert(tx_hash);
                    }
                    Err((_, _, reason)) => _ = refused.insert(reason),
                }
            }
        }
    }
    assert_eq!(rows(&batch_gateway).await, rows(&single_gateway).await);
    assert!(granted > 24 && refused.len() > 5, "{granted} granted, refused for {refused:?}");
    assert!(batch_gateway.verify(None).await.intact);
}
