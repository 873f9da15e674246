//! Reads list requests: filters, bounds, page sizes and page tokens.

use alloy_primitives::hex;
use mongodb::bson::Bson;
use proto::indexer::v1 as pb;
use rpc::Fields;
use rpc::page::{self, Filter};
use tonic::Status;

use crate::event::{EventQuery, FeeQuery, parts_of};
use crate::source::{self, Source};

const DEFAULT_PAGE: u32 = 100;
const MAX_PAGE: u32 = 500;

/// Which page of a list is requested.
pub(super) struct PageRequest {
    filter: Filter,
    pub(super) size: u32,
    /// The id after which the page begins.
    pub(super) after: Option<Vec<u8>>,
}

impl PageRequest {
    fn read(fields: &mut Fields, filter: Filter, size: u32, token: &str) -> Option<Self> {
        let size = fields.page_size_up_to(size, DEFAULT_PAGE, MAX_PAGE);
        let after = fields.page_token(filter, token).and_then(|[id]| {
            let id = hex::decode(id).ok().filter(|id| parts_of(id).is_some());
            fields.take("page_token", id.ok_or("is not a token from an earlier page of this list"))
        });
        Some(Self { filter, size: size?, after })
    }

    /// The token of the page that follows, if there is one.
    pub(super) fn next_token(&self, next: Option<Vec<u8>>) -> String {
        next.map(|id| page::encode(self.filter, &[&hex::encode(id)])).unwrap_or_default()
    }
}

/// An address as it is stored: lower-case hex.
fn stored_address(text: &str) -> Result<String, String> {
    source::address(text).map(hex::encode_prefixed)
}

fn address(fields: &mut Fields, field: &str, text: &str) -> Option<String> {
    if text.is_empty() { None } else { fields.take(field, stored_address(text)) }
}

/// The last block, if the request names one.
fn last_block(fields: &mut Fields, from: u64, to: u64) -> Option<u64> {
    fields.check("to_block", to == 0 || to >= from, "is below from_block");
    (to > 0).then_some(to)
}

pub(super) fn fees(request: &pb::ListFeeEventsRequest) -> Result<(FeeQuery, PageRequest), Status> {
    let mut fields = Fields::new();
    let bounded = request.from_block > 0 || request.to_block > 0;
    fields.check("chain_id", request.chain_id > 0 || !bounded, "is required with from_block or to_block");
    let query = FeeQuery {
        chain_id: (request.chain_id > 0).then_some(request.chain_id),
        integrator: address(&mut fields, "integrator", &request.integrator),
        token: address(&mut fields, "token", &request.token),
        from_block: request.from_block,
        to_block: last_block(&mut fields, request.from_block, request.to_block),
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
    let page = PageRequest::read(&mut fields, filter, request.page_size, &request.page_token);
    fields.finish(page.map(|page| (query, page)))
}

pub(super) fn events(
    source: &Source,
    request: &pb::ListEventsRequest,
) -> Result<(EventQuery, PageRequest), Status> {
    let mut fields = Fields::new();
    let mut time = |field, at: &Option<prost_types::Timestamp>| {
        fields.timestamp_optional(field, at.as_ref()).map(|at| at.timestamp_millis())
    };
    let from_time_ms = time("from_time", &request.from_time);
    let to_time_ms = time("to_time", &request.to_time);
    let contract = address(&mut fields, "contract_address", &request.contract_address);
    let mut equal: Vec<(String, Bson)> =
        contract.map(|contract| ("contractAddress".to_owned(), Bson::String(contract))).into_iter().collect();
    let mut parameters: Vec<(&String, &String)> = request.parameters.iter().collect();
    parameters.sort();
    for (name, value) in parameters {
        equal.extend(fields.take(format!("parameters.{name}"), parameter(source, name, value)));
    }
    let (from_block, to_block) = (request.from_block.to_string(), request.to_block.to_string());
    let (from_time, to_time) = (format!("{from_time_ms:?}"), format!("{to_time_ms:?}"));
    let texts: Vec<String> = equal.iter().map(|(_, value)| value.to_string()).collect();
    let mut values = vec![
        ("source", source.name()),
        ("from_block", &from_block),
        ("to_block", &to_block),
        ("from_time", &from_time),
        ("to_time", &to_time),
    ];
    values.extend(equal.iter().map(|(field, _)| field.as_str()).zip(texts.iter().map(String::as_str)));
    let filter = Filter::of("events", &values);
    let to_block = last_block(&mut fields, request.from_block, request.to_block);
    let query = EventQuery { equal, from_block: request.from_block, to_block, from_time_ms, to_time_ms };
    let page = PageRequest::read(&mut fields, filter, request.page_size, &request.page_token);
    fields.finish(page.map(|page| (query, page)))
}

/// A filter by an indexed parameter: the stored field, and the value in its stored form.
fn parameter(source: &Source, name: &str, value: &str) -> Result<(String, Bson), String> {
    let mut params = source.shape.params.iter().enumerate();
    let (place, param) = params
        .find(|(_, param)| param.name == name && param.indexed)
        .ok_or_else(|| format!("the event of {} has no such indexed parameter", source.name()))?;
    let stored = topic(&param.ty, value)?;
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
