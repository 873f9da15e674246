//! Candles as exchanges give them: an array of arrays, `[open time, open, high, low, close, volume, close time, ..]`, times in
//! Unix milliseconds, prices as texts (`/api/v3/klines` of Binance and of those who speak like it).
//!
//! A price that is a JSON number is refused: it has been, or would be, floating point.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::Fault;
use crate::decimal::Decimal;
use crate::market::Candle;

/// More than any exchange gives at once.
const MAX_CANDLES: usize = 5_000;
/// How far an exchange's clock may be ahead of ours.
const SKEW: TimeDelta = TimeDelta::seconds(60);

/// The closed candles of an answer, oldest first.
pub(super) fn read(body: &[u8], now: DateTime<Utc>) -> Result<Vec<Candle>, Fault> {
    let rows: Vec<Vec<Value>> =
        serde_json::from_slice(body).map_err(|error| malformed(format!("no array of arrays: {error}")))?;
    if rows.len() > MAX_CANDLES {
        return Err(malformed(format!("{} candles, at most {MAX_CANDLES} are read", rows.len())));
    }
    let mut candles: Vec<Candle> = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let candle = candle(row).map_err(|reason| malformed(format!("candle {at}: {reason}")))?;
        if candles.last().is_some_and(|before| before.open_time >= candle.open_time) {
            return Err(malformed(format!("candle {at}: not later than the one before")));
        }
        if candle.open_time > now + SKEW {
            return Err(malformed(format!("candle {at}: opens in the future")));
        }
        candles.push(candle);
    }
    // The last one is usually still open, and will change.
    candles.retain(|candle| candle.close_time <= now);
    if candles.is_empty() { Err(malformed("no closed candle".to_owned())) } else { Ok(candles) }
}

/// Whether the last close is recent enough.
pub(super) fn check_age(candles: &[Candle], now: DateTime<Utc>, max_age: Duration) -> Result<(), Fault> {
    let age = candles.last().and_then(|last| (now - last.close_time).to_std().ok()).unwrap_or(Duration::MAX);
    if age <= max_age {
        return Ok(());
    }
    let (age, max_age) = (age.as_secs(), max_age.as_secs());
    Err(Fault::Stale(format!("its last candle closed {age} s ago, {max_age} s are allowed")))
}

fn candle(row: &[Value]) -> Result<Candle, String> {
    let [open_time, open, high, low, close, volume, close_time, ..] = row else {
        return Err(format!("{} fields, at least 7 are needed", row.len()));
    };
    let candle = Candle {
        open_time: time("open time", open_time)?,
        close_time: time("close time", close_time)?,
        open: price("open", open)?,
        high: price("high", high)?,
        low: price("low", low)?,
        close: price("close", close)?,
        volume: number("volume", volume)?,
    };
    if candle.close_time <= candle.open_time {
        return Err("closes before it opens".to_owned());
    }
    if [candle.open, candle.close].iter().any(|price| *price < candle.low || *price > candle.high) {
        return Err("open or close lies outside of low and high".to_owned());
    }
    Ok(candle)
}

fn time(what: &str, value: &Value) -> Result<DateTime<Utc>, String> {
    let time = value.as_i64().filter(|millis| *millis > 0).and_then(DateTime::from_timestamp_millis);
    time.ok_or_else(|| format!("the {what} is no Unix time in milliseconds"))
}

fn price(what: &str, value: &Value) -> Result<Decimal, String> {
    let price = number(what, value)?;
    if price.is_zero() { Err(format!("the {what} is zero")) } else { Ok(price) }
}

fn number(what: &str, value: &Value) -> Result<Decimal, String> {
    let text = value.as_str().ok_or_else(|| format!("the {what} is no text"))?;
    Decimal::cut(text).map_err(|error| format!("the {what} cannot be used: {error}"))
}

fn malformed(reason: String) -> Fault {
    Fault::Malformed(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;
    const QUARTER_MS: i64 = 900_000;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp_millis(NOW_MS).unwrap()
    }

    fn row(open_ms: i64, close: &str) -> Value {
        // As Binance writes it, the last five fields included.
        json!([
            open_ms,
            "600.10000000",
            "610.00000000",
            "590.5",
            close,
            "148976.11427815",
            open_ms + QUARTER_MS - 1,
            "2434.19055334",
            308,
            "1756.87402397",
            "28.46694368",
            "0"
        ])
    }

    fn read_rows(rows: &Value) -> Result<Vec<Candle>, Fault> {
        read(rows.to_string().as_bytes(), now())
    }

    #[test]
    fn closed_candles_are_read_and_the_open_one_is_left_out() {
        let first = NOW_MS - 2 * QUARTER_MS - 1_000;
        let rows =
            json!([row(first, "601.5"), row(first + QUARTER_MS, "602.25"), row(first + 2 * QUARTER_MS, "1")]);
        // The third is malformed only as far as its close is outside of its range; it must not slip through for being open.
        assert!(read_rows(&rows).is_err());
        let rows = json!([
            row(first, "601.5"),
            row(first + QUARTER_MS, "602.25"),
            row(first + 2 * QUARTER_MS, "600")
        ]);
        let candles = read_rows(&rows).unwrap();
        assert_eq!(candles.iter().map(|c| c.close.to_string()).collect::<Vec<_>>(), ["601.5", "602.25"]);
        assert!(check_age(&candles, now(), Duration::from_secs(10)).is_ok());
        assert!(matches!(
            check_age(&candles, now() + TimeDelta::hours(1), Duration::from_secs(60)),
            Err(Fault::Stale(_))
        ));
    }

    #[test]
    fn what_is_no_candle_is_refused_with_the_reason() {
        let open = NOW_MS - 2 * QUARTER_MS;
        let with = |at: usize, value: Value| {
            let mut row = row(open, "600");
            row[at] = value;
            json!([row])
        };
        for (rows, reason) in [
            (json!({"code": -1121, "msg": "Invalid symbol."}), "no array of arrays"),
            (json!([]), "no closed candle"),
            (json!([[open, "1"]]), "2 fields"),
            (with(0, json!("yesterday")), "the open time is no Unix time"),
            (with(1, json!(600.1)), "the open is no text"),
            (with(2, json!("6e2")), "the high cannot be used"),
            (with(3, json!("0")), "the low is zero"),
            (with(4, json!("-600")), "the close cannot be used"),
            (with(4, json!("700")), "outside of low and high"),
            (with(6, json!(open)), "closes before it opens"),
            (json!([row(open, "600"), row(open, "600")]), "not later than the one before"),
            (json!([row(NOW_MS + 3_600_000, "600")]), "opens in the future"),
        ] {
            let error = read_rows(&rows).unwrap_err().to_string();
            assert!(error.contains(reason), "{error} does not say {reason}");
        }
        assert!(read(b"<html>", now()).is_err());
    }
}
