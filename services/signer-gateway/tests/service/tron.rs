//! TRON has no nonces: a second signature is a second payment.

use chrono::{TimeDelta, Utc};
use proto::signer::v1 as pb;
use tonic::Code;
use types::{Address, AddressFormat, JobId, Payment, PaymentDigest, RawAmount, WithdrawalId};

use crate::support::*;

const FROM: &str = "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6";
const TO: &str = "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC";

fn request(
    gateway: &Gateway,
    id: WithdrawalId,
    job: JobId,
    (attempt, timestamp_ms): (u32, i64),
    void_attestation: Option<pb::VoidAttestation>,
) -> pb::SignTransactionRequest {
    let digest = PaymentDigest::compute(&Payment {
        id,
        chain: &"tron".parse().expect("chain"),
        asset: &"TRX".parse().expect("asset"),
        destination: &Address::parse(AddressFormat::Tron, TO).expect("address"),
        amount: RawAmount::from(1_000_000u64),
    });
    let transfer = pb::SendTrx { from: FROM.to_owned(), to: TO.to_owned(), amount_sun: "1000000".to_owned() };
    let authorization = pb::WithdrawalAuthorization {
        on_behalf_of: String::new(),
        withdrawal_id: id.to_string(),
        asset: "TRX".to_owned(),
        requested_by: "rita".to_owned(),
        approvals: vec![approval(digest, "alice", Utc::now() + TimeDelta::hours(1))],
    };
    pb::SignTransactionRequest {
        idempotency_key: format!("{job}/{attempt}"),
        chain: "tron".to_owned(),
        wallet_group_id: gateway.operation_group.clone(),
        derivation_index: 0,
        tx_intent: Some(pb::TxIntent { action: Some(pb::tx_intent::Action::SendTrx(transfer)) }),
        parameters: Some(pb::sign_transaction_request::Parameters::Tron(pb::TronParameters {
            ref_block_bytes: vec![0x26, 0x6b],
            ref_block_hash: vec![0xf6, 0xb6, 0xd3, 0x92, 0xf6, 0x54, 0xdc, 0x2e],
            expiration_ms: timestamp_ms + 60_000,
            timestamp_ms,
            fee_limit_sun: 0,
        })),
        authorization: Some(pb::Authorization {
            kind: Some(pb::authorization::Kind::Withdrawal(authorization)),
            void_attestation,
        }),
        job_id: job.to_string(),
        lease_epoch: 1,
    }
}

#[tokio::test]
async fn a_payment_is_signed_once_until_confirmation_proves_it_void() {
    let gateway = Gateway::start().await;
    let (id, job) = (WithdrawalId::new(), JobId::new());
    let now_ms = Utc::now().timestamp_millis();
    let first = gateway.sign(&request(&gateway, id, job, (1, now_ms), None)).await.expect("signed");
    let again = gateway.sign(&request(&gateway, id, job, (1, now_ms), None)).await.expect("replayed");
    assert_eq!(again.raw_transaction, first.raw_transaction);
    // One millisecond later is another transaction, hence another payment.
    let second = request(&gateway, id, job, (2, now_ms + 1), None);
    gateway.refused(&second, Code::FailedPrecondition, "payment_guard.second_transaction").await;
    let void = attestation(job, &[&first.tx_hash], &confirmation());
    let next = gateway.sign(&request(&gateway, id, job, (2, now_ms + 1), Some(void))).await.expect("new");
    assert_ne!(next.tx_hash, first.tx_hash);
    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn a_transaction_for_another_time_is_not_signed() {
    let gateway = Gateway::start().await;
    let now_ms = Utc::now().timestamp_millis();
    let (minute, hour) = (60_000, 3_600_000);
    let expiring = |expiration_ms: i64| {
        // The helper's window is a minute.
        request(&gateway, WithdrawalId::new(), JobId::new(), (1, expiration_ms - minute), None)
    };
    for wrong in [now_ms - hour - minute, now_ms + 25 * hour + minute, 1_777_445_307_123, i64::MAX / 2] {
        gateway.refused(&expiring(wrong), Code::PermissionDenied, "tron.expiration").await;
    }
    for right in [now_ms - hour + minute, now_ms, now_ms + 25 * hour - minute] {
        gateway.sign(&expiring(right)).await.expect("signed");
    }
}

/// The settings with another line in TRON's section.
fn tron_with(gateway: &Gateway, was: &str, now: &str) -> String {
    let settings = gateway.settings();
    let (before, tron) = settings.split_once("[chains.tron]").expect("TRON's section");
    assert!(tron.contains(was));
    format!("{before}[chains.tron]{}", tron.replacen(was, now, 1))
}

#[tokio::test]
async fn what_tron_burns_beside_the_fee_limit_counts_against_the_caps() {
    let gateway = Gateway::start().await;
    let now_ms = Utc::now().timestamp_millis();
    let (id, job) = (WithdrawalId::new(), JobId::new());
    let transfer = request(&gateway, id, job, (1, now_ms), None);
    let max_fee = "max_fee = \"100000000\"";
    // A transfer of TRX has no fee limit, and yet burns bandwidth and opens an account: some 1.37 TRX.
    let low = tron_with(&gateway, max_fee, "max_fee = \"1300000\"");
    gateway.running.reload(&low).expect("reloaded");
    gateway.refused(&transfer, Code::PermissionDenied, "fee.cap").await;
    let window = format!("{max_fee}\nfee_window = {{ window_s = 3600, amount = \"2000000\" }}");
    gateway.running.reload(&tron_with(&gateway, max_fee, &window)).expect("reloaded");
    let signed = gateway.sign(&transfer).await.expect("signed");
    let used = || {
        gateway.count(
            "SELECT coalesce(sum(amount), 0)::bigint FROM limit_usage WHERE chain = 'tron' AND counter = 'fee'",
        )
    };
    let bytes = i64::try_from(signed.raw_transaction.len()).expect("short");
    assert_eq!(used().await, (bytes + 64) * 1_000 + 1_100_000);
    // The very same transaction under another key burns nothing more.
    let same = request(&gateway, id, job, (2, now_ms), None);
    assert_eq!(gateway.sign(&same).await.expect("the same").raw_transaction, signed.raw_transaction);
    assert_eq!(used().await, (bytes + 64) * 1_000 + 1_100_000);
    let another = request(&gateway, WithdrawalId::new(), JobId::new(), (1, now_ms), None);
    gateway.refused(&another, Code::ResourceExhausted, "limit.window").await;
}
