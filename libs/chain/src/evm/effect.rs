//! Whether a mined transaction did what it was meant to.
//!
//! Pure: a receipt, for native payments the transaction too, and the payment expected. A success status alone proves
//! nothing for a token: it may return false, take a fee, or announce nothing. Only a Transfer log of *that* contract
//! with the expected sender, receiver and value counts, and only one of them.
//!
//! Never asks whether the block is canonical or final.

use alloy_primitives::{Address, U64, U256};
use payment::{AssetRef, Effect, EffectCheck, NoEffect, Transfer};
use types::RawAmount;

use super::erc20::{self, decode_transfer};
use super::wire::{WireReceipt, WireTransaction};

/// What the transaction of this receipt did, compared with what it must show.
pub fn check(expected: &Effect, receipt: &WireReceipt, transaction: Option<&WireTransaction>) -> EffectCheck {
    match receipt.status {
        None => return EffectCheck::NoEffect { why: NoEffect::NoStatus },
        Some(status) if status == U64::ZERO => return EffectCheck::Reverted,
        Some(_) => {}
    }
    match expected {
        Effect::Moves(transfer) => match transfer.asset {
            AssetRef::Native => native(transfer, receipt, transaction),
            AssetRef::Token(contract) => token(transfer, contract.as_evm(), receipt),
        },
        Effect::Closes { sender } => {
            let nothing =
                Transfer { asset: AssetRef::Native, from: *sender, to: *sender, amount: RawAmount::ZERO };
            native(&nothing, receipt, transaction)
        }
        Effect::Succeeds { sender, contract }
            if receipt.from == sender.as_evm() && receipt.to == Some(contract.as_evm()) =>
        {
            EffectCheck::Happened
        }
        Effect::Succeeds { .. } => EffectCheck::NoEffect { why: NoEffect::OtherTransaction },
    }
}

fn native(expected: &Transfer, receipt: &WireReceipt, transaction: Option<&WireTransaction>) -> EffectCheck {
    let Some(transaction) = transaction else {
        return EffectCheck::NoEffect { why: NoEffect::NoTransaction };
    };
    let same = transaction.hash == receipt.transaction_hash
        && transaction.from == expected.from.as_evm()
        && transaction.to == Some(expected.to.as_evm());
    if !same {
        return EffectCheck::NoEffect { why: NoEffect::OtherTransaction };
    }
    if transaction.value != expected.amount.as_u256() {
        return EffectCheck::WrongAmount { moved: RawAmount::from_u256(transaction.value) };
    }
    EffectCheck::Happened
}

fn token(expected: &Transfer, contract: Address, receipt: &WireReceipt) -> EffectCheck {
    if receipt.from != expected.from.as_evm() || receipt.to != Some(contract) {
        return EffectCheck::NoEffect { why: NoEffect::OtherTransaction };
    }
    let (from, to) = (expected.from.as_evm(), expected.to.as_evm());
    let transfers: Vec<erc20::Transfer> =
        receipt.logs.iter().filter(|log| log.address == contract).filter_map(decode_transfer).collect();
    let paid: Vec<U256> =
        transfers.iter().filter(|log| log.from == from && log.to == to).map(|log| log.value).collect();
    if paid.is_empty() {
        return EffectCheck::NoEffect { why: NoEffect::NoTransferLog };
    }
    // A token may announce the whole amount and take its fee back out of the receiver's balance.
    let taken: U256 = if from == to {
        U256::ZERO
    } else {
        transfers
            .iter()
            .filter(|log| log.from == to)
            .fold(U256::ZERO, |sum, log| sum.saturating_add(log.value))
    };
    let given = paid.iter().fold(U256::ZERO, |sum, value| sum.saturating_add(*value));
    if paid.len() == 1 && taken.is_zero() && given == expected.amount.as_u256() {
        return EffectCheck::Happened;
    }
    EffectCheck::WrongAmount { moved: RawAmount::from_u256(given.saturating_sub(taken)) }
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
