//! Several nodes: identity, failover, heads, and reads that do not depend on one of them.

use chain::{
    Anchor, BalanceOf, ChainEdge as _, ChainError, ConfigError, EvmChain, Finality, NodeConfig, NodeError,
    Sight,
};
use payment::AssetRef;
use serde_json::json;
use testkit::{AnvilOptions, FaultProxy, Mining, Rule, Upset};
use types::RawAmount;

use crate::kit::{FEE, Wallet, config, deploy_token, edge, mint, node, receiver, two_nodes};

#[tokio::test]
async fn a_node_of_another_chain_is_refused_and_reported() {
    let ours = node().await;
    let other =
        testkit::anvil(AnvilOptions { mining: Mining::Manual, chain_id: 97, ..AnvilOptions::default() })
            .await;
    let wrong = FaultProxy::http(other.address()).await;
    let mixed = edge(&[wrong.url(), ours.url()]);
    let wallet = Wallet::funded(&ours, 20).await;

    let head = mixed.head().await.unwrap();
    assert_eq!(head.number, 0);
    let (raw, _) = wallet.native(&mixed, 0, 0x61, FEE);
    let broadcast = mixed.broadcast(&[raw]).await.remove(0);
    assert_eq!(broadcast.merged.label(), "accepted");
    assert_eq!(broadcast.nodes[0].1.label(), "transient");
    let health = mixed.nodes();
    assert_eq!((health[0].usable, health[0].wrong_chain.as_deref()), (false, Some("97")));
    assert!(health[1].usable);
    assert_eq!(wrong.calls("eth_sendRawTransaction"), 0);
    assert_eq!(wrong.calls("eth_getBlockByNumber"), 0);

    let alone = edge(&[other.url()]);
    let Err(ChainError::NoNode { tried, .. }) = alone.head().await else { panic!("must not be used") };
    assert_eq!(tried[0].1, NodeError::WrongChain { expected: "56".into(), found: "97".into() });
}

#[tokio::test]
async fn reads_go_on_with_the_next_node_and_come_back() {
    let node = node().await;
    let (first, second, edge) = two_nodes(&node).await;
    edge.probe().await;
    first.refuse().await;
    let of = [BalanceOf { holder: receiver(0x62), asset: AssetRef::Native }];
    assert_eq!(edge.balances(&of).await.unwrap(), [Some(RawAmount::ZERO)]);
    assert_eq!(second.calls("eth_getBalance"), 1);
    assert!(edge.head().await.is_ok());
    second.refuse().await;
    let error = edge.balances(&of).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    first.pass().await;
    assert!(edge.balances(&of).await.is_ok());
    assert!(edge.nodes()[0].usable);
}

#[tokio::test]
async fn errors_never_show_a_node_s_address() {
    let mut config = config(&["http://127.0.0.1:9/secret-key".to_owned()], Finality::Depth(1));
    config.timeout_ms = 500;
    let shown = format!("{config:?}");
    let edge = EvmChain::new(config).unwrap();
    let error = edge.head().await.unwrap_err();
    for text in [shown, format!("{edge:?}"), format!("{error:?}"), error.to_string()] {
        assert!(!text.contains("secret-key"), "{text}");
    }
}

#[tokio::test]
async fn a_node_s_head_never_goes_back() {
    let node = node().await;
    let (first, _second, edge) = two_nodes(&node).await;
    let genesis = node.call("eth_getBlockByNumber", json!(["0x0", false])).await;
    node.mine(4).await;
    assert_eq!(edge.head().await.unwrap().number, 4);
    first.rule(Rule::on("eth_getBlockByNumber", Upset::RpcResult(genesis)));
    assert_eq!(edge.head().await.unwrap().number, 4);
    let health = edge.probe().await;
    assert!(health[0].went_back && !health[1].went_back);
    assert_eq!(health[0].head.unwrap().number, 4);
    // What others can answer is not asked of it meanwhile.
    let of = [BalanceOf { holder: receiver(0x63), asset: AssetRef::Native }];
    edge.balances(&of).await.unwrap();
    assert_eq!(first.calls("eth_getBalance"), 0);
}

#[tokio::test]
async fn one_node_s_inflated_nonce_moves_nothing() {
    let node = node().await;
    let (first, second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 21).await;
    let (raw, _) = wallet.native(&edge, 0, 0x64, FEE);
    edge.broadcast(&[raw]).await;
    let sight = |mined, pending, agreed| Anchor::Nonce(Sight { mined, pending, agreed });
    assert_eq!(edge.anchor(&wallet.address()).await.unwrap(), sight(0, 1, Some(1)));
    node.mine(1).await;
    first.rule(Rule::on("eth_getTransactionCount", Upset::RpcResult(json!("0x9"))));
    assert_eq!(edge.anchor(&wallet.address()).await.unwrap(), sight(1, 9, Some(1)));
    second.refuse().await;
    assert_eq!(edge.anchor(&wallet.address()).await.unwrap(), sight(9, 9, None), "nobody to agree with");
}

#[tokio::test]
async fn a_node_without_batches_is_asked_one_by_one() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    edge.probe().await;
    let refusal =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Batch requests are not supported"}}"#;
    proxy.rule(Rule::on("eth_getBalance", Upset::Answer { status: 200, body: refusal.into() }).times(1));
    let of: Vec<_> =
        (1..=20).map(|byte| BalanceOf { holder: receiver(byte), asset: AssetRef::Native }).collect();
    let balances = edge.balances(&of).await.unwrap();
    assert_eq!(balances, vec![Some(RawAmount::ZERO); 20]);
    // Twenty in the refused batch, twenty alone.
    assert_eq!(proxy.calls("eth_getBalance"), 40);
}

#[tokio::test]
async fn balances_come_in_one_batch_and_a_bad_token_spoils_no_other() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let wallet = Wallet::funded(&node, 22).await;
    let token = deploy_token(&node).await;
    mint(&node, &token, &wallet.address(), 77).await;
    let of = |asset| BalanceOf { holder: wallet.address(), asset };
    let wanted = [of(AssetRef::Native), of(AssetRef::Token(token)), of(AssetRef::Token(receiver(0x65)))];
    let balances = edge.balances(&wanted).await.unwrap();
    assert_eq!(balances[0].unwrap().to_string(), "100000000000000000000");
    assert_eq!(balances[1].unwrap().to_string(), "77");
    assert_eq!(balances[2], None, "no contract there");
}

#[test]
fn a_set_of_nodes_that_cannot_work_is_refused() {
    let build = |change: fn(&mut chain::EvmConfig)| {
        let mut config = config(&["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()], Finality::Tag);
        change(&mut config);
        EvmChain::new(config).map(|_| ()).unwrap_err()
    };
    assert_eq!(build(|config| config.nodes.clear()), ConfigError::NoNodes);
    assert_eq!(build(|config| config.quorum = Some(3)), ConfigError::Quorum { quorum: 3, nodes: 2 });
    assert_eq!(build(|config| config.quorum = Some(0)), ConfigError::Quorum { quorum: 0, nodes: 2 });
    let twin = |config: &mut chain::EvmConfig| config.nodes[1].name = "node-0".into();
    assert_eq!(build(twin), ConfigError::DuplicateNode { name: "node-0".into() });
    let bad = |config: &mut chain::EvmConfig| {
        config.nodes[0] = NodeConfig { name: "x".into(), url: "ftp://127.0.0.1".into() };
    };
    assert_eq!(build(bad), ConfigError::BadUrl { name: "x".into() });
    assert!(matches!(build(|config| config.chain_id = 0), ConfigError::Field { field: "chain_id", .. }));
}
