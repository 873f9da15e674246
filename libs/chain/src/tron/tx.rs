//! TRON transactions: unsigned as plain data, signed as bytes that are decoded and compared.
//!
//! Nothing here signs. Execution compares what the signer returned with what it planned, field by field and then byte
//! for byte, before the bytes are stored or sent. A memo, a second contract, a permission or a second signature in
//! signed bytes means that they are not ours.

use alloy_primitives::{B256, Signature};
use payment::{Action, AssetRef, Binding, BlockReference, Price, Transfer, Window};
use prost::Message as _;
use types::{Address, AddressFormat, RawAmount, TxHash};

use super::message::{
    Call, Raw, Transaction, TransferContract, TriggerSmartContract, bandwidth, transfer_data, tx_id,
};
use crate::edge::{Plan, SignedError};

/// What is to be signed.
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
pub fn call(transfer: &Transfer) -> Option<Call> {
    let owner_address = transfer.from.tron_bytes().to_vec();
    Some(match transfer.asset {
        AssetRef::Native => Call::Transfer(TransferContract {
            owner_address,
            to_address: transfer.to.tron_bytes().to_vec(),
            amount: transfer.amount.to_i64()?,
        }),
        AssetRef::Token(contract) => Call::Trigger(TriggerSmartContract {
            owner_address,
            contract_address: contract.tron_bytes().to_vec(),
            data: transfer_data(transfer.to.as_evm(), transfer.amount.as_u256()),
            ..TriggerSmartContract::default()
        }),
    })
}

/// The most bytes that a transfer takes once it is signed: its numbers are not known yet, so each is as long as it gets.
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
            AssetRef::Token(_) => super::cost::MAX_FEE_LIMIT_SUN,
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
        // Fields that these messages do not know, or another order of them, do not survive this.
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

    /// Names the first field that differs from what was asked for.
    pub fn matches(&self, expected: &UnsignedTx) -> Result<(), SignedError> {
        fn same<T: PartialEq + std::fmt::Debug>(
            field: &'static str,
            expected: &T,
            found: &T,
        ) -> Result<(), SignedError> {
            if expected == found {
                return Ok(());
            }
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            Err(SignedError::Mismatch { field, expected, found })
        }
        let number = |value: u64| i64::try_from(value).unwrap_or(-1);
        let (raw, window) = (&self.raw, &expected.window);
        same("sender", &expected.transfer.from, &self.sender)?;
        same("reference block", &window.reference.number_end.to_vec(), &raw.ref_block_bytes)?;
        same("reference hash", &window.reference.hash_middle.to_vec(), &raw.ref_block_hash)?;
        same("expiration", &number(window.expiration_ms), &raw.expiration)?;
        same("time", &number(window.made_ms), &raw.timestamp)?;
        same("fee limit", &number(expected.fee_limit_sun), &raw.fee_limit)?;
        let found = Call::of(raw).ok();
        same("call", &call(&expected.transfer), &found)?;
        same("raw data", &expected.raw()?, &self.raw_bytes)
    }
}

/// Who signed: r, s and a last byte that is 0..3 or 27..34.
fn recover(hash: &TxHash, signature: &[u8]) -> Option<[u8; 20]> {
    let (v, rs) = signature.split_last()?;
    if rs.len() != 64 {
        return None;
    }
    let odd = match v {
        0 | 27 | 31 => false,
        1 | 28 | 32 => true,
        // 2 and 3 stand for an r above the curve's order, which nobody has ever seen.
        _ => return None,
    };
    let signature = Signature::from_bytes_and_parity(rs, odd);
    let address = signature.recover_address_from_prehash(&B256::from(*hash)).ok()?;
    Some(address.into_array())
}

/// An amount that TRX can have at all.
pub fn fits(transfer: &Transfer) -> bool {
    match transfer.asset {
        AssetRef::Native => transfer.amount.to_i64().is_some(),
        AssetRef::Token(_) => transfer.amount != RawAmount::ZERO,
    }
}
