//! Each way a receipt can say success without the payment having been made.

use alloy_primitives::{B256, Bytes};
use proptest::prelude::*;
use types::{Address as AnyAddress, AddressFormat};

use super::super::wire::WireLog;
use super::*;

const TOKEN: Address = Address::repeat_byte(0x70);
const PAYER: Address = Address::repeat_byte(0x0a);
const RECEIVER: Address = Address::repeat_byte(0x0b);
const OTHER: Address = Address::repeat_byte(0x0c);

fn any_address(address: Address) -> AnyAddress {
    AnyAddress::from_body(AddressFormat::Evm, address.into_array())
}

fn expected(asset: AssetRef, amount: u64) -> Effect {
    Effect::Moves(Transfer {
        asset,
        from: any_address(PAYER),
        to: any_address(RECEIVER),
        amount: RawAmount::from_u256(U256::from(amount)),
    })
}

fn token_payment() -> Effect {
    expected(AssetRef::Token(any_address(TOKEN)), 100)
}

fn log(contract: Address, from: Address, to: Address, value: u64) -> WireLog {
    WireLog {
        address: contract,
        topics: vec![erc20::TRANSFER_TOPIC, from.into_word(), to.into_word()],
        data: Bytes::from(U256::from(value).to_be_bytes::<32>()),
        block_number: None,
        block_hash: None,
        transaction_hash: None,
        log_index: None,
        removed: false,
    }
}

fn receipt(status: Option<u64>, to: Address, logs: Vec<WireLog>) -> WireReceipt {
    WireReceipt {
        transaction_hash: B256::repeat_byte(1),
        block_hash: B256::repeat_byte(2),
        block_number: U64::from(1),
        from: PAYER,
        to: Some(to),
        status: status.map(U64::from),
        gas_used: U64::from(50_000),
        effective_gas_price: None,
        logs,
    }
}

fn token_effect(logs: Vec<WireLog>) -> EffectCheck {
    check(&token_payment(), &receipt(Some(1), TOKEN, logs), None)
}

fn moved(amount: u64) -> EffectCheck {
    EffectCheck::WrongAmount { moved: RawAmount::from_u256(U256::from(amount)) }
}

#[test]
fn exactly_one_right_log_is_paid() {
    assert_eq!(token_effect(vec![log(TOKEN, PAYER, RECEIVER, 100)]), EffectCheck::Happened);
    // Logs of others, or of this contract about others, change nothing.
    let noise = vec![
        log(OTHER, PAYER, RECEIVER, 7),
        log(TOKEN, PAYER, RECEIVER, 100),
        log(TOKEN, OTHER, OTHER, 5),
        log(OTHER, RECEIVER, OTHER, 100),
    ];
    assert_eq!(token_effect(noise), EffectCheck::Happened);
}

#[test]
fn success_without_the_contract_s_log_is_no_payment() {
    let no_log = EffectCheck::NoEffect { why: NoEffect::NoTransferLog };
    assert_eq!(token_effect(vec![]), no_log);
    assert_eq!(token_effect(vec![log(OTHER, PAYER, RECEIVER, 100)]), no_log, "forged by another contract");
    assert_eq!(token_effect(vec![log(TOKEN, OTHER, RECEIVER, 100)]), no_log, "another payer");
    assert_eq!(token_effect(vec![log(TOKEN, PAYER, OTHER, 100)]), no_log, "another receiver");
    let removed = WireLog { removed: true, ..log(TOKEN, PAYER, RECEIVER, 100) };
    assert_eq!(token_effect(vec![removed]), no_log);
    let mut nft = log(TOKEN, PAYER, RECEIVER, 100);
    nft.topics.push(B256::ZERO);
    assert_eq!(token_effect(vec![nft]), no_log);
}

#[test]
fn another_amount_is_not_the_payment() {
    assert_eq!(token_effect(vec![log(TOKEN, PAYER, RECEIVER, 99), log(TOKEN, PAYER, OTHER, 1)]), moved(99));
    assert_eq!(token_effect(vec![log(TOKEN, PAYER, RECEIVER, 101)]), moved(101));
    assert_eq!(
        token_effect(vec![log(TOKEN, PAYER, RECEIVER, 100), log(TOKEN, RECEIVER, OTHER, 1)]),
        moved(99)
    );
    assert_eq!(
        token_effect(vec![log(TOKEN, PAYER, RECEIVER, 100), log(TOKEN, PAYER, RECEIVER, 100)]),
        moved(200)
    );
    assert_eq!(
        token_effect(vec![log(TOKEN, PAYER, RECEIVER, 60), log(TOKEN, PAYER, RECEIVER, 40)]),
        moved(100)
    );
}

#[test]
fn a_reverted_or_foreign_transaction_is_no_payment() {
    let logs = vec![log(TOKEN, PAYER, RECEIVER, 100)];
    assert_eq!(check(&token_payment(), &receipt(Some(0), TOKEN, logs.clone()), None), EffectCheck::Reverted);
    assert_eq!(
        check(&token_payment(), &receipt(None, TOKEN, logs.clone()), None),
        EffectCheck::NoEffect { why: NoEffect::NoStatus }
    );
    assert_eq!(
        check(&token_payment(), &receipt(Some(1), OTHER, logs), None),
        EffectCheck::NoEffect { why: NoEffect::OtherTransaction }
    );
}

#[test]
fn a_native_payment_is_read_off_the_transaction() {
    let payment = expected(AssetRef::Native, 5);
    let receipt = receipt(Some(1), RECEIVER, vec![]);
    let right = WireTransaction {
        hash: receipt.transaction_hash,
        from: PAYER,
        to: Some(RECEIVER),
        nonce: U64::from(0),
        value: U256::from(5),
        input: Bytes::new(),
        block_hash: None,
        block_number: None,
        gas_price: None,
    };
    let other = EffectCheck::NoEffect { why: NoEffect::OtherTransaction };
    assert_eq!(check(&payment, &receipt, Some(&right)), EffectCheck::Happened);
    assert_eq!(check(&payment, &receipt, None), EffectCheck::NoEffect { why: NoEffect::NoTransaction });
    let with = |change: fn(&mut WireTransaction)| {
        let mut transaction = right.clone();
        change(&mut transaction);
        check(&payment, &receipt, Some(&transaction))
    };
    assert_eq!(with(|tx| tx.value = U256::from(4)), moved(4));
    assert_eq!(with(|tx| tx.to = Some(OTHER)), other);
    assert_eq!(with(|tx| tx.to = None), other);
    assert_eq!(with(|tx| tx.from = OTHER), other);
    assert_eq!(with(|tx| tx.hash = B256::ZERO), other);
}

proptest! {
    /// Whatever logs a receipt carries, paid means: one log of that contract, payer to receiver, of that amount.
    #[test]
    fn paid_always_rests_on_one_exact_log(
        logs in prop::collection::vec((0u8..2, 0u8..3, 0u8..3, 98u64..103), 0..6),
    ) {
        let pick = |index: u8| [PAYER, RECEIVER, OTHER][usize::from(index)];
        let logs: Vec<WireLog> = logs
            .into_iter()
            .map(|(contract, from, to, value)| {
                log(if contract == 0 { TOKEN } else { OTHER }, pick(from), pick(to), value)
            })
            .collect();
        let right = log(TOKEN, PAYER, RECEIVER, 100);
        let count = logs.iter().filter(|log| **log == right).count();
        if token_effect(logs) == EffectCheck::Happened {
            prop_assert_eq!(count, 1);
        }
    }
}

#[test]
fn a_call_counts_when_it_succeeded_at_the_contract_for_its_sender() {
    let (sender, contract) = (any_address(PAYER), any_address(TOKEN));
    let called =
        |status, to| check(&Effect::Succeeds { sender, contract }, &receipt(status, to, Vec::new()), None);
    assert_eq!(called(Some(1), TOKEN), EffectCheck::Happened);
    assert_eq!(called(Some(0), TOKEN), EffectCheck::Reverted);
    assert_eq!(called(None, TOKEN), EffectCheck::NoEffect { why: NoEffect::NoStatus });
    let other = EffectCheck::NoEffect { why: NoEffect::OtherTransaction };
    assert_eq!(called(Some(1), OTHER), other);
    let sender = any_address(OTHER);
    let stranger = check(&Effect::Succeeds { sender, contract }, &receipt(Some(1), TOKEN, Vec::new()), None);
    assert_eq!(stranger, other);
}
