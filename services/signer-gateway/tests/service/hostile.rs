//! A caller that has execution's key and wants to pay somebody else, more, or twice.

use chrono::{TimeDelta, Utc};
use proto::signer::v1 as pb;
use tonic::Code;
use types::{JobId, WithdrawalId};

use crate::support::*;

#[tokio::test]
async fn an_approved_withdrawal_is_signed_and_every_change_of_it_refused() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let denied = Code::PermissionDenied;

    // Before the payment was ever signed: the approvals do not cover the change.
    let elsewhere = Withdrawal { to: STRANGER.to_owned(), ..good.clone() };
    gateway.refused(&elsewhere.request(), denied, "approvals.signature").await;
    let more = Withdrawal { amount: good.amount + 1, ..good.clone() };
    gateway.refused(&more.request(), denied, "approvals.signature").await;
    let other_asset = Withdrawal { token: true, amount: 1_000, ..good.clone() };
    gateway.refused(&other_asset.request(), denied, "approvals.signature").await;
    let other_payment = Withdrawal { id: WithdrawalId::new(), ..good.clone() };
    gateway.refused(&other_payment.request(), denied, "approvals.signature").await;
    let mut other_contract =
        Withdrawal { token: true, amount: 1_000, ..good.clone() }.approved_by(&["alice", "bob"]).request();
    if let Some(pb::tx_intent::Action::Erc20Transfer(it)) =
        other_contract.tx_intent.as_mut().and_then(|intent| intent.action.as_mut())
    {
        it.contract_address = STRANGER.to_owned();
    }
    gateway.refused(&other_contract, denied, "asset.contract").await;

    let signed = gateway.sign(&good.request()).await.expect("signed");
    assert_eq!(signed.from_address, HOT);

    // Afterwards, with approvals that cover the change: the guard knows what was signed.
    let next = Withdrawal { attempt: 2, max_fee: good.max_fee * 2, ..good.clone() };
    for changed in [
        Withdrawal { to: STRANGER.to_owned(), ..next.clone() },
        Withdrawal { amount: good.amount + 1, ..next.clone() },
        Withdrawal { token: true, amount: 1_000, ..next.clone() },
    ] {
        let request = changed.approved_by(&["alice", "bob"]).request();
        gateway.refused(&request, Code::FailedPrecondition, "payment_guard.terms_changed").await;
    }
    let second_nonce = Withdrawal { nonce: 1, ..next.clone() };
    gateway.refused(&second_nonce.request(), Code::FailedPrecondition, "payment_guard.second_nonce").await;
    let other_job = Withdrawal { job: JobId::new(), ..next.clone() };
    gateway.refused(&other_job.request(), Code::FailedPrecondition, "payment_guard.bound").await;
    let mut other_wallet = next.request();
    other_wallet.derivation_index = 1;
    gateway.refused(&other_wallet, denied, "source.address").await;
    if let Some(pb::tx_intent::Action::NativeTransfer(it)) =
        other_wallet.tx_intent.as_mut().and_then(|intent| intent.action.as_mut())
    {
        it.from = gateway
            .operator
            .clone()
            .derive_addresses(pb::DeriveAddressesRequest {
                wallet_group_id: gateway.operation_group.clone(),
                address_format: "evm".to_owned(),
                from_index: 1,
                count: 1,
            })
            .await
            .expect("derived")
            .into_inner()
            .addresses[0]
            .address
            .clone();
        it.to = STRANGER.to_owned();
    }
    let moved = Withdrawal { to: STRANGER.to_owned(), ..next.clone() }.approved_by(&["alice", "bob"]);
    other_wallet.authorization = moved.request().authorization;
    gateway.refused(&other_wallet, Code::FailedPrecondition, "payment_guard.bound").await;

    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn a_deposit_group_never_pays_a_withdrawal() {
    let gateway = Gateway::start().await;
    let mut request = Withdrawal::new(&gateway, 0).request();
    request.wallet_group_id = gateway.deposit_group.clone();
    request.derivation_index = 7;
    if let Some(pb::tx_intent::Action::NativeTransfer(it)) =
        request.tx_intent.as_mut().and_then(|intent| intent.action.as_mut())
    {
        it.from = gateway.deposit_address.clone();
    }
    gateway.refused(&request, Code::PermissionDenied, "source.purpose").await;
    request.wallet_group_id = types::WalletGroupId::new().to_string();
    assert_eq!(gateway.sign(&request).await.expect_err("unknown group").code(), Code::NotFound);
}

#[tokio::test]
async fn approvals_are_counted_as_the_signers_own_policy_says() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let denied = Code::PermissionDenied;
    let cases = [
        (good.clone().approved_by(&[]), "approvals.too_few"),
        (good.clone().approved_by(&["alice"]), "approvals.too_few"),
        (good.clone().approved_by(&["alice", "alice"]), "approvals.same_person"),
        (good.clone().approved_by(&["alice", "alice-phone"]), "approvals.same_person"),
        (good.clone().approved_by(&["alice", "mallory"]), "approvals.unknown_approver"),
        (
            Withdrawal { requested_by: "bob".to_owned(), ..good.clone() }.approved_by(&["alice", "bob"]),
            "approvals.requester",
        ),
        (
            Withdrawal { requested_by: "alice".to_owned(), ..good.clone() }
                .approved_by(&["bob", "alice-phone"]),
            "approvals.requester",
        ),
        (
            Withdrawal { requested_by: "alice-phone".to_owned(), ..good.clone() }
                .approved_by(&["bob", "alice"]),
            "approvals.requester",
        ),
        (
            Withdrawal { on_behalf_of: "bob".to_owned(), ..good.clone() }.approved_by(&["alice", "bob"]),
            "approvals.requester",
        ),
        (
            Withdrawal { on_behalf_of: "alice".to_owned(), ..good.clone() }
                .approved_by(&["bob", "alice-phone"]),
            "approvals.requester",
        ),
        (
            good.clone().approved_until(&["alice", "bob"], Utc::now() - TimeDelta::seconds(1)),
            "approvals.expired",
        ),
        (
            good.clone().approved_until(&["alice", "bob"], Utc::now() + TimeDelta::days(8)),
            "approvals.validity",
        ),
    ];
    for (withdrawal, reason) in cases {
        gateway.refused(&withdrawal.request(), denied, reason).await;
    }
    let mut stretched = good.clone();
    stretched.approvals[0].expires_at = Some(proto::time::timestamp(Utc::now() + TimeDelta::days(6)));
    gateway.refused(&stretched.request(), denied, "approvals.signature").await;
    let mut borrowed = good.clone();
    borrowed.approvals[0].approver = "carol".to_owned();
    gateway.refused(&borrowed.request(), denied, "approvals.signature").await;
    gateway.sign(&good.request()).await.expect("two distinct approvers suffice");
}

#[tokio::test]
async fn approvals_of_one_payment_pay_nothing_else_however_often_they_are_replayed() {
    let gateway = Gateway::start().await;
    let paid = Withdrawal::new(&gateway, 0);
    gateway.sign(&paid.request()).await.expect("signed");
    // The same approvals under a fresh withdrawal id, job and nonce: the digest names the id.
    let replay = Withdrawal { id: WithdrawalId::new(), job: JobId::new(), nonce: 1, ..paid.clone() };
    gateway.refused(&replay.request(), Code::PermissionDenied, "approvals.signature").await;
    // The same withdrawal under a fresh job: the guard knows the payment.
    let rejob = Withdrawal { job: JobId::new(), nonce: 1, ..paid.clone() };
    gateway.refused(&rejob.request(), Code::FailedPrecondition, "payment_guard.bound").await;
}

#[tokio::test]
async fn one_nonce_serves_one_payment_ever() {
    let gateway = Gateway::start().await;
    let first = Withdrawal::new(&gateway, 5);
    gateway.sign(&first.request()).await.expect("signed");
    let second = Withdrawal::new(&gateway, 5);
    gateway.refused(&second.request(), Code::FailedPrecondition, "payment_guard.nonce_spent").await;
    gateway.refused(&second.cancellation(), Code::FailedPrecondition, "payment_guard.nonce_spent").await;
}

#[tokio::test]
async fn two_concurrent_requests_for_one_payment_at_different_nonces_have_one_winner() {
    let gateway = Gateway::start().await;
    for round in 0..8u64 {
        let first = Withdrawal { amount: 1, ..Withdrawal::new(&gateway, 100 + 2 * round) };
        let first = first.approved_by(&["alice", "bob"]);
        let second = Withdrawal { attempt: 2, nonce: first.nonce + 1, ..first.clone() };
        let (first_request, second_request) = (first.request(), second.request());
        let (a, b) = tokio::join!(gateway.sign(&first_request), gateway.sign(&second_request));
        assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
        let refused = a.err().or(b.err()).expect("one refusal");
        assert_eq!(rpc::error::reason_of(&refused).as_deref(), Some("PAYMENT_GUARD_SECOND_NONCE"));
    }
    let pool = gateway.database.pool().await;
    let nonces: i64 =
        sqlx::query_scalar("SELECT max(n) FROM (SELECT count(*) AS n FROM slots GROUP BY payment) AS s")
            .fetch_one(&pool)
            .await
            .expect("counted");
    assert_eq!(nonces, 1);
}

#[tokio::test]
async fn an_older_lease_is_refused_even_for_bytes_signed_before() {
    let gateway = Gateway::start().await;
    let old = Withdrawal::new(&gateway, 0);
    let signed = gateway.sign(&old.request()).await.expect("signed");
    let taken_over = Withdrawal { epoch: 2, ..old.clone() };
    let again = gateway.sign(&taken_over.request()).await.expect("the new owner gets the same bytes");
    assert_eq!((again.raw_transaction, again.replayed), (signed.raw_transaction, true));
    gateway.refused(&old.request(), Code::Aborted, "fence.stale").await;
    let bump = Withdrawal { attempt: 2, max_fee: old.max_fee * 2, ..old.clone() };
    gateway.refused(&bump.request(), Code::Aborted, "fence.stale").await;
    // A refused request proves no lease: the fence stays where the owner left it.
    let bogus = Withdrawal { epoch: 99, attempt: 3, nonce: 9, ..old.clone() };
    gateway.refused(&bogus.request(), Code::FailedPrecondition, "payment_guard.second_nonce").await;
    gateway.sign(&taken_over.request()).await.expect("still the owner");
}

#[tokio::test]
async fn only_confirmations_word_opens_a_new_nonce() {
    let gateway = Gateway::start().await;
    let first = Withdrawal::new(&gateway, 0);
    let paid = gateway.sign(&first.request()).await.expect("signed");
    let bump = Withdrawal { attempt: 2, max_fee: first.max_fee * 2, ..first.clone() };
    let bumped = gateway.sign(&bump.request()).await.expect("bumped");
    let both = [paid.tx_hash.as_str(), bumped.tx_hash.as_str()];

    let next = Withdrawal { attempt: 3, nonce: 1, ..first.clone() };
    let with = |void| Withdrawal { void: Some(void), ..next.clone() }.request();
    let forged = attestation(first.job, &both, &approver("alice"));
    gateway.refused(&with(forged), Code::PermissionDenied, "void_attestation.signature").await;
    let partial = attestation(first.job, &both[..1], &confirmation());
    gateway.refused(&with(partial), Code::FailedPrecondition, "payment_guard.void_incomplete").await;
    let foreign = attestation(JobId::new(), &both, &confirmation());
    gateway.refused(&with(foreign), Code::FailedPrecondition, "payment_guard.void_other_job").await;
    let mut altered = attestation(first.job, &both[..1], &confirmation());
    altered.tx_hashes = both.iter().map(|hash| (*hash).to_owned()).collect();
    gateway.refused(&with(altered), Code::PermissionDenied, "void_attestation.signature").await;

    let real = attestation(first.job, &both, &confirmation());
    let third = gateway.sign(&with(real.clone())).await.expect("a new nonce");
    assert_ne!(third.tx_hash, paid.tx_hash);
    // The same proof does not open yet another one, nor does it lead back.
    let again = Withdrawal { attempt: 4, nonce: 2, void: Some(real.clone()), ..first.clone() };
    gateway.refused(&again.request(), Code::FailedPrecondition, "payment_guard.void_incomplete").await;
    let all = attestation(first.job, &[both[0], both[1], &third.tx_hash], &confirmation());
    let back = Withdrawal { attempt: 5, nonce: 0, void: Some(all), ..first.clone() };
    gateway.refused(&back.request(), Code::FailedPrecondition, "payment_guard.nonce_spent").await;
}

#[tokio::test]
async fn a_payment_closed_at_its_nonce_is_signed_at_another_only_with_proof_of_that() {
    let gateway = Gateway::start().await;
    let first = Withdrawal::new(&gateway, 0);
    let paid = gateway.sign(&first.request()).await.expect("signed");
    // No node takes the payment, so the cancellation need not outbid it.
    let closing = Withdrawal { attempt: 2, max_fee: first.max_fee / 2, ..first.clone() };
    let closed = gateway.sign(&closing.cancellation()).await.expect("closed");
    let late = Withdrawal { attempt: 3, max_fee: first.max_fee * 2, ..first.clone() };
    gateway.refused(&late.request(), Code::FailedPrecondition, "payment_guard.cancelled").await;
    let next = Withdrawal { attempt: 3, nonce: 1, ..first.clone() };
    gateway.refused(&next.request(), Code::FailedPrecondition, "payment_guard.second_nonce").await;
    let void = attestation(first.job, &[&paid.tx_hash, &closed.tx_hash], &confirmation());
    let proven = Withdrawal { void: Some(void), ..next };
    gateway.sign(&proven.request()).await.expect("with proof");
}

#[tokio::test]
async fn fee_bumps_and_cancellations_stay_at_the_nonce_and_within_their_caps() {
    let gateway = Gateway::start().await;
    let first = Withdrawal::new(&gateway, 0);
    gateway.sign(&first.request()).await.expect("signed");
    let bump = |attempt, max_fee| Withdrawal { attempt, max_fee, ..first.clone() };
    let cheaper = bump(2, first.max_fee - 1);
    gateway.refused(&cheaper.request(), Code::FailedPrecondition, "payment_guard.fee_not_higher").await;
    let absurd = bump(2, 200_000_000_000);
    gateway.refused(&absurd.request(), Code::PermissionDenied, "fee.cap").await;
    for attempt in 2..5 {
        let dearer = bump(attempt, first.max_fee + u128::from(attempt) * 1_000_000_000);
        gateway.sign(&dearer.request()).await.expect("bumped");
    }
    let fourth = bump(5, 20_000_000_000);
    gateway.refused(&fourth.request(), Code::FailedPrecondition, "payment_guard.too_many_bumps").await;

    let elsewhere = Withdrawal { nonce: 1, ..bump(6, 20_000_000_000) };
    gateway.refused(&elsewhere.cancellation(), Code::FailedPrecondition, "payment_guard.second_nonce").await;
    let cancelled = gateway.sign(&bump(6, 20_000_000_000).cancellation()).await.expect("cancelled");
    assert_ne!(cancelled.raw_transaction, Vec::<u8>::new());
    let after = bump(7, 30_000_000_000);
    gateway.refused(&after.request(), Code::FailedPrecondition, "payment_guard.cancelled").await;
    // A replacement needs no fresh approvals: the payment was authorised when it was first signed.
    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn sweeps_go_to_registered_wallets_and_top_ups_to_deposit_wallets_only() {
    let mut gateway = Gateway::start().await;
    let (deposits, deposit) = (gateway.deposit_group.clone(), gateway.deposit_address.clone());
    let sweep = |to: &str| {
        own_transfer(&deposits, (&deposit, 7), (to, ETHER), |job_id| {
            pb::authorization::Kind::Sweep(pb::SweepAuthorization { job_id, asset: "BNB".to_owned() })
        })
    };
    gateway.refused(&sweep(HOT), Code::PermissionDenied, "destination.sweep").await;
    gateway.register_hot().await;
    gateway.sign(&sweep(HOT)).await.expect("swept");
    gateway.refused(&sweep(STRANGER), Code::PermissionDenied, "destination.sweep").await;
    let own = Withdrawal { to: HOT.to_owned(), ..Withdrawal::new(&gateway, 3) };
    let own = own.approved_by(&["alice", "bob"]);
    gateway.refused(&own.request(), Code::PermissionDenied, "destination.self").await;

    let hot = gateway.operation_group.clone();
    let top_up = |to: &str, index, amount| {
        own_transfer(&hot, (HOT, 0), (to, amount), |job_id| {
            pb::authorization::Kind::TopUp(pb::TopUpAuthorization {
                job_id,
                destination_group_id: deposits.clone(),
                destination_index: index,
            })
        })
    };
    let cap = 50_000_000_000_000_000u128;
    gateway.refused(&top_up(STRANGER, 7, 1), Code::PermissionDenied, "destination.top_up").await;
    gateway.refused(&top_up(&deposit, 8, 1), Code::PermissionDenied, "destination.top_up").await;
    gateway.refused(&top_up(&deposit, 7, cap + 1), Code::PermissionDenied, "limit.transaction").await;
    gateway.sign(&top_up(&deposit, 7, cap)).await.expect("topped up");
    let mut named_otherwise = top_up(&deposit, 7, 1);
    if let Some(pb::authorization::Kind::TopUp(it)) =
        named_otherwise.authorization.as_mut().and_then(|authorization| authorization.kind.as_mut())
    {
        it.job_id = JobId::new().to_string();
    }
    assert_eq!(gateway.sign(&named_otherwise).await.expect_err("other job").code(), Code::InvalidArgument);
}

#[tokio::test]
async fn duties_call_listed_methods_only() {
    let gateway = Gateway::start().await;
    let call = |selector: &str, contract: &str| {
        let job = JobId::new();
        let mut request = Withdrawal::new(&gateway, 0).request();
        let mut data = alloy_primitives::keccak256(selector.as_bytes())[..4].to_vec();
        data.extend_from_slice(&[0; 32]);
        request.idempotency_key = format!("{job}/1");
        request.job_id = job.to_string();
        request.tx_intent = Some(pb::TxIntent {
            action: Some(pb::tx_intent::Action::ContractCall(pb::ContractCall {
                from: HOT.to_owned(),
                contract_address: contract.to_owned(),
                data,
            })),
        });
        let duty_id = format!("activity-{job}");
        request.authorization = Some(pb::Authorization {
            kind: Some(pb::authorization::Kind::Duty(pb::DutyAuthorization { duty_id })),
            void_attestation: None,
        });
        request
    };
    let steal = call("transfer(address,uint256)", TOKEN);
    gateway.refused(&steal, Code::PermissionDenied, "destination.method").await;
    let elsewhere = call("claim(uint256)", STRANGER);
    gateway.refused(&elsewhere, Code::PermissionDenied, "destination.method").await;
    gateway.sign(&call("claim(uint256)", TOKEN)).await.expect("claimed");
    // A duty's authorisation signs nothing but calls.
    let mut payment = Withdrawal::new(&gateway, 1).request();
    payment.authorization = call("claim(uint256)", TOKEN).authorization;
    gateway.refused(&payment, Code::PermissionDenied, "asset.action").await;
}
