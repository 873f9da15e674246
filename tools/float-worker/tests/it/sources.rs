//! HTTP sources that answer well, slowly, wrongly, late, too much, or not at all.

use std::time::{Duration, Instant};

use float_worker::source::{CandleSource, Fault, Limits, PoolSource, Side, SourceErrors, Sources};
use serde_json::json;
use types::Backoff;

use crate::market::{Act, QUARTER_MS, Server, klines, pool};

const LIMITS: Limits = Limits {
    timeout: Duration::from_secs(1),
    max_bytes: 64 * 1024,
    backoff: Backoff { base: Duration::from_millis(5), cap: Some(Duration::from_millis(50)), max_tries: 3 },
};

fn sources_at(candles: &str, pools: &str, side: Side) -> Sources {
    let asset = || "BNB".parse().unwrap();
    let max_age = Duration::from_secs(1800);
    let url = format!("{candles}/api/v3/klines?symbol=BNBUSDT").parse().unwrap();
    let candles = CandleSource { name: "exchange".to_owned(), asset: asset(), url, max_age };
    let url = format!("{pools}/api/v2/networks/bsc/pools/0x58f8").parse().unwrap();
    let max_age = Duration::from_secs(300);
    let pools = PoolSource { name: "pool".to_owned(), asset: asset(), url, side, max_age };
    Sources::new(LIMITS, vec![candles], vec![pools]).unwrap()
}

fn sources(server: &Server) -> Sources {
    sources_at(server.url(), server.url(), Side::Base)
}

/// The one fault, and after how many tries it was given up.
fn only(result: Result<float_worker::market::Market, SourceErrors>) -> (Fault, u32) {
    let SourceErrors(mut errors) = result.unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let error = errors.remove(0);
    (error.fault, error.tries)
}

#[tokio::test]
async fn a_good_answer_is_read_exactly() {
    let server = Server::start().await;
    server.candles.then([Act::Price("601.23456789")]);
    server.pools.then([Act::Price("600.999")]);
    let market = sources(&server).fetch().await.unwrap();
    let [series] = market.series.as_slice() else { panic!("{market:?}") };
    assert_eq!(series.candles.len(), 2, "the open candle is left out");
    assert_eq!(series.candles[1].close.to_string(), "601.23456789");
    assert_eq!(market.pools[0].price.to_string(), "600.999");
    assert_eq!(market.pools[0].reserve.to_string(), "63988541.3812");
    let other_side = sources_at(server.url(), server.url(), Side::Quote).fetch().await.unwrap();
    assert_eq!(other_side.pools[0].price.to_string(), "1.00030147483615");
}

#[tokio::test]
async fn what_may_pass_is_asked_again_and_what_may_not_is_not() {
    let server = Server::start().await;
    server.candles.then([Act::Status(503), Act::Hang]);
    server.pools.then([Act::Busy(1), Act::Stall]);
    sources(&server).fetch().await.unwrap();
    assert_eq!((server.candles.requests(), server.pools.requests()), (3, 3));

    server.candles.then([Act::Status(404)]);
    let refused = Fault::Status { code: 404, retry_after: None };
    assert_eq!(only(sources(&server).fetch().await), (refused, 1));
    assert_eq!(server.candles.requests(), 4);

    server.pools.then([Act::Busy(3600), Act::Busy(3600), Act::Busy(3600)]);
    let began = Instant::now();
    let (fault, tries) = only(sources(&server).fetch().await);
    assert_eq!(
        (fault, tries),
        (Fault::Status { code: 429, retry_after: Some(Duration::from_secs(3600)) }, 3)
    );
    assert!(began.elapsed() < Duration::from_secs(30), "the cap holds, whatever the source asks for");
}

#[tokio::test]
async fn a_slow_answer_ends_at_the_timeout_wherever_it_stalls() {
    for slow in [Act::Hang, Act::Stall] {
        let server = Server::start().await;
        server.candles.then([slow.clone(), slow.clone(), slow]);
        assert_eq!(only(sources(&server).fetch().await), (Fault::Timeout(LIMITS.timeout), 3));
    }
}

#[tokio::test]
async fn a_huge_answer_is_not_read_to_its_end() {
    let server = Server::start().await;
    for huge in [Act::Endless, Act::Huge(LIMITS.max_bytes + 1)] {
        server.candles.then([huge]);
        assert_eq!(only(sources(&server).fetch().await), (Fault::TooLarge(LIMITS.max_bytes), 1));
    }
    // As much as is allowed is read, and then judged by what it says.
    server.candles.then([Act::Huge(LIMITS.max_bytes)]);
    assert!(matches!(only(sources(&server).fetch().await), (Fault::Malformed(_), 1)));
}

#[tokio::test]
async fn a_malformed_answer_is_refused_with_the_reason() {
    let server = Server::start().await;
    let mut float_price = klines("600", 0);
    float_price[0][4] = json!(600.5);
    for (text, reason) in [
        ("<html>rate limited</html>".to_owned(), "no array of arrays"),
        (r#"{"code":-1121,"msg":"Invalid symbol."}"#.to_owned(), "no array of arrays"),
        (float_price.to_string(), "the close is no text"),
        ("[]".to_owned(), "no closed candle"),
    ] {
        server.candles.then([Act::Text(text)]);
        let (fault, tries) = only(sources(&server).fetch().await);
        assert!(matches!(&fault, Fault::Malformed(said) if said.contains(reason)), "{fault}");
        assert_eq!(tries, 1, "the same nonsense would come again");
    }
    let broken = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut body = pool("600", 0);
        change(&mut body["data"]);
        body.to_string()
    };
    for (text, reason) in [
        (r#"{"errors":[{"status":"404","title":"Not Found"}]}"#.to_owned(), "not the shape of a pool"),
        (broken(&|data| data["type"] = json!("token")), "a token, not a pool"),
        (
            broken(&|data| data["attributes"]["base_token_price_usd"] = json!(null)),
            "base_token_price_usd is missing",
        ),
        (
            broken(&|data| data["attributes"]["base_token_price_usd"] = json!("0.0")),
            "base_token_price_usd is zero",
        ),
        (
            broken(&|data| data["attributes"]["base_token_price_usd"] = json!(600.5)),
            "not the shape of a pool",
        ),
        (broken(&|data| data["attributes"]["reserve_in_usd"] = json!("-1")), "reserve_in_usd cannot be used"),
    ] {
        server.pools.then([Act::Text(text)]);
        let (fault, _) = only(sources(&server).fetch().await);
        assert!(matches!(&fault, Fault::Malformed(said) if said.contains(reason)), "{fault}");
    }
}

#[tokio::test]
async fn a_stale_answer_is_refused() {
    let server = Server::start().await;
    let hour_ago = (chrono::Utc::now() - chrono::TimeDelta::hours(1)).to_rfc2822();
    server.candles.then([Act::Old(3 * QUARTER_MS)]);
    assert!(matches!(only(sources(&server).fetch().await), (Fault::Stale(_), 1)));
    for stale in [Act::Old(1), Act::With("age", "301".to_owned()), Act::With("date", hour_ago)] {
        server.pools.then([stale]);
        let (fault, _) = only(sources(&server).fetch().await);
        assert!(matches!(fault, Fault::Stale(_)), "{fault}");
    }
    server.pools.then([Act::With("age", "299".to_owned())]);
    sources(&server).fetch().await.unwrap();
}

#[tokio::test]
async fn every_source_that_failed_is_named() {
    let server = Server::start().await;
    // A port that was just free: nobody listens there.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    server.pools.then([Act::Text("[]".to_owned())]);
    let both = sources_at(&format!("http://{closed}"), server.url(), Side::Base);
    let errors = both.fetch().await.unwrap_err();
    let [down, wrong] = errors.0.as_slice() else { panic!("{errors}") };
    assert!(matches!(down.fault, Fault::Unreachable(_)), "{down}");
    assert_eq!((down.name.as_str(), down.tries, wrong.name.as_str()), ("exchange", 3, "pool"));
    let text = errors.to_string();
    assert!(text.contains("source exchange: cannot be reached") && text.contains("source pool:"), "{text}");
}
