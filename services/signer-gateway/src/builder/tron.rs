//! TRON transactions, from protobuf messages of our own: SDKs retry and fill fields by themselves, which hides
//! where a signature begins. Owns their layout, their limits and their addresses. The id is the hash of the raw data and is known
//! before signing.

use chrono::{DateTime, Utc};
use payment::{Action, AssetRef, Binding, Price, Transfer, Window};
use prost::Message;
use serde_json::Value;
use service::config::Reader;
use sha2::{Digest, Sha256};
use types::{Address, AddressFormat, ChainName, RawAmount, TxHash};

use super::{
    Body, BuildError, ChainSettings, Family, Numbers, Parameters, Signed, Unsigned, address_body, of_format,
    positive, token_transfer_call,
};
use crate::guard::{Bid, Slot};
use crate::keys::{RecoverableSignature, Scheme};
use crate::policy::{Outcome, Refusal, Rule};

/// The network accepts expirations at most a day ahead of the head block.
pub(super) const MAX_LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;
/// How far back and ahead of the present an expiration may lie. The network takes none that is more than a day ahead, so a later
/// one would be a payment that somebody keeps for another time; one long past pays nobody. The hour allows for clocks that differ.
const PAST_MS: i64 = 60 * 60 * 1000;
const AHEAD_MS: i64 = 25 * 60 * 60 * 1000;
/// The network's own ceiling for energy burnt by one transaction: 15,000 TRX.
pub(super) const MAX_FEE_LIMIT_SUN: u64 = 15_000_000_000;
/// A price beyond this is a mistake: a hundred TRX.
const MAX_PRICE_SUN: u64 = 100_000_000;
/// The main network's prices: 1,000 sun a byte; 1 TRX and another 0.1 TRX for a new account.
const BYTE_PRICE_SUN: u64 = 1_000;
const ACTIVATION_SUN: u64 = 1_100_000;

/// `r || s || v`.
const SIGNATURE_BYTES: usize = 65;
/// What the network adds to the signed bytes when it counts bandwidth: room for a result.
const RESULT_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Tron;

impl Family for Tron {
    fn scheme(&self) -> Scheme {
        Scheme { coin: 195, address: |key| Address::from_body(AddressFormat::Tron, address_body(key)) }
    }

    fn read_settings(&self, section: &Reader) -> ChainSettings {
        if section.opt::<u64>("chain_id").is_some() {
            section.wrong("chain_id", "TRON has no chain number");
        }
        let price = |key, default| section.within(key, default, 0..=MAX_PRICE_SUN);
        ChainSettings {
            network_id: None,
            byte_price: price("bandwidth_price_sun", BYTE_PRICE_SUN),
            activation_price: price("activation_sun", ACTIVATION_SUN),
        }
    }

    fn owns(&self, parameters: &Parameters) -> bool {
        numbers(parameters).is_some()
    }

    fn fields(&self) -> &'static [&'static str] {
        &[
            "tron.ref_block_bytes",
            "tron.ref_block_hash",
            "tron.expiration_ms",
            "tron.timestamp_ms",
            "tron.fee_limit_sun",
        ]
    }

    fn numbers(&self, parameters: &Parameters) -> Numbers {
        let Some((window, fee_limit_sun)) = numbers(parameters) else { return Numbers::default() };
        let numbers: [(_, Value); 5] = [
            ("ref_block_bytes", hex::encode(window.reference.number_end).into()),
            ("ref_block_hash", hex::encode(window.reference.hash_middle).into()),
            ("expiration_ms", window.expiration_ms.into()),
            ("timestamp_ms", window.made_ms.into()),
            ("fee_limit_sun", fee_limit_sun.into()),
        ];
        Numbers(numbers.into())
    }

    fn check_network(&self, _: &ChainName, _: &ChainSettings, _: &Parameters) -> Outcome {
        Ok("the parameters are of this chain's kind")
    }

    fn check_time(&self, now: DateTime<Utc>, parameters: &Parameters) -> Outcome {
        let Some((window, _)) = numbers(parameters) else { return Ok("the parameters are of this chain") };
        let now_ms = now.timestamp_millis();
        let (first, last) = (now_ms - PAST_MS, now_ms + AHEAD_MS);
        let expiration_ms = window.expiration_ms;
        if !i64::try_from(expiration_ms).is_ok_and(|expiration| (first..=last).contains(&expiration)) {
            let detail = format!("{expiration_ms} does not lie between {first} and {last}");
            return Err(Refusal::of_field(Rule::Chain, "tron.expiration", "tron.expiration_ms", detail));
        }
        Ok("the parameters are of this chain and of this time")
    }

    fn build(&self, from: Address, action: &Action, parameters: &Parameters) -> Result<Unsigned, BuildError> {
        let (window, fee_limit_sun) =
            numbers(parameters).ok_or(BuildError::WrongKind { field: "parameters" })?;
        check(&window, fee_limit_sun)?;
        let expires_ms = signed(window.expiration_ms, "expiration_ms")?;
        let raw = Raw {
            ref_block_bytes: window.reference.number_end.to_vec(),
            ref_block_hash: window.reference.hash_middle.to_vec(),
            expiration: expires_ms,
            contract: vec![contract(tron(from, "from")?, action)?],
            timestamp: signed(window.made_ms, "timestamp_ms")?,
            fee_limit: signed(fee_limit_sun, "fee_limit_sun")?,
        }
        .encode_to_vec();
        let digest = digest(&raw);
        Ok(Unsigned {
            slot: Slot::Transaction { id: TxHash::from(digest), expires_ms },
            bid: Bid::NONE,
            limit: RawAmount::from(fee_limit_sun),
            charged_bytes: bandwidth(&raw),
            opens_account: opens_account(action),
            digest,
            body: Box::new(TronBody { raw, digest }),
        })
    }
}

fn numbers(parameters: &Parameters) -> Option<(Window, u64)> {
    match (parameters.network_id, parameters.binding, parameters.price) {
        (None, Binding::Window { window, .. }, Price::FeeLimit { sun }) => Some((window, sun)),
        _ => None,
    }
}

/// A token's ledger opens no account, and what it costs is energy.
fn opens_account(action: &Action) -> bool {
    match action {
        Action::Pay(transfer) => transfer.asset == AssetRef::Native,
        Action::Cancel { .. } | Action::Call(_) => false,
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Raw {
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

fn contract(owner: Address, action: &Action) -> Result<Contract, BuildError> {
    let owner_address = owner.tron_bytes().to_vec();
    let Transfer { asset, to, amount, .. } = match action {
        Action::Pay(transfer) => transfer,
        Action::Cancel { .. } => return Err(BuildError::Unsupported("cancellations")),
        Action::Call(_) => return Err(BuildError::Unsupported("contract calls")),
    };
    let (number, name, value) = match asset {
        AssetRef::Native => {
            let transfer = TransferContract {
                owner_address,
                to_address: tron(*to, "to")?.tron_bytes().to_vec(),
                amount: sun(positive(*amount)?)?,
            };
            (1, "TransferContract", transfer.encode_to_vec())
        }
        AssetRef::Token(contract) => {
            let trigger = TriggerSmartContract {
                owner_address,
                contract_address: tron(*contract, "contract_address")?.tron_bytes().to_vec(),
                call_value: 0,
                data: token_transfer_call(tron(*to, "to")?, positive(*amount)?),
            };
            (31, "TriggerSmartContract", trigger.encode_to_vec())
        }
    };
    let parameter = Any { type_url: format!("type.googleapis.com/protocol.{name}"), value };
    Ok(Contract { r#type: number, parameter: Some(parameter) })
}

fn check(window: &Window, fee_limit_sun: u64) -> Result<(), BuildError> {
    let refuse = |field, problem| Err(BuildError::OutOfRange { field, problem });
    if window.made_ms == 0 {
        return refuse("timestamp_ms", "must be greater than zero");
    }
    let lifetime_ms = window.expiration_ms.saturating_sub(window.made_ms);
    if !(1..=MAX_LIFETIME_MS).contains(&lifetime_ms) {
        return refuse("expiration_ms", "must lie within 24 hours after timestamp_ms");
    }
    if fee_limit_sun > MAX_FEE_LIMIT_SUN {
        return refuse("fee_limit_sun", "must lie between 0 and 15000000000");
    }
    Ok(())
}

fn sun(amount: RawAmount) -> Result<i64, BuildError> {
    amount.to_i64().ok_or(BuildError::OutOfRange { field: "amount", problem: "does not fit 63 bits" })
}

fn signed(number: u64, field: &'static str) -> Result<i64, BuildError> {
    i64::try_from(number).map_err(|_| BuildError::OutOfRange { field, problem: "does not fit 63 bits" })
}

fn tron(address: Address, field: &'static str) -> Result<Address, BuildError> {
    of_format(address, AddressFormat::Tron, field)
}

pub(super) fn digest(raw: &[u8]) -> [u8; 32] {
    Sha256::digest(raw).into()
}

/// The bandwidth that these raw data take once they are signed.
fn bandwidth(raw: &[u8]) -> u64 {
    let field = |tag, bytes: usize| {
        prost::encoding::key_len(tag) + prost::encoding::encoded_len_varint(bytes as u64) + bytes
    };
    (field(1, raw.len()) + field(2, SIGNATURE_BYTES) + RESULT_BYTES) as u64
}

#[derive(Debug)]
struct TronBody {
    raw: Vec<u8>,
    digest: [u8; 32],
}

impl Body for TronBody {
    /// Wraps the raw data, byte for byte as it was hashed, and the signature.
    fn finish(&self, signature: &RecoverableSignature) -> Signed {
        let mut proof = signature.compact.to_vec();
        proof.push(27 + u8::from(signature.odd_y));
        let mut bytes = Vec::with_capacity(self.raw.len() + proof.len() + 8);
        // Field 1 by hand: decoding and encoding again could change bytes that were already hashed.
        prost::encoding::bytes::encode(1, &self.raw, &mut bytes);
        prost::encoding::bytes::encode(2, &proof, &mut bytes);
        Signed { raw: bytes, tx_hash: TxHash::from(self.digest) }
    }
}
