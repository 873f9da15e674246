//! Prices and gas limits from a real node.

use chain::evm::FeeKind;
use chain::{BalanceOf, ChainEdge as _, EvmChain, FeePolicy, Finality, QuoteError};
use payment::{Action, AssetRef, GasFee, Price};
use serde_json::json;
use testkit::{FaultProxy, Rule, Upset};
use types::Priority;

use crate::kit::{GWEI, Wallet, config, deploy, deploy_token, edge, mint, node, receiver, two_nodes};

#[tokio::test]
async fn a_native_transfer_costs_exactly_21000_gas() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 40).await;
    let action = Action::Pay(wallet.pays(AssetRef::Native, 0x71, 5));
    let price = edge.quote(&action, Priority::Normal).await.unwrap().price;
    let Price::Gas { limit: 21_000, fee: GasFee::Dynamic { max_fee, .. } } = price else {
        panic!("{price:?}")
    };
    assert!(max_fee >= GWEI, "covers anvil's base fee");
    let cancel =
        edge.quote(&Action::Cancel { sender: wallet.address() }, Priority::Urgent).await.unwrap().price;
    assert!(matches!(cancel, Price::Gas { limit: 21_000, .. }));
}

#[tokio::test]
async fn a_token_transfer_gets_a_margin_and_one_without_balance_is_refused() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 41).await;
    let token = deploy_token(&node).await;
    let action = Action::Pay(wallet.pays(AssetRef::Token(token), 0x72, 5));
    let refused = edge.quote(&action, Priority::Normal).await.unwrap_err();
    assert!(matches!(refused, QuoteError::WouldRevert { .. }), "{refused}");
    assert!(!refused.is_transient());
    mint(&node, &token, &wallet.address(), 5).await;
    let Price::Gas { limit: gas_limit, .. } = edge.quote(&action, Priority::Normal).await.unwrap().price
    else {
        panic!("gas")
    };
    assert!((50_000..90_000).contains(&gas_limit), "{gas_limit}");
}

#[tokio::test]
async fn a_wallet_that_cannot_pay_is_told_apart_from_a_call_that_fails() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 42).await;
    let mut transfer = wallet.pays(AssetRef::Native, 0x73, 0);
    transfer.amount = "1000000000000000000000".parse().unwrap();
    let refused = edge.quote(&Action::Pay(transfer), Priority::Normal).await.unwrap_err();
    assert!(matches!(refused, QuoteError::InsufficientFunds { .. }), "{refused}");
    assert!(refused.is_transient());
}

#[tokio::test]
async fn many_actions_are_priced_in_three_requests_and_each_by_itself() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let (rich, other) = (Wallet::funded(&node, 46).await, Wallet::funded(&node, 47).await);
    let token = deploy_token(&node).await;
    mint(&node, &token, &rich.address(), 5).await;
    let broke = other.pays(AssetRef::Token(token), 0x77, 5);
    let mut actions = vec![Action::Pay(rich.pays(AssetRef::Token(token), 0x77, 5)); 40];
    actions[7] = Action::Pay(broke);
    let prices = edge.quotes(&actions, Priority::High).await;
    assert_eq!(prices.iter().filter(|price| price.is_ok()).count(), 39);
    assert!(matches!(prices[7], Err(QuoteError::WouldRevert { .. })));
    assert_eq!((proxy.calls("eth_feeHistory"), proxy.calls("eth_getBalance")), (1, 2));
    assert!(edge.quotes(&[], Priority::High).await.is_empty());
}

#[tokio::test]
async fn a_receiver_that_dies_in_its_own_way_spoils_no_other_price() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 49).await;
    let actions = [0x79, 0x7a].map(|to| Action::Pay(wallet.pays(AssetRef::Native, to, 5)));
    // Invalid opcode, stack underflow, a jump to nowhere, and a loop without end.
    for code in ["0xfe", "0x50", "0x600056", "0x5b600056"] {
        node.call("anvil_setCode", json!([receiver(0x79).to_string(), code])).await;
        let prices = edge.quotes(&actions, Priority::Normal).await;
        assert!(matches!(prices[0], Err(QuoteError::WouldRevert { .. })), "{code}: {:?}", prices[0]);
        assert!(prices[1].is_ok(), "{code}: {:?}", prices[1]);
    }
    let of = |token| BalanceOf { holder: wallet.address(), asset: token };
    let wanted = [of(AssetRef::Token(receiver(0x79))), of(AssetRef::Native)];
    let balances = edge.balances(&wanted).await.unwrap();
    assert!(balances[0].is_none() && balances[1].is_some(), "{balances:?}");
}

#[tokio::test]
async fn unheard_words_about_everything_are_the_node_s_own_trouble() {
    let node = node().await;
    let (first, second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 50).await;
    let action = Action::Pay(wallet.pays(AssetRef::Native, 0x7b, 5));
    let sick = || Rule::on("eth_estimateGas", Upset::RpcError { code: -32603, message: "so\0what".into() });
    first.rule(sick());
    assert!(edge.quote(&action, Priority::Normal).await.is_ok(), "another node knows better");
    second.rule(sick());
    let refused = edge.quote(&action, Priority::Normal).await.unwrap_err();
    assert!(matches!(refused, QuoteError::Chain(_)) && refused.is_transient(), "{refused}");
}

#[tokio::test]
async fn no_control_character_of_a_node_gets_any_further() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let wallet = Wallet::funded(&node, 51).await;
    let error = |text: &str| Upset::RpcError { code: 3, message: text.to_owned() };
    proxy.rule(Rule::on("eth_estimateGas", error("execution reverted: a\0b\u{1b}c")));
    let action = Action::Pay(wallet.pays(AssetRef::Native, 0x7c, 5));
    let refused = edge.quote(&action, Priority::Normal).await.unwrap_err();
    assert_eq!(refused, QuoteError::WouldRevert { reason: "execution reverted: a b c".to_owned() });
    proxy.rule(Rule::on("eth_sendRawTransaction", error("who\0knows")).times(1));
    let (raw, _) = wallet.native(&edge, 0, 0x7c, crate::kit::FEE);
    let sent = edge.broadcast(std::slice::from_ref(&raw)).await;
    assert_eq!(sent[0].merged.to_string(), "unknown: who knows");
    // What cannot be read is quoted in the error.
    proxy.rule(Rule::on("eth_getBalance", Upset::RpcResult(json!("no\0number"))));
    let of = BalanceOf { holder: wallet.address(), asset: AssetRef::Native };
    let error = edge.balances(&[of]).await.unwrap_err().to_string();
    assert!(error.contains("cannot be read") && !error.contains('\0'), "{error}");
}

#[tokio::test]
async fn a_whole_balance_minus_the_fee_can_be_sent_and_one_unit_more_cannot() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 48).await;
    let mut transfer = wallet.pays(AssetRef::Native, 0x78, 1);
    let price = edge.quote(&Action::Pay(transfer), Priority::Normal).await.unwrap();
    let all =
        edge.balances(&[BalanceOf { holder: wallet.address(), asset: AssetRef::Native }]).await.unwrap();
    transfer.amount = all[0].unwrap().checked_sub(price.max_cost).unwrap();
    assert_eq!(edge.quote(&Action::Pay(transfer), Priority::Normal).await, Ok(price));
    transfer.amount = transfer.amount.checked_add("1".parse().unwrap()).unwrap();
    assert!(edge.quote(&Action::Pay(transfer), Priority::Normal).await.is_err());
}

#[tokio::test]
async fn caps_and_floors_of_the_catalogue_hold() {
    let node = node().await;
    let wallet = Wallet::funded(&node, 43).await;
    let action = Action::Pay(wallet.pays(AssetRef::Native, 0x74, 1));
    let with = |fees: FeePolicy| {
        let mut config = config(&[node.url()], Finality::Depth(2));
        config.fees = fees;
        EvmChain::new(config).unwrap()
    };
    let low = with(FeePolicy { max_fee_cap: 1000, ..FeePolicy::default() });
    assert!(matches!(low.quote(&action, Priority::Low).await, Err(QuoteError::AboveCap(_))));

    let legacy = with(FeePolicy { kind: FeeKind::Legacy, min_gas_price: 7 * GWEI, ..FeePolicy::default() });
    let price = legacy.quote(&action, Priority::Low).await.unwrap().price;
    assert_eq!(price, Price::Gas { limit: 21_000, fee: GasFee::Legacy { gas_price: 7 * GWEI } });
    // What it quotes, the node takes.
    let Price::Gas { fee, .. } = price else { panic!("gas") };
    let (raw, _) = wallet.native(&legacy, 0, 0x74, fee);
    assert_eq!(legacy.broadcast(&[raw]).await[0].merged.label(), "accepted");
}

#[tokio::test]
async fn an_extravagant_token_is_refused_by_the_gas_cap() {
    let node = node().await;
    let wallet = Wallet::funded(&node, 44).await;
    let artifact = include_str!("../../../../tests/contracts/artifacts/FeeToken.json");
    let token = deploy(&node, artifact, &[]).await;
    mint(&node, &token, &wallet.address(), 1000).await;
    let mut config = config(&[node.url()], Finality::Depth(2));
    config.gas.cap = 40_000;
    let edge = EvmChain::new(config).unwrap();
    let action = Action::Pay(wallet.pays(AssetRef::Token(token), 0x75, 100));
    let refused = edge.quote(&action, Priority::Normal).await.unwrap_err();
    assert!(matches!(refused, QuoteError::GasAboveCap { cap: 40_000, .. }), "{refused}");
}

#[tokio::test]
async fn no_node_is_a_transient_refusal() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let wallet = Wallet::funded(&node, 45).await;
    proxy.refuse().await;
    let action = Action::Pay(wallet.pays(AssetRef::Native, 0x76, 1));
    let refused = edge.quote(&action, Priority::Normal).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
}
