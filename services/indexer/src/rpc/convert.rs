//! Converts sources and stored events to and from protobuf.

use alloy_primitives::Address;
use mongodb::bson::{Bson, DateTime};
use prost_types::{ListValue, Struct, Value, value::Kind};
use proto::indexer::v1 as pb;

use crate::event::{EventDoc, FeeDoc, Stored, parts_of};
use crate::source::{Source, SourceSpec};

/// An address with its checksum; any other text unchanged.
pub(crate) fn checksummed(lower: &str) -> String {
    lower.parse::<Address>().map_or_else(|_| lower.to_owned(), |address| address.to_checksum(None))
}

fn time(at: DateTime) -> prost_types::Timestamp {
    let at = chrono::DateTime::from_timestamp_millis(at.timestamp_millis());
    proto::time::timestamp(at.unwrap_or_default())
}

pub(crate) fn block_hash(id: &mongodb::bson::Binary) -> String {
    parts_of(&id.bytes).map(|(_, _, hash, _)| hash.to_string()).unwrap_or_default()
}

pub(crate) fn fee(doc: FeeDoc) -> pb::FeeEvent {
    pb::FeeEvent {
        chain_id: doc.chain_id,
        contract_address: checksummed(&doc.contract_address),
        token: checksummed(&doc.token),
        integrator: checksummed(&doc.integrator),
        integrator_fee: doc.integrator_fee,
        lifi_fee: doc.lifi_fee,
        block_number: doc.block_number,
        block_hash: block_hash(&doc.id),
        block_time: Some(time(doc.block_time)),
        transaction_hash: doc.transaction_hash,
        log_index: doc.log_index,
    }
}

pub(crate) fn event(source: &Source, stored: Stored) -> pb::Event {
    match stored {
        Stored::Event(doc) => generic(source, doc),
        Stored::Fee(doc) => {
            let values = [doc.token, doc.integrator, doc.integrator_fee, doc.lifi_fee];
            let named = source.shape.params.iter().map(|param| param.name.clone());
            let doc = EventDoc {
                id: doc.id,
                source: source.name().to_owned(),
                chain_id: doc.chain_id,
                contract_address: doc.contract_address,
                params: named.zip(values.map(Bson::String)).collect(),
                block_number: doc.block_number,
                block_time: doc.block_time,
                transaction_hash: doc.transaction_hash,
                log_index: doc.log_index,
            };
            generic(source, doc)
        }
    }
}

fn generic(source: &Source, doc: EventDoc) -> pb::Event {
    let typed = |name: &str| source.shape.params.iter().find(|param| param.name == name);
    let fields = doc.params.iter().map(|(name, value)| {
        let is_address = typed(name).is_some_and(|param| param.ty == "address");
        let shown = match value {
            Bson::String(lower) if is_address => text(checksummed(lower)),
            other => shown(other),
        };
        (name.clone(), shown)
    });
    pb::Event {
        source: doc.source.clone(),
        chain_id: doc.chain_id,
        contract_address: checksummed(&doc.contract_address),
        name: source.shape.name.clone(),
        parameters: Some(Struct { fields: fields.collect() }),
        block_number: doc.block_number,
        block_hash: block_hash(&doc.id),
        block_time: Some(time(doc.block_time)),
        transaction_hash: doc.transaction_hash.clone(),
        log_index: doc.log_index,
    }
}

fn text(text: String) -> Value {
    Value { kind: Some(Kind::StringValue(text)) }
}

fn shown(value: &Bson) -> Value {
    let kind = match value {
        Bson::Boolean(flag) => Kind::BoolValue(*flag),
        Bson::String(text) => Kind::StringValue(text.clone()),
        Bson::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(shown).collect() }),
        // The decoder stores nothing else in parameters.
        _ => Kind::NullValue(0),
    };
    Value { kind: Some(kind) }
}

pub(crate) fn source(source: &Source) -> pb::Source {
    let spec = &source.spec;
    pb::Source {
        name: spec.name.clone(),
        chain_id: spec.chain_id,
        contract_address: source.contract.map(|contract| contract.to_string()).unwrap_or_default(),
        event_signature: spec.event_signature.clone(),
        start_block: spec.start_block,
        batch_size: spec.batch_size,
        concurrency: spec.concurrency,
        nodes: spec.nodes.clone(),
        address_parameters: spec.address_parameters.clone(),
        paused: spec.paused,
    }
}

pub(crate) fn spec(source: pb::Source) -> SourceSpec {
    let signature = source.event_signature;
    SourceSpec {
        name: source.name,
        chain_id: source.chain_id,
        contract_address: source.contract_address,
        event_signature: if signature.is_empty() {
            crate::event::FEES_COLLECTED.to_owned()
        } else {
            signature
        },
        start_block: source.start_block,
        batch_size: source.batch_size,
        concurrency: source.concurrency,
        nodes: source.nodes,
        address_parameters: source.address_parameters,
        paused: source.paused,
    }
}
