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
    native(&mut other_wallet).from = gateway.derive(&gateway.operation_group, 1).await;
    native(&mut other_wallet).to = STRANGER.to_owned();
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
    native(&mut request).from = gateway.deposit_address.clone();
    gateway.refused(&request, Code::PermissionDenied, "source.purpose").await;
    request.wallet_group_id = types::WalletGroupId::new().to_string();
    assert_eq!(gateway.sign(&request).await.expect_err("unknown group").code(), Code::NotFound);
}

#[tokio::test]
async fn approvals_are_counted_as_the_signers_own_policy_says() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let denied = Code::PermissionDenied;
    let by = |name: &str| Withdrawal { requested_by: name.to_owned(), ..good.clone() };
    let on_behalf_of = |name: &str| Withdrawal { on_behalf_of: name.to_owned(), ..good.clone() };
    let valid_for = |time| good.clone().approved_until(&["alice", "bob"], Utc::now() + time);
    let cases = [
        (good.clone().approved_by(&[]), "approvals.too_few"),
        (good.clone().approved_by(&["alice"]), "approvals.too_few"),
        (good.clone().approved_by(&["alice", "alice"]), "approvals.same_person"),
        (good.clone().approved_by(&["alice", "alice-phone"]), "approvals.same_person"),
        (good.clone().approved_by(&["alice", "mallory"]), "approvals.unknown_approver"),
        (by("bob").approved_by(&["alice", "bob"]), "approvals.requester"),
        (by("alice").approved_by(&["bob", "alice-phone"]), "approvals.requester"),
        (by("alice-phone").approved_by(&["bob", "alice"]), "approvals.requester"),
        (on_behalf_of("bob").approved_by(&["alice", "bob"]), "approvals.requester"),
        (on_behalf_of("alice").approved_by(&["bob", "alice-phone"]), "approvals.requester"),
        (valid_for(TimeDelta::seconds(-1)), "approvals.expired"),
        (valid_for(TimeDelta::days(8)), "approvals.validity"),
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
async fn a_name_that_would_end_every_check_of_the_log_is_refused() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    for named in [
        Withdrawal { requested_by: "ri\0ta".to_owned(), ..good.clone() },
        Withdrawal { on_behalf_of: "ul\0la".to_owned(), ..good.clone() },
        Withdrawal { on_behalf_of: "ul\u{1b}[2Jla".to_owned(), ..good.clone() },
    ] {
        let status = gateway.sign(&named.request()).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(gateway.verify(None).await.intact);
    }
    gateway.sign(&good.request()).await.expect("signed");
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
        let first = Withdrawal::small(&gateway, 100 + 2 * round);
        let second = Withdrawal { attempt: 2, nonce: first.nonce + 1, ..first.clone() };
        let (first_request, second_request) = (first.request(), second.request());
        let (a, b) = tokio::join!(gateway.sign(&first_request), gateway.sign(&second_request));
        assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
        let refused = a.err().or(b.err()).expect("one refusal");
        assert_eq!(rpc::error::reason_of(&refused).as_deref(), Some("PAYMENT_GUARD_SECOND_NONCE"));
    }
    let most = "SELECT max(n) FROM (SELECT count(*) AS n FROM slots GROUP BY payment) AS s";
    assert_eq!(gateway.count(most).await, 1);
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
        let higher = bump(attempt, first.max_fee + u128::from(attempt) * 1_000_000_000);
        gateway.sign(&higher.request()).await.expect("bumped");
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
    gateway.refused(&sweep(&gateway, HOT, ETHER), Code::PermissionDenied, "destination.sweep").await;
    gateway.register_hot().await;
    gateway.sign(&sweep(&gateway, HOT, ETHER)).await.expect("swept");
    gateway.refused(&sweep(&gateway, STRANGER, ETHER), Code::PermissionDenied, "destination.sweep").await;
    let own = Withdrawal { to: HOT.to_owned(), ..Withdrawal::new(&gateway, 3) };
    let own = own.approved_by(&["alice", "bob"]);
    gateway.refused(&own.request(), Code::PermissionDenied, "destination.self").await;

    let deposit = gateway.deposit_address.as_str();
    let top_up = |to: &str, index, amount| top_up(&gateway, to, index, amount);
    let cap = 50_000_000_000_000_000u128;
    gateway.refused(&top_up(STRANGER, 7, 1), Code::PermissionDenied, "destination.top_up").await;
    gateway.refused(&top_up(deposit, 8, 1), Code::PermissionDenied, "destination.top_up").await;
    gateway.refused(&top_up(deposit, 7, cap + 1), Code::PermissionDenied, "limit.transaction").await;
    gateway.sign(&top_up(deposit, 7, cap)).await.expect("topped up");
    let mut named_otherwise = top_up(deposit, 7, 1);
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
    let call = |method: &str, contract: &str| duty(&gateway, 0, method, contract);
    let denied = Code::PermissionDenied;
    let steal = call("transfer(address,uint256)", TOKEN);
    gateway.refused_to(&gateway.worker, &steal, denied, "destination.method").await;
    let elsewhere = call("claim(uint256)", STRANGER);
    gateway.refused_to(&gateway.worker, &elsewhere, denied, "destination.method").await;
    let claim = call("claim(uint256)", TOKEN);
    gateway.worker.clone().sign_transaction(claim.clone()).await.expect("claimed");
    // A duty's authorisation signs nothing but calls.
    let mut payment = Withdrawal::new(&gateway, 1).request();
    payment.authorization = call("claim(uint256)", TOKEN).authorization;
    gateway.refused_to(&gateway.worker, &payment, denied, "asset.action").await;
}

#[tokio::test]
async fn each_service_asks_for_its_own_kind_of_thing_only() {
    let mut gateway = Gateway::start().await;
    gateway.register_hot().await;
    let (denied, reason) = (Code::PermissionDenied, "caller.purpose");
    let withdrawal = Withdrawal::new(&gateway, 0).request();
    gateway.refused_to(&gateway.worker, &withdrawal, denied, reason).await;
    gateway.sign(&withdrawal).await.expect("execution pays");
    // Nor are bytes that exist handed to whoever may not ask for them.
    gateway.refused_to(&gateway.worker, &withdrawal, denied, reason).await;
    gateway.refused_to(&gateway.worker, &sweep(&gateway, HOT, 1), denied, reason).await;
    let top_up = top_up(&gateway, &gateway.deposit_address, 7, 1);
    gateway.refused_to(&gateway.worker, &top_up, denied, reason).await;
    let claim = duty(&gateway, 1, "claim(uint256)", TOKEN);
    gateway.refused(&claim, denied, reason).await;
    // A person who simulates gets the result that the right service would get.
    let simulated = pb::SimulatePolicyRequest { request: Some(claim.clone()) };
    let shown = gateway.operator.clone().simulate_policy(simulated.clone()).await.expect("simulated");
    assert!(shown.into_inner().allowed);
    let shown = gateway.service.clone().simulate_policy(simulated).await.expect("simulated");
    assert!(!shown.into_inner().allowed);
    gateway.worker.clone().sign_transaction(claim).await.expect("worker-control does its duty");
}

fn native_sweep(gateway: &Gateway, nonce: u64, to: &str) -> pb::SignTransactionRequest {
    let parameters = Some(evm(nonce, 5_000_000_000));
    pb::SignTransactionRequest { parameters, ..sweep(gateway, to, ETHER) }
}

#[tokio::test]
async fn cold_storage_that_was_taken_out_of_the_settings_receives_nothing_more() {
    let mut gateway = Gateway::start().await;
    let settings = gateway.settings();
    gateway.register(operation_wallet(COLD, "", 0)).await.expect("cold storage");
    gateway.sign(&native_sweep(&gateway, 0, COLD)).await.expect("swept");
    let listed = format!("cold_storage = [\"{COLD}\"]");
    assert!(settings.contains(&listed));
    gateway.running.reload(&settings.replace(&listed, "cold_storage = []")).expect("reloaded");
    let sweep = native_sweep(&gateway, 1, COLD);
    gateway.refused(&sweep, Code::PermissionDenied, "destination.cold_storage").await;
    // It was ours, and is no customer's either.
    let withdrawal = Withdrawal { to: COLD.to_owned(), ..Withdrawal::new(&gateway, 0) };
    let withdrawal = withdrawal.approved_by(&["alice", "bob"]).request();
    gateway.refused(&withdrawal, Code::PermissionDenied, "destination.own").await;
    gateway.running.reload(&settings).expect("reloaded");
    gateway.sign(&sweep).await.expect("listed again");
}

#[tokio::test]
async fn a_row_that_was_put_into_the_table_receives_no_sweep() {
    let mut gateway = Gateway::start().await;
    gateway.register_hot().await;
    let pool = gateway.database.pool().await;
    // As if the stranger's address were a wallet of the hot group, and then as if it were the very one that is registered.
    for (index, sql) in [
        "INSERT INTO operation_wallets (chain, address, wallet_group_id, derivation_index, registered_by) \
         SELECT chain, $1, wallet_group_id, 3, registered_by FROM operation_wallets WHERE address = $2",
        "UPDATE operation_wallets SET derivation_index = 0 WHERE address = $1 AND address <> $2",
    ]
    .into_iter()
    .enumerate()
    {
        let done = sqlx::query(sql).bind(STRANGER).bind(HOT).execute(&pool).await.expect("written");
        assert_eq!(done.rows_affected(), 1);
        let sweep = native_sweep(&gateway, index as u64, STRANGER);
        gateway.refused(&sweep, Code::PermissionDenied, "destination.underived").await;
    }
    gateway.sign(&native_sweep(&gateway, 5, HOT)).await.expect("swept home");
}

#[tokio::test]
async fn sweeps_end_in_listed_groups_only_whatever_an_operator_imports() {
    let mut gateway = Gateway::start().await;
    let settings = gateway.settings();
    gateway.register_hot().await;
    let phrase =
        "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about";
    let import = import("thief", "operation", phrase);
    let imported = gateway.operator.import_wallet_group(import).await.expect("imported").into_inner();
    let thief = imported.group.expect("group").id;
    let [first, second] = [gateway.derive(&thief, 0).await, gateway.derive(&thief, 1).await];
    let wallet = |address: &str, index| operation_wallet(address, &thief, index);
    gateway.register(wallet(&first, 0)).await.expect("without a list every operation group will do");
    let listing = settings.replace("[policy]", &format!("[policy]\noperation_groups = [\"{HOT}\"]"));
    gateway.running.reload(&listing).expect("reloaded");
    let status = gateway.register(wallet(&second, 1)).await.expect_err("not listed");
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert_eq!(gateway.last_reason().await, "wallet.operation_group");
    let sweep = native_sweep(&gateway, 0, &first);
    gateway.refused(&sweep, Code::PermissionDenied, "destination.operation_group").await;
    gateway.sign(&native_sweep(&gateway, 1, HOT)).await.expect("swept home");
}
