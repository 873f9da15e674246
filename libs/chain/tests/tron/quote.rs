//! Prices before anything is signed: bandwidth, energy, activation, limits, and wallets that cannot pay.

use chain::{ChainEdge as _, QuoteError, TxStatus};
use payment::{Action, EffectCheck, Price, Quote};
use serde_json::json;
use types::{Priority, RawAmount};

use super::kit::{Net, PAYER, TRX, amount, receiver};

async fn quote(net: &Net, transfer: payment::Transfer) -> Result<Quote, QuoteError> {
    net.edge.quote(&Action::Pay(transfer), Priority::Normal).await
}

fn parts(quote: &Quote) -> (u64, u64) {
    let Price::FeeLimit { sun } = quote.price else { panic!("TRON has fee limits") };
    (sun, quote.max_cost.to_u64().unwrap())
}

#[tokio::test]
async fn an_unknown_receiver_costs_its_activation() {
    let net = Net::start(1).await;
    let (limit, cost) = parts(&quote(&net, net.pays_trx(1, TRX)).await.unwrap());
    assert_eq!(limit, 0, "a transfer of TRX burns no energy");
    // One TRX for the account; its bytes at the dearer of the two ways to pay for them.
    assert!((1_100_000..=1_300_000).contains(&cost), "{cost}");
    net.post("admin/fund", json!({ "address": receiver(1).to_string(), "sun": 1 })).await;
    let (_, cost) = parts(&quote(&net, net.pays_trx(1, TRX)).await.unwrap());
    assert!((265_000..=300_000).contains(&cost), "{cost}");
}

#[tokio::test]
async fn a_token_costs_more_towards_an_empty_address_and_the_limit_covers_it() {
    let net = Net::start(1).await;
    let empty = quote(&net, net.pays_token(2, 5)).await.unwrap();
    net.post(
        "admin/mint",
        json!({ "token": net.token.to_string(), "to": receiver(2).to_string(), "amount": "1" }),
    )
    .await;
    let holder = quote(&net, net.pays_token(2, 5)).await.unwrap();
    let ((empty_limit, empty_cost), (holder_limit, holder_cost)) = (parts(&empty), parts(&holder));
    assert_eq!(holder_limit, 64_285 * 100 * 12 / 10);
    assert_eq!(empty_limit, 130_285 * 100 * 12 / 10);
    assert!(empty_cost > empty_limit && holder_cost > holder_limit, "bytes come on top");
    assert_eq!(holder.max_cost, RawAmount::from(holder_cost));
    // What was priced is enough.
    let signed = net.signed(net.pays_token(2, 5)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(1).await;
    net.solidify().await;
    let asof = net.solid().await;
    let standing = net.edge.settlements(&[signed.claim], &asof).await.pop().unwrap().agreed().unwrap();
    let TxStatus::Settled(settled) = standing else { panic!("{standing:?}") };
    assert_eq!(settled.effect, EffectCheck::Happened);
    assert!(settled.cost.fee <= holder.max_cost, "{:?}", settled.cost);
    assert_eq!(settled.cost.units, 64_285);
}

#[tokio::test]
async fn staked_resources_are_counted_once_in_a_batch() {
    let net = Net::start(1).await;
    let order = json!({ "address": PAYER, "bandwidth_limit": 400, "energy_limit": 160_000 });
    net.post("admin/resources", order).await;
    let actions = [net.pays_token(3, 1), net.pays_token(4, 1)].map(Action::Pay);
    let prices = net.edge.quotes(&actions, Priority::Normal).await;
    let (first, second) = (parts(prices[0].as_ref().unwrap()), parts(prices[1].as_ref().unwrap()));
    assert_eq!(first.0, second.0, "the limit covers all energy, staked or not");
    assert_eq!(first.1, 0, "staked energy and bandwidth pay for the first");
    assert!(second.1 > 15_000_000, "and are gone for the second: {second:?}");
}

#[tokio::test]
async fn what_would_fail_or_cannot_be_paid_is_refused_by_name() {
    let net = Net::start(1).await;
    let too_much = quote(&net, net.pays_trx(5, 10_000 * TRX)).await;
    assert!(matches!(too_much, Err(QuoteError::InsufficientFunds { .. })), "{too_much:?}");
    let no_tokens = quote(&net, net.pays_token(5, u64::MAX)).await;
    assert!(matches!(no_tokens, Err(QuoteError::WouldRevert { .. })), "{no_tokens:?}");
    net.post("admin/behaviour", json!({ "token": net.token.to_string(), "behaviour": "revert" })).await;
    let reverts = quote(&net, net.pays_token(5, 1)).await;
    assert!(matches!(reverts, Err(QuoteError::WouldRevert { .. })), "{reverts:?}");
    let mut huge = net.pays_trx(5, 1);
    huge.amount = "9223372036854775808".parse().unwrap();
    let huge = quote(&net, huge).await;
    assert!(matches!(huge, Err(QuoteError::Chain(_))), "beyond 63 bits: {huge:?}");
    let cancel = net.edge.quote(&Action::Cancel { sender: super::kit::payer() }, Priority::Normal).await;
    assert!(matches!(cancel, Err(QuoteError::Chain(_))), "there is nothing to cancel with");
}

#[tokio::test]
async fn energy_above_the_price_or_the_limit_is_refused() {
    let net = Net::start(1).await;
    net.post("admin/prices", json!({ "energy_fee_sun": 421 })).await;
    let dear = net.edge_with(|config| config.costs.max_energy_price_sun = 420).await;
    let action = Action::Pay(net.pays_token(6, 1));
    let refused = dear.quote(&action, Priority::Normal).await;
    assert!(matches!(refused, Err(QuoteError::AboveCap(_))), "{refused:?}");
    assert!(refused.unwrap_err().is_transient(), "prices fall");
    let capped = net.edge_with(|config| config.costs.max_fee_limit_sun = 20 * TRX).await;
    let refused = capped.quote(&action, Priority::Normal).await;
    assert!(matches!(refused, Err(QuoteError::GasAboveCap { .. })), "{refused:?}");
}

#[tokio::test]
async fn one_bad_transfer_does_not_spoil_the_others_of_its_batch() {
    let net = Net::start(2).await;
    let other = types::Address::from_body(types::AddressFormat::Evm, [1; 20]);
    let mut foreign = net.pays_trx(7, 1);
    foreign.to = other;
    let actions =
        [net.pays_trx(7, TRX), foreign, net.pays_token(8, u64::MAX), net.pays_token(8, 2)].map(Action::Pay);
    let prices = net.edge.quotes(&actions, Priority::High).await;
    assert!(prices[0].is_ok() && prices[3].is_ok(), "{prices:?}");
    assert!(prices[1].is_err() && prices[2].is_err(), "{prices:?}");
    assert_eq!(amount(1), RawAmount::from(1u64));
}

#[tokio::test]
async fn a_node_that_cannot_price_is_passed_over() {
    let net = Net::start(2).await;
    for kind in ["rate_limit", "truncated", "bad_gateway", "timeout"] {
        net.fault(0, kind, "getchainparameters", 1).await;
        assert!(quote(&net, net.pays_trx(9, TRX)).await.is_ok(), "{kind}");
    }
    net.fault(0, "empty", "triggerconstantcontract", 1).await;
    let empty = quote(&net, net.pays_token(9, 1)).await;
    assert!(empty.is_ok(), "no answer is no refusal: {empty:?}");
    net.fault(0, "rate_limit", "", 0).await;
    net.fault(1, "rate_limit", "", 0).await;
    let nobody = quote(&net, net.pays_trx(9, TRX)).await;
    assert!(nobody.as_ref().is_err_and(QuoteError::is_transient), "{nobody:?}");
}
