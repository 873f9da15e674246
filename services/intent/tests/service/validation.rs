//! What is refused before anything is stored.

use proto::intent::v1 as pb;
use tonic::Code;

use crate::support::{
    HOT_WALLET, TOKEN, TRON_WALLET, WALLET, create, entry, fields, reason, stack, stack_with,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_is_named_at_once() {
    let stack = stack().await;
    let refused = stack
        .create(pb::CreateWithdrawalRequest {
            idempotency_key: String::new(),
            on_behalf_of: String::new(),
            user_id: "nobody".to_owned(),
            chain: "bsc".to_owned(),
            asset: "USDT".to_owned(),
            amount: "-1".to_owned(),
            destination: "0x1".to_owned(),
            memo: "x".repeat(501),
            priority: 99,
            labels: (0..17).map(|n| (n.to_string(), String::new())).collect(),
        })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let named = fields(&refused);
    for field in ["idempotency_key", "user_id", "amount", "destination", "memo", "priority", "labels"] {
        assert!(named.iter().any(|name| name == field), "{field} is not in {named:?}");
    }
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_disabled_assets_are_refused() {
    let stack = stack().await;
    for (chain, asset, field) in
        [("eth", "USDT", "chain"), ("bsc", "DOGE", "asset"), ("BSC", "USDT", "chain")]
    {
        let mut request = create("order-1");
        (request.chain, request.asset) = (chain.to_owned(), asset.to_owned());
        assert_eq!(fields(&stack.create(request).await.unwrap_err()), [field]);
    }
    let mut closed = entry("bsc", "USDT", 18, TOKEN);
    (closed.enabled, closed.revision) = (false, 2);
    stack.put_entry(closed).await;
    let refused = stack.create(create("order-1")).await.unwrap_err();
    assert_eq!(fields(&refused), ["asset"]);
    assert!(refused.message().contains("not enabled"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn money_cannot_be_sent_where_it_would_be_lost() {
    let stack = stack().await;
    let six = "0x27b1fdb04752bbc536007a920d24acb045561c26";
    let zero = format!("0x{}", "0".repeat(40));
    for (bad, why) in [
        ("0x52908400098527886e0F7030069857D2E4169EE7", "checksum"),
        (TRON_WALLET, "tron address"),
        (zero.as_str(), "zero address"),
        (TOKEN, "contract"),
        (six, "contract"),
        (HOT_WALLET, "our own"),
        (&HOT_WALLET.to_lowercase(), "our own"),
        ("", "empty"),
        (&format!(" {WALLET}"), "0x"),
    ] {
        let mut request = create("order-1");
        request.destination = bad.to_owned();
        let refused = stack.create(request).await.unwrap_err();
        assert_eq!(fields(&refused), ["destination"], "{bad}: {refused}");
        assert!(refused.message().contains(why), "{bad}: {refused}");
    }
    let mut native = create("order-1");
    (native.asset, native.destination) = ("BNB".to_owned(), TOKEN.to_owned());
    assert_eq!(fields(&stack.create(native).await.unwrap_err()), ["destination"]);
    let mut tron = create("order-1");
    (tron.chain, tron.asset, tron.amount) = ("tron".to_owned(), "TRX".to_owned(), "1".to_owned());
    assert_eq!(fields(&stack.create(tron).await.unwrap_err()), ["destination"], "an evm address on tron");
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn amounts_are_exact_or_refused() {
    let stack = stack().await;
    let max = types::RawAmount::MAX.to_string();
    let wide_max = format!("{}.{}", &max[..max.len() - 27], &max[max.len() - 27..]);
    let ask = |key: String, asset: &str, amount: &str| {
        let mut request = create(&key);
        (request.asset, request.amount) = (asset.to_owned(), amount.to_owned());
        stack.create(request)
    };
    for (n, (asset, amount, raw, human)) in [
        ("NONE", "7", "7", "7"),
        ("NONE", max.as_str(), max.as_str(), max.as_str()),
        ("SIX", "0.000001", "1", "0.000001"),
        ("SIX", "1.50", "1500000", "1.5"),
        ("USDT", "0.000000000000000001", "1", "0.000000000000000001"),
        ("WIDE", "0.000000000000000000000000001", "1", "0.000000000000000000000000001"),
        ("WIDE", wide_max.as_str(), max.as_str(), wide_max.as_str()),
    ]
    .into_iter()
    .enumerate()
    {
        let stored = ask(format!("good-{n}"), asset, amount).await.unwrap();
        assert_eq!(stored.amount_raw, raw, "{amount} {asset}");
        assert_eq!(stored.amount, human, "{amount} {asset}");
    }
    for (asset, amount) in [
        ("NONE", "7.0"),
        ("NONE", "0.1"),
        ("SIX", "0.0000001"),
        ("USDT", "0.0000000000000000001"),
        ("WIDE", "0.0000000000000000000000000001"),
        ("WIDE", max.as_str()),
        ("NONE", &format!("{max}0")),
        ("USDT", "0"),
        ("USDT", "0.0"),
        ("USDT", "-1"),
        ("USDT", "1e18"),
        ("USDT", "1,000"),
        ("USDT", "0x10"),
        ("USDT", ""),
        ("USDT", "NaN"),
    ] {
        let refused = ask("bad".to_owned(), asset, amount).await.unwrap_err();
        assert_eq!(fields(&refused), ["amount"], "{amount} {asset}: {refused}");
    }
    let mut least = entry("bsc", "SIX", 6, "0x27b1fdb04752bbc536007a920d24acb045561c26");
    (least.min_withdrawal_raw, least.revision) = ("2000000".to_owned(), 2);
    stack.put_entry(least).await;
    assert!(ask("bad".to_owned(), "SIX", "1.999999").await.unwrap_err().message().contains("2 SIX"));
    assert!(ask("minimum".to_owned(), "SIX", "2").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asset_without_a_policy_is_refused_unless_a_default_is_configured() {
    let stack = stack_with("").await;
    let refused = stack.create(create("order-1")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "NO_APPROVAL_POLICY"));
    assert_eq!(stack.count("SELECT count(*) FROM withdrawal_requests").await, 0);
}
