//! Verdict reads: finality, effects, and nodes that contradict each other.

use chain::{ChainEdge as _, Claim, EvmChain, Fate, FateQuestion, Finality, Plan, TxStatus};
use payment::{Action, AssetRef, Binding, Closing, Effect, EffectCheck, GasFee, NoEffect, Price};
use serde_json::json;
use testkit::{Chain, Rule, Upset};
use types::{Address, RawAmount, TxHash};

use crate::kit::{
    FEE, GWEI, Wallet, config, deploy, deploy_token, edge, final_head, mint, node, standing, two_nodes,
};

#[tokio::test]
async fn the_finalized_tag_and_the_depth_say_where_final_is() {
    let node = node().await;
    node.mine(10).await;
    let by_tag = EvmChain::new(config(&[node.url()], Finality::Tag)).unwrap();
    let by_depth = EvmChain::new(config(&[node.url()], Finality::Depth(3))).unwrap();
    assert_eq!(final_head(&by_tag).await.number, 8, "anvil with one slot per epoch");
    assert_eq!(final_head(&by_depth).await.number, 7);
    assert_eq!(
        by_depth.blocks(7..=7, chain::Detail::Hashes).await.unwrap()[0].head,
        final_head(&by_depth).await
    );
}

#[tokio::test]
async fn one_node_ahead_of_the_other_does_not_make_a_block_final() {
    let node = node().await;
    let (first, _second, edge) = two_nodes(&node).await;
    node.mine(10).await;
    let old = node.call("eth_getBlockByNumber", json!(["0x5", false])).await;
    first.rule(Rule::on("eth_getBlockByNumber", Upset::RpcResult(old)).times(1));
    assert_eq!(final_head(&edge).await.number, 3, "two below the lower of the two heads");
}

#[tokio::test]
async fn a_payment_settles_only_when_final_and_its_cost_is_the_receipt_s() {
    let node = node().await;
    let (_first, _second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 60).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x81, FEE);
    assert_eq!(standing(&edge, &claim).await, TxStatus::NotSeen);
    edge.broadcast(&[raw]).await;
    assert_eq!(standing(&edge, &claim).await, TxStatus::NotFinal);
    node.mine(2).await;
    assert_eq!(standing(&edge, &claim).await, TxStatus::NotFinal, "depth is two");
    node.mine(1).await;
    let TxStatus::Settled(settlement) = standing(&edge, &claim).await else { panic!("must be final") };
    assert_eq!((settlement.effect, settlement.block.number), (EffectCheck::Happened, 1));
    assert_eq!(settlement.cost.units, 21_000);
    let fee = RawAmount::from_u256(alloy::primitives::U256::from(21_000 * settlement.cost.unit_price));
    assert_eq!(settlement.cost.fee, fee);
    // Claimed to be another payment, it is none.
    let other = Claim { effect: Effect::Moves(wallet.pays(AssetRef::Native, 0x81, 2)), ..claim };
    let TxStatus::Settled(settlement) = standing(&edge, &other).await else { panic!("must be final") };
    assert!(matches!(settlement.effect, EffectCheck::WrongAmount { .. }));
}

#[tokio::test]
async fn a_pool_that_has_not_heard_of_it_contradicts_nobody() {
    let node = node().await;
    let (first, _second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 67).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x89, FEE);
    edge.broadcast(&[raw]).await;
    first.rule(Rule::on("eth_getTransactionByHash", Upset::RpcResult(json!(null))));
    assert_eq!(standing(&edge, &claim).await, TxStatus::NotFinal);
}

/// Pays 1000 units of a token and tells what came of it.
async fn effect_of(
    node: &Chain,
    edge: &EvmChain,
    wallet: &Wallet,
    nonce: u64,
    token: Address,
) -> EffectCheck {
    mint(node, &token, &wallet.address(), 1000).await;
    let plan = wallet.plan(wallet.pays(AssetRef::Token(token), 0x82, 1000), nonce, FEE);
    let (raw, claim) = wallet.signed(edge, &plan);
    assert_eq!(edge.broadcast(&[raw]).await[0].merged.label(), "accepted");
    node.mine(3).await;
    match standing(edge, &claim).await {
        TxStatus::Settled(settlement) => settlement.effect,
        standing => panic!("{standing:?}"),
    }
}

#[tokio::test]
async fn only_a_token_that_really_moved_the_amount_has_paid() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 61).await;
    let moved = |amount: &str| EffectCheck::WrongAmount { moved: amount.parse().unwrap() };
    let no_log = EffectCheck::NoEffect { why: NoEffect::NoTransferLog };
    macro_rules! artifact {
        ($name:literal) => {
            include_str!(concat!("../../../../tests/contracts/artifacts/", $name, ".json"))
        };
    }
    let cases = [
        ("returns nothing", artifact!("VoidToken"), EffectCheck::Happened),
        ("returns false", artifact!("FalseToken"), no_log),
        ("takes a fee", artifact!("FeeToken"), moved("990")),
        ("takes a fee back", artifact!("ClawbackToken"), moved("990")),
        ("announces nothing", artifact!("SilentToken"), no_log),
        ("lets another announce", artifact!("ForgedToken"), no_log),
    ];
    let token = deploy_token(&node).await;
    assert_eq!(effect_of(&node, &edge, &wallet, 0, token).await, EffectCheck::Happened, "ordinary");
    for (nonce, (what, artifact, expected)) in (1..).zip(cases) {
        let token = deploy(&node, artifact, &[]).await;
        assert_eq!(effect_of(&node, &edge, &wallet, nonce, token).await, expected, "{what}");
    }
}

#[tokio::test]
async fn a_reverted_transfer_is_no_payment_and_its_fee_is_known() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 62).await;
    let token = deploy_token(&node).await;
    let plan = wallet.plan(wallet.pays(AssetRef::Token(token), 0x83, 1), 0, FEE);
    let (raw, claim) = wallet.signed(&edge, &plan);
    edge.broadcast(&[raw]).await;
    node.mine(3).await;
    let TxStatus::Settled(settlement) = standing(&edge, &claim).await else { panic!("must be final") };
    assert_eq!(settlement.effect, EffectCheck::Reverted);
    assert!(!settlement.cost.fee.is_zero());
}

#[tokio::test]
async fn a_fabricated_receipt_is_a_disagreement_and_a_lagging_node_an_abstention() {
    let node = node().await;
    let (first, second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 63).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x84, FEE);
    edge.broadcast(&[raw]).await;
    node.mine(3).await;
    let asof = final_head(&edge).await;
    let ask = async || edge.settlements(&[claim], &asof).await.remove(0);
    assert!(ask().await.agreed().is_some());

    // The same receipt, but failed: one node lies.
    let mut forged = node.call("eth_getTransactionReceipt", json!([claim.hash.to_string()])).await;
    forged["status"] = json!("0x0");
    first.rule(Rule::on("eth_getTransactionReceipt", Upset::RpcResult(forged)));
    assert!(ask().await.is_disagreement());
    first.pass().await;
    // A node that has the transaction in a final block and no receipt of it has lost that, and says nothing.
    second.rule(Rule::on("eth_getTransactionReceipt", Upset::RpcResult(json!(null))));
    let pruned = ask().await;
    assert!(matches!(pruned, chain::Agreement::TooFew { .. }), "{pruned:?}");
    // One that knows of neither contradicts the other.
    second.rule(Rule::on("eth_getTransactionByHash", Upset::RpcResult(json!(null))));
    assert!(ask().await.is_disagreement());
    second.pass().await;
    // Another block at a final height.
    let mut other = node.call("eth_getBlockByNumber", json!(["0x1", false])).await;
    other["hash"] = json!(TxHash([0xee; 32]).to_string());
    second.rule(Rule::on("eth_getBlockByNumber", Upset::RpcResult(other)));
    assert!(ask().await.is_disagreement());
    second.pass().await;
    // A node that does not have the block yet says nothing either way.
    second.rule(Rule::on("eth_getBlockByNumber", Upset::RpcResult(json!(null))));
    let lagging = ask().await;
    assert!(matches!(lagging, chain::Agreement::TooFew { needed: 2, .. }), "{lagging:?}");
    second.pass().await;
    second.refuse().await;
    assert!(matches!(ask().await, chain::Agreement::TooFew { .. }));
    second.pass().await;
    assert!(ask().await.agreed().is_some());
}

#[tokio::test]
async fn a_nonce_is_open_ours_or_foreign_and_foreign_is_shown_by_the_transaction_itself() {
    let node = node().await;
    let (_first, _second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 64).await;
    let closing = Closing::Nonce { sender: wallet.address(), nonce: 1 };
    let (before, _) = wallet.native(&edge, 0, 0x85, FEE);
    let (ours, claim) = wallet.native(&edge, 1, 0x85, FEE);
    let foreign_fee = GasFee::Dynamic { max_fee: 30 * GWEI, max_priority: 3 * GWEI };
    let (foreign, foreign_claim) = wallet.native(&edge, 1, 0x86, foreign_fee);
    let fate = async |ours: Vec<TxHash>| {
        let asof = final_head(&edge).await;
        edge.fate(&FateQuestion { closing, ours, asof, since: 0 }).await.agreed().unwrap()
    };

    node.mine(6).await;
    edge.broadcast(&[before, ours]).await;
    assert_eq!(fate(vec![claim.hash]).await, Fate::Open, "pending is open");
    edge.broadcast(&[foreign]).await;
    node.mine(1).await;
    assert_eq!(fate(vec![claim.hash]).await, Fate::Open, "mined and not final is open");
    node.mine(9).await;
    let Fate::Foreign { hash, block } = fate(vec![claim.hash]).await else { panic!("another is final") };
    assert_eq!((hash, block.number), (foreign_claim.hash, 7));
    let Fate::Ours { hash, .. } = fate(vec![claim.hash, foreign_claim.hash]).await else {
        panic!("one of ours")
    };
    assert_eq!(hash, foreign_claim.hash);
}

#[tokio::test]
async fn a_missing_receipt_never_turns_our_own_transaction_into_a_foreign_one() {
    let node = node().await;
    let (first, second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 65).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x87, FEE);
    edge.broadcast(&[raw]).await;
    node.mine(4).await;
    let asof = final_head(&edge).await;
    // Both nodes have lost their receipts, as with a pruned index.
    for proxy in [&first, &second] {
        proxy.rule(Rule::on("eth_getTransactionReceipt", Upset::RpcResult(json!(null))));
    }
    let closing = Closing::Nonce { sender: wallet.address(), nonce: 0 };
    let question = FateQuestion { closing, ours: vec![claim.hash], asof, since: 0 };
    let fate = edge.fate(&question).await.agreed().unwrap();
    assert!(matches!(fate, Fate::Ours { hash, .. } if hash == claim.hash), "{fate:?}");
    // Searching from a block at which it was used already finds nothing, and says so instead of guessing.
    let late = FateQuestion { since: 2, ..question };
    assert!(matches!(edge.fate(&late).await, chain::Agreement::TooFew { .. }));
}

#[tokio::test]
async fn a_cancellation_occupies_the_nonce_and_the_payment_can_never_land() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 66).await;
    let (payment, claim) = wallet.native(&edge, 0, 0x88, FEE);
    let price = Price::Gas { limit: 21_000, fee: FEE };
    let plan = Plan {
        action: Action::Cancel { sender: wallet.address() },
        binding: Binding::Nonce { sender: wallet.address(), nonce: 0 },
        price: edge.bump(&price, None).unwrap().price,
    };
    let (cancel, cancelled) = wallet.signed(&edge, &plan);
    edge.broadcast(std::slice::from_ref(&payment)).await;
    assert_eq!(edge.broadcast(&[cancel]).await[0].merged.label(), "accepted");
    node.mine(3).await;
    let TxStatus::Settled(settlement) = standing(&edge, &cancelled).await else { panic!("must be final") };
    assert_eq!(settlement.effect, EffectCheck::Happened, "nothing was moved, as intended");
    assert_eq!(standing(&edge, &claim).await, TxStatus::NotSeen);
    assert_eq!(edge.broadcast(&[payment]).await[0].merged.label(), "nonce_too_low");
}
