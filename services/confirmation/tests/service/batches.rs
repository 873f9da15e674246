//! Batch writes: requests and evidence that are written together have the same result as one by one.

use chrono::Utc;
use confirmation::Error;
use confirmation::chains::ChainApp;
use confirmation::verdict::{AttestationKey, Evidence, record};
use confirmation::watch::batch::{PutCommand, PutOutcome, put_batch};
use confirmation::watch::{Event, Outcome, repo};
use payment::{BlockRef, Cost};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sqlx::{AssertSqlSafe, PgPool};
use telemetry::TraceContext;
use testkit::Database;
use types::{JobId, RawAmount, TxHash};

use crate::env::{self, SEED, TxSpec};

const CASES: u8 = 24;

/// One request: which job, how much it pays, and its transactions by number, nonce and whether each is a cancellation.
type Request = (usize, u64, Vec<(u8, u64, bool)>);

/// One piece of evidence: which job, what kind, about which of its transactions and which block.
type Proof = (usize, u8, usize, u64);

#[derive(Debug, Clone)]
enum Step {
    Requests(Vec<Request>),
    Evidence(Vec<Proof>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Mostly one amount and one nonce, so that most batches are accepted and many requests meet in one watch.
    let amount = prop_oneof![30 => Just(5_u64), 1 => Just(6)];
    let nonce = prop_oneof![9 => Just(7_u64), 1 => Just(8)];
    let transaction = (0_u8..40, nonce, prop::bool::weighted(0.05));
    let request = (0_usize..3, amount, prop::collection::vec(transaction, 1..3));
    let requests = prop::collection::vec(request, 1..6).prop_map(Step::Requests);
    let evidence =
        prop::collection::vec((0_usize..3, 0_u8..8, 0_usize..6, 1_u64..4), 1..5).prop_map(Step::Evidence);
    prop::collection::vec(prop_oneof![requests, evidence], 2..10)
}

/// A database with one chain that nobody follows.
struct Side {
    _database: Database,
    pool: PgPool,
}

impl Side {
    async fn new() -> Self {
        let database = testkit::postgres().await;
        let pool = database.pool().await;
        db::migrate::run(&pool, &confirmation::MIGRATOR).await.unwrap();
        ChainApp::new(pool.clone()).put(&env::settings("http://127.0.0.1:9".to_owned(), 3)).await.unwrap();
        Self { _database: database, pool }
    }

    async fn record(&self, evidence: Vec<Evidence>) {
        let mut tx = db::begin(&self.pool).await.unwrap();
        let key = AttestationKey::from_seed(&SEED);
        record::record_in(&mut tx, &key, Utc::now(), evidence).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn alone(&self, commands: &[PutCommand]) -> Vec<Result<PutOutcome, Error>> {
        let mut outcomes = Vec::new();
        for command in commands {
            let one = put_batch(&self.pool, std::slice::from_ref(command)).await;
            outcomes.push(one.and_then(|mut one| one.remove(0)));
        }
        outcomes
    }

    /// As the batch writer does: all in one transaction, or each alone if one of them is refused.
    async fn together(&self, commands: &[PutCommand], accepted: &mut u32) -> Vec<Result<PutOutcome, Error>> {
        match put_batch(&self.pool, commands).await {
            Ok(outcomes) => {
                *accepted += u32::from(commands.len() > 1);
                outcomes
            }
            Err(error) => {
                assert!(!error.retry(), "{error}");
                self.alone(commands).await
            }
        }
    }

    /// Everything stored, without times, versions and random ids.
    async fn tables(&self) -> Vec<Vec<String>> {
        let mut tables = Vec::new();
        for (columns, table, order) in [
            (
                "job_id, withdrawal_id, chain, from_address, to_address, amount_raw, contract_address, effect, round, nonce,
                 since_block, status, tx_hash, block_number, block_hash, value_moved, delayed_reason,
                 contradicted_at IS NULL, finished_at IS NULL",
                "watches",
                "job_id",
            ),
            (
                "chain, hash, job_id, round, position, is_cancellation, effect, nonce, expires_at, reference_block, proven,
                 block_number, final_at IS NULL",
                "watched_transactions",
                "job_id, position",
            ),
            ("job_id, kind, tx_hash, block_number, block_hash, detail", "observations", "job_id, id"),
            ("job_id, round, kind", "verdicts", "job_id, round, kind"),
            ("aggregate, topic", "outbox", "aggregate, id"),
        ] {
            let sql = format!("SELECT ROW({columns})::text FROM {table} ORDER BY {order}");
            tables.push(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&self.pool).await.unwrap());
        }
        tables
    }
}

/// What a caller sees of each request.
fn seen(outcomes: &[Result<PutOutcome, Error>]) -> Vec<String> {
    let text = |put: &PutOutcome| {
        format!("{} {} {:?} {:?}", put.begun, put.added, put.stored.watch, put.stored.delayed_reason)
    };
    outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(ToString::to_string, text)).collect()
}

fn event(kind: u8, tx: TxHash, number: u64) -> Event {
    let block = BlockRef { number, hash: [u8::try_from(number).unwrap(); 32].into() };
    let cost = Cost { units: 21_000, unit_price: 1, fee: RawAmount::ZERO };
    let last = |outcome| Event::Final { tx, block, cost, outcome };
    match kind {
        0 => Event::Seen { tx, block },
        1 => Event::Undone { block },
        2 => last(Outcome::Paid),
        3 => last(Outcome::Failed { reason: "reverted".to_owned(), value_moved: false }),
        4 => last(Outcome::Cancelled),
        5 | 6 => Event::Closed { foreign: None, block, reason: "expired".to_owned() },
        _ => Event::Overdue { newest: tx, waited: chrono::TimeDelta::seconds(60) },
    }
}

#[tokio::test]
async fn a_random_batch_does_what_its_requests_and_evidence_do_one_by_one() {
    let (batch, single) = (Side::new().await, Side::new().await);
    let (mut runner, mut accepted) = (TestRunner::deterministic(), 0);
    for case in 0..CASES {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let jobs: Vec<JobId> = (0..3).map(|_| JobId::new()).collect();
        // Only the last numbers are shared by jobs: such a request is refused.
        let hash = |job: usize, number: u8| {
            let mut bytes = [number; 32];
            bytes[..2]
                .copy_from_slice(&[case, if number < 39 { u8::try_from(job).unwrap() } else { u8::MAX }]);
            TxHash::from(bytes)
        };
        let to = env::stranger();
        for step in &steps {
            match step {
                Step::Requests(requests) => {
                    let command = |(job, amount, transactions): &Request| {
                        let transactions =
                            transactions.iter().map(|(number, nonce, is_cancellation)| TxSpec {
                                is_cancellation: *is_cancellation,
                                ..TxSpec::at_nonce(hash(*job, *number), *nonce)
                            });
                        let request =
                            env::request(jobs[*job], env::native(to, *amount), transactions.collect());
                        PutCommand { request, trace: TraceContext::default() }
                    };
                    let commands: Vec<PutCommand> = requests.iter().map(command).collect();
                    let (together, alone) =
                        (batch.together(&commands, &mut accepted).await, single.alone(&commands).await);
                    assert_eq!(seen(&together), seen(&alone), "case {case}: {steps:?}");
                }
                Step::Evidence(proofs) => {
                    let mut evidence = Vec::new();
                    for (job, kind, number, block) in proofs {
                        let job = jobs[*job];
                        let Some(known) = repo::find(&single.pool, job).await.unwrap() else { continue };
                        let transactions = known.watch.transactions;
                        let Some(tx) = transactions.get(number % transactions.len().max(1)) else { continue };
                        evidence.push(Evidence { job, event: event(*kind, tx.hash, *block) });
                    }
                    for one in &evidence {
                        single.record(vec![one.clone()]).await;
                    }
                    batch.record(evidence).await;
                }
            }
        }
        assert_eq!(batch.tables().await, single.tables().await, "case {case}: {steps:?}");
    }
    let verdicts = single.tables().await[3].len();
    assert!(accepted > 30 && verdicts > 30, "{accepted} batches and {verdicts} verdicts prove little");
}
