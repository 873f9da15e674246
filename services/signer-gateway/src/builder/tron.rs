//! TRON transactions, from protobuf messages of our own: SDKs retry and fill fields by themselves, which hides
//! where a signature begins. The id is the hash of the raw data and is known before signing.

use prost::Message;
use sha2::{Digest, Sha256};
use types::{Address, AddressFormat, RawAmount, TxHash};

use super::{Action, BuildError, Signed, positive, token_transfer_call};
use crate::keys::RecoverableSignature;

/// The network accepts expirations at most a day ahead of the head block.
const MAX_LIFETIME_MS: i64 = 24 * 60 * 60 * 1000;
/// The network's own ceiling for energy burnt by one transaction: 15,000 TRX.
const MAX_FEE_LIMIT_SUN: i64 = 15_000_000_000;

/// `r || s || v`.
const SIGNATURE_BYTES: usize = 65;
/// What the network adds to the signed bytes when it counts bandwidth: room for a result.
const RESULT_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TronParameters {
    pub ref_block_bytes: [u8; 2],
    pub ref_block_hash: [u8; 8],
    pub expiration_ms: i64,
    pub timestamp_ms: i64,
    pub fee_limit_sun: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    ref_block_bytes: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    ref_block_hash: Vec<u8>,
    #[prost(int64, tag = "8")]
    expiration: i64,
    #[prost(message, repeated, tag = "11")]
    contract: Vec<Contract>,
    #[prost(int64, tag = "14")]
    timestamp: i64,
    #[prost(int64, tag = "18")]
    fee_limit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Contract {
    #[prost(int32, tag = "1")]
    r#type: i32,
    #[prost(message, optional, tag = "2")]
    parameter: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TransferContract {
    #[prost(bytes = "vec", tag = "1")]
    owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    to_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    amount: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TriggerSmartContract {
    #[prost(bytes = "vec", tag = "1")]
    owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    contract_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    call_value: i64,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

pub(super) fn build(
    from: Address,
    action: &Action,
    parameters: &TronParameters,
) -> Result<Vec<u8>, BuildError> {
    check(parameters)?;
    let raw = Raw {
        ref_block_bytes: parameters.ref_block_bytes.to_vec(),
        ref_block_hash: parameters.ref_block_hash.to_vec(),
        expiration: parameters.expiration_ms,
        contract: vec![contract(tron(from, "from")?, action)?],
        timestamp: parameters.timestamp_ms,
        fee_limit: parameters.fee_limit_sun,
    };
    Ok(raw.encode_to_vec())
}

fn contract(owner: Address, action: &Action) -> Result<Contract, BuildError> {
    let (number, name, value) = match action {
        Action::Transfer { to, amount } => {
            let transfer = TransferContract {
                owner_address: owner.tron_bytes().to_vec(),
                to_address: tron(*to, "to")?.tron_bytes().to_vec(),
                amount: sun(positive(*amount)?)?,
            };
            (1, "TransferContract", transfer.encode_to_vec())
        }
        Action::TokenTransfer { contract, to, amount } => {
            let trigger = TriggerSmartContract {
                owner_address: owner.tron_bytes().to_vec(),
                contract_address: tron(*contract, "contract_address")?.tron_bytes().to_vec(),
                call_value: 0,
                data: token_transfer_call(tron(*to, "to")?, positive(*amount)?),
            };
            (31, "TriggerSmartContract", trigger.encode_to_vec())
        }
        Action::Cancellation => return Err(BuildError::NoCancellation),
        Action::ContractCall { .. } => return Err(BuildError::NoContractCall),
    };
    let parameter = Any { type_url: format!("type.googleapis.com/protocol.{name}"), value };
    Ok(Contract { r#type: number, parameter: Some(parameter) })
}

fn check(parameters: &TronParameters) -> Result<(), BuildError> {
    let refuse = |field, problem| Err(BuildError::OutOfRange { field, problem });
    if parameters.timestamp_ms <= 0 {
        return refuse("timestamp_ms", "must be greater than zero");
    }
    let lifetime_ms = parameters.expiration_ms.saturating_sub(parameters.timestamp_ms);
    if !(1..=MAX_LIFETIME_MS).contains(&lifetime_ms) {
        return refuse("expiration_ms", "must lie within 24 hours after timestamp_ms");
    }
    if !(0..=MAX_FEE_LIMIT_SUN).contains(&parameters.fee_limit_sun) {
        return refuse("fee_limit_sun", "must lie between 0 and 15000000000");
    }
    Ok(())
}

fn sun(amount: RawAmount) -> Result<i64, BuildError> {
    amount.to_i64().ok_or(BuildError::OutOfRange { field: "amount", problem: "does not fit 63 bits" })
}

fn tron(address: Address, field: &'static str) -> Result<Address, BuildError> {
    match address.format() {
        AddressFormat::Tron => Ok(address),
        AddressFormat::Evm => Err(BuildError::WrongKind { field }),
    }
}

pub(super) fn digest(raw: &[u8]) -> [u8; 32] {
    Sha256::digest(raw).into()
}

/// The bandwidth that these raw data take once they are signed.
pub(super) fn bandwidth(raw: &[u8]) -> u64 {
    let field = |tag, bytes: usize| {
        prost::encoding::key_len(tag) + prost::encoding::encoded_len_varint(bytes as u64) + bytes
    };
    (field(1, raw.len()) + field(2, SIGNATURE_BYTES) + RESULT_BYTES) as u64
}

/// Wraps the raw data, byte for byte as it was hashed, and the signature.
pub(super) fn finish(raw: Vec<u8>, digest: [u8; 32], signature: &RecoverableSignature) -> Signed {
    let mut proof = signature.compact.to_vec();
    proof.push(27 + u8::from(signature.odd_y));
    let mut bytes = Vec::with_capacity(raw.len() + proof.len() + 8);
    // Field 1 by hand: decoding and encoding again could change bytes that were already hashed.
    prost::encoding::bytes::encode(1, &raw, &mut bytes);
    prost::encoding::bytes::encode(2, &proof, &mut bytes);
    Signed { raw: bytes, tx_hash: TxHash(digest) }
}

#[cfg(test)]
mod tests;
