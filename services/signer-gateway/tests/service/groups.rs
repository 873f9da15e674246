//! Groups, addresses, operation wallets.

use proto::signer::v1 as pb;
use tonic::Code;

use crate::support::*;

#[tokio::test]
async fn importing_is_idempotent_by_name_and_phrase() {
    let mut gateway = Gateway::start().await;
    let again =
        gateway.operator.import_wallet_group(import("hot", "operation", PHRASE)).await.expect("known");
    assert_eq!(again.into_inner().group.expect("group").id, gateway.operation_group);
    let other =
        "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about";
    for (request, code) in [
        (import("hot", "operation", other), Code::AlreadyExists),
        (import("hot", "deposit", PHRASE), Code::AlreadyExists),
        (import("warm", "operation", PHRASE), Code::AlreadyExists),
        (import("warm", "operation", "test test junk"), Code::InvalidArgument),
        (import("warm", "savings", other), Code::InvalidArgument),
        (import("", "operation", other), Code::InvalidArgument),
    ] {
        let status = gateway.operator.import_wallet_group(request).await.expect_err("refused");
        assert_eq!(status.code(), code, "{status:?}");
        assert!(!format!("{status:?}").contains("abandon"), "no word of a phrase in an error");
    }
}

#[tokio::test]
async fn a_new_group_shows_its_phrase_only_when_asked_and_only_once() {
    let mut gateway = Gateway::start().await;
    let request = |name: &str, reveal_phrase| pb::CreateWalletGroupRequest {
        name: name.to_owned(),
        purpose: "deposit".to_owned(),
        words: 0,
        reveal_phrase,
    };
    let quiet = gateway.operator.create_wallet_group(request("quiet", false)).await.expect("created");
    assert!(quiet.into_inner().recovery_phrase.is_empty());
    let loud =
        gateway.operator.create_wallet_group(request("loud", true)).await.expect("created").into_inner();
    assert_eq!(loud.recovery_phrase.split(' ').count(), 24);
    // Who has seen a phrase can spend what is behind it for ever: the log tells when one was shown.
    let shown: Vec<bool> = gateway
        .audit()
        .await
        .iter()
        .filter(|entry| entry.action == "create_group")
        .map(|entry| entry.detail.contains("\"phrase_revealed\":true"))
        .collect();
    assert_eq!(shown, [false, false, true]);
    let status = gateway.operator.create_wallet_group(request("loud", true)).await.expect_err("exists");
    assert_eq!(status.code(), Code::AlreadyExists);
    let pool = gateway.database.pool().await;
    let stored: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT sealed_seed FROM wallet_groups").fetch_all(&pool).await.expect("rows");
    assert_eq!(stored.len(), 4);
    assert!(stored.iter().all(|seed| seed.len() == 80));
}

#[tokio::test]
async fn addresses_follow_bip44_on_both_kinds_of_chain() {
    let mut gateway = Gateway::start().await;
    let derive = |format: &str, count| pb::DeriveAddressesRequest {
        wallet_group_id: gateway.operation_group.clone(),
        address_format: format.to_owned(),
        from_index: 0,
        count,
    };
    let (evm, tron, none) = (derive("evm", 2), derive("tron", 2), derive("evm", 0));
    let evm = gateway.operator.derive_addresses(evm).await.expect("derived").into_inner().addresses;
    assert_eq!([evm[0].address.as_str(), evm[1].address.as_str()], [HOT, CUSTOMER]);
    assert_eq!(evm[1].path, "m/44'/60'/0'/0/1");
    let tron = gateway.operator.derive_addresses(tron).await.expect("derived").into_inner().addresses;
    assert_eq!(tron[0].address, "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6");
    assert_eq!(tron[1].path, "m/44'/195'/0'/0/1");
    assert_eq!(
        gateway.operator.derive_addresses(none).await.expect_err("none").code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn an_operation_wallet_is_derived_here_or_listed_as_cold_storage() {
    let mut gateway = Gateway::start().await;
    let wallet = operation_wallet;
    let (hot, deposits) = (gateway.operation_group.clone(), gateway.deposit_group.clone());
    let deposit = gateway.deposit_address.clone();
    for refused in [wallet(STRANGER, &hot, 0), wallet(STRANGER, "", 0), wallet(&deposit, &deposits, 7)] {
        let status = gateway.register(refused).await.expect_err("refused");
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        assert_eq!(
            gateway.audit().await.last().map(|entry| entry.decision.clone()).as_deref(),
            Some("refused")
        );
    }
    gateway.register(wallet(COLD, "", 0)).await.expect("cold storage");
    gateway.register(wallet(HOT, &hot, 0)).await.expect("hot");
    gateway.register(wallet(HOT, &hot, 0)).await.expect("again");
    let request = pb::ListOperationWalletsRequest {};
    let listed = gateway.operator.list_operation_wallets(request).await.expect("listed").into_inner().wallets;
    assert_eq!(listed.len(), 2);
}

#[tokio::test]
async fn a_row_copied_over_another_group_does_not_open() {
    let gateway = Gateway::start().await;
    let pool = gateway.database.pool().await;
    sqlx::query(
        "UPDATE wallet_groups SET sealed_seed = other.sealed_seed, sealed_nonce = other.sealed_nonce \
         FROM wallet_groups AS other WHERE wallet_groups.name = 'hot' AND other.name = 'deposits'",
    )
    .execute(&pool)
    .await
    .expect("swapped");
    let gateway = gateway.restart(false).await;
    let request = pb::UnsealRequest { unseal_key: UNSEAL_KEY.to_owned() };
    assert_eq!(gateway.operator.clone().unseal(request).await.expect_err("refused").code(), Code::Internal);
    let status = gateway.operator.clone().get_status(pb::GetStatusRequest {}).await.expect("status");
    assert!(status.into_inner().sealed, "nothing half open");
}

#[tokio::test]
async fn one_group_that_does_not_open_leaves_no_key_of_the_others_in_memory() {
    let gateway = Gateway::start().await;
    let pool = gateway.database.pool().await;
    let spoilt = "UPDATE wallet_groups SET sealed_seed = overlay(sealed_seed placing '\\x00'::bytea from 40) WHERE name = 'deposits'";
    sqlx::query(spoilt).execute(&pool).await.expect("spoilt");
    let gateway = gateway.restart(false).await;
    let request = pb::UnsealRequest { unseal_key: UNSEAL_KEY.to_owned() };
    gateway.operator.clone().unseal(request).await.expect_err("the last group is spoilt");
    let listed = gateway.operator.clone().list_wallet_groups(pb::ListWalletGroupsRequest {}).await;
    let groups = listed.expect("listed").into_inner().groups;
    assert_eq!(groups.len(), 2);
    assert!(groups.iter().all(|group| !group.unsealed), "{groups:?}");
}
