//! The strategy by table, and by random wallets and bounds.

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use types::{Decimals, RawAmount, WalletId};

use super::*;
use crate::book::{AssetOnChain, Holding, Role, Wallet};
use crate::market::{Candle, Pool, Series};
use crate::strategy::{End, Move, Strategy as _};

const TRUST: Trust = Trust { max_deviation_bp: 100, max_volatility_bp: 2_000, min_reserve: Decimal::ZERO };

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn raw(units: u64) -> RawAmount {
    RawAmount::from(units)
}

fn bsc() -> ChainName {
    "bsc".parse().unwrap()
}

fn bnb() -> AssetSymbol {
    "BNB".parse().unwrap()
}

/// Ids that sort as they are numbered.
fn id(n: u8) -> WalletId {
    format!("00000000-0000-7000-8000-0000000000{n:02x}").parse().unwrap()
}

fn strategy(unit: Unit, floor: &str, target: &str, ceiling: &str) -> FloatBounds {
    let (floor, target, ceiling) = (decimal(floor), decimal(target), decimal(ceiling));
    let bounds = Bounds { chain: bsc(), asset: bnb(), unit, floor, target, ceiling };
    FloatBounds { quote: "USDT".parse().unwrap(), bounds: vec![bounds], trust: TRUST }
}

fn holding(balance: u64, reserved: u64) -> Holding {
    Holding {
        balance: raw(balance),
        reserved: raw(reserved),
        incoming: raw(0),
        block_number: 1,
        stale: false,
    }
}

fn wallet(n: u8, role: Role, holding: Option<Holding>) -> Wallet {
    let holdings = holding.map(|held| (bnb(), held)).into_iter().collect();
    Wallet { id: id(n), chain: bsc(), address: format!("0x{n}"), role, active: true, holdings }
}

/// Hot wallets 1, 2, .. with two decimals, and cold storage as number 99.
fn book(hot: &[Holding], cold: bool) -> Book {
    let decimals = Decimals::new(2).unwrap();
    let hot = hot.iter().zip(1..).map(|(held, n)| wallet(n, Role::Hot, Some(*held)));
    let cold = cold.then(|| wallet(99, Role::Cold, Some(holding(0, 0))));
    Book {
        assets: [((bsc(), bnb()), AssetOnChain { decimals, enabled: true })].into(),
        wallets: hot.chain(cold).map(|wallet| (wallet.id, wallet)).collect(),
    }
}

fn candle(minute: i64, price: &str) -> Candle {
    let time =
        |minute: i64| -> DateTime<Utc> { DateTime::from_timestamp(1_800_000_000 + minute * 60, 0).unwrap() };
    let price = decimal(price);
    Candle {
        open_time: time(minute),
        close_time: time(minute + 1),
        open: price,
        high: price,
        low: price,
        close: price,
        volume: Decimal::ONE,
    }
}

fn series(source: &str, prices: &[&str]) -> Series {
    let candles = prices.iter().zip(0..).map(|(price, minute)| candle(minute, price)).collect();
    Series { asset: bnb(), source: source.to_owned(), candles }
}

fn pool(price: &str, reserve: &str) -> Pool {
    Pool {
        asset: bnb(),
        source: "pool".to_owned(),
        price: decimal(price),
        reserve: decimal(reserve),
        volume_h24: Decimal::ONE,
        trades_h24: 1,
        seen_at: DateTime::default(),
    }
}

fn at(price: &str) -> Market {
    Market { series: vec![series("a", &[price])], pools: Vec::new() }
}

fn decide(strategy: &FloatBounds, market: &Market, book: &Book) -> Decision {
    let decision = strategy.decide(&strategy.score(market).unwrap(), book).unwrap();
    decision.check(book, strategy.kinds()).unwrap();
    decision
}

/// `kind from>to amount`, wallets by number.
fn shown(decision: &Decision) -> Vec<String> {
    let end = |end: End| match end {
        End::Outside => "out".to_owned(),
        End::Wallet(wallet) => (1..=99).find(|n| id(*n) == wallet).unwrap().to_string(),
    };
    let shown = |m: &Move| format!("{} {}>{} {}", m.kind, end(m.from), end(m.to), m.amount);
    decision.moves.iter().map(shown).collect()
}

#[test]
fn wallets_are_brought_to_the_target_only_when_they_are_out_of_bounds() {
    // Bounds 10, 20, 30 in units of the asset; balances in hundredths.
    let strategy = strategy(Unit::Asset, "10", "20", "30");
    for (name, hot, expected) in [
        ("within", vec![holding(1000, 0), holding(3000, 0), holding(2000, 0)], vec![]),
        ("just below", vec![holding(999, 0)], vec!["refill out>1 1001"]),
        ("empty", vec![holding(0, 0)], vec!["refill out>1 2000"]),
        ("just above", vec![holding(3001, 0)], vec!["sweep 1>99 1001"]),
        ("reserved is no float", vec![holding(2500, 2000)], vec!["refill out>1 1500"]),
        ("reserved is not swept", vec![holding(9000, 5000)], vec!["sweep 1>99 2000"]),
        ("more spoken for than there is", vec![holding(100, 500)], vec!["refill out>1 2400"]),
        ("one has what the other lacks", vec![holding(0, 0), holding(4000, 0)], vec!["rebalance 2>1 2000"]),
        (
            "the rest goes to cold storage",
            vec![holding(0, 0), holding(9000, 0)],
            vec!["rebalance 2>1 2000", "sweep 2>99 5000"],
        ),
        (
            "the rest comes from outside",
            vec![holding(0, 0), holding(3500, 0)],
            vec!["rebalance 2>1 1500", "refill out>1 500"],
        ),
        (
            "the largest first",
            vec![holding(500, 0), holding(0, 0), holding(3500, 0), holding(4000, 0)],
            vec!["rebalance 4>2 2000", "rebalance 3>1 1500"],
        ),
    ] {
        assert_eq!(shown(&decide(&strategy, &at("600"), &book(&hot, true))), expected, "{name}");
    }
}

#[test]
fn bounds_in_the_quote_move_with_the_price_and_every_move_is_priced() {
    let strategy = strategy(Unit::Quote, "6000", "12000", "18000");
    let book = book(&[holding(1500, 0)], true);
    for (price, expected, value) in [
        ("600", vec![], None),
        ("300", vec!["refill out>1 2500"], Some("7500")),
        ("1500", vec!["sweep 1>99 700"], Some("10500")),
        // 12000 / 7 = 1714.2857..: towards the inside, to a whole raw unit.
        ("7", vec!["refill out>1 169928"], Some("11894.96")),
    ] {
        let decision = decide(&strategy, &at(price), &book);
        assert_eq!(shown(&decision), expected, "{price}");
        assert_eq!(decision.moves.first().map(|m| m.value.unwrap().to_string()).as_deref(), value);
    }
}

#[test]
fn a_price_that_is_not_trusted_decides_nothing_and_values_nothing() {
    let low = book(&[holding(0, 0)], true);
    let disputed = Market { series: vec![series("a", &["600"]), series("b", &["610"])], pools: vec![] };
    let by_pool = Market { pools: vec![pool("500", "1000000")], ..at("600") };
    let volatile = Market { series: vec![series("a", &["400", "600"])], pools: vec![] };
    for (market, regime) in [(&disputed, "disputed"), (&by_pool, "disputed"), (&volatile, "volatile")] {
        let in_quote = strategy(Unit::Quote, "6000", "12000", "18000");
        assert_eq!(in_quote.regime(&in_quote.score(market).unwrap()), regime);
        let decision = decide(&in_quote, market, &low);
        assert_eq!((decision.moves.len(), decision.holds.len()), (0, 1), "{regime}");
        // Bounds in the asset's own unit need no price; only the value is left open.
        let in_asset = decide(&strategy(Unit::Asset, "10", "20", "30"), market, &low);
        assert_eq!(shown(&in_asset), ["refill out>1 2000"]);
        assert_eq!(in_asset.moves[0].value, None);
    }
    // A pool that a little money can move is no witness.
    let shallow = Trust { min_reserve: decimal("1000001"), ..TRUST };
    let strategy = FloatBounds { trust: shallow, ..strategy(Unit::Quote, "6000", "12000", "18000") };
    assert_eq!(shown(&decide(&strategy, &by_pool, &low)), ["refill out>1 2000"]);
}

#[test]
fn the_price_is_the_median_close_and_the_quote_is_worth_itself() {
    let mut strategy = strategy(Unit::Quote, "1", "2", "3");
    let close = |prices: [&str; 3]| Market {
        series: prices.iter().map(|price| series(price, &["1", price])).collect(),
        pools: vec![],
    };
    let scores = strategy.score(&close(["602", "600", "601"])).unwrap();
    assert_eq!(scores.0[&bnb()].price, decimal("601"));
    assert!(matches!(strategy.score(&Market::default()), Err(StrategyError::Unpriced(_))));
    strategy.quote = bnb();
    assert_eq!(strategy.score(&Market::default()).unwrap().trusted(&bnb()), Some(Decimal::ONE));
}

#[test]
fn what_cannot_be_known_or_placed_is_held_with_the_reason() {
    let strategy = strategy(Unit::Asset, "10", "20", "30");
    let reasons = |book: &Book| -> Vec<String> {
        let decision = decide(&strategy, &at("600"), book);
        assert_eq!(decision.moves, []);
        decision.holds.into_iter().map(|hold| hold.reason).collect()
    };
    let mut never_read = book(&[], true);
    never_read.wallets.insert(id(1), wallet(1, Role::Hot, None));
    assert_eq!(reasons(&never_read), ["its balance has not been read yet"]);
    let stale = Holding { stale: true, ..holding(0, 0) };
    assert_eq!(reasons(&book(&[stale], true)), ["its balance has not been read for too long"]);
    let no_cold = reasons(&book(&[holding(9000, 0)], false));
    assert_eq!(no_cold, ["70 above its target, and the chain has no active cold wallet"]);
    let on_its_way = Holding { incoming: raw(9000), ..holding(0, 0) };
    assert_eq!(reasons(&book(&[on_its_way], true)), ["above the ceiling by what has not arrived yet"]);
    let mut disabled = book(&[holding(0, 0)], true);
    disabled.assets.get_mut(&(bsc(), bnb())).unwrap().enabled = false;
    assert_eq!(reasons(&disabled), ["the asset takes no new work"]);
    let mut paused = book(&[holding(0, 0)], true);
    paused.wallets.get_mut(&id(1)).unwrap().active = false;
    assert_eq!(reasons(&paused), [""; 0]);
    let too_close = super::tests::strategy(Unit::Asset, "0.001", "0.002", "0.003");
    let decision = decide(&too_close, &at("600"), &book(&[holding(9, 0)], true));
    assert_eq!(decision.holds[0].reason, "no whole amount lies between floor and ceiling");
}

#[test]
fn an_asset_that_execution_does_not_know_is_an_error() {
    let strategy = strategy(Unit::Asset, "10", "20", "30");
    let scores = strategy.score(&at("600")).unwrap();
    let unknown = Book { assets: [].into(), ..book(&[], true) };
    assert!(matches!(strategy.decide(&scores, &unknown), Err(StrategyError::UnknownAsset { .. })));
}

#[test]
fn no_strategy_can_give_away_what_is_not_there() {
    let strategy = strategy(Unit::Asset, "10", "20", "30");
    let book = book(&[holding(4100, 1000), holding(0, 0)], true);
    let good = decide(&strategy, &at("600"), &book).moves.remove(0);
    let refused = |moves: Vec<Move>, reason: &str| {
        let decision = Decision { moves, holds: vec![] };
        let error = decision.check(&book, strategy.kinds()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} does not say {reason}");
    };
    assert_eq!(good.from, End::Wallet(id(1)));
    let all = Move { amount: raw(3100), ..good.clone() };
    Decision { moves: vec![all.clone()], holds: vec![] }.check(&book, strategy.kinds()).unwrap();
    refused(vec![Move { amount: raw(3101), ..good.clone() }], "has not that much to give");
    refused(vec![all.clone(), Move { amount: raw(1), ..good.clone() }], "move 1");
    refused(vec![Move { amount: raw(0), ..good.clone() }], "moves nothing");
    refused(vec![Move { to: good.from, ..good.clone() }], "leads nowhere");
    refused(vec![Move { to: End::Wallet(id(99)), ..good.clone() }], "no active wallet");
    refused(vec![Move { to: End::Wallet(id(7)), ..good.clone() }], "no active wallet");
    refused(vec![Move { kind: Kind::Refill, ..good.clone() }], "comes from outside");
    refused(vec![Move { from: End::Outside, ..good.clone() }], "a wallet at both ends");
    refused(vec![Move { chain: "tron".parse().unwrap(), ..good.clone() }], "there is no BNB on tron");
    let only = Decision { moves: vec![good], holds: vec![] };
    assert!(only.check(&book, &[Kind::Refill]).is_err());
}

/// The book after all moves have settled, and what came in from outside.
fn settle(book: &Book, decision: &Decision) -> (Book, u128) {
    let (mut after, mut brought) = (book.clone(), 0);
    for a_move in &decision.moves {
        match a_move.from {
            End::Outside => brought += a_move.amount.to_u128().unwrap(),
            End::Wallet(id) => {
                let held = after.wallets.get_mut(&id).unwrap().holdings.get_mut(&bnb()).unwrap();
                held.balance = held.balance.checked_sub(a_move.amount).expect("only what is there is moved");
            }
        }
        let End::Wallet(to) = a_move.to else { panic!("nothing goes outside") };
        let held = after.wallets.get_mut(&to).unwrap().holdings.get_mut(&bnb()).unwrap();
        held.balance = held.balance.checked_add(a_move.amount).unwrap();
    }
    (after, brought)
}

fn total(book: &Book) -> u128 {
    book.wallets.values().map(|wallet| wallet.holdings[&bnb()].balance.to_u128().unwrap()).sum()
}

/// What a hot wallet can pay with; negative when more is spoken for.
fn float(held: &Holding) -> i128 {
    let units = |amount: RawAmount| i128::try_from(amount.to_u128().unwrap()).unwrap();
    units(held.balance) + units(held.incoming) - units(held.reserved)
}

fn hot(book: &Book) -> impl Iterator<Item = &Holding> {
    book.wallets.values().filter(|wallet| wallet.role == Role::Hot).map(|wallet| &wallet.holdings[&bnb()])
}

prop_compose! {
    fn any_holding()(balance in 0u64..1_000_000, reserved in 0u64..500_000, incoming in prop_oneof![Just(0u64), 0u64..300_000])
        -> Holding
    {
        Holding { incoming: raw(incoming), ..holding(balance, reserved) }
    }
}

prop_compose! {
    /// Bounds in hundredths, with room for a whole amount at the price.
    fn any_strategy()(mut cents in [0u64..600_000, 0u64..600_000, 0u64..600_000], quote: bool)
        -> FloatBounds
    {
        cents.sort_unstable();
        let unit = if quote { Unit::Quote } else { Unit::Asset };
        let [floor, target, ceiling] = cents.map(|c| format!("{}.{:02}", c / 100, c % 100));
        strategy(unit, &floor, &target, &ceiling)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn after_all_proposals_every_float_is_within_bounds_and_nothing_is_lost(
        strategy in any_strategy(),
        holdings in prop::collection::vec(any_holding(), 0..7),
        price in 1u64..100_000,
        cold: bool,
    ) {
        let price = format!("{}.{:02}", price / 100, price % 100);
        let book = book(&holdings, cold);
        let market = at(&price);
        let decision = decide(&strategy, &market, &book);
        let (after, brought) = settle(&book, &decision);

        // Sums are conserved: what is more than before came from outside, and nothing went there.
        prop_assert_eq!(total(&after), total(&book) + brought);

        // In raw units, towards the inside.
        let bounds = &strategy.bounds[0];
        let price = if bounds.unit == Unit::Quote { decimal(&price) } else { Decimal::ONE };
        let places = Decimals::new(2).unwrap();
        let limit = |value, round| {
            let amount: RawAmount = price.amount_worth(value, places, round).unwrap();
            i128::try_from(amount.to_u128().unwrap()).unwrap()
        };
        let floor = limit(bounds.floor, crate::decimal::Round::Up);
        let ceiling = limit(bounds.ceiling, crate::decimal::Round::Down);
        if floor > ceiling {
            prop_assert!(decision.moves.is_empty() && decision.holds.len() == 1);
            return Ok(());
        }
        for (before, after) in hot(&book).zip(hot(&after)) {
            let (was, is) = (float(before), float(after));
            prop_assert!(is >= floor, "{} is below the floor {}", is, floor);
            if is > ceiling {
                // Only where it was above already, and the surplus has not arrived yet or has no place to go.
                prop_assert!(is <= was && (!cold || after.balance <= after.reserved), "{} is above {}", is, ceiling);
            }
            prop_assert!((floor..=ceiling).contains(&was) <= (was == is), "a float within bounds is left alone");
            prop_assert!(after.balance >= before.reserved.min(before.balance), "what is spoken for stays");
        }
        for a_move in &decision.moves {
            prop_assert!(a_move.value.is_some());
        }

        // Once settled there is nothing more to do: proposals never chase each other.
        let again = decide(&strategy, &market, &after);
        prop_assert!(again.moves.is_empty(), "{:?}", again.moves);
    }
}
