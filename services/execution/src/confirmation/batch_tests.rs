//! A batch of verdicts leaves the same rows and gives the same results as the verdicts one by one.

use chrono::{TimeDelta, Utc};
use payment::{Cost, Inclusion, VoidProof};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use types::{Backoff, RawAmount};

use super::*;
use crate::job::{Schedule, Schedules};

const JOBS: u8 = 8;
const BATCHES: usize = 150;

/// Jobs in different states, each with up to two transactions: hash `[job, number, 0, ..]`, nonce as the job's number.
const SEED: &str = "
    INSERT INTO chains VALUES ('bsc', 'evm', 56, '{http://node}', 'depth', 2, true, 1000, 1000, 30, true, 'BNB', 1);
    INSERT INTO assets VALUES (uuid_nil(), 'bsc', 'BNB', true, NULL, 18, true, 0);
    INSERT INTO operation_wallets (id, chain, address, role, status, wallet_group_id, derivation_index, label)
    VALUES (uuid_nil(), 'bsc', '0x00000000000000000000000000000000000000bb', 'hot_wallet', 'active', uuid_nil(), 0, '');
    INSERT INTO wallet_holdings VALUES (uuid_nil(), uuid_nil(), 1000, 60, 3, now());
    INSERT INTO lanes (chain, address, next_nonce) VALUES ('bsc', '0x00000000000000000000000000000000000000bb', 9);
    INSERT INTO jobs (id, queue, withdrawal_id, chain, asset_id, wallet_id, to_address, amount_raw, rank, status, max_tries,
        error, blocked_reason, wanted, cancel_reason, retreating, tx_hash, requested_by, approvals, void_proof, reserved,
        imported, finished_at)
    SELECT id_of(n), 'withdrawal', id_of(n + 100), 'bsc', uuid_nil(), uuid_nil(), '0x00000000000000000000000000000000000000aa',
        10, 1, s.status, 2, s.error, s.blocked, s.wanted, s.closing, s.retreating, hash_of(n, 1), 'alice', '[]', s.proof,
        s.status NOT IN ('confirmed', 'failed') AND n <> 7, n = 7,
        CASE WHEN s.status IN ('confirmed', 'failed') THEN now() END
    FROM (VALUES
        (0, 'confirming', NULL, NULL, NULL, NULL, false, NULL::jsonb),
        (1, 'confirming', NULL, NULL, 'bump', NULL, false, NULL),
        (2, 'confirming', NULL, 'the wallet is empty', NULL, NULL, false, NULL),
        (3, 'confirming', 'x', NULL, 'cancel', 'no node takes it', true, NULL),
        (4, 'parked', 'look', NULL, NULL, NULL, false, NULL),
        (5, 'processing', NULL, NULL, NULL, NULL, false,
         '{\"tx_hashes\": [], \"signature\": \"00\", \"attested_at\": \"2026-01-01T00:00:00Z\"}'),
        (6, 'confirmed', NULL, NULL, NULL, NULL, false, NULL),
        (7, 'confirming', NULL, NULL, NULL, NULL, false, NULL)
    ) AS s (n, status, error, blocked, wanted, closing, retreating, proof);
    INSERT INTO attempts (id, job_id, number, kind, status, chain, address, nonce, gas_limit, max_fee_per_gas, price_kind,
        raw_transaction, tx_hash)
    SELECT gen_random_uuid(), id_of(n), k, CASE WHEN n = 3 AND k = 2 THEN 'cancel' ELSE 'pay' END,
        CASE WHEN n = 6 AND k = 1 THEN 'settled' WHEN n = 6 THEN 'void' ELSE 'broadcast' END,
        'bsc', '0x00000000000000000000000000000000000000bb', CASE WHEN n <> 7 THEN n END, 21000, 1, 'gas',
        CASE WHEN n <> 7 THEN '\\x01'::bytea END, hash_of(n, k)
    FROM generate_series(0, 7) AS n, generate_series(1, 2) AS k WHERE k = 1 OR n IN (1, 3, 6);
    INSERT INTO lane_nonces (chain, address, nonce, state, job_id, closed_by, closed_at)
    SELECT 'bsc', '0x00000000000000000000000000000000000000bb', n, CASE WHEN n = 6 THEN 'closed' ELSE 'open' END, id_of(n),
        CASE WHEN n = 6 THEN 'payment' END, CASE WHEN n = 6 THEN now() END
    FROM generate_series(0, 6) AS n;";

const FUNCTIONS: &str = "
    CREATE FUNCTION uuid_nil() RETURNS uuid LANGUAGE sql AS $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$;
    CREATE FUNCTION id_of(n integer) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(to_hex(n), 32, '0')::uuid $$;
    CREATE FUNCTION hash_of(n integer, k integer) RETURNS bytea LANGUAGE sql
        AS $$ SELECT decode(lpad(to_hex(n), 2, '0') || lpad(to_hex(k), 2, '0') || repeat('00', 30), 'hex') $$;";

/// Everything that verdicts write, without ids of messages and without times, which differ between two transactions.
const SNAPSHOT: &str = "
    SELECT jsonb_build_object(
        'jobs', (SELECT jsonb_agg(to_jsonb(j) - '{updated_at,created_at}'::text[] || jsonb_build_object(
            'finished_at', j.finished_at IS NULL, 'processing_since', j.processing_since IS NULL) ORDER BY j.id) FROM jobs AS j),
        'attempts', (SELECT jsonb_agg(to_jsonb(t) - '{created_at}'::text[] ORDER BY t.job_id, t.number) FROM attempts AS t),
        'verdicts', (SELECT jsonb_agg(to_jsonb(v) - '{received_at}'::text[] ORDER BY v.id) FROM verdicts AS v),
        'nonces', (SELECT jsonb_agg(to_jsonb(n) - '{taken_at,closed_at}'::text[] ORDER BY n.nonce) FROM lane_nonces AS n),
        'lanes', (SELECT jsonb_agg(to_jsonb(l) - '{created_at,updated_at,halted_at}'::text[]) FROM lanes AS l),
        'holdings', (SELECT jsonb_agg(to_jsonb(h)) FROM wallet_holdings AS h),
        'ready', (SELECT jsonb_agg(to_jsonb(r) - '{due_at}'::text[] ORDER BY r.job_id) FROM job_ready AS r),
        'outbox', (SELECT jsonb_agg(jsonb_build_array(o.aggregate, o.topic) ORDER BY o.id) FROM outbox AS o)
    )::text";

fn hash(job: u8, number: u8) -> TxHash {
    let mut bytes = [0; 32];
    (bytes[0], bytes[1]) = (job, number);
    bytes.into()
}

fn finding(kind: u8, tx: TxHash, proven: bool) -> Finding {
    let cost = Cost { units: 21_000, unit_price: 2, fee: RawAmount::from(42_000u64) };
    let inclusion = Inclusion { tx, block_number: 5, block_hash: None, cost };
    let attested_at = Utc::now();
    let void = vec![tx];
    let proof = proven.then(|| VoidProof { tx_hashes: void.clone(), signature: vec![1], attested_at });
    let reason = "why".to_owned();
    match kind {
        0 => Finding::Reverted { inclusion, reason, value_moved: !proven, void, proof },
        1 => Finding::Void { void, foreign: proven.then_some(tx), reason, proof },
        2 => Finding::Cancelled { inclusion, void, proof },
        3 => Finding::Stuck { newest: tx, waited: TimeDelta::seconds(9) },
        4 => Finding::Reopened { tx, block_hash: None },
        5 => Finding::Contradicted { tx: Some(tx), reason },
        // Most verdicts are these, alone in the batch or not.
        _ => Finding::Settled(inclusion),
    }
}

fn batches() -> impl Strategy<Value = Vec<Verdict>> {
    // Jobs and transactions that do not exist are among them, and so are verdicts that come twice.
    let verdict =
        (0..=JOBS, 1..=3u8, 0..20u8, any::<bool>(), 0..40u128).prop_map(|(job, number, kind, proven, id)| {
            Verdict {
                id: Uuid::from_u128(id),
                job: JobId::from_uuid(Uuid::from_u128(u128::from(job))),
                at: Utc::now(),
                finding: finding(kind, hash(job, number.min(2)), proven),
            }
        });
    prop::collection::vec(verdict, 1..12)
}

async fn snapshot(tx: &mut PgConnection) -> String {
    sqlx::query_scalar(SNAPSHOT).fetch_one(tx).await.unwrap()
}

fn show(results: &[Result<(), JobError>]) -> Vec<String> {
    results.iter().map(|result| format!("{result:?}")).collect()
}

#[tokio::test]
async fn any_batch_of_verdicts_leaves_what_the_verdicts_leave_one_by_one() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &crate::MIGRATOR).await.unwrap();
    for sql in [FUNCTIONS, SEED] {
        sqlx::raw_sql(sql).execute(&pool).await.unwrap();
    }
    let backoff = Backoff { base: std::time::Duration::from_secs(1), cap: None, max_tries: 2 };
    let schedules = Schedules::of(|_, _| Schedule { tries: backoff, waits: backoff });
    let config = JobsConfig { schedules, halt_on_foreign: true };
    let mut runner = TestRunner::deterministic();
    for _ in 0..BATCHES {
        let batch = batches().new_tree(&mut runner).unwrap().current();
        let mut tx = db::begin(&pool).await.unwrap();
        let together = record_all_in(&mut tx, &config, &batch).await.unwrap();
        let rows = snapshot(&mut tx).await;
        tx.rollback().await.unwrap();
        let mut tx = db::begin(&pool).await.unwrap();
        let mut alone = Vec::new();
        for verdict in &batch {
            alone.push(record_alone_in(&mut tx, &config, verdict).await.unwrap());
        }
        assert_eq!(show(&together), show(&alone), "{batch:#?}");
        assert_eq!(rows, snapshot(&mut tx).await, "{batch:#?}");
        tx.rollback().await.unwrap();
    }
}
