//! Reads list requests: filters, bounds, page sizes and page tokens.

use alloy_primitives::hex;
use mongodb::bson::Bson;
use proto::indexer::v1 as pb;
use rpc::page::{self, Filter};
use tonic::Status;

use crate::event::{EventQuery, FeeQuery};
use crate::source::{self, Source};

const DEFAULT_PAGE: u32 = 100;
const MAX_PAGE: u32 = 500;

pub(super) fn page_size(requested: u32) -> Result<u32, Status> {
    match requested {
        0 => Ok(DEFAULT_PAGE),
        size if size <= MAX_PAGE => Ok(size),
        _ => Err(rpc::error::invalid("page_size", format!("must be at most {MAX_PAGE}"))),
    }
}

pub(super) fn token(filter: Filter, next: Option<&[u8]>) -> String {
    next.map(|id| page::encode(filter, &[&hex::encode(id)])).unwrap_or_default()
}

pub(super) fn position(filter: Filter, token: &str) -> Result<Option<Vec<u8>>, Status> {
    let bad = || rpc::error::invalid("page_token", "is not a token from an earlier page of this list");
    match page::decode::<1>(filter, token)? {
        None => Ok(None),
        Some([id]) => {
            hex::decode(id).ok().filter(|id| crate::event::parts_of(id).is_some()).map(Some).ok_or_else(bad)
        }
    }
}

/// An address as it is stored: lower-case hex.
fn stored_address(text: &str) -> Result<String, String> {
    source::address(text).map(hex::encode_prefixed)
}

fn address(field: &str, text: &str) -> Result<Option<String>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    stored_address(text).map(Some).map_err(|problem| rpc::error::invalid(field, problem))
}

fn bounds(from: u64, to: u64) -> Result<Option<u64>, Status> {
    match to {
        0 => Ok(None),
        to if to < from => Err(rpc::error::invalid("to_block", "is below from_block")),
        to => Ok(Some(to)),
    }
}

pub(super) fn fee_query(request: &pb::ListFeeEventsRequest) -> Result<(FeeQuery, Filter), Status> {
    let bounded = request.from_block > 0 || request.to_block > 0;
    if bounded && request.chain_id == 0 {
        return Err(rpc::error::invalid("chain_id", "is required with from_block or to_block"));
    }
    let query = FeeQuery {
        chain_id: (request.chain_id > 0).then_some(request.chain_id),
        integrator: address("integrator", &request.integrator)?,
        token: address("token", &request.token)?,
        from_block: request.from_block,
        to_block: bounds(request.from_block, request.to_block)?,
    };
    let filter = Filter::of(
        "fees",
        &[
            ("chain_id", &request.chain_id.to_string()),
            ("integrator", query.integrator.as_deref().unwrap_or("")),
            ("token", query.token.as_deref().unwrap_or("")),
            ("from_block", &request.from_block.to_string()),
            ("to_block", &request.to_block.to_string()),
        ],
    );
    Ok((query, filter))
}

pub(super) fn event_query(
    source: &Source,
    request: &pb::ListEventsRequest,
) -> Result<(EventQuery, Filter), Status> {
    let time = |field: &str, at: &Option<prost_types::Timestamp>| {
        at.as_ref()
            .map(proto::time::datetime)
            .transpose()
            .map_err(|e| rpc::error::invalid(field, e.to_string()))
    };
    let from_time = time("from_time", &request.from_time)?.map(|at| at.timestamp_millis());
    let to_time = time("to_time", &request.to_time)?.map(|at| at.timestamp_millis());
    let mut equal = Vec::new();
    if let Some(contract) = address("contract_address", &request.contract_address)? {
        equal.push(("contractAddress".to_owned(), Bson::String(contract)));
    }
    let mut parameters: Vec<(&String, &String)> = request.parameters.iter().collect();
    parameters.sort();
    for (name, value) in parameters {
        equal.push(parameter(source, name, value)?);
    }
    let query = EventQuery {
        equal: equal.clone(),
        from_block: request.from_block,
        to_block: bounds(request.from_block, request.to_block)?,
        from_time_ms: from_time,
        to_time_ms: to_time,
    };
    let (from_block, to_block) = (request.from_block.to_string(), request.to_block.to_string());
    let (from_time, to_time) = (format!("{from_time:?}"), format!("{to_time:?}"));
    let texts: Vec<String> = equal.iter().map(|(_, value)| value.to_string()).collect();
    let mut values = vec![
        ("source", source.name()),
        ("from_block", &from_block),
        ("to_block", &to_block),
        ("from_time", &from_time),
        ("to_time", &to_time),
    ];
    values.extend(equal.iter().map(|(field, _)| field.as_str()).zip(texts.iter().map(String::as_str)));
    Ok((query, Filter::of("events", &values)))
}

/// A filter by an indexed parameter: the stored field, and the value in its stored form.
fn parameter(source: &Source, name: &str, value: &str) -> Result<(String, Bson), Status> {
    let field = format!("parameters.{name}");
    let place = source.shape.params.iter().position(|param| param.name == name);
    let Some((place, param)) =
        place.map(|place| (place, &source.shape.params[place])).filter(|(_, p)| p.indexed)
    else {
        return Err(rpc::error::invalid(
            field,
            format!("the event of {} has no such indexed parameter", source.name()),
        ));
    };
    let stored = topic(&param.ty, value).map_err(|problem| rpc::error::invalid(field, problem))?;
    if source.shape.is_fees_collected() {
        let columns = ["token", "integrator", "integratorFee", "lifiFee"];
        return Ok((columns[place.min(3)].to_owned(), stored));
    }
    Ok((format!("params.{name}"), stored))
}

/// The value of a topic in its stored form.
fn topic(ty: &str, value: &str) -> Result<Bson, String> {
    let whole = |ty: &str| !ty.ends_with(']') && (ty.starts_with("uint") || ty.starts_with("int"));
    Ok(match ty {
        "address" => Bson::String(stored_address(value)?),
        "bool" => Bson::Boolean(value.parse().map_err(|_| "is neither `true` nor `false`".to_owned())?),
        ty if whole(ty) => {
            let signed = value.parse::<alloy_primitives::I256>().map(|number| number.to_string());
            let number = signed
                .or_else(|_| value.parse::<alloy_primitives::U256>().map(|number| number.to_string()))
                .map_err(|_| "is not a whole number".to_owned())?;
            Bson::String(number)
        }
        // Bytes of a fixed length, and hashes of values that are longer than a word.
        ty => {
            let length = ty.strip_prefix("bytes").and_then(|length| length.parse().ok()).unwrap_or(32);
            let bytes = hex::decode(value).ok().filter(|bytes| bytes.len() == length);
            let bytes = bytes.ok_or_else(|| format!("is not {length} bytes in hexadecimal"))?;
            Bson::String(hex::encode_prefixed(bytes))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_topics_are_brought_into_their_stored_form_or_refused() {
        let text = |text: &str| Ok(Bson::String(text.to_owned()));
        let lower = "0xbd6c7b0d2f68c2b7805d88388319cfb6ecb50ea9";
        assert_eq!(topic("address", "0xbD6C7B0d2f68c2b7805d88388319cfB6EcB50eA9"), text(lower));
        assert_eq!(topic("bool", "true"), Ok(Bson::Boolean(true)));
        assert_eq!((topic("uint256", "007"), topic("int8", "-3")), (text("7"), text("-3")));
        let max = alloy_primitives::U256::MAX.to_string();
        assert_eq!(topic("uint256", &max), text(&max));
        assert_eq!(topic("bytes4", "0xDEADbeef"), text("0xdeadbeef"));
        let hash = format!("0x{}", "ab".repeat(32));
        for ty in ["bytes32", "string", "bytes", "uint256[]", "(uint256,bool)"] {
            assert_eq!(topic(ty, &hash.to_uppercase().replace('X', "x")), text(&hash), "{ty}");
        }
        let wrong = [
            ("address", "nobody"),
            ("address", ""),
            ("bool", "1"),
            ("uint8", "x"),
            ("bytes4", "0xdead"),
            ("string", "x"),
        ];
        for (ty, value) in wrong {
            assert!(topic(ty, value).is_err(), "{ty} {value}");
        }
    }
}
