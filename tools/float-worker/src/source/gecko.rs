//! Pool snapshots as GeckoTerminal gives them: `/api/v2/networks/{network}/pools/{address}`.
//!
//! The answer carries no time of its own. Its age is what the headers say of caches on the way; and a pool without a single
//! trade in a day has a price that nobody has tested, which is as good as old.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::http::Answer;
use super::{Fault, PoolSource, Side};
use crate::decimal::Decimal;
use crate::market::Pool;

#[derive(Deserialize)]
struct Body {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "type")]
    kind: String,
    attributes: Attributes,
}

/// Prices are null for a token that GeckoTerminal cannot price.
#[derive(Deserialize)]
struct Attributes {
    base_token_price_usd: Option<String>,
    quote_token_price_usd: Option<String>,
    reserve_in_usd: Option<String>,
    volume_usd: Volume,
    transactions: Transactions,
}

#[derive(Deserialize)]
struct Volume {
    h24: Option<String>,
}

#[derive(Deserialize)]
struct Transactions {
    h24: Trades,
}

#[derive(Deserialize)]
struct Trades {
    buys: u64,
    sells: u64,
}

pub(super) fn read(source: &PoolSource, answer: &Answer, now: DateTime<Utc>) -> Result<Pool, Fault> {
    let body: Body = serde_json::from_slice(&answer.body)
        .map_err(|error| Fault::Malformed(format!("not the shape of a pool: {error}")))?;
    if body.data.kind != "pool" {
        return Err(Fault::Malformed(format!("a {}, not a pool", body.data.kind)));
    }
    let told = body.data.attributes;
    let (name, price) = match source.side {
        Side::Base => ("base_token_price_usd", told.base_token_price_usd),
        Side::Quote => ("quote_token_price_usd", told.quote_token_price_usd),
    };
    let price = number(name, price.as_deref())?;
    if price.is_zero() {
        return Err(Fault::Malformed(format!("{name} is zero")));
    }
    let trades = told.transactions.h24;
    let pool = Pool {
        asset: source.asset.clone(),
        source: source.name.clone(),
        price,
        reserve: number("reserve_in_usd", told.reserve_in_usd.as_deref())?,
        volume_h24: number("volume_usd.h24", told.volume_usd.h24.as_deref())?,
        trades_h24: trades.buys.saturating_add(trades.sells),
        seen_at: now,
    };
    if answer.age > source.max_age {
        let (age, max_age) = (answer.age.as_secs(), source.max_age.as_secs());
        return Err(Fault::Stale(format!("it is {age} s old, {max_age} s are allowed")));
    }
    if pool.trades_h24 == 0 {
        return Err(Fault::Stale("the pool saw no trade for a day".to_owned()));
    }
    Ok(pool)
}

fn number(name: &str, text: Option<&str>) -> Result<Decimal, Fault> {
    let text = text.ok_or_else(|| Fault::Malformed(format!("{name} is missing")))?;
    Decimal::cut(text).map_err(|error| Fault::Malformed(format!("{name} cannot be used: {error}")))
}
