//! TRON's protobuf messages, as far as payments need them, and the ids made from their bytes.
//!
//! Pure. The messages are our own: generated SDK types retry and fill fields by themselves, which hides where a
//! signature begins. Bytes that arrive are never written anew before they are hashed.

use alloy_primitives::{Address as EvmAddress, U256};
use payment::BlockReference;
use prost::Message;
use sha2::{Digest as _, Sha256};
use types::TxHash;

use crate::evm::erc20;

/// `ContractType` of a TRX transfer.
pub const TRANSFER: i32 = 1;
/// `ContractType` of a contract call.
pub const TRIGGER: i32 = 31;
const TYPE_PREFIX: &str = "type.googleapis.com/protocol.";
/// What the network adds to the signed size when it counts bandwidth: room for a result.
const RESULT_BYTES: u64 = 64;
const SIGNATURE_BYTES: usize = 65;

#[derive(Clone, PartialEq, Message)]
pub struct Transaction {
    /// `Transaction.raw`, kept as bytes: both encode alike, and these very bytes were hashed.
    #[prost(bytes = "vec", tag = "1")]
    pub raw_data: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub signature: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    pub ref_block_bytes: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub ref_block_hash: Vec<u8>,
    #[prost(int64, tag = "8")]
    pub expiration: i64,
    #[prost(bytes = "vec", tag = "10")]
    pub data: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    pub contract: Vec<Contract>,
    #[prost(int64, tag = "14")]
    pub timestamp: i64,
    #[prost(int64, tag = "18")]
    pub fee_limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Contract {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub parameter: Option<Any>,
    #[prost(int32, tag = "5")]
    pub permission_id: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TransferContract {
    #[prost(bytes = "vec", tag = "1")]
    pub owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub to_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub amount: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct TriggerSmartContract {
    #[prost(bytes = "vec", tag = "1")]
    pub owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub contract_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub call_value: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
    #[prost(int64, tag = "5")]
    pub call_token_value: i64,
    #[prost(int64, tag = "6")]
    pub token_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct BlockHeaderRaw {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(bytes = "vec", tag = "2")]
    pub tx_trie_root: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub parent_hash: Vec<u8>,
    #[prost(int64, tag = "7")]
    pub number: i64,
    #[prost(int64, tag = "8")]
    pub witness_id: i64,
    #[prost(bytes = "vec", tag = "9")]
    pub witness_address: Vec<u8>,
    #[prost(int32, tag = "10")]
    pub version: i32,
    #[prost(bytes = "vec", tag = "11")]
    pub account_state_root: Vec<u8>,
}

/// What a transaction asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Transfer(TransferContract),
    Trigger(TriggerSmartContract),
    /// A kind of transaction that Bursar never makes.
    Other(i32),
}

impl Call {
    pub fn into_contract(self) -> Contract {
        let (kind, name, value) = match self {
            Self::Transfer(transfer) => (TRANSFER, "TransferContract", transfer.encode_to_vec()),
            Self::Trigger(trigger) => (TRIGGER, "TriggerSmartContract", trigger.encode_to_vec()),
            Self::Other(kind) => (kind, "", Vec::new()),
        };
        let parameter = Some(Any { type_url: format!("{TYPE_PREFIX}{name}"), value });
        Contract { kind, parameter, permission_id: 0 }
    }

    /// The one call of these raw bytes; anything but exactly one is none of ours.
    pub fn of(raw: &Raw) -> Result<Self, prost::DecodeError> {
        let [contract] = raw.contract.as_slice() else { return Ok(Self::Other(-1)) };
        let value = contract.parameter.as_ref().map(|any| any.value.as_slice()).unwrap_or_default();
        Ok(match contract.kind {
            TRANSFER => Self::Transfer(TransferContract::decode(value)?),
            TRIGGER => Self::Trigger(TriggerSmartContract::decode(value)?),
            kind => Self::Other(kind),
        })
    }
}

/// The id of the transaction that these raw bytes are.
pub fn tx_id(raw: &[u8]) -> TxHash {
    TxHash(Sha256::digest(raw).into())
}

/// `u64be(number) || sha256(header)[8..32]`.
pub fn block_id(header: &BlockHeaderRaw) -> TxHash {
    let mut id: [u8; 32] = Sha256::digest(header.encode_to_vec()).into();
    id[..8].copy_from_slice(&header.number.to_be_bytes());
    TxHash(id)
}

/// The number that a block's id begins with.
pub fn number_of(block: &TxHash) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&block.0[..8]);
    u64::from_be_bytes(number)
}

/// What a transaction says to refer to this block: the low two bytes of its number, and bytes 8 to 16 of its id.
pub fn block_reference(block: &TxHash) -> BlockReference {
    let (mut number_end, mut hash_middle) = ([0; 2], [0; 8]);
    number_end.copy_from_slice(&block.0[6..8]);
    hash_middle.copy_from_slice(&block.0[8..16]);
    BlockReference { number_end, hash_middle }
}

/// The number by which TRON's own JSON-RPC tells networks apart: the last four bytes of the first block's id.
pub fn network_id(genesis: &TxHash) -> u64 {
    let mut last = [0; 4];
    last.copy_from_slice(&genesis.0[28..]);
    u64::from(u32::from_be_bytes(last))
}

/// `transfer(to, amount)` of a token.
pub fn transfer_data(to: EvmAddress, amount: U256) -> Vec<u8> {
    erc20::transfer_calldata(to, amount).to_vec()
}

/// The bandwidth that signed bytes with this raw part take.
pub fn bandwidth(raw: &[u8]) -> u64 {
    let signed = Transaction { raw_data: raw.to_vec(), signature: vec![vec![0; SIGNATURE_BYTES]] };
    signed.encoded_len() as u64 + RESULT_BYTES
}

/// How a transaction ended: `contractRet` by number, as java-tron spells it. From the third on, all are failures of a call.
pub const CONTRACT_RESULTS: [&str; 16] = [
    "DEFAULT",
    "SUCCESS",
    "REVERT",
    "BAD_JUMP_DESTINATION",
    "OUT_OF_MEMORY",
    "PRECOMPILED_CONTRACT",
    "STACK_TOO_SMALL",
    "STACK_TOO_LARGE",
    "ILLEGAL_OPERATION",
    "STACK_OVERFLOW",
    "OUT_OF_ENERGY",
    "OUT_OF_TIME",
    "JVM_STACK_OVER_FLOW",
    "UNKNOWN",
    "TRANSFER_FAILED",
    "INVALID_CODE",
];
