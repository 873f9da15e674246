//! An HTTP server that speaks like an exchange and like GeckoTerminal, and misbehaves when told to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const QUARTER_MS: i64 = 900_000;

/// What the next request gets.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A good answer at this price.
    Price(&'static str),
    Status(u16),
    /// 429 with `Retry-After`.
    Busy(u64),
    /// This very text.
    Text(String),
    /// A good answer with a header.
    With(&'static str, String),
    /// The beginning of an answer, and then nothing.
    Stall,
    /// Nothing at all.
    Hang,
    /// So many bytes, without saying so first.
    Endless,
    /// So many bytes, announced.
    Huge(usize),
    /// Candles that closed this long ago.
    Old(i64),
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    acts: Mutex<VecDeque<Act>>,
    requests: AtomicUsize,
}

pub(crate) struct Server {
    url: String,
    /// For requests of candles, and of pools.
    pub(crate) candles: Arc<Script>,
    pub(crate) pools: Arc<Script>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Script {
    /// Queued; without any, all is well.
    pub(crate) fn then(&self, acts: impl IntoIterator<Item = Act>) {
        self.acts.lock().unwrap().extend(acts);
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn next(&self) -> Act {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.acts.lock().unwrap().pop_front().unwrap_or(Act::Price("600"))
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        let (candles, pools) = (Arc::new(Script::default()), Arc::new(Script::default()));
        let router = Router::new().fallback(answer).with_state((Arc::clone(&candles), Arc::clone(&pools)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, candles, pools, task }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

async fn answer(
    State((candles, pools)): State<(Arc<Script>, Arc<Script>)>,
    request: Request,
) -> Response<Body> {
    match request.uri().path() {
        "/api/v3/klines" => act(candles.next(), klines).await,
        path if path.starts_with("/api/v2/networks/bsc/pools/") => act(pools.next(), pool).await,
        _ => Response::builder().status(404).body(Body::empty()).unwrap(),
    }
}

async fn act(act: Act, good: impl Fn(&str, i64) -> Value) -> Response<Body> {
    let ok = || Response::builder().header(header::CONTENT_TYPE, "application/json");
    let whole = |value: Value| Body::from(value.to_string());
    match act {
        Act::Price(price) => ok().body(whole(good(price, 0))).unwrap(),
        Act::Old(age_ms) => ok().body(whole(good("600", age_ms))).unwrap(),
        Act::With(name, value) => ok().header(name, value).body(whole(good("600", 0))).unwrap(),
        Act::Text(text) => ok().body(Body::from(text)).unwrap(),
        Act::Status(code) => Response::builder().status(code).body(Body::from("no")).unwrap(),
        Act::Busy(seconds) => {
            Response::builder().status(429).header(header::RETRY_AFTER, seconds).body(Body::empty()).unwrap()
        }
        Act::Hang => std::future::pending().await,
        Act::Stall => {
            let beginning = stream::iter([Ok::<_, std::io::Error>("[[")]);
            let rest = stream::pending();
            ok().body(Body::from_stream(stream::StreamExt::chain(beginning, rest))).unwrap()
        }
        Act::Endless => {
            let chunk = "[".repeat(4096);
            ok().body(Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()))))
                .unwrap()
        }
        Act::Huge(bytes) => ok().body(Body::from(" ".repeat(bytes))).unwrap(),
    }
}

/// Three candles, the last of them still open, as `/api/v3/klines` gives them.
pub(crate) fn klines(price: &str, age_ms: i64) -> Value {
    let open = chrono::Utc::now().timestamp_millis() - age_ms - QUARTER_MS / 2;
    let row = |open: i64| {
        json!([
            open,
            price,
            price,
            price,
            price,
            "148976.11427815",
            open + QUARTER_MS - 1,
            "2434.19055334",
            308,
            "1756.87402397",
            "28.46694368",
            "0"
        ])
    };
    json!([row(open - 2 * QUARTER_MS), row(open - QUARTER_MS), row(open)])
}

/// A pool, as GeckoTerminal gives it. An old one saw no trade for a day.
pub(crate) fn pool(price: &str, age_ms: i64) -> Value {
    let trades = if age_ms > 0 { 0 } else { 11_280 };
    let window = json!({ "buys": trades, "sells": trades, "buyers": trades, "sellers": trades });
    json!({ "data": {
        "id": "bsc_0x58f876857a02d6762e0101bb5c46a8c1ed44dc16",
        "type": "pool",
        "attributes": {
            "base_token_price_usd": price,
            "base_token_price_native_currency": "1.0",
            "quote_token_price_usd": "1.00030147483615000000000000000000000000000000000000000000000001",
            "quote_token_price_native_currency": "0.00166",
            "base_token_price_quote_token": price,
            "quote_token_price_base_token": "0.00166",
            "address": "0x58f876857a02d6762e0101bb5c46a8c1ed44dc16",
            "name": "WBNB / USDT",
            "pool_created_at": "2021-04-23T10:36:17Z",
            "fdv_usd": "5531082257.47789",
            "market_cap_usd": null,
            "price_change_percentage": { "m5": "0.001", "h1": "-0.03", "h6": "-0.021", "h24": "0.577" },
            "transactions": { "m5": window, "h1": window, "h24": window },
            "volume_usd": { "m5": "868.73", "h1": "16798.01", "h6": "164054.85", "h24": "5365454.904535" },
            "reserve_in_usd": "63988541.3812"
        },
        "relationships": {
            "base_token": { "data": { "id": "bsc_0xbb4cdb9cbd36b01bd1cbaebf2de08d9173bc095c", "type": "token" } },
            "quote_token": { "data": { "id": "bsc_0x55d398326f99059ff775485246999027b3197955", "type": "token" } },
            "dex": { "data": { "id": "pancakeswap_v2", "type": "dex" } }
        }
    } })
}
