//! EVM transactions: EIP-1559 and legacy with replay protection (EIP-155). Owns their layout and their sanity
//! rules; knows nothing of payments or limits.

use alloy::consensus::{SignableTransaction, TxEip1559, TxLegacy};
use alloy::eips::eip2718::Encodable2718;
use alloy_primitives::{Bytes, Signature, TxKind, U256};
use types::{Address, AddressFormat, RawAmount, TxHash};

use super::{Action, BuildError, Signed, positive, token_transfer_call};
use crate::keys::RecoverableSignature;

/// What no transaction undercuts.
const MIN_GAS: u64 = 21_000;
/// More than any block of a known chain holds; keeps cost arithmetic far from overflow.
const MAX_GAS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvmFee {
    Legacy {
        gas_price: u128,
    },
    Eip1559 {
        max_fee: u128,
        max_priority_fee: u128,
    },
}

impl EvmFee {
    /// The most a unit of gas can cost.
    pub fn ceiling(&self) -> u128 {
        match *self {
            Self::Legacy { gas_price } => gas_price,
            Self::Eip1559 { max_fee, .. } => max_fee,
        }
    }

    /// What a block producer gets at most; nodes compare both numbers when replacing.
    pub fn tip(&self) -> u128 {
        match *self {
            Self::Legacy { gas_price } => gas_price,
            Self::Eip1559 { max_priority_fee, .. } => max_priority_fee,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvmParameters {
    pub chain_id: u64,
    pub nonce: u64,
    pub gas_limit: u64,
    pub fee: EvmFee,
}

impl EvmParameters {
    pub(super) fn max_cost(&self) -> RawAmount {
        RawAmount::from_u256(U256::from(self.fee.ceiling()).saturating_mul(U256::from(self.gas_limit)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvmBody {
    Legacy(TxLegacy),
    Eip1559(TxEip1559),
}

pub(super) fn build(
    from: Address,
    action: &Action,
    parameters: &EvmParameters,
) -> Result<EvmBody, BuildError> {
    check(parameters)?;
    let (to, value, input) = content(from, action)?;
    let to = TxKind::Call(evm(to, "to")?.as_evm());
    let EvmParameters { chain_id, nonce, gas_limit, fee } = *parameters;
    Ok(match fee {
        EvmFee::Legacy { gas_price } => EvmBody::Legacy(TxLegacy {
            chain_id: Some(chain_id),
            nonce,
            gas_price,
            gas_limit,
            to,
            value,
            input,
        }),
        EvmFee::Eip1559 { max_fee, max_priority_fee } => EvmBody::Eip1559(TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: max_priority_fee,
            to,
            value,
            access_list: Default::default(),
            input,
        }),
    })
}

fn content(from: Address, action: &Action) -> Result<(Address, U256, Bytes), BuildError> {
    let from = evm(from, "from")?;
    match action {
        Action::Transfer { to, amount } => Ok((*to, positive(*amount)?.as_u256(), Bytes::new())),
        Action::TokenTransfer { contract, to, amount } => {
            let to = evm(*to, "to")?;
            Ok((*contract, U256::ZERO, token_transfer_call(to, positive(*amount)?).into()))
        }
        Action::Cancellation => Ok((from, U256::ZERO, Bytes::new())),
        Action::ContractCall { contract, data } => {
            if data.len() < 4 {
                return Err(BuildError::OutOfRange { field: "data", problem: "names no method" });
            }
            Ok((*contract, U256::ZERO, data.clone().into()))
        }
    }
}

fn check(parameters: &EvmParameters) -> Result<(), BuildError> {
    let refuse = |field, problem| Err(BuildError::OutOfRange { field, problem });
    if parameters.chain_id == 0 {
        return refuse("chain_id", "must not be zero");
    }
    // EIP-2681 allows a little more; the database's integers do not, and no account gets there.
    if parameters.nonce > i64::MAX as u64 {
        return refuse("nonce", "is too large");
    }
    if !(MIN_GAS..=MAX_GAS).contains(&parameters.gas_limit) {
        return refuse("gas_limit", "must lie between 21000 and 1000000000");
    }
    match parameters.fee {
        EvmFee::Legacy { gas_price: 0 } => refuse("gas_price", "must not be zero"),
        EvmFee::Eip1559 { max_fee: 0, .. } => refuse("max_fee_per_gas", "must not be zero"),
        EvmFee::Eip1559 { max_fee, max_priority_fee } if max_priority_fee > max_fee => {
            refuse("max_priority_fee_per_gas", "is above max_fee_per_gas")
        }
        EvmFee::Legacy { .. } | EvmFee::Eip1559 { .. } => Ok(()),
    }
}

fn evm(address: Address, field: &'static str) -> Result<Address, BuildError> {
    match address.format() {
        AddressFormat::Evm => Ok(address),
        AddressFormat::Tron => Err(BuildError::WrongKind { field }),
    }
}

impl EvmBody {
    pub(super) fn digest(&self) -> [u8; 32] {
        match self {
            Self::Legacy(tx) => tx.signature_hash().0,
            Self::Eip1559(tx) => tx.signature_hash().0,
        }
    }

    pub(super) fn finish(self, signature: &RecoverableSignature) -> Signed {
        let signature = Signature::from_bytes_and_parity(&signature.compact, signature.odd_y);
        let (raw, hash) = match self {
            Self::Legacy(tx) => {
                let signed = tx.into_signed(signature);
                (signed.encoded_2718(), *signed.hash())
            }
            Self::Eip1559(tx) => {
                let signed = tx.into_signed(signature);
                (signed.encoded_2718(), *signed.hash())
            }
        };
        Signed { raw, tx_hash: TxHash::from(hash) }
    }
}

#[cfg(test)]
mod tests {
    use alloy::consensus::{Transaction, TxEnvelope};
    use alloy::eips::eip2718::Decodable2718;

    use super::*;
    use crate::builder::{Parameters, Unsigned};
    use crate::keys::{LeafKey, WalletKey};

    const KEY: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    fn address(text: &str) -> Address {
        Address::parse(AddressFormat::Evm, text).expect("address")
    }

    fn from() -> Address {
        address("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
    }

    fn to() -> Address {
        address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
    }

    fn parameters(fee: EvmFee) -> EvmParameters {
        EvmParameters { chain_id: 31337, nonce: 7, gas_limit: 21_000, fee }
    }

    fn dynamic() -> EvmFee {
        EvmFee::Eip1559 { max_fee: 3_000_000_000, max_priority_fee: 1_000_000_000 }
    }

    fn sign(action: &Action, parameters: EvmParameters) -> (Signed, TxEnvelope) {
        let key = WalletKey::from_leaf(LeafKey::from_hex(KEY));
        let signed = Unsigned::build(from(), action, &Parameters::Evm(parameters))
            .expect("built")
            .sign(&key)
            .expect("signed");
        let decoded = TxEnvelope::decode_2718(&mut signed.raw.as_slice()).expect("decodes");
        assert_eq!(TxHash::from(*decoded.tx_hash()), signed.tx_hash);
        let signature = *decoded.signature();
        let recovered = secp256k1::ecdsa::RecoverableSignature::from_compact(
            &signature.as_bytes()[..64],
            secp256k1::ecdsa::RecoveryId::try_from(i32::from(signature.v())).expect("id"),
        )
        .expect("signature")
        .recover(secp256k1::Message::from_digest(decoded.signature_hash().0))
        .expect("recovers");
        let hash = alloy_primitives::keccak256(&recovered.serialize_uncompressed()[1..]);
        assert_eq!(hash[12..], from().body());
        (signed, decoded)
    }

    #[test]
    fn a_native_transfer_says_what_the_intent_said() {
        let amount = RawAmount::from(1_000_000_000_000_000_000u64);
        let (_, tx) = sign(&Action::Transfer { to: to(), amount }, parameters(dynamic()));
        assert!(tx.is_eip1559());
        assert_eq!(tx.to(), Some(to().as_evm()));
        assert_eq!(tx.value(), amount.as_u256());
        assert_eq!((tx.nonce(), tx.chain_id(), tx.gas_limit()), (7, Some(31337), 21_000));
        assert_eq!(
            (tx.max_fee_per_gas(), tx.max_priority_fee_per_gas()),
            (3_000_000_000, Some(1_000_000_000))
        );
        assert!(tx.input().is_empty());
    }

    #[test]
    fn a_legacy_transaction_carries_its_chain_number() {
        let fee = EvmFee::Legacy { gas_price: 5_000_000_000 };
        let (signed, tx) = sign(&Action::Transfer { to: to(), amount: 1u64.into() }, parameters(fee));
        assert!(tx.is_legacy());
        assert_eq!(tx.chain_id(), Some(31337));
        assert_eq!(tx.gas_price(), Some(5_000_000_000));
        // EIP-155 vector: v is chain_id * 2 + 35 or 36, hence neither 27 nor 28.
        assert!(signed.raw[0] >= 0xc0, "a legacy transaction is a bare list");
    }

    #[test]
    fn a_token_transfer_calls_the_contract_with_the_receiver_inside() {
        let contract = address("0x5FbDB2315678afecb367f032d93F642f64180aa3");
        let action = Action::TokenTransfer { contract, to: to(), amount: 1_000_000u64.into() };
        let (_, tx) = sign(&action, EvmParameters { gas_limit: 65_000, ..parameters(dynamic()) });
        assert_eq!(tx.to(), Some(contract.as_evm()));
        assert_eq!(tx.value(), U256::ZERO);
        assert_eq!(
            hex::encode(tx.input()),
            "a9059cbb00000000000000000000000070997970c51812dc3a010c7d01b50e0d17dc79c8\
             00000000000000000000000000000000000000000000000000000000000f4240"
        );
    }

    #[test]
    fn a_cancellation_moves_nothing_and_goes_home() {
        let (_, tx) = sign(&Action::Cancellation, parameters(dynamic()));
        assert_eq!(tx.to(), Some(from().as_evm()));
        assert_eq!(tx.value(), U256::ZERO);
        assert!(tx.input().is_empty());
    }

    #[test]
    fn the_same_intent_is_the_same_bytes() {
        let action = Action::Transfer { to: to(), amount: 5u64.into() };
        assert_eq!(sign(&action, parameters(dynamic())).0, sign(&action, parameters(dynamic())).0);
    }

    #[test]
    fn nonsense_is_refused_naming_the_field() {
        let transfer = |amount: u64| Action::Transfer { to: to(), amount: amount.into() };
        let good = parameters(dynamic());
        let try_build = |action: &Action, parameters: EvmParameters| {
            build(from(), action, &parameters).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(try_build(&transfer(0), good), "amount must be greater than zero");
        assert_eq!(
            try_build(&transfer(1), EvmParameters { chain_id: 0, ..good }),
            "chain_id must not be zero"
        );
        assert_eq!(try_build(&transfer(1), EvmParameters { nonce: u64::MAX, ..good }), "nonce is too large");
        assert!(
            try_build(&transfer(1), EvmParameters { gas_limit: 20_999, ..good }).starts_with("gas_limit")
        );
        let inverted = EvmFee::Eip1559 { max_fee: 1, max_priority_fee: 2 };
        assert!(try_build(&transfer(1), parameters(inverted)).starts_with("max_priority_fee_per_gas"));
        assert!(
            try_build(&transfer(1), parameters(EvmFee::Legacy { gas_price: 0 })).starts_with("gas_price")
        );
        let tron = Address::from_body(AddressFormat::Tron, [7; 20]);
        assert_eq!(
            try_build(&Action::Transfer { to: tron, amount: 1u64.into() }, good),
            "to is not of this chain's kind"
        );
        let call = Action::ContractCall { contract: to(), data: vec![1, 2, 3] };
        assert_eq!(try_build(&call, good), "data names no method");
    }
}
