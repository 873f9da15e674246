//! Decodes logs into documents. No I/O.
//!
//! LiFi's fee event has a decoder of its own, because millions of them are read; all others are decoded by their ABI. A log with
//! the right topic that does not fit the signature means that the signature is wrong if the source names its contract, and that
//! the log is another event if the source reads many contracts.

use alloy::dyn_abi::DynSolValue;
use alloy_primitives::{B256, Bytes, U256, hex};
use mongodb::bson::{Bson, DateTime, Document};

use super::document::{Batch, EventDoc, FeeDoc, id_of};
use crate::node::{Chunk, NodeLog};
use crate::source::{OwnAddresses, Source};
use crate::store::number;

/// A log that does not fit its source's signature.
#[derive(Debug, thiserror::Error)]
#[error("log {log_index} of transaction {transaction} does not fit the event's signature: {reason}")]
pub(crate) struct DecodeError {
    transaction: B256,
    log_index: u64,
    reason: String,
}

#[derive(Debug)]
pub(crate) struct Decoder {
    source: Source,
    fees: bool,
    /// Topics of which at least one must hold an address of ours.
    own: Vec<usize>,
}

impl Decoder {
    pub(crate) fn new(source: Source) -> Self {
        let own = source.spec.address_parameters.iter();
        let own = own.filter_map(|name| source.shape.indexed_address(name)).collect();
        let fees = source.shape.is_fees_collected();
        Self { source, fees, own }
    }

    /// An empty batch for this source's kind of document.
    pub(crate) fn empty(&self) -> Batch {
        if self.fees { Batch::Fees(Vec::new()) } else { Batch::Events(Vec::new()) }
    }

    pub(crate) fn decode(&self, chunk: &Chunk, own: &OwnAddresses) -> Result<Batch, DecodeError> {
        let ours = |log: &NodeLog| {
            self.own.is_empty()
                || self.own.iter().any(|place| log.topics.get(*place).is_some_and(|topic| own.holds(topic)))
        };
        let mut batch = self.empty();
        if let Batch::Fees(fees) = &mut batch {
            fees.reserve_exact(chunk.logs.len());
        }
        for log in chunk.logs.iter().filter(|log| ours(log)) {
            let time = DateTime::from_millis(number(chunk.time_of(log.block()).saturating_mul(1000)));
            let added = match &mut batch {
                Batch::Fees(fees) => self.fee(log, time).map(|fee| fees.push(fee)),
                Batch::Events(events) => self.event(log, time).map(|event| events.push(event)),
            };
            match added {
                Ok(()) => {}
                Err(error) if self.source.contract.is_some() => return Err(error),
                Err(error) => {
                    metrics::counter!("bursar_indexer_foreign_logs_total", "source" => self.source.spec.name.clone())
                        .increment(1);
                    tracing::debug!(source = self.source.spec.name, %error, "a log of another event is skipped");
                }
            }
        }
        Ok(batch)
    }

    fn fee(&self, log: &NodeLog, time: DateTime) -> Result<FeeDoc, DecodeError> {
        let ([_, token, integrator], Some((own_fee, lifi_fee))) = (&log.topics[..], words(&log.data)) else {
            return Err(mismatch(log, "expected three topics and two words"));
        };
        if !is_address(token) || !is_address(integrator) {
            return Err(mismatch(log, "a topic is not an address"));
        }
        Ok(FeeDoc {
            id: id_of(self.source.chain_id(), log.block(), &log.block_hash, log.index()),
            chain_id: self.source.chain_id(),
            contract_address: hex::encode_prefixed(log.address),
            token: hex::encode_prefixed(&token[12..]),
            integrator: hex::encode_prefixed(&integrator[12..]),
            integrator_fee: own_fee.to_string(),
            lifi_fee: lifi_fee.to_string(),
            block_number: log.block(),
            block_time: time,
            transaction_hash: hex::encode_prefixed(log.transaction_hash),
            log_index: log.index(),
        })
    }

    fn event(&self, log: &NodeLog, time: DateTime) -> Result<EventDoc, DecodeError> {
        let decoded = self.source.shape.abi.decode_log_parts(log.topics.iter().copied(), &log.data);
        let decoded = decoded.map_err(|error| mismatch(log, &error.to_string()))?;
        let (mut indexed, mut body) = (decoded.indexed.into_iter(), decoded.body.into_iter());
        let mut params = Document::new();
        for param in &self.source.shape.params {
            let value = if param.indexed { indexed.next() } else { body.next() };
            let value = value.ok_or_else(|| mismatch(log, "a parameter is missing"))?;
            params.insert(param.name.clone(), stored(value));
        }
        Ok(EventDoc {
            id: id_of(u64::from(self.source.number), log.block(), &log.block_hash, log.index()),
            source: self.source.spec.name.clone(),
            chain_id: self.source.chain_id(),
            contract_address: hex::encode_prefixed(log.address),
            params,
            block_number: log.block(),
            block_time: time,
            transaction_hash: hex::encode_prefixed(log.transaction_hash),
            log_index: log.index(),
        })
    }
}

fn mismatch(log: &NodeLog, reason: &str) -> DecodeError {
    DecodeError {
        transaction: log.transaction_hash,
        log_index: u64::from(log.index()),
        reason: reason.to_owned(),
    }
}

fn is_address(topic: &B256) -> bool {
    topic[..12].iter().all(|byte| *byte == 0)
}

fn words(data: &Bytes) -> Option<(U256, U256)> {
    let (first, rest) = data.split_first_chunk::<32>()?;
    let second = <&[u8; 32]>::try_from(rest).ok()?;
    Some((U256::from_be_bytes(*first), U256::from_be_bytes(*second)))
}

/// A value as it is stored. Integers are texts, because JSON readers would round them.
fn stored(value: DynSolValue) -> Bson {
    match value {
        DynSolValue::Bool(flag) => Bson::Boolean(flag),
        DynSolValue::Int(int, _) => Bson::String(int.to_string()),
        DynSolValue::Uint(int, _) => Bson::String(int.to_string()),
        DynSolValue::FixedBytes(word, size) => Bson::String(hex::encode_prefixed(&word[..size.min(32)])),
        DynSolValue::Address(address) => Bson::String(hex::encode_prefixed(address)),
        DynSolValue::Function(function) => Bson::String(hex::encode_prefixed(function)),
        DynSolValue::Bytes(bytes) => Bson::String(hex::encode_prefixed(bytes)),
        DynSolValue::String(text) => Bson::String(text),
        DynSolValue::Array(values) | DynSolValue::FixedArray(values) | DynSolValue::Tuple(values) => {
            Bson::Array(values.into_iter().map(stored).collect())
        }
        #[allow(unreachable_patterns, reason = "other crates may turn on the custom structs of dyn-abi")]
        _ => Bson::Null,
    }
}
