//! Where transactions stand as of a solid block: paid, failed with a fee, announced by nobody, or not final at all.

use chain::{Agreement, ChainEdge as _, TxStatus};
use payment::{EffectCheck, NoEffect, Price};
use serde_json::json;

use super::kit::{Net, Signed, TRX, receiver};

async fn standing(net: &Net, signed: &Signed) -> Agreement<TxStatus> {
    let asof = net.solid().await;
    net.edge.settlements(&[signed.claim], &asof).await.pop().unwrap()
}

async fn settled(net: &Net, signed: &Signed) -> chain::Settlement {
    match standing(net, signed).await {
        Agreement::Agreed { value: TxStatus::Settled(settlement), .. } => settlement,
        other => panic!("{other:?}"),
    }
}

async fn pay(net: &Net, signed: &Signed) {
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(1).await;
}

#[tokio::test]
async fn nothing_is_final_before_it_is_solid() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(1, TRX)).await;
    assert!(matches!(standing(&net, &signed).await, Agreement::Agreed { value: TxStatus::NotSeen, .. }));
    pay(&net, &signed).await;
    assert!(matches!(standing(&net, &signed).await, Agreement::Agreed { value: TxStatus::NotFinal, .. }));
    net.solidify().await;
    let settlement = settled(&net, &signed).await;
    assert_eq!(settlement.effect, EffectCheck::Happened);
    assert_eq!(settlement.cost.fee, (1_100_000u64).into(), "activation and the flat price of its bytes");
}

#[tokio::test]
async fn a_fork_that_includes_it_elsewhere_settles_once() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_token(2, 7)).await;
    pay(&net, &signed).await;
    net.post("admin/fork", json!({ "depth": 1, "include": false })).await;
    net.produce(1).await;
    net.solidify().await;
    assert_eq!(settled(&net, &signed).await.effect, EffectCheck::Happened);
    assert_eq!(net.paid(&receiver(2)).await, (1, "7".to_owned()));
}

#[tokio::test]
async fn included_and_failed_is_not_paid_and_its_fee_is_known() {
    let net = Net::start(2).await;
    let priced = net.signed(net.pays_token(3, 7)).await.plan.price;
    let towards = |behaviour: &str, to: u8| json!({ "token": net.token.to_string(), "behaviour": behaviour, "to": receiver(to).to_string() });
    net.post("admin/behaviour", towards("revert", 3)).await;
    net.post("admin/behaviour", towards("out_of_energy", 4)).await;
    for to in [3u8, 4] {
        let signed = net.signed_at(net.pays_token(to, 7), priced).await;
        pay(&net, &signed).await;
        net.solidify().await;
        let settlement = settled(&net, &signed).await;
        assert_eq!(settlement.effect, EffectCheck::Reverted, "to {to}");
        assert!(settlement.cost.fee > 0u64.into(), "the fee is gone all the same");
        assert_eq!(net.paid(&receiver(to)).await.0, 0);
    }
    // A limit that is too low burns itself and pays nobody.
    let stingy = net.signed_at(net.pays_token(5, 7), Price::FeeLimit { sun: TRX }).await;
    pay(&net, &stingy).await;
    net.solidify().await;
    assert_eq!(settled(&net, &stingy).await.effect, EffectCheck::Reverted);
}

#[tokio::test]
async fn success_without_the_tokens_log_is_no_payment() {
    let net = Net::start(1).await;
    for (to, behaviour) in [(6u8, "no_log"), (7, "returns_false"), (8, "moves_without_log")] {
        let signed = net.signed(net.pays_token(to, 7)).await;
        let order =
            json!({ "token": net.token.to_string(), "behaviour": behaviour, "to": receiver(to).to_string() });
        net.post("admin/behaviour", order).await;
        pay(&net, &signed).await;
        net.solidify().await;
        let effect = settled(&net, &signed).await.effect;
        assert_eq!(effect, EffectCheck::NoEffect { why: NoEffect::NoTransferLog }, "{behaviour}");
    }
    let signed = net.signed(net.pays_token(9, 7)).await;
    let order = json!({ "token": net.token.to_string(), "behaviour": "pays_returning_false", "to": receiver(9).to_string() });
    net.post("admin/behaviour", order).await;
    pay(&net, &signed).await;
    net.solidify().await;
    assert_eq!(
        settled(&net, &signed).await.effect,
        EffectCheck::Happened,
        "the returned word proves nothing, the log does"
    );
}

#[tokio::test]
async fn nodes_that_lag_or_are_silent_abstain_and_one_that_hides_it_is_noticed() {
    let net = Net::start(3).await;
    let signed = net.signed(net.pays_trx(10, TRX)).await;
    net.node(json!({ "node": 2, "lag": 3 })).await;
    pay(&net, &signed).await;
    net.solidify().await;
    let asof = net.solid().await;
    net.fault(1, "lite", "gettransactioninfobyid", 1).await;
    let too_few = net.edge.settlements(&[signed.claim], &asof).await.pop().unwrap();
    assert!(matches!(too_few, Agreement::TooFew { .. }), "{too_few:?}");
    net.node(json!({ "node": 2, "lag": 0 })).await;
    net.fault(1, "empty", "gettransactioninfobyid", 1).await;
    let disagreed = net.edge.settlements(&[signed.claim], &asof).await.pop().unwrap();
    assert!(disagreed.is_disagreement(), "{disagreed:?}");
    assert_eq!(settled(&net, &signed).await.effect, EffectCheck::Happened);
}
