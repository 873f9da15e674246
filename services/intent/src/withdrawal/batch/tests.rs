//! A batch leads to the same outcomes and the same tables as its commands one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use prost::Message as _;
use proto::execution::v1 as execution_pb;
use sqlx::PgPool;
use types::{AddressFormat, Decimals, Priority, RawAmount, TxHash, UserId, WithdrawalId};
use uuid::Uuid;

use super::change::ChangeBatch;
use super::creation::CreationBatch;
use super::*;
use crate::approvers::Approver;
use crate::catalogue::{self, CatalogueEntry};
use crate::limit::{self, Limit, LimitId, Scope};
use crate::policy::{self, Policy, Tier};
use crate::withdrawal::approval::tests::{key, sign};
use crate::withdrawal::domain::Event;
use crate::withdrawal::message;
use crate::withdrawal::request::Withdrawal;
use crate::withdrawal::request::draft::WithdrawalDraft;

const CASES: usize = 20;
const APPROVERS: [&str; 3] = ["ann", "bob", "cid"];
const WALLETS: [&str; 3] =
    ["0x52908400098527886E0F7030069857D2E4169EE7", "0x8617E340B3D01FA5F11F306F4090FD50E238070D", "nowhere"];

/// What is sent at the same time. Creations and changes have a writer each, so they are never in one batch.
#[derive(Debug, Clone)]
enum Round {
    Create(Vec<NewRequest>),
    Change(Vec<(Index, NewChange)>),
    /// All approvals so far expire.
    Expire,
}

/// Key, customer, asset, amount, destination and requester.
type NewRequest = (u8, usize, &'static str, u8, &'static str, &'static str);

#[derive(Debug, Clone)]
enum NewChange {
    Approve { by: &'static str, forged: bool, hours: i64 },
    Apply(Command),
}

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap()
}

fn rules() -> Rules {
    let approver = |name: &str| Approver { key: key(name).verifying_key(), person: name.to_owned() };
    let known: BTreeMap<_, _> = APPROVERS.iter().map(|name| ((*name).to_owned(), approver(name))).collect();
    Rules { approvers: Approvers::new(known), default_required_approvals: Some(2) }
}

fn any_request() -> impl Strategy<Value = NewRequest> {
    let asset = prop_oneof![6 => Just("USDT"), 3 => Just("BNB"), 1 => Just("DOGE")];
    let destination = prop_oneof![8 => Just(WALLETS[0]), 1 => Just(WALLETS[1]), 1 => Just(WALLETS[2])];
    (0..12_u8, 0..3_usize, asset, 0..9_u8, destination, prop_oneof![Just("alice"), Just("bob")])
}

fn apply(event: Event, actor: &str, only_requester: bool) -> NewChange {
    NewChange::Apply(Command::Apply { event, actor: actor.to_owned(), only_requester })
}

fn any_change() -> impl Strategy<Value = NewChange> {
    let approver = prop_oneof![3 => Just("ann"), 3 => Just("cid"), 2 => Just("bob"), 1 => Just("keyless")];
    let approve = (approver, prop::bool::weighted(0.1), 1..3_i64)
        .prop_map(|(by, forged, hours)| NewChange::Approve { by, forged, hours });
    let report = prop_oneof![
        3 => Just(Event::Queue { job: Uuid::nil().into() }),
        2 => (0..9_i64).prop_map(|second| Event::Block { reason: "no funds".to_owned(), at: at(second) }),
        2 => (0..9_i64).prop_map(|second| Event::Unblock { at: at(second) }),
        1 => (1..3_u8).prop_map(|byte| Event::Complete { tx_hash: tx_hash(byte), block: 7 }),
        1 => Just(Event::Fail { reason: "gave up".to_owned() }),
        1 => Just(Event::RefuseHandover { reason: "no such chain".to_owned() }),
    ]
    .prop_map(|event| apply(event, "execution", false));
    let reject = Just(apply(Event::Reject { reason: "no".to_owned() }, "ann", false));
    let cancel = prop_oneof![Just("alice"), Just("bob")]
        .prop_map(|actor| apply(Event::Cancel { reason: "by mistake".to_owned() }, actor, true));
    prop_oneof![10 => approve, 5 => report, 1 => reject, 1 => cancel]
}

fn tx_hash(byte: u8) -> TxHash {
    format!("0x{}", hex::encode([byte; 32])).parse().unwrap()
}

fn any_rounds() -> impl Strategy<Value = Vec<Round>> {
    // Some requests are sent twice.
    let requests = || {
        (prop::collection::vec(any_request(), 2..12), any::<Index>(), any::<bool>()).prop_map(
            |(mut requests, repeated, repeat)| {
                requests.extend(repeat.then(|| *repeated.get(&requests)));
                Round::Create(requests)
            },
        )
    };
    let round = prop_oneof![
        2 => requests(),
        5 => prop::collection::vec((any::<Index>(), any_change()), 1..12).prop_map(Round::Change),
        2 => Just(Round::Expire),
    ];
    (requests(), prop::collection::vec(round, 2..14)).prop_map(|(first, rest)| [vec![first], rest].concat())
}

/// A quorum that expires after the handover and is renewed, which random commands seldom lead to.
fn renewal() -> Vec<Round> {
    let approve = |hours| {
        let first = any::<Index>().new_tree(&mut TestRunner::default()).unwrap().current();
        let approve = |by| (first, NewChange::Approve { by, forged: false, hours });
        Round::Change(vec![approve("cid"), approve("ann")])
    };
    vec![Round::Create(vec![(0, 0, "USDT", 1, WALLETS[0], "alice")]), approve(1), Round::Expire, approve(2)]
}

async fn database(limits: &[Limit]) -> (testkit::Database, PgPool) {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &crate::MIGRATOR).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    for asset in ["USDT", "BNB"] {
        let entry = CatalogueEntry {
            chain: "bsc".parse().unwrap(),
            asset: asset.parse().unwrap(),
            format: AddressFormat::Evm,
            decimals: Decimals::new(0).unwrap(),
            contract: None,
            enabled: true,
            minimum: RawAmount::ZERO,
            revision: 1,
        };
        let own = [WALLETS[1].parse().unwrap()].into();
        catalogue::repo::put_in(&mut connection, &entry, &own).await.unwrap();
    }
    let tiers = [(0_u64, 1), (5, 2)].map(|(from, required)| Tier { from: RawAmount::from(from), required });
    let policy = Policy {
        chain: "bsc".parse().unwrap(),
        asset: "BNB".parse().unwrap(),
        decimals: Decimals::new(0).unwrap(),
        tiers: tiers.to_vec(),
        approvers: vec!["ann".to_owned(), "cid".to_owned()],
    };
    policy::repo::put_in(&mut connection, &policy, "ops").await.unwrap();
    for limit in limits {
        limit::repo::put_in(&mut connection, limit, "ops").await.unwrap();
    }
    drop(connection);
    (database, pool)
}

fn limits() -> Vec<Limit> {
    let limit = |scope, max: u64| Limit {
        id: LimitId::new(),
        scope,
        chain: "bsc".parse().unwrap(),
        asset: "USDT".parse().unwrap(),
        window_seconds: 7 * 24 * 3600,
        max: RawAmount::from(max),
        decimals: Decimals::new(0).unwrap(),
    };
    vec![limit(Scope::User, 12), limit(Scope::Asset, 300)]
}

fn creation(case: usize, users: &[UserId], request: &NewRequest) -> Creation {
    let (key, user, asset, amount, destination, requested_by) = *request;
    let draft = WithdrawalDraft {
        idempotency_key: format!("{case}-{key}"),
        user_id: users[user].to_string(),
        chain: "bsc".to_owned(),
        asset: asset.to_owned(),
        amount: amount.to_string(),
        destination: destination.to_owned(),
        memo: String::new(),
        priority: Some(Priority::Normal),
        labels: BTreeMap::new(),
        on_behalf_of: String::new(),
    };
    Creation { id: WithdrawalId::new(), draft, requested_by: requested_by.to_owned() }
}

impl NewChange {
    fn change(&self, withdrawal: &Withdrawal, begin: DateTime<Utc>) -> Change {
        let command = match self {
            Self::Apply(command) => command.clone(),
            Self::Approve { by, forged, hours } => {
                let mut consent = sign(withdrawal, by, begin + TimeDelta::hours(*hours));
                consent.signature[0] ^= u8::from(*forged);
                Command::Approve { consent, trace: Default::default() }
            }
        };
        Change { id: withdrawal.id, command }
    }
}

/// Runs the commands as one batch on the first database and one by one on the second. Returns the outcomes of the batch.
async fn compare<B: Batch<Outcome: Debug>>(
    pools: [&PgPool; 2],
    rules: &Rules,
    commands: &[B::Command],
) -> Outcomes<B> {
    let batch = run::<B>(pools[0], rules, commands).await.unwrap();
    for (index, command) in commands.iter().enumerate() {
        let alone = run::<B>(pools[1], rules, std::slice::from_ref(command)).await.unwrap();
        assert_eq!(words(&batch[index]), words(&alone[0]), "command {index}");
    }
    batch
}

/// The first word of an outcome.
fn kind(outcome: &impl Debug) -> String {
    format!("{outcome:?}").split(' ').next().unwrap_or_default().to_owned()
}

/// What an outcome consists of, without times, because transactions have different ones, and without order, because approvals
/// of one batch have the same time and are then ordered by name.
fn words(outcome: &impl Debug) -> Vec<String> {
    let text = format!("{outcome:?}");
    let words = text.split(' ').map(|word| word.trim_matches(['[', ']', '(', ')', '{', '}', ',']));
    let is_time = |word: &&str| word.ends_with('Z') && word.contains(':') && word.contains('T');
    let mut words: Vec<String> = words.filter(|word| !is_time(word)).map(str::to_owned).collect();
    words.sort();
    words
}

const TABLES: [&str; 6] = [
    "SELECT (to_jsonb(t) - ARRAY['created_at', 'updated_at', 'approved_at', 'queued_at', 'finished_at'])::text \
     FROM withdrawal_requests AS t ORDER BY 1",
    "SELECT (to_jsonb(t) - 'at')::text FROM transitions AS t ORDER BY request_id, sequence",
    "SELECT (to_jsonb(t) - 'approved_at')::text FROM approvals AS t ORDER BY 1",
    "SELECT (to_jsonb(t) - ARRAY['first_at', 'last_at'])::text FROM approval_refusals AS t ORDER BY 1",
    "SELECT concat_ws(' ', asset, sum(amount_raw)) FROM limit_usage_of_assets GROUP BY asset ORDER BY 1",
    "SELECT concat_ws(' ', user_id, asset, sum(amount_raw)) FROM limit_usage_of_users GROUP BY user_id, asset ORDER BY 1",
];

async fn compare_tables(pools: [&PgPool; 2]) {
    for table in TABLES {
        let [batch, alone] = pools.map(|pool| sqlx::query_scalar::<_, String>(table).fetch_all(pool));
        assert_eq!(batch.await.unwrap(), alone.await.unwrap(), "{table}");
    }
    assert_eq!(messages(pools[0]).await, messages(pools[1]).await);
}

async fn messages(pool: &PgPool) -> Vec<Vec<String>> {
    let sql = "SELECT topic, payload FROM outbox ORDER BY aggregate, id";
    let rows: Vec<(String, Vec<u8>)> = sqlx::query_as(sql).fetch_all(pool).await.unwrap();
    let read = |(topic, payload): (String, Vec<u8>)| match topic.as_str() {
        message::ENQUEUE => {
            words(&execution_pb::EnqueueWithdrawalRequest::decode(payload.as_slice()).unwrap())
        }
        _ => words(&execution_pb::RenewApprovalsRequest::decode(payload.as_slice()).unwrap()),
    };
    rows.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_what_its_commands_do_one_by_one() {
    let limits = limits();
    let (_one, batch) = database(&limits).await;
    let (_two, alone) = database(&limits).await;
    let (pools, rules) = ([&batch, &alone], rules());
    let begin = (Utc::now() + TimeDelta::hours(1)).trunc_subsecs(0);
    let mut runner = TestRunner::default();
    let mut kinds = BTreeSet::new();
    for case in 0..CASES {
        let rounds = match case {
            0 => renewal(),
            _ => any_rounds().new_tree(&mut runner).unwrap().current(),
        };
        println!("case {case}: {rounds:?}");
        let users: Vec<UserId> = (0..3).map(|_| UserId::new()).collect();
        let mut stored: Vec<Withdrawal> = Vec::new();
        for round in &rounds {
            match round {
                Round::Create(requests) => {
                    let commands: Vec<_> =
                        requests.iter().map(|request| creation(case, &users, request)).collect();
                    let outcomes = compare::<CreationBatch>(pools, &rules, &commands).await;
                    kinds.extend(outcomes.iter().map(kind));
                    stored.extend(outcomes.into_iter().flatten().filter_map(|outcome| match outcome {
                        CreationOutcome::Created(withdrawal) => Some(withdrawal),
                        CreationOutcome::AlreadyStored(_) => None,
                    }));
                }
                Round::Change(changes) if !stored.is_empty() => {
                    // A few requests only, so that several commands of a batch meet at one.
                    let few = &stored[..stored.len().min(4)];
                    let commands: Vec<_> =
                        changes.iter().map(|(of, change)| change.change(of.get(few), begin)).collect();
                    let outcomes = compare::<ChangeBatch>(pools, &rules, &commands).await;
                    kinds.extend(outcomes.iter().map(kind));
                }
                Round::Change(_) => {}
                Round::Expire => {
                    let sql = "UPDATE approvals SET approved_at = '2020-01-01', expires_at = '2020-01-02'";
                    for pool in pools {
                        sqlx::raw_sql(sql).execute(pool).await.unwrap();
                    }
                }
            }
        }
        compare_tables(pools).await;
    }
    let expected = [
        "Ok(Created(Withdrawal",
        "Ok(AlreadyStored(Withdrawal",
        "Err(KeyReused",
        "Err(LimitExceeded(Limit",
        "Err(Invalid(Violations([Violation",
        "Ok(Changed",
        "Ok(Unchanged(Withdrawal",
        "Ok(Illegal",
        "Ok(ApprovalRefused",
        "Err(NotTheRequester)",
    ];
    for kind in expected {
        assert!(kinds.contains(kind), "no command led to {kind}: {kinds:?}");
    }
    let topics = "SELECT DISTINCT topic FROM outbox ORDER BY topic";
    let topics: Vec<String> = sqlx::query_scalar(topics).fetch_all(&batch).await.unwrap();
    assert_eq!(topics, [message::ENQUEUE, message::RENEW]);
}
