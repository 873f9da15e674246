//! Receipts as nodes and gateways write them, and what may be concluded from each.

use payment::{AssetRef, Transfer};
use prost::Message as _;
use types::{Address, AddressFormat};

use super::*;
use crate::evm::erc20::TRANSFER_TOPIC;
use crate::tron::tx::call;
use crate::tron::wire::{WireReceipt as Receipt, WireTronLog};

const AMOUNT: u64 = 7;

fn address(byte: u8) -> Address {
    Address::from_body(AddressFormat::Tron, [byte; 20])
}

fn pays(asset: AssetRef) -> Transfer {
    Transfer { asset, from: address(1), to: address(2), amount: AMOUNT.into() }
}

fn token() -> Transfer {
    pays(AssetRef::Token(address(9)))
}

fn log(contract: u8, to: u8, amount: u64) -> WireTronLog {
    let word = |address: Address| format!("{:0>64}", alloy_primitives::hex::encode(address.body()));
    WireTronLog {
        address: alloy_primitives::hex::encode([contract; 20]),
        topics: vec![alloy_primitives::hex::encode(TRANSFER_TOPIC), word(address(1)), word(address(to))],
        data: format!("{amount:064x}"),
    }
}

/// A receipt that says so in its `result` and in its receipt's, with the log of the payment.
fn says(result: Option<&str>, receipt: Option<&str>) -> WireInfo {
    WireInfo {
        result: result.map(str::to_owned),
        receipt: Receipt { result: receipt.map(str::to_owned), ..Receipt::default() },
        log: vec![log(9, 2, AMOUNT)],
        ..WireInfo::default()
    }
}

fn judge(expected: &Transfer, sent: &Transfer, info: &WireInfo) -> Result<EffectCheck, NodeError> {
    let contract = vec![call(sent).unwrap().into_contract()];
    let raw = Raw { contract, ..Raw::default() }.encode_to_vec();
    let block = BlockRef { number: 3, hash: TxHash([3; 32]) };
    check(&Effect::Moves(*expected), &tx_id(&raw), info, &alloy_primitives::hex::encode(&raw), block)
}

fn effect(transfer: &Transfer, info: &WireInfo) -> EffectCheck {
    judge(transfer, transfer, info).unwrap()
}

#[test]
fn a_call_has_paid_only_where_both_words_say_so() {
    for result in [None, Some("SUCESS"), Some("SUCCESS")] {
        assert_eq!(effect(&token(), &says(result, Some("SUCCESS"))), EffectCheck::Happened, "{result:?}");
    }
    for failure in FAILURES {
        for result in [None, Some("FAILED")] {
            assert_eq!(
                effect(&token(), &says(result, Some(failure))),
                EffectCheck::Reverted,
                "{result:?} {failure}"
            );
        }
    }
    assert_eq!(effect(&token(), &says(Some("FAILED"), None)), EffectCheck::Reverted);
}

#[test]
fn a_receipt_that_contradicts_itself_or_speaks_strangely_is_neither_paid_nor_failed() {
    let undecided = EffectCheck::NoEffect { why: NoEffect::NoStatus };
    for (result, receipt) in [
        (Some("FAILED"), Some("SUCCESS")),
        (Some("PENDING"), Some("SUCCESS")),
        (Some("PENDING"), Some("REVERT")),
        (None, None),
        (None, Some("DEFAULT")),
        (None, Some("A_RESULT_OF_NEXT_YEAR")),
        (Some("FAILED"), Some("A_RESULT_OF_NEXT_YEAR")),
    ] {
        assert_eq!(effect(&token(), &says(result, receipt)), undecided, "{result:?} {receipt:?}");
    }
    // A transfer of TRX that failed would not be in a block.
    for (result, receipt) in [(Some("FAILED"), None), (None, Some("REVERT")), (Some("PENDING"), None)] {
        let native = pays(AssetRef::Native);
        assert_eq!(effect(&native, &says(result, receipt)), undecided, "{result:?} {receipt:?}");
    }
}

#[test]
fn trx_in_a_block_is_paid_whether_defaults_are_left_out_or_not() {
    for (result, receipt) in [(None, None), (Some("SUCESS"), Some("DEFAULT")), (None, Some("SUCCESS"))] {
        assert_eq!(
            effect(&pays(AssetRef::Native), &says(result, receipt)),
            EffectCheck::Happened,
            "{receipt:?}"
        );
    }
}

#[test]
fn only_the_log_of_that_contract_to_that_receiver_pays() {
    let with = |log: Vec<WireTronLog>| WireInfo { log, ..says(None, Some("SUCCESS")) };
    let none = EffectCheck::NoEffect { why: NoEffect::NoTransferLog };
    assert_eq!(effect(&token(), &with(Vec::new())), none);
    assert_eq!(effect(&token(), &with(vec![log(8, 2, AMOUNT)])), none, "another contract");
    assert_eq!(effect(&token(), &with(vec![log(9, 3, AMOUNT)])), none, "another receiver");
    let less = effect(&token(), &with(vec![log(9, 2, AMOUNT - 1)]));
    assert_eq!(less, EffectCheck::WrongAmount { moved: (AMOUNT - 1).into() }, "a fee was taken");
}

#[test]
fn another_payment_under_the_claimed_hash_is_noticed() {
    let native = pays(AssetRef::Native);
    let more = Transfer { amount: (AMOUNT + 1).into(), ..native };
    let found = judge(&native, &more, &says(None, None)).unwrap();
    assert_eq!(found, EffectCheck::WrongAmount { moved: (AMOUNT + 1).into() });
    let elsewhere = Transfer { to: address(5), ..native };
    let found = judge(&native, &elsewhere, &says(None, None)).unwrap();
    assert_eq!(found, EffectCheck::NoEffect { why: NoEffect::OtherTransaction });
}

#[test]
fn what_a_node_garbles_is_an_error_and_never_a_panic() {
    let block = BlockRef { number: 3, hash: TxHash([3; 32]) };
    for raw in ["zz", "", "00", &"ff".repeat(40)] {
        let told = check(&Effect::Moves(token()), &TxHash([1; 32]), &WireInfo::default(), raw, block);
        assert!(matches!(told, Err(NodeError::Malformed { .. })), "{raw}: {told:?}");
    }
    let garbled = |change: fn(&mut WireTronLog)| {
        let mut info = says(None, Some("SUCCESS"));
        change(&mut info.log[0]);
        judge(&token(), &token(), &info)
    };
    for told in [
        garbled(|log| log.address = "12".to_owned()),
        garbled(|log| log.data = "not hex".to_owned()),
        garbled(|log| log.topics[1] = "ab".to_owned()),
    ] {
        assert!(matches!(told, Err(NodeError::Malformed { .. })), "{told:?}");
    }
}
