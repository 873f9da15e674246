//! The protobuf messages of TRON that matter here, and a decoded signed transaction.
//!
//! Bytes that arrive are kept, so that a txID is the hash of what was signed and never of a second encoding. The messages are not shared
//! with the adapter in `libs/chain` on purpose: a test network with the same mistake as the tested code would not find it.

use prost::Message;

use crate::crypto::{Address, sha256};

pub const TRANSFER: i32 = 1;
pub const TRIGGER: i32 = 31;
const TYPE_PREFIX: &str = "type.googleapis.com/protocol.";

#[derive(Clone, PartialEq, Message)]
pub struct Transaction {
    /// `Transaction.raw`, kept as bytes: both encode alike on the wire.
    #[prost(bytes = "vec", tag = "1")]
    pub raw_data: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub signature: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    pub ret: Vec<TransactionResult>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TransactionResult {
    #[prost(int64, tag = "1")]
    pub fee: i64,
    #[prost(int32, tag = "2")]
    pub ret: i32,
    #[prost(int32, tag = "3")]
    pub contract_ret: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    pub ref_block_bytes: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub ref_block_num: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub ref_block_hash: Vec<u8>,
    #[prost(int64, tag = "8")]
    pub expiration: i64,
    #[prost(bytes = "vec", tag = "10")]
    pub data: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    pub contract: Vec<Contract>,
    #[prost(bytes = "vec", tag = "12")]
    pub scripts: Vec<u8>,
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
    #[prost(bytes = "vec", tag = "3")]
    pub provider: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub contract_name: Vec<u8>,
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
}

pub type TxId = [u8; 32];
pub type BlockId = [u8; 32];

/// The operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Transfer(TransferContract),
    Trigger(TriggerSmartContract),
    /// A type that the devnet decodes no further.
    Other(i32),
}

impl Operation {
    /// The contract message that carries this call.
    pub fn into_contract(self) -> Contract {
        let (kind, name, value) = match self {
            Self::Transfer(transfer) => (TRANSFER, "TransferContract", transfer.encode_to_vec()),
            Self::Trigger(trigger) => (TRIGGER, "TriggerSmartContract", trigger.encode_to_vec()),
            Self::Other(kind) => (kind, "", Vec::new()),
        };
        let parameter = Some(Any { type_url: format!("{TYPE_PREFIX}{name}"), value });
        Contract { kind, parameter, ..Contract::default() }
    }

    fn decode(contract: &Contract) -> Result<Self, prost::DecodeError> {
        let value = contract.parameter.as_ref().map(|any| any.value.as_slice()).unwrap_or_default();
        Ok(match contract.kind {
            TRANSFER => Self::Transfer(TransferContract::decode(value)?),
            TRIGGER => Self::Trigger(TriggerSmartContract::decode(value)?),
            kind => Self::Other(kind),
        })
    }

    pub fn owner(&self) -> Option<Address> {
        match self {
            Self::Transfer(transfer) => Address::from_bytes(&transfer.owner_address),
            Self::Trigger(trigger) => Address::from_bytes(&trigger.owner_address),
            Self::Other(_) => None,
        }
    }
}

/// The bytes of a transaction, together with their decoded contents.
#[derive(Clone, Debug)]
pub struct SignedTx {
    pub id: TxId,
    pub raw_bytes: Vec<u8>,
    pub raw: Raw,
    pub signatures: Vec<Vec<u8>>,
    /// Absent if there is no contract in it.
    pub call: Option<Operation>,
}

impl SignedTx {
    pub fn decode(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let transaction = Transaction::decode(bytes)?;
        Self::from_parts(transaction.raw_data, transaction.signature)
    }

    pub fn from_parts(raw_bytes: Vec<u8>, signatures: Vec<Vec<u8>>) -> Result<Self, prost::DecodeError> {
        let raw = Raw::decode(raw_bytes.as_slice())?;
        let call = raw.contract.first().map(Operation::decode).transpose()?;
        Ok(Self { id: sha256(&raw_bytes), raw_bytes, raw, signatures, call })
    }

    /// The signed bytes without results: what `broadcasthex` takes.
    pub fn bytes(&self) -> Vec<u8> {
        self.with_results(Vec::new())
    }

    /// The bytes as a block holds them.
    pub fn with_results(&self, ret: Vec<TransactionResult>) -> Vec<u8> {
        Transaction { raw_data: self.raw_bytes.clone(), signature: self.signatures.clone(), ret }
            .encode_to_vec()
    }

    /// What the network charges for: the signed size and room for a result.
    pub fn bandwidth(&self) -> i64 {
        i64::try_from(self.bytes().len()).unwrap_or(i64::MAX).saturating_add(64)
    }
}

/// `u64be(number) || sha256(header)[8..32]`.
pub fn block_id(number: i64, header: &[u8]) -> BlockId {
    let mut id = sha256(header);
    id[..8].copy_from_slice(&number.to_be_bytes());
    id
}
