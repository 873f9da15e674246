//! Lists: filters, order, and pages that neither skip nor repeat.

use proto::intent::v1 as pb;
use proto::intent::v1::WithdrawalStatus;
use types::UserId;

use crate::support::{HOT_WALLET, LONG_HISTORY, Stack, create, create_for, fields, stack};

async fn page(stack: &Stack, request: pb::ListWithdrawalsRequest) -> (Vec<String>, String) {
    let page = stack.intent("ops").list_withdrawals(request).await.unwrap().into_inner();
    (
        page.withdrawals.into_iter().map(|withdrawal| withdrawal.idempotency_key).collect(),
        page.next_page_token,
    )
}

fn sized(page_size: u32, page_token: &str) -> pb::ListWithdrawalsRequest {
    pb::ListWithdrawalsRequest { page_size, page_token: page_token.to_owned(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_newest_first_and_stay_put_while_requests_come_in() {
    let stack = stack().await;
    for n in 0..7 {
        stack.create(create(&format!("k{n}"))).await.unwrap();
    }
    let (first, token) = page(&stack, sized(3, "")).await;
    assert_eq!(first, ["k6", "k5", "k4"]);
    stack.create(create("k7")).await.unwrap();
    let (second, token) = page(&stack, sized(3, &token)).await;
    assert_eq!(second, ["k3", "k2", "k1"]);
    let (last, token) = page(&stack, sized(3, &token)).await;
    assert_eq!((last.as_slice(), token.as_str()), (&["k0".to_owned()][..], ""));
    let (all, token) = page(&stack, sized(0, "")).await;
    assert_eq!((all.len(), token.as_str()), (8, ""));
    let (all, token) = page(&stack, sized(8, "")).await;
    assert_eq!((all.len(), token.as_str()), (8, ""), "a full last page is the last");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_belongs_to_its_filter() {
    let stack = stack().await;
    for n in 0..3 {
        stack.create(create(&format!("k{n}"))).await.unwrap();
    }
    let (_, token) = page(&stack, sized(2, "")).await;
    let other = pb::ListWithdrawalsRequest { asset: "USDT".to_owned(), ..sized(2, &token) };
    let refused = stack.intent("ops").list_withdrawals(other).await.unwrap_err();
    assert_eq!(fields(&refused), ["page_token"]);
    for nonsense in ["x", "AAAA", &token[1..]] {
        assert!(stack.intent("ops").list_withdrawals(sized(2, nonsense)).await.is_err(), "{nonsense}");
    }
    assert_eq!(page(&stack, sized(1, &token)).await.0, ["k0"], "another size is the same list");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_combined() {
    let stack = stack().await;
    let user = UserId::new();
    let one = stack.create(create_for("one", user, "1")).await.unwrap();
    let mut native = create_for("native", user, "2");
    native.asset = "BNB".to_owned();
    native.destination = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe1".to_lowercase();
    stack.create(native).await.unwrap();
    stack.create(create("other")).await.unwrap();
    stack.cancel("alice", &one.id).await.unwrap();
    let only = |change: fn(&mut pb::ListWithdrawalsRequest)| {
        let mut request = sized(0, "");
        change(&mut request);
        request
    };
    let mine = pb::ListWithdrawalsRequest { user_id: user.to_string(), ..sized(0, "") };
    assert_eq!(page(&stack, mine.clone()).await.0, ["native", "one"]);
    let pending = vec![WithdrawalStatus::Pending.into()];
    assert_eq!(
        page(&stack, pb::ListWithdrawalsRequest { statuses: pending, ..mine.clone() }).await.0,
        ["native"]
    );
    let any = vec![WithdrawalStatus::Unspecified.into()];
    assert_eq!(page(&stack, pb::ListWithdrawalsRequest { statuses: any, ..mine.clone() }).await.0.len(), 2);
    let cancelled = only(|r| r.statuses = vec![WithdrawalStatus::Cancelled.into()]);
    assert_eq!(page(&stack, cancelled).await.0, ["one"]);
    assert_eq!(page(&stack, only(|r| r.asset = "BNB".to_owned())).await.0, ["native"]);
    assert_eq!(page(&stack, only(|r| r.chain = "tron".to_owned())).await.0.len(), 0);
    let to = only(|r| r.destination = crate::support::WALLET.to_owned());
    assert_eq!(page(&stack, to).await.0, ["other", "one"]);
    assert_eq!(page(&stack, only(|r| r.destination = HOT_WALLET.to_owned())).await.0.len(), 0);
    let from = pb::ListWithdrawalsRequest { created_from: one.created_at, ..sized(0, "") };
    assert_eq!(page(&stack, from).await.0.len(), 3);
    let before = pb::ListWithdrawalsRequest { created_to: one.created_at, ..sized(0, "") };
    assert_eq!(page(&stack, before).await.0.len(), 0);
    let bad = pb::ListWithdrawalsRequest {
        statuses: vec![99],
        user_id: "x".to_owned(),
        chain: "X".to_owned(),
        destination: "nowhere".to_owned(),
        ..sized(0, "")
    };
    let refused = stack.intent("ops").list_withdrawals(bad).await.unwrap_err();
    assert_eq!(fields(&refused), ["statuses", "user_id", "chain", "destination"]);
    // A calendar has such a year, the database has not.
    let age = prost_types::Timestamp { seconds: -4_000_000_000_000, nanos: 0 };
    let bad = pb::ListWithdrawalsRequest { created_from: Some(age), created_to: Some(age), ..sized(0, "") };
    let refused = stack.intent("ops").list_withdrawals(bad).await.unwrap_err();
    assert_eq!(fields(&refused), ["created_from", "created_to"]);
}

type Narrow = fn(&mut pb::ListWithdrawalsRequest);

#[tokio::test(flavor = "multi_thread")]
async fn rare_ones_are_found_by_an_index_however_long_the_history_is() {
    let stack = stack().await;
    let mut rare = create("rare");
    rare.destination = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe1".to_lowercase();
    rare.asset = "BNB".to_owned();
    let rare = stack.create(rare).await.unwrap();
    stack.cancel("alice", &rare.id).await.unwrap();
    sqlx::raw_sql(LONG_HISTORY).execute(&stack.pool).await.unwrap();
    let filters: [(&str, Narrow); 3] = [
        ("withdrawal_requests_by_destination", |r| {
            r.destination = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe1".to_lowercase()
        }),
        ("withdrawal_requests_unpaid", |r| r.statuses = vec![WithdrawalStatus::Cancelled.into()]),
        ("withdrawal_requests_by_asset", |r| {
            r.chain = "bsc".to_owned();
            r.asset = "BNB".to_owned();
        }),
    ];
    const TIMES: i64 = 12;
    for (index, filter) in filters {
        for _ in 0..TIMES {
            let mut request = sized(0, "");
            filter(&mut request);
            assert_eq!(page(&stack, request).await.0, ["rare"]);
        }
        testkit::wait_for(index, crate::support::PATIENCE, || async {
            let scans = sqlx::query_scalar::<_, i64>(
                "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = $1",
            );
            scans.bind(index).fetch_one(&stack.pool).await.unwrap() >= TIMES
        })
        .await;
    }
}
