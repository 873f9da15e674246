//! The fee collector's HTTP interface: `GET /` and `GET /fees`, as its clients know it.
//!
//! `integrator` is a chain id there for historical reasons; it stays so here, and gRPC has both under their right names. Pages
//! have numbers, so a deep page must be found without counting all events before it: the ledger knows how many events lie before
//! each range.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::json;

use crate::event::{EventRepo, FeeDoc};
use crate::range::RangeRepo;
use crate::rpc::convert::{block_hash, checksummed};
use crate::source::{Source, SourceRepo};
use crate::store::{Store, StoreError};

const DEFAULT_CHAIN: u64 = 137;
const MAX_LIMIT: i64 = 100;

#[derive(Debug, Clone)]
struct Fees {
    events: EventRepo,
    ranges: RangeRepo,
    sources: SourceRepo,
}

pub(crate) fn router(store: &Store) -> Router {
    let fees = Fees {
        events: EventRepo::new(store.clone()),
        ranges: RangeRepo::new(store.clone()),
        sources: SourceRepo::new(store.clone()),
    };
    Router::new().route("/", get(async || "Api Running")).route("/fees", get(list)).with_state(fees)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageRequest {
    /// None for a number that cannot be a chain id.
    chain_id: Option<u64>,
    page: u64,
    limit: i64,
}

/// Reads the query. A chain id that is not a number is refused; page and limit are clamped to their bounds.
fn page_request(query: &[(String, String)]) -> Result<PageRequest, &'static str> {
    let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim());
    let chain_id = match value("integrator").filter(|text| !text.is_empty()) {
        None => Some(DEFAULT_CHAIN),
        Some(text) => match text.parse() {
            Ok(chain_id) => Some(chain_id),
            Err(_) if is_number(text) => None,
            Err(_) => return Err("integrator must be a numeric chain id"),
        },
    };
    let number = |name: &str, default: i64| match value(name) {
        None => default,
        // A number that is too large is clamped like any other.
        Some(text) => text.parse().unwrap_or(if is_digits(text) { i64::MAX } else { default }),
    };
    let page = number("page", 1).max(1);
    let limit = number("limit", MAX_LIMIT).clamp(1, MAX_LIMIT);
    Ok(PageRequest { chain_id, page: page.unsigned_abs(), limit })
}

/// Whether a text is a number, with or without sign and fraction, of any size.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    is_digits(whole) && is_digits(rest)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

async fn list(State(fees): State<Fees>, Query(query): Query<Vec<(String, String)>>) -> Response {
    let request = match page_request(&query) {
        Ok(request) => request,
        Err(problem) => return (StatusCode::BAD_REQUEST, Json(json!({ "error": problem }))).into_response(),
    };
    match fees.page(request).await {
        Ok(page) => Json(page).into_response(),
        Err(error) => {
            tracing::error!(error = rpc::error::chain(&error), "fees could not be listed");
            let body = Json(json!({ "error": "Internal Server Error" }));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

#[derive(Debug, Serialize)]
struct FeePage {
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
    chain_id: u64,
    contract_address: String,
    token: String,
    integrator: String,
    integrator_fee: String,
    lifi_fee: String,
    block_number: u64,
    block_hash: String,
    block_time: String,
    transaction_hash: String,
    log_index: u32,
}

impl From<FeeDoc> for Fee {
    fn from(fee: FeeDoc) -> Self {
        Self {
            chain_id: fee.chain_id,
            contract_address: checksummed(&fee.contract_address),
            token: checksummed(&fee.token),
            integrator: checksummed(&fee.integrator),
            integrator_fee: fee.integrator_fee,
            lifi_fee: fee.lifi_fee,
            block_number: fee.block_number,
            block_hash: block_hash(&fee.id),
            block_time: fee.block_time.try_to_rfc3339_string().unwrap_or_default(),
            transaction_hash: fee.transaction_hash,
            log_index: fee.log_index,
        }
    }
}

impl Fees {
    async fn page(&self, request: PageRequest) -> Result<FeePage, StoreError> {
        let all = self.sources.all().await?;
        let sources: Vec<Source> = all
            .into_iter()
            .filter(|source| Some(source.chain_id()) == request.chain_id && source.shape.is_fees_collected())
            .collect();
        let page_size = request.limit.unsigned_abs();
        let skip = (request.page - 1).saturating_mul(page_size);
        let (docs, total) = match &sources[..] {
            [] => (Vec::new(), 0),
            [only] => self.ranked(only, skip, request.limit).await?,
            [first, ..] => {
                // The ledgers of several contracts on one chain cannot be combined, so all events before the page are skipped.
                let total = self.sum(&sources).await?;
                let docs = match skip < total {
                    true => {
                        self.events.skip_fees(0..=u64::MAX, first.chain_id(), skip, request.limit).await?
                    }
                    false => Vec::new(),
                };
                (docs, total)
            }
        };
        let total_pages = total.div_ceil(page_size);
        let pagination = Pagination { page: request.page, limit: page_size, total, total_pages };
        Ok(FeePage { data: docs.into_iter().map(Fee::from).collect(), pagination })
    }

    async fn sum(&self, sources: &[Source]) -> Result<u64, StoreError> {
        let mut total: u64 = 0;
        for source in sources {
            let Some(cursor) = self.ranges.cursor(source.name()).await? else { continue };
            let above = self.events.count(source, cursor.done_before..=u64::MAX).await?;
            total = total.saturating_add(cursor.events).saturating_add(above);
        }
        Ok(total)
    }

    /// A page by its distance from the newest event. Events above the unbroken run are counted; below it the ledger knows.
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
        let Some(range) = self.ranges.range_of_rank(source.name(), rank).await? else {
            return Ok((Vec::new(), total));
        };
        let end = range.before.unwrap_or(0).saturating_add(range.count);
        let within = end.saturating_sub(rank.saturating_add(1));
        Ok((self.events.skip_fees(0..=range.to, chain, within, limit).await?, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_the_fee_collector_read_them() {
        let ok = |query: &str| {
            let uri = format!("/fees?{query}").parse().unwrap();
            let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap();
            page_request(&pairs).map(|a| (a.chain_id, a.page, a.limit))
        };
        assert_eq!(ok(""), Ok((Some(137), 1, 100)));
        assert_eq!(ok("integrator=1&page=3&limit=20"), Ok((Some(1), 3, 20)));
        assert_eq!(ok("page=0&limit=0"), Ok((Some(137), 1, 1)));
        assert_eq!(ok("page=-5&limit=1000"), Ok((Some(137), 1, 100)));
        assert_eq!(ok("page=x&limit=y"), Ok((Some(137), 1, 100)));
        assert_eq!(ok("integrator=&page=&limit="), Ok((Some(137), 1, 100)));
        assert_eq!(ok("page=99999999999999999999"), Ok((Some(137), i64::MAX as u64, 100)));
        // As browsers and client libraries may write it.
        assert_eq!(ok("integrator=%31&page=%32&limit=+7"), Ok((Some(1), 2, 7)));
        assert_eq!(ok("%69ntegrator=10&page"), Ok((Some(10), 1, 100)));
    }

    #[test]
    fn a_chain_id_that_is_no_number_is_refused_and_one_that_is_no_chains_finds_nothing() {
        let chain =
            |text: &str| page_request(&[("integrator".to_owned(), text.to_owned())]).map(|a| a.chain_id);
        for number in ["-5", "1.5", "99999999999999999999999"] {
            assert_eq!(chain(number), Ok(None), "{number}");
        }
        for other in ["abc", "0x89", "1a", "-", ".", "1.", "--1"] {
            assert!(chain(other).is_err(), "{other}");
        }
    }
}
