//! Whether an included transaction did what it was meant to.
//!
//! Pure. A token's log on TRON is an EVM log, so the judgement is `evm::effect`'s; here the receipt is put into its shape.
//! What the transaction itself says is read from its raw bytes, whose hash is its id: no node can make that up.

use alloy_primitives::{Address as EvmAddress, B256, Bytes, U64, U128, U256};
use payment::{BlockRef, Effect, EffectCheck, NoEffect};
use prost::Message as _;
use types::TxHash;

use super::message::{CONTRACT_RESULTS, Call, Raw, tx_id};
use super::wire::{WireInfo, malformed, unsigned};
use crate::error::NodeError;
use crate::evm::effect;
use crate::evm::wire::{WireReceipt, WireTransaction};

/// What this transaction did, compared with what it must show. `raw_data_hex` is what the node shows of it.
pub fn check(
    expected: &Effect,
    hash: &TxHash,
    info: &WireInfo,
    raw_data_hex: &str,
    block: BlockRef,
) -> Result<EffectCheck, NodeError> {
    let raw = alloy_primitives::hex::decode(raw_data_hex).map_err(|_| malformed("raw data is not hex"))?;
    if tx_id(&raw) != *hash {
        return Err(malformed("raw data of another transaction"));
    }
    let raw = Raw::decode(raw.as_slice()).map_err(|error| malformed(&error.to_string()))?;
    let call = Call::of(&raw).map_err(|error| malformed(&error.to_string()))?;
    let Some(parties) = Parties::of(&call) else {
        return Ok(EffectCheck::NoEffect { why: NoEffect::OtherTransaction });
    };
    let receipt = WireReceipt {
        transaction_hash: B256::from(*hash),
        block_hash: block.hash.into(),
        block_number: U64::from(block.number),
        from: parties.from,
        to: Some(parties.to),
        status: status(&call, info),
        gas_used: U64::from(unsigned(info.receipt.energy_usage_total)?),
        effective_gas_price: None,
        logs: info.log.iter().map(super::wire::WireTronLog::log).collect::<Result<_, _>>()?,
    };
    let transaction = WireTransaction {
        hash: B256::from(*hash),
        from: parties.from,
        to: Some(parties.to),
        nonce: U64::ZERO,
        value: parties.value,
        input: Bytes::new(),
        block_hash: Some(block.hash.into()),
        block_number: Some(U64::from(block.number)),
        gas_price: Option::<U128>::None,
    };
    Ok(effect::check(expected, &receipt, Some(&transaction)))
}

struct Parties {
    from: EvmAddress,
    to: EvmAddress,
    value: U256,
}

impl Parties {
    /// A payment of TRX is a `TransferContract`: TRX sent along with a call is none.
    fn of(call: &Call) -> Option<Self> {
        let (from, to, value) = match call {
            Call::Transfer(transfer) => (&transfer.owner_address, &transfer.to_address, transfer.amount),
            Call::Trigger(trigger) => (&trigger.owner_address, &trigger.contract_address, 0),
            Call::Other(_) => return None,
        };
        Some(Self { from: body(from)?, to: body(to)?, value: U256::from(u64::try_from(value).ok()?) })
    }
}

/// The twenty bytes behind the prefix.
fn body(address: &[u8]) -> Option<EvmAddress> {
    let (prefix, body) = address.split_first()?;
    if *prefix != 0x41 {
        return None;
    }
    EvmAddress::try_from(body).ok()
}

/// Whether it succeeded; `None` when the receipt contradicts itself or speaks in words that are not known here. Such a receipt
/// decides nothing: taken for a failure, it would allow a second payment.
///
/// A transfer of TRX that fails is never included. A call may be included and fail, and must say that it did not.
fn status(call: &Call, info: &WireInfo) -> Option<U64> {
    let whole = match info.result.as_deref() {
        // Zero of its enumeration, spelled as java-tron spells it; nodes leave it out, gateways may not.
        None | Some("SUCESS" | "SUCCESS") => true,
        Some("FAILED") => false,
        Some(_) => return None,
    };
    let success = match (call, whole, info.receipt.result.as_deref()) {
        (Call::Transfer(_), true, None | Some("SUCCESS" | "DEFAULT")) => true,
        (Call::Trigger(_), true, Some("SUCCESS")) => true,
        (Call::Trigger(_), _, Some(result)) if FAILURES.contains(&result) => false,
        (Call::Trigger(_), false, None | Some("DEFAULT")) => false,
        (Call::Transfer(_) | Call::Trigger(_) | Call::Other(_), _, _) => return None,
    };
    Some(if success { U64::from(1) } else { U64::ZERO })
}

/// Every way in which java-tron says that a call has failed.
const FAILURES: &[&str] = CONTRACT_RESULTS.split_at(2).1;

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
