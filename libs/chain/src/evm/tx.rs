//! EVM transactions: unsigned as plain data, signed as bytes that are decoded and compared.
//!
//! Nothing here signs. Execution compares what the signer returned with what it planned, field by field, before the
//! bytes are stored or sent. Only the two kinds of transaction Bursar makes are accepted; an access list, a blob or a
//! delegation in signed bytes means that they are not ours.

use alloy::consensus::transaction::SignerRecoverable as _;
use alloy::consensus::{Transaction as _, TxEip1559, TxEnvelope, TxLegacy, TypedTransaction};
use alloy::eips::eip2718::{Decodable2718 as _, Encodable2718 as _};
use alloy_primitives::{Address, Bytes, TxKind, U256, keccak256};
use payment::{Action, AssetRef, GasFee};
use serde::{Deserialize, Serialize};
use types::TxHash;

use super::erc20;
use crate::edge::SignedError;

/// What is to be signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsignedTx {
    pub chain_id: u64,
    pub nonce: u64,
    pub to: Address,
    pub value: U256,
    pub data: Bytes,
    pub gas_limit: u64,
    pub fee: GasFee,
}

/// Receiver, value and calldata of an action: for a token the contract is the receiver and carries no value.
pub fn envelope(action: &Action) -> (Address, U256, Bytes) {
    match action {
        Action::Pay(transfer) => match transfer.asset {
            AssetRef::Native => (transfer.to.as_evm(), transfer.amount.as_u256(), Bytes::new()),
            AssetRef::Token(contract) => {
                let data = erc20::transfer_calldata(transfer.to.as_evm(), transfer.amount.as_u256());
                (contract.as_evm(), U256::ZERO, data)
            }
        },
        Action::Cancel { sender } => (sender.as_evm(), U256::ZERO, Bytes::new()),
        Action::Call(call) => (call.contract.as_evm(), U256::ZERO, call.data.clone().into()),
    }
}

impl UnsignedTx {
    pub fn new(chain_id: u64, nonce: u64, action: &Action, gas_limit: u64, fee: GasFee) -> Self {
        let (to, value, data) = envelope(action);
        Self { chain_id, nonce, to, value, data, gas_limit, fee }
    }

    /// The transaction in the form whose hash is signed.
    pub fn typed(&self) -> TypedTransaction {
        let to = TxKind::Call(self.to);
        match self.fee {
            GasFee::Dynamic { max_fee, max_priority } => TypedTransaction::Eip1559(TxEip1559 {
                chain_id: self.chain_id,
                nonce: self.nonce,
                gas_limit: self.gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: max_priority,
                to,
                value: self.value,
                access_list: alloy::eips::eip2930::AccessList::default(),
                input: self.data.clone(),
            }),
            GasFee::Legacy { gas_price } => TypedTransaction::Legacy(TxLegacy {
                chain_id: Some(self.chain_id),
                nonce: self.nonce,
                gas_price,
                gas_limit: self.gas_limit,
                to,
                value: self.value,
                input: self.data.clone(),
            }),
        }
    }
}

/// What signed bytes contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTx {
    pub hash: TxHash,
    pub sender: Address,
    pub tx: UnsignedTx,
}

/// The hash under which these bytes will be known, whatever they contain.
pub fn hash_of(raw: &[u8]) -> TxHash {
    keccak256(raw).into()
}

impl SignedTx {
    /// Decodes exactly one transaction and recovers its sender. A signature with a high `s` is refused, because
    /// nodes refuse it and because it has a twin with another hash.
    pub fn decode(raw: &[u8]) -> Result<Self, SignedError> {
        let undecodable = |reason: &str| SignedError::Undecodable { reason: reason.to_owned() };
        let mut rest = raw;
        let envelope = TxEnvelope::decode_2718(&mut rest).map_err(|error| undecodable(&error.to_string()))?;
        if !rest.is_empty() {
            return Err(undecodable("bytes after the transaction"));
        }
        // Another spelling of the same transaction would be known under another hash than the one stored.
        if envelope.encoded_2718() != raw {
            return Err(undecodable("not in canonical form"));
        }
        let fee = match &envelope {
            TxEnvelope::Legacy(tx) => GasFee::Legacy { gas_price: tx.tx().gas_price },
            TxEnvelope::Eip1559(tx) if tx.tx().access_list.is_empty() => GasFee::Dynamic {
                max_fee: tx.tx().max_fee_per_gas,
                max_priority: tx.tx().max_priority_fee_per_gas,
            },
            _ => return Err(undecodable("not a plain legacy or EIP-1559 transaction")),
        };
        let chain_id = envelope.chain_id().ok_or_else(|| undecodable("no chain id: valid on every chain"))?;
        let to = envelope.to().ok_or_else(|| undecodable("creates a contract"))?;
        let sender = envelope.recover_signer().map_err(|_| SignedError::BadSignature)?;
        let tx = UnsignedTx {
            chain_id,
            nonce: envelope.nonce(),
            to,
            value: envelope.value(),
            data: envelope.input().clone(),
            gas_limit: envelope.gas_limit(),
            fee,
        };
        Ok(Self { hash: hash_of(raw), sender, tx })
    }

    /// Names the first field that differs from what was asked for.
    pub fn matches(&self, sender: Address, expected: &UnsignedTx) -> Result<(), SignedError> {
        fn same<T: PartialEq + std::fmt::Debug>(
            field: &'static str,
            expected: &T,
            found: &T,
        ) -> Result<(), SignedError> {
            if expected == found {
                return Ok(());
            }
            Err(SignedError::Mismatch {
                field,
                expected: format!("{expected:?}"),
                found: format!("{found:?}"),
            })
        }
        let found = &self.tx;
        same("sender", &sender, &self.sender)?;
        same("chain id", &expected.chain_id, &found.chain_id)?;
        same("nonce", &expected.nonce, &found.nonce)?;
        same("to", &expected.to, &found.to)?;
        same("value", &expected.value, &found.value)?;
        same("data", &expected.data, &found.data)?;
        same("gas limit", &expected.gas_limit, &found.gas_limit)?;
        same("fee", &expected.fee, &found.fee)
    }
}

#[cfg(test)]
#[path = "tx_tests.rs"]
mod tests;
