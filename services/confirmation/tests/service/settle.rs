//! Verdicts at depth: paid, reverted, cancelled, whichever transaction was mined.

use payment::Effect;
use proto::execution::v1::verdict::Finding;

use crate::env::{
    DEPTH, TestEnv, TxSpec, account, call_data, is_attested, native, stranger, tick, token_transfer,
    two_empty_strings,
};

#[tokio::test]
async fn a_native_payment_settles_at_depth_and_not_before() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "waiting");

    env.send(&paid).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "waiting", "a transaction in the pool is nothing yet");
    env.mine(1).await;
    let block = env.height().await;
    for _ in 0..DEPTH {
        tick(&mut replica).await;
        assert_eq!(env.status(job).await, "included");
        assert!(env.kinds(job).await.is_empty());
        env.mine(1).await;
    }
    tick(&mut replica).await;
    let [Finding::Settled(settled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!((settled.block_number, settled.tx_hash.clone()), (block, paid.hash.to_string()));
    assert_eq!((settled.gas_used.as_str(), settled.gas_price.as_str()), ("21000", "2000000000"));
    assert_eq!(env.outbox("execution.RecordVerdict").await, 1);
    assert_eq!(env.outbox("intent.RecordProgress").await, 1);

    env.mine(10).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"], "it settles once");
}

#[tokio::test]
async fn a_token_payment_settles_by_the_chains_own_finality() {
    let env = TestEnv::with_depth(0).await;
    let token = env.token("Token", &two_empty_strings()).await;
    let mut replica = env.replica("one");
    let to = stranger();
    let paid = env.sign(0, token, 0, &call_data("a9059cbb", to, 70)).await;
    let job = env.put(token_transfer(token, to, 70), vec![paid.watched()]).await;
    env.send(&paid).await;
    env.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "included");
    // Anvil calls a block final two blocks later, with one slot in an epoch.
    env.mine(2).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}

#[tokio::test]
async fn a_revert_needs_the_same_depth_as_success_and_is_attested() {
    let env = TestEnv::new().await;
    let token = env.token("Token", &two_empty_strings()).await;
    let mut replica = env.replica("one");
    let to = stranger();
    // More than the payer has.
    let sent = env.sign(0, token, 0, &call_data("a9059cbb", to, 1_000_001)).await;
    let job = env.put(token_transfer(token, to, 1_000_001), vec![sent.watched()]).await;
    env.send(&sent).await;
    env.mine(u64::from(DEPTH)).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "included");
    env.mine(1).await;
    tick(&mut replica).await;
    let [Finding::Reverted(reverted)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert!(!reverted.value_moved);
    assert!(is_attested(job, &[sent.hash], &reverted.attestation, reverted.attested_at));
    assert_eq!(env.outbox("intent.RecordProgress").await, 0, "only a payment completes a withdrawal");
}

#[tokio::test]
async fn whichever_transaction_of_a_nonce_was_mined_counts() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let first = env.sign(0, to, 5, &[]).await;
    let bumped = env.sign_at(0, to, 5, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![first.watched()]).await;
    env.send(&first).await;
    tick(&mut replica).await;
    env.extend(job, native(to, 5), vec![first.watched(), bumped.watched()]).await.unwrap();
    env.send(&bumped).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    let [Finding::Settled(settled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(settled.tx_hash, bumped.hash.to_string());
    assert_eq!(settled.gas_price, "3000000000", "fees are those of the receipt");
}

#[tokio::test]
async fn a_bump_with_an_effect_of_its_own_is_judged_by_that_and_another_by_the_watch() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    for (nonce, own, expected) in [(0, true, "settled"), (1, false, "reverted")] {
        let to = stranger();
        let first = env.sign(nonce, to, 10, &[]).await;
        // A native sweep that offers a higher fee moves less.
        let bumped = env.sign_at(nonce, to, 7, 3_000_000_000).await;
        let effect = own.then(|| Effect::Moves(native(to, 7)));
        let bump = TxSpec { effect, ..bumped.watched() };
        let job = env.put(native(to, 10), vec![first.watched(), bump]).await;
        env.send(&bumped).await;
        env.mine(u64::from(DEPTH) + 1).await;
        tick(&mut replica).await;
        assert_eq!(env.kinds(job).await, [expected]);
        let watch = env.watches.get(job).await.unwrap().watch;
        let effects = [Effect::Moves(native(to, 10)), effect.unwrap_or(Effect::Moves(native(to, 10)))];
        assert_eq!(watch.transactions.iter().map(|tx| tx.effect).collect::<Vec<_>>(), effects);
    }
}

#[tokio::test]
async fn the_original_counts_when_it_was_mined_after_its_replacement_was_signed() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let first = env.sign(0, to, 5, &[]).await;
    let bumped = env.sign_at(0, to, 5, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![first.watched(), bumped.watched()]).await;
    env.send(&first).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    let [Finding::Settled(settled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(settled.tx_hash, first.hash.to_string());
}

#[tokio::test]
async fn a_final_cancellation_ends_the_job_as_cancelled() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let payment = env.sign(0, to, 5, &[]).await;
    let cancel = env.sign_at(0, account(0), 0, 3_000_000_000).await;
    let job = env.put(native(to, 5), vec![payment.watched(), cancel.cancelling()]).await;
    env.send(&cancel).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    let [Finding::Cancelled(cancelled)] = &env.verdicts(job).await[..] else {
        panic!("{:?}", env.kinds(job).await)
    };
    assert_eq!(cancelled.tx_hash, cancel.hash.to_string());
    let closed = [payment.hash, cancel.hash];
    assert!(
        is_attested(job, &closed, &cancelled.attestation, cancelled.attested_at),
        "the nonce is closed for all"
    );
    assert_eq!(cancelled.void_tx_hashes, closed.map(|hash| hash.to_string()));
    // With that proof the job may be paid at another nonce: a round of its own.
    let again = env.sign(1, to, 5, &[]).await;
    let all = vec![payment.watched(), cancel.cancelling(), again.watched()];
    env.extend(job, native(to, 5), all).await.unwrap();
    env.send(&again).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["cancelled", "settled"]);
}

#[tokio::test]
async fn a_watch_that_comes_after_its_transaction_is_final_settles_too() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let paid = env.sign(0, to, 5, &[]).await;
    env.send(&paid).await;
    env.mine(20).await;
    tick(&mut replica).await;
    let job = env.put(native(to, 5), vec![paid.watched()]).await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}

#[tokio::test]
async fn what_happened_while_nobody_looked_is_read_afterwards() {
    let env = TestEnv::new().await;
    let mut replica = env.replica("one");
    tick(&mut replica).await;
    let (job, paid, _) = env.payment(0).await;
    tick(&mut replica).await;
    replica.release().await.unwrap();
    env.send(&paid).await;
    // More than one batch of blocks, and more than the ring holds.
    env.mine(200).await;
    let mut later = env.replica("two");
    tick(&mut later).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}
