//! The fee collector's HTTP interface: `GET /` and `GET /fees`, as its clients know it.
//!
//! `integrator` is a chain id there, by history; it stays so here, and gRPC has both under their right names. Pages are by number,
//! so a deep page must be found without counting through those before it: the ledger knows how many events lie before each range.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::json;

use crate::convert::{checksummed, iso};
use crate::event::{EventRepo, FeeDoc, parts_of};
use crate::range::RangeRepo;
use crate::source::{Source, SourceRepo};
use crate::store::{Store, StoreError};

const DEFAULT_CHAIN: u64 = 137;
const MAX_LIMIT: u64 = 100;

#[derive(Debug, Clone)]
struct Fees {
    events: EventRepo,
    ranges: RangeRepo,
    sources: SourceRepo,
}

/// The routes.
pub(crate) fn router(store: &Store) -> Router {
    let fees = Fees {
        events: EventRepo::new(store.clone()),
        ranges: RangeRepo::new(store.clone()),
        sources: SourceRepo::new(store.clone()),
    };
    Router::new().route("/", get(async || "Api Running")).route("/fees", get(list)).with_state(fees)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    chain_id: u64,
    page: u64,
    limit: u64,
}

/// Reads the query string. A chain id that is no number is refused; page and limit are brought into their bounds.
fn asked(query: &str) -> Result<Asked, &'static str> {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    };
    let chain_id = match value("integrator").filter(|text| !text.is_empty()) {
        None => DEFAULT_CHAIN,
        Some(text) => text.parse().map_err(|_| "integrator must be a numeric chain id")?,
    };
    let number = |name: &str, default: i64| {
        let text = value(name)?;
        // A number beyond any page is still a number.
        Some(text.parse::<i64>().unwrap_or(if is_digits(text) { i64::MAX } else { default }))
    };
    let page = number("page", 1).unwrap_or(1).max(1);
    let limit = number("limit", 100).unwrap_or(100).clamp(1, 100);
    let unsigned = |n: i64| u64::try_from(n).unwrap_or(1);
    Ok(Asked { chain_id, page: unsigned(page), limit: unsigned(limit).min(MAX_LIMIT) })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

async fn list(State(fees): State<Fees>, RawQuery(query): RawQuery) -> Response {
    let asked = match asked(query.as_deref().unwrap_or("")) {
        Ok(asked) => asked,
        Err(problem) => return (StatusCode::BAD_REQUEST, Json(json!({ "error": problem }))).into_response(),
    };
    match fees.page(asked).await {
        Ok(page) => Json(page).into_response(),
        Err(error) => {
            tracing::error!(error = rpc::error::chain(&error), "fees could not be listed");
            let body = Json(json!({ "error": "Internal Server Error" }));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    data: Vec<Fee>,
    pagination: Pagination,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pagination {
    page: u64,
    limit: u64,
    total: u64,
    total_pages: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fee {
    chain_id: i64,
    contract_address: String,
    token: String,
    integrator: String,
    integrator_fee: String,
    lifi_fee: String,
    block_number: i64,
    block_hash: String,
    block_time: String,
    transaction_hash: String,
    log_index: i64,
}

impl From<FeeDoc> for Fee {
    fn from(fee: FeeDoc) -> Self {
        let hash = parts_of(&fee.id.bytes).map(|(_, _, hash, _)| hash.to_string()).unwrap_or_default();
        Self {
            chain_id: fee.chain_id,
            contract_address: checksummed(&fee.contract_address),
            token: checksummed(&fee.token),
            integrator: checksummed(&fee.integrator),
            integrator_fee: fee.integrator_fee,
            lifi_fee: fee.lifi_fee,
            block_number: fee.block_number,
            block_hash: hash,
            block_time: iso(fee.block_time),
            transaction_hash: fee.transaction_hash,
            log_index: fee.log_index,
        }
    }
}

impl Fees {
    async fn page(&self, asked: Asked) -> Result<Listed, StoreError> {
        let all = self.sources.all().await?;
        let sources: Vec<Source> = all
            .into_iter()
            .filter(|source| source.chain_id() == asked.chain_id && source.shape.is_fees_collected())
            .collect();
        let skip = (asked.page - 1).saturating_mul(asked.limit);
        let limit = i64::try_from(asked.limit).unwrap_or(100);
        let (docs, total) = match &sources[..] {
            [] => (Vec::new(), 0),
            [only] => self.ranked(only, skip, limit).await?,
            // Several contracts on one chain: their counts cannot be added up block by block.
            _ => {
                let docs = self.events.skip_fees(0..=u64::MAX, asked.chain_id, skip, limit).await?;
                (docs, self.events.count_fees_from(asked.chain_id, 0).await?)
            }
        };
        let total_pages = total.div_ceil(asked.limit);
        let pagination = Pagination { page: asked.page, limit: asked.limit, total, total_pages };
        Ok(Listed { data: docs.into_iter().map(Fee::from).collect(), pagination })
    }

    /// A page by its distance from the newest event. What lies above the unbroken run is counted; below it the ledger is asked.
    async fn ranked(&self, source: &Source, skip: u64, limit: i64) -> Result<(Vec<FeeDoc>, u64), StoreError> {
        let chain = source.chain_id();
        let Some(cursor) = self.ranges.cursor(source.name()).await? else { return Ok((Vec::new(), 0)) };
        let above = self.events.count_fees_from(chain, cursor.done_before).await?;
        let total = cursor.events.saturating_add(above);
        let near = skip < above.saturating_add(1_000);
        if near {
            return Ok((self.events.skip_fees(0..=u64::MAX, chain, skip, limit).await?, total));
        }
        let Some(rank) = total.checked_sub(skip.saturating_add(1)) else { return Ok((Vec::new(), total)) };
        let Some((to, end)) = self.events.range_of_rank(source, rank).await? else {
            return Ok((Vec::new(), total));
        };
        let within = end.saturating_sub(rank.saturating_add(1));
        Ok((self.events.skip_fees(0..=to, chain, within, limit).await?, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_the_fee_collector_read_them() {
        let ok = |query: &str| asked(query).map(|a| (a.chain_id, a.page, a.limit));
        assert_eq!(ok(""), Ok((137, 1, 100)));
        assert_eq!(ok("integrator=1&page=3&limit=20"), Ok((1, 3, 20)));
        assert_eq!(ok("page=0&limit=0"), Ok((137, 1, 1)));
        assert_eq!(ok("page=-5&limit=1000"), Ok((137, 1, 100)));
        assert_eq!(ok("page=x&limit=y"), Ok((137, 1, 100)));
        assert_eq!(ok("integrator="), Ok((137, 1, 100)));
        assert!(ok("integrator=abc").is_err());
        assert!(ok("integrator=0x89").is_err());
        assert_eq!(ok("page=99999999999999999999"), Ok((137, i64::MAX as u64, 100)));
    }
}
