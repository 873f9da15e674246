//! EVM transactions: EIP-1559 and legacy with replay protection (EIP-155). Owns their layout, their limits and their addresses;
//! knows nothing of payments.

use alloy::consensus::{SignableTransaction, TxEip1559, TxLegacy};
use alloy::eips::eip2718::Encodable2718;
use alloy_primitives::{Bytes, Signature, TxKind, U256};
use chrono::{DateTime, Utc};
use payment::{Action, AssetRef, Binding, ContractCall, GasFee, Price, Transfer};
use serde_json::Value;
use service::config::Reader;
use types::{Address, AddressFormat, ChainName, TxHash};

use super::{
    Body, BuildError, ChainSettings, Family, Numbers, Parameters, Signed, Unsigned, address_body, of_format,
    positive, token_transfer_call,
};
use crate::guard::{Bid, Slot};
use crate::keys::{RecoverableSignature, Scheme};
use crate::policy::{Outcome, Refusal, Rule};

/// The gas of a plain transfer. No transaction needs less.
const MIN_GAS: u64 = 21_000;
/// More than any block of a known chain holds; keeps cost arithmetic far from overflow.
const MAX_GAS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Evm;

impl Family for Evm {
    fn scheme(&self) -> Scheme {
        Scheme { coin: 60, address: |key| Address::from_body(AddressFormat::Evm, address_body(key)) }
    }

    fn read_settings(&self, section: &Reader) -> ChainSettings {
        let network_id = section.opt::<u64>("chain_id");
        if network_id.is_none() {
            section.wrong("chain_id", "an EVM chain has a number");
        }
        ChainSettings { network_id, ..ChainSettings::default() }
    }

    fn owns(&self, parameters: &Parameters) -> bool {
        numbers(parameters).is_some()
    }

    fn fields(&self) -> &'static [&'static str] {
        &[
            "evm.chain_id",
            "evm.nonce",
            "evm.gas_limit",
            "evm.gas_price",
            "evm.max_fee_per_gas",
            "evm.max_priority_fee_per_gas",
        ]
    }

    fn numbers(&self, parameters: &Parameters) -> Numbers {
        let Some(EvmNumbers { chain_id, nonce, gas_limit, fee }) = numbers(parameters) else {
            return Numbers::default();
        };
        let mut numbers: Vec<(&str, Value)> =
            vec![("chain_id", chain_id.into()), ("nonce", nonce.into()), ("gas_limit", gas_limit.into())];
        match fee {
            GasFee::Legacy { gas_price } => numbers.push(("gas_price", gas_price.to_string().into())),
            GasFee::Dynamic { max_fee, max_priority } => numbers.extend([
                ("max_fee_per_gas", max_fee.to_string().into()),
                ("max_priority_fee_per_gas", max_priority.to_string().into()),
            ]),
        }
        Numbers(numbers)
    }

    fn check_network(&self, chain: &ChainName, settings: &ChainSettings, parameters: &Parameters) -> Outcome {
        match (parameters.network_id, settings.network_id) {
            (Some(given), Some(id)) if given == id => Ok("the chain number is this chain's"),
            (given, id) => {
                let (given, id) = (given.unwrap_or_default(), id.unwrap_or_default());
                let detail = format!("{given} is not {id}, the number of {chain}");
                Err(Refusal::of_field(Rule::Chain, "chain.chain_id", "evm.chain_id", detail))
            }
        }
    }

    fn check_time(&self, _: DateTime<Utc>, _: &Parameters) -> Outcome {
        Ok("the parameters are of this chain")
    }

    fn build(&self, from: Address, action: &Action, parameters: &Parameters) -> Result<Unsigned, BuildError> {
        let numbers = numbers(parameters).ok_or(BuildError::WrongKind { field: "parameters" })?;
        check(&numbers)?;
        let (to, value, input) = content(from, action)?;
        let to = TxKind::Call(evm(to, "to")?.as_evm());
        let EvmNumbers { chain_id, nonce, gas_limit, fee } = numbers;
        let bid = Bid { ceiling: fee.ceiling(), tip: fee.tip(), gas_limit };
        let (digest, body) = match fee {
            GasFee::Legacy { gas_price } => {
                let chain_id = Some(chain_id);
                let tx = TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input };
                (tx.signature_hash(), EvmBody::Legacy(tx))
            }
            GasFee::Dynamic { max_fee, max_priority } => {
                let tx = TxEip1559 {
                    chain_id,
                    nonce,
                    gas_limit,
                    max_fee_per_gas: max_fee,
                    max_priority_fee_per_gas: max_priority,
                    to,
                    value,
                    access_list: Default::default(),
                    input,
                };
                (tx.signature_hash(), EvmBody::Eip1559(tx))
            }
        };
        Ok(Unsigned {
            slot: Slot::Nonce(nonce),
            bid,
            limit: fee.cost(gas_limit),
            charged_bytes: 0,
            opens_account: false,
            digest: digest.0,
            body: Box::new(body),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct EvmNumbers {
    chain_id: u64,
    nonce: u64,
    gas_limit: u64,
    fee: GasFee,
}

fn numbers(parameters: &Parameters) -> Option<EvmNumbers> {
    match (parameters.network_id, parameters.binding, parameters.price) {
        (Some(chain_id), Binding::Nonce { nonce, .. }, Price::Gas { limit: gas_limit, fee }) => {
            Some(EvmNumbers { chain_id, nonce, gas_limit, fee })
        }
        _ => None,
    }
}

/// Receiver, value and call data.
fn content(from: Address, action: &Action) -> Result<(Address, U256, Bytes), BuildError> {
    let from = evm(from, "from")?;
    match action {
        Action::Pay(Transfer { asset, to, amount, .. }) => match asset {
            AssetRef::Native => Ok((*to, positive(*amount)?.as_u256(), Bytes::new())),
            AssetRef::Token(contract) => {
                let call = token_transfer_call(evm(*to, "to")?, positive(*amount)?);
                Ok((*contract, U256::ZERO, call.into()))
            }
        },
        Action::Cancel { .. } => Ok((from, U256::ZERO, Bytes::new())),
        Action::Call(ContractCall { contract, data, .. }) => {
            if data.len() < 4 {
                return Err(BuildError::OutOfRange { field: "data", problem: "names no method" });
            }
            Ok((*contract, U256::ZERO, data.clone().into()))
        }
    }
}

fn check(numbers: &EvmNumbers) -> Result<(), BuildError> {
    let refuse = |field, problem| Err(BuildError::OutOfRange { field, problem });
    if numbers.chain_id == 0 {
        return refuse("chain_id", "must not be zero");
    }
    // EIP-2681 allows a little more; the database's integers do not, and no account gets there.
    if numbers.nonce > i64::MAX as u64 {
        return refuse("nonce", "is too large");
    }
    if !(MIN_GAS..=MAX_GAS).contains(&numbers.gas_limit) {
        return refuse("gas_limit", "must lie between 21000 and 1000000000");
    }
    match numbers.fee {
        GasFee::Legacy { gas_price: 0 } => refuse("gas_price", "must not be zero"),
        GasFee::Dynamic { max_fee: 0, .. } => refuse("max_fee_per_gas", "must not be zero"),
        GasFee::Dynamic { max_fee, max_priority } if max_priority > max_fee => {
            refuse("max_priority_fee_per_gas", "is above max_fee_per_gas")
        }
        GasFee::Legacy { .. } | GasFee::Dynamic { .. } => Ok(()),
    }
}

fn evm(address: Address, field: &'static str) -> Result<Address, BuildError> {
    of_format(address, AddressFormat::Evm, field)
}

#[derive(Debug)]
enum EvmBody {
    Legacy(TxLegacy),
    Eip1559(TxEip1559),
}

impl Body for EvmBody {
    fn finish(&self, signature: &RecoverableSignature) -> Signed {
        let signature = Signature::from_bytes_and_parity(&signature.compact, signature.odd_y);
        let (raw, hash) = match self {
            Self::Legacy(tx) => {
                let signed = tx.clone().into_signed(signature);
                (signed.encoded_2718(), *signed.hash())
            }
            Self::Eip1559(tx) => {
                let signed = tx.clone().into_signed(signature);
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
    use types::RawAmount;

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

    fn parameters(fee: GasFee) -> Parameters {
        Parameters {
            network_id: Some(31337),
            binding: Binding::Nonce { sender: from(), nonce: 7 },
            price: Price::Gas { limit: 21_000, fee },
        }
    }

    fn with_gas(limit: u64) -> Parameters {
        Parameters { price: Price::Gas { limit, fee: dynamic() }, ..parameters(dynamic()) }
    }

    fn dynamic() -> GasFee {
        GasFee::Dynamic { max_fee: 3_000_000_000, max_priority: 1_000_000_000 }
    }

    fn transfer(to: Address, amount: impl Into<RawAmount>) -> Action {
        Action::Pay(Transfer { asset: AssetRef::Native, from: from(), to, amount: amount.into() })
    }

    fn sign(action: &Action, parameters: Parameters) -> (Signed, TxEnvelope) {
        let key = WalletKey::from_leaf(LeafKey::from_hex(KEY), &Evm.scheme());
        let signed = Unsigned::build(from(), action, &parameters).expect("built").sign(&key).expect("signed");
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
        let (_, tx) = sign(&transfer(to(), amount), parameters(dynamic()));
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
        let fee = GasFee::Legacy { gas_price: 5_000_000_000 };
        let (signed, tx) = sign(&transfer(to(), 1u64), parameters(fee));
        assert!(tx.is_legacy());
        assert_eq!(tx.chain_id(), Some(31337));
        assert_eq!(tx.gas_price(), Some(5_000_000_000));
        // EIP-155 vector: v is chain_id * 2 + 35 or 36, hence neither 27 nor 28.
        assert!(signed.raw[0] >= 0xc0, "a legacy transaction is a bare list");
    }

    #[test]
    fn a_token_transfer_calls_the_contract_with_the_receiver_inside() {
        let contract = address("0x5FbDB2315678afecb367f032d93F642f64180aa3");
        let asset = AssetRef::Token(contract);
        let action = Action::Pay(Transfer { asset, from: from(), to: to(), amount: 1_000_000u64.into() });
        let (_, tx) = sign(&action, with_gas(65_000));
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
        let (_, tx) = sign(&Action::Cancel { sender: from() }, parameters(dynamic()));
        assert_eq!(tx.to(), Some(from().as_evm()));
        assert_eq!(tx.value(), U256::ZERO);
        assert!(tx.input().is_empty());
    }

    #[test]
    fn the_same_intent_is_the_same_bytes() {
        let action = transfer(to(), 5u64);
        assert_eq!(sign(&action, parameters(dynamic())).0, sign(&action, parameters(dynamic())).0);
    }

    #[test]
    fn nonsense_is_refused_naming_the_field() {
        let pay = |amount: u64| transfer(to(), amount);
        let good = parameters(dynamic());
        let try_build = |action: &Action, parameters: Parameters| {
            Evm.build(from(), action, &parameters).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(try_build(&pay(0), good), "amount must be greater than zero");
        let nowhere = Parameters { network_id: Some(0), ..good };
        assert_eq!(try_build(&pay(1), nowhere), "chain_id must not be zero");
        let binding = Binding::Nonce { sender: from(), nonce: u64::MAX };
        assert_eq!(try_build(&pay(1), Parameters { binding, ..good }), "nonce is too large");
        assert!(try_build(&pay(1), with_gas(20_999)).starts_with("gas_limit"));
        let inverted = GasFee::Dynamic { max_fee: 1, max_priority: 2 };
        assert!(try_build(&pay(1), parameters(inverted)).starts_with("max_priority_fee_per_gas"));
        let free = GasFee::Legacy { gas_price: 0 };
        assert!(try_build(&pay(1), parameters(free)).starts_with("gas_price"));
        let tron = Address::from_body(AddressFormat::Tron, [7; 20]);
        assert_eq!(try_build(&transfer(tron, 1u64), good), "to is not of this chain's kind");
        let call = ContractCall { sender: from(), contract: to(), data: vec![1, 2, 3] };
        assert_eq!(try_build(&Action::Call(call), good), "data names no method");
        let unnumbered = Parameters { network_id: None, ..good };
        assert_eq!(try_build(&pay(1), unnumbered), "parameters is not of this chain's kind");
    }
}
