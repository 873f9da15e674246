//! TRON transactions: unsigned as plain data, signed as bytes that are decoded and compared.
//!
//! Nothing here signs. Execution compares what the signer returned with its plan, field by field and then byte for byte, before the bytes
//! are stored or sent. Signed bytes with a memo, a second contract, a permission or a second signature are not ours.

use alloy_primitives::Signature;
use payment::{Action, AssetRef, Binding, BlockReference, Price, Transfer, Window};
use prost::Message as _;
use types::{Address, AddressFormat, RawAmount, TxHash};

use super::message::{
    Operation, Raw, Transaction, TransferContract, TriggerSmartContract, bandwidth, transfer_data, tx_id,
};
use crate::edge::{Plan, SignedError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedTx {
    pub transfer: Transfer,
    pub window: Window,
    pub fee_limit_sun: u64,
}

impl UnsignedTx {
    /// The transaction of a plan, exactly as the signer should build it.
    pub fn of(plan: &Plan) -> Result<Self, SignedError> {
        let unfit = |reason: &str| SignedError::Plan { reason: reason.to_owned() };
        let transfer = match plan.action {
            Action::Pay(transfer) => transfer,
            Action::Cancel { .. } => return Err(unfit("there is nothing to cancel")),
            Action::Call(_) => return Err(unfit("contract calls are not of this chain")),
        };
        let Binding::Window { sender, window } = plan.binding else {
            return Err(unfit("bound to a nonce"));
        };
        let Price::FeeLimit { sun } = plan.price else { return Err(unfit("priced by gas")) };
        if transfer.from != sender {
            return Err(unfit("the action's sender is not the binding's"));
        }
        Ok(Self { transfer, window, fee_limit_sun: sun })
    }

    /// The bytes whose hash is signed.
    pub fn raw(&self) -> Result<Vec<u8>, SignedError> {
        let unfit = |what: &str| SignedError::Plan { reason: format!("{what} is out of range") };
        let small = |value: u64, what: &str| i64::try_from(value).map_err(|_| unfit(what));
        let raw = Raw {
            ref_block_bytes: self.window.reference.number_end.to_vec(),
            ref_block_hash: self.window.reference.hash_middle.to_vec(),
            expiration: small(self.window.expiration_ms, "the expiration")?,
            data: Vec::new(),
            contract: vec![call(&self.transfer).ok_or_else(|| unfit("the amount"))?.into_contract()],
            timestamp: small(self.window.made_ms, "the time")?,
            fee_limit: small(self.fee_limit_sun, "the fee limit")?,
        };
        Ok(raw.encode_to_vec())
    }
}

/// The call that makes this transfer. `None` when the amount does not fit TRON's 63 bits.
pub fn call(transfer: &Transfer) -> Option<Operation> {
    let owner_address = transfer.from.tron_bytes().to_vec();
    Some(match transfer.asset {
        AssetRef::Native => Operation::Transfer(TransferContract {
            owner_address,
            to_address: transfer.to.tron_bytes().to_vec(),
            amount: transfer.amount.to_i64()?,
        }),
        AssetRef::Token(contract) => Operation::Trigger(TriggerSmartContract {
            owner_address,
            contract_address: contract.tron_bytes().to_vec(),
            data: transfer_data(transfer.to.as_evm(), transfer.amount.as_u256()),
            ..TriggerSmartContract::default()
        }),
    })
}

/// The most bytes of a signed transfer. Its numbers are not known yet, so each is assumed to have its greatest length.
pub fn most_bandwidth(transfer: &Transfer) -> Option<u64> {
    let longest = UnsignedTx {
        transfer: *transfer,
        window: Window {
            reference: BlockReference { number_end: [0xff; 2], hash_middle: [0xff; 8] },
            expiration_ms: i64::MAX as u64,
            made_ms: i64::MAX as u64,
        },
        fee_limit_sun: match transfer.asset {
            AssetRef::Native => 0,
            AssetRef::Token(_) => super::price::cost::MAX_FEE_LIMIT_SUN,
        },
    };
    longest.raw().ok().map(|raw| bandwidth(&raw))
}

/// What signed bytes contain.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedTx {
    pub hash: TxHash,
    pub sender: Address,
    pub raw: Raw,
    pub raw_bytes: Vec<u8>,
}

/// The id under which these bytes will be known, whatever they contain.
pub fn hash_of(signed: &[u8]) -> TxHash {
    match Transaction::decode(signed) {
        Ok(transaction) => tx_id(&transaction.raw_data),
        Err(_) => tx_id(signed),
    }
}

impl SignedTx {
    /// Decodes exactly one transaction with exactly one signature and recovers its sender.
    pub fn decode(signed: &[u8]) -> Result<Self, SignedError> {
        let undecodable = |reason: &str| SignedError::Undecodable { reason: reason.to_owned() };
        let transaction = Transaction::decode(signed).map_err(|error| undecodable(&error.to_string()))?;
        if transaction.encode_to_vec() != signed {
            return Err(undecodable("not in canonical form"));
        }
        let raw_bytes = transaction.raw_data;
        let raw = Raw::decode(raw_bytes.as_slice()).map_err(|error| undecodable(&error.to_string()))?;
        // This refuses unknown fields and fields in another order.
        if raw.encode_to_vec() != raw_bytes {
            return Err(undecodable("its raw data is not in canonical form"));
        }
        let [signature] = transaction.signature.as_slice() else {
            return Err(undecodable("not exactly one signature"));
        };
        let hash = tx_id(&raw_bytes);
        let body = recover(&hash, signature).ok_or(SignedError::BadSignature)?;
        Ok(Self { hash, sender: Address::from_body(AddressFormat::Tron, body), raw, raw_bytes })
    }

    /// Names the first field that differs from the plan.
    pub fn matches(&self, expected: &UnsignedTx) -> Result<(), SignedError> {
        let number = |value: u64| i64::try_from(value).unwrap_or(-1);
        let (raw, window) = (&self.raw, &expected.window);
        SignedError::unless_equal("sender", &expected.transfer.from, &self.sender)?;
        SignedError::unless_equal(
            "reference block",
            &window.reference.number_end.to_vec(),
            &raw.ref_block_bytes,
        )?;
        SignedError::unless_equal(
            "reference hash",
            &window.reference.hash_middle.to_vec(),
            &raw.ref_block_hash,
        )?;
        SignedError::unless_equal("expiration", &number(window.expiration_ms), &raw.expiration)?;
        SignedError::unless_equal("time", &number(window.made_ms), &raw.timestamp)?;
        SignedError::unless_equal("fee limit", &number(expected.fee_limit_sun), &raw.fee_limit)?;
        let found = Operation::of(raw).ok();
        SignedError::unless_equal("call", &call(&expected.transfer), &found)?;
        SignedError::unless_equal("raw data", &expected.raw()?, &self.raw_bytes)
    }
}

/// Recovers the signer from r, s and a last byte that is 0..3 or 27..34.
fn recover(hash: &TxHash, signature: &[u8]) -> Option<[u8; 20]> {
    let (v, rs) = signature.split_last()?;
    if rs.len() != 64 {
        return None;
    }
    let odd = match v {
        0 | 27 | 31 => false,
        1 | 28 | 32 => true,
        // 2 and 3 mean that r is above the order of the curve, which does not occur in practice.
        _ => return None,
    };
    let signature = Signature::from_bytes_and_parity(rs, odd);
    let address = signature.recover_address_from_prehash(&hash.as_b256()?).ok()?;
    Some(address.into_array())
}

/// Whether TRON can represent the amount.
pub fn fits(transfer: &Transfer) -> bool {
    match transfer.asset {
        AssetRef::Native => transfer.amount.to_i64().is_some(),
        AssetRef::Token(_) => transfer.amount != RawAmount::ZERO,
    }
}
