//! Beginning and extending watches, stuck notices, lists.

use std::time::Duration;

use confirmation::Error;
use confirmation::watch::{Status, WatchQuery};
use proto::execution::v1::verdict::Finding;
use types::JobId;

use crate::env::{DEPTH, TestEnv, TxSpec, chain_name, native, seconds, stranger, tick};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn the_same_watch_twice_and_at_once_is_one_watch() {
    let env = TestEnv::new().await;
    let (job, to) = (JobId::new(), stranger());
    let (first, bumped) = (env.sign(0, to, 5, &[]).await, env.sign_at(0, to, 5, 9_000_000_000).await);
    let put = || env.extend(job, native(to, 5), vec![first.watched()]);
    let (a, b, c) = tokio::join!(put(), put(), put());
    for stored in [a, b, c] {
        assert_eq!(stored.unwrap().watch.transactions.len(), 1);
    }
    let extended = env.extend(job, native(to, 5), vec![bumped.watched()]).await.unwrap();
    assert_eq!(extended.watch.transactions.len(), 2, "hashes are added, never removed");
    let again = env.extend(job, native(to, 5), vec![first.watched(), bumped.watched()]).await.unwrap();
    assert_eq!(again.version, extended.version + 1, "a replay changes nothing");
}

#[tokio::test]
async fn a_job_cannot_be_watched_for_something_else() {
    let env = TestEnv::new().await;
    let (job, signed, to) = env.payment(0).await;
    for (effect, field) in
        [(native(to, 6), "effect.amount_raw"), (native(stranger(), 5), "effect.to_address")]
    {
        let error = env.extend(job, effect, vec![signed.watched()]).await.unwrap_err();
        assert!(matches!(error, Error::Differs { field: found, .. } if found == field), "{error}");
    }
    let error = env.extend(JobId::new(), native(to, 5), vec![signed.watched()]).await.unwrap_err();
    assert!(matches!(error, Error::HashTaken { .. }), "{error}");
    let other_nonce = env.sign(1, to, 5, &[]).await;
    let error = env.extend(job, native(to, 5), vec![other_nonce.watched()]).await.unwrap_err();
    assert!(matches!(error, Error::Add(_)), "{error}");
    assert_eq!(env.watches.get(job).await.unwrap().watch.transactions.len(), 1);
}

#[tokio::test]
async fn a_watch_that_waits_too_long_is_reported_again_and_again_and_never_ended() {
    let mut env = TestEnv::new().await;
    env.change_settings(|settings| settings.stuck_after = Some(HOUR)).await;
    let mut replica = env.replica("one");
    let (job, signed, _) = env.payment(0).await;
    tick(&mut replica).await;
    for notices in 0..3 {
        assert_eq!(env.kinds(job).await.len(), notices);
        env.age(job).await;
        tick(&mut replica).await;
    }
    for finding in env.verdicts(job).await {
        let Finding::Stuck(stuck) = finding else { panic!("{finding:?}") };
        assert_eq!(stuck.tx_hash, signed.hash.to_string());
        assert!(seconds(&stuck.waited.unwrap()).num_hours() >= 2);
    }
    assert_eq!(env.status(job).await, "waiting");
}

#[tokio::test]
async fn what_nothing_can_ever_rule_out_says_so_instead_of_being_reported_for_ever() {
    let mut env = TestEnv::new().await;
    env.change_settings(|settings| settings.stuck_after = Some(HOUR)).await;
    let mut replica = env.replica("one");
    let to = stranger();
    let signed = env.sign(0, to, 5, &[]).await;
    // As it is when another system sent it: nothing but its hash is known.
    let imported = TxSpec { nonce: None, proven: false, ..signed.watched() };
    let job = env.put(native(to, 5), vec![imported]).await;
    tick(&mut replica).await;
    assert_eq!(env.delayed(job).await, "", "it is not overdue yet");
    for _ in 0..2 {
        env.age(job).await;
        tick(&mut replica).await;
        let reason = env.delayed(job).await;
        assert!(reason.contains("neither its nonce nor an expiration is known"), "{reason:?}");
    }
    assert!(env.kinds(job).await.is_empty(), "there is nothing that execution could do");
    env.send(&signed).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    assert_eq!((env.kinds(job).await, env.delayed(job).await), (vec!["settled"], String::new()));
}

#[tokio::test]
async fn lists_go_on_where_the_page_before_ended() {
    let env = TestEnv::new().await;
    let mut jobs = Vec::new();
    for nonce in 0..7 {
        let (job, _, _) = env.payment(nonce).await;
        jobs.push(job);
    }
    let mut query =
        WatchQuery { chain: Some(chain_name()), statuses: vec![Status::Waiting], after: None, size: 3 };
    let mut listed = Vec::new();
    loop {
        let page = env.watches.list(&query).await.unwrap();
        listed.extend(page.watches.iter().map(|stored| stored.watch.job));
        let last = page.watches.last().unwrap();
        query.after = Some((last.created_at, last.watch.job));
        if !page.has_more {
            break;
        }
    }
    jobs.reverse();
    assert_eq!(listed, jobs, "newest first, each once");
    let none = WatchQuery { statuses: vec![Status::Settled], after: None, ..query };
    assert!(env.watches.list(&none).await.unwrap().watches.is_empty());
}

#[tokio::test]
async fn the_tables_refuse_a_second_end_even_if_the_code_would_not() {
    let env = TestEnv::new().await;
    let (job, _, _) = env.payment(0).await;
    let insert = |kind: &'static str, round: i32| {
        sqlx::query(
            "INSERT INTO verdicts (id, job_id, round, kind, payload, at) VALUES ($1, $2, $3, $4, '', now())",
        )
        .bind(JobId::new().as_uuid())
        .bind(job.as_uuid())
        .bind(round)
        .bind(kind)
        .execute(&env.pool)
    };
    insert("void", 1).await.unwrap();
    insert("stuck", 1).await.unwrap();
    let second = insert("reverted", 1).await.unwrap_err();
    assert_eq!(db::constraint(&second), Some("verdicts_one_end_per_round"));
    insert("settled", 2).await.unwrap();
    let twice = insert("settled", 3).await.unwrap_err();
    assert_eq!(db::constraint(&twice), Some("verdicts_settled_once"));
    let unfounded =
        sqlx::query("UPDATE watches SET status = 'settled', finished_at = now() WHERE job_id = $1")
            .bind(job.as_uuid())
            .execute(&env.pool)
            .await
            .unwrap_err();
    assert_eq!(db::constraint(&unfounded), Some("watches_landed_has_its_block"));
}
