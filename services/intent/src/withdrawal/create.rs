//! New requests, those that arrive together in one transaction: read against the catalogue, the policies and the limits as
//! they stand, and stored in a handful of statements for all of them.
//!
//! Owns that transaction. What is said in logs and metrics is said by the callers, in their own traces, after the commit.
//!
//! Where it could hurt, and what holds:
//! - The same key twice: in one group the later one is answered with the earlier one's row; in two, the limits' locks are taken
//!   before keys are looked up, so that the row of whoever came first is found and not counted against its own repetition; and
//!   where no limit is, the key's constraint lets one of them in.
//! - Two that fit a limit alone and not together: each lowers what is left for the next of the group, and groups wait for each
//!   other at the limits' locks.
//! - Two groups with the same keys: rows go in in the order of keys, so that nobody waits in a circle.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use db::BatchWriter;
use sqlx::{PgConnection, PgPool};
use telemetry::crash_point;
use types::{Address, AssetSymbol, ChainName, RawAmount, WithdrawalId};

use super::domain::State;
use super::draft::Draft;
use super::error::WithdrawalError;
use super::repo;
use super::request::{IdempotencyKey, Origin, Payload, Withdrawal};
use crate::catalogue::{self, Entry, Standing};
use crate::limit::{self, Limit, Room};
use crate::policy::{self, Policy};
use crate::violation::Violation;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) draft: Draft,
    pub(super) requested_by: String,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Made {
    /// Stored now.
    New(Withdrawal),
    /// Stored before, by the same caller with the same key.
    Known(Withdrawal),
    /// Somebody else stored one with this key meanwhile; once that is committed it can be read.
    Overtaken,
}

/// The way into the transaction.
pub(super) type Counter = BatchWriter<Call, Made, WithdrawalError>;

pub(super) fn start(pool: PgPool, default_required_approvals: Option<u32>) -> Counter {
    BatchWriter::start("requests", move |calls: Arc<[Call]>| {
        let pool = pool.clone();
        async move { write(&pool, default_required_approvals, &calls).await }
    })
}

type Answer = Result<Made, WithdrawalError>;

async fn write(
    pool: &PgPool,
    default_required_approvals: Option<u32>,
    calls: &[Call],
) -> Result<Vec<Answer>, WithdrawalError> {
    let mut tx = db::begin(pool).await?;
    let terms = Terms::load(&mut tx, calls).await?;
    let read = terms.read(&mut tx, calls, default_required_approvals).await?;
    terms.lock(&mut tx, &read).await?;
    // What is no key names nothing, not even an imported request, and must not reach the database.
    let keys: Vec<Option<IdempotencyKey>> =
        calls.iter().map(|call| IdempotencyKey::parse(&call.draft.idempotency_key).ok()).collect();
    let named = keys.iter().flatten().map(IdempotencyKey::as_str).collect();
    let stored = repo::find_by_keys_in(&mut tx, &named).await?;
    let mut room = limit::repo::room_in(&mut tx, &terms.wanted(&read)).await?;
    let now = repo::now_in(&mut tx).await?;

    let mut decided = Vec::with_capacity(calls.len());
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, ((call, key), read)) in calls.iter().zip(&keys).zip(read).enumerate() {
        let key = key.as_ref().map_or("", IdempotencyKey::as_str);
        decided.push(match (stored.get(key), first.get(key)) {
            (Some(known), _) => Decided::Ended(Box::new(replay(known.clone(), call).map(Made::Known))),
            (None, Some(earlier)) => Decided::Repeats(*earlier),
            (None, None) => match terms.admit(&mut room, read) {
                Ok(admitted) => {
                    first.insert(key, index);
                    Decided::Stored(Box::new(admitted.withdrawal(call, now)))
                }
                Err(error) => Decided::Ended(Box::new(Err(error))),
            },
        });
    }
    let new: Vec<&Withdrawal> = decided.iter().filter_map(Decided::stored).collect();
    let inserted = repo::insert_in(&mut tx, &new).await?;
    inserted.iter().for_each(|_| crash_point("intent.before_create"));
    tx.commit().await?;
    inserted.iter().for_each(|_| crash_point("intent.after_create"));
    Ok(answers(calls, decided, &inserted))
}

/// What is known about a call before anything is written.
enum Decided {
    Ended(Box<Answer>),
    Stored(Box<Withdrawal>),
    /// It has the key of an earlier one of the group, which is stored.
    Repeats(usize),
}

impl Decided {
    fn stored(&self) -> Option<&Withdrawal> {
        match self {
            Self::Stored(withdrawal) => Some(withdrawal),
            Self::Ended(_) | Self::Repeats(_) => None,
        }
    }
}

fn answers(calls: &[Call], decided: Vec<Decided>, inserted: &HashSet<WithdrawalId>) -> Vec<Answer> {
    let stored: HashMap<usize, Withdrawal> = decided
        .iter()
        .enumerate()
        .filter_map(|(index, decided)| Some((index, decided.stored()?.clone())))
        .filter(|(_, withdrawal)| inserted.contains(&withdrawal.id))
        .collect();
    let answer = |(index, (decided, call)): (usize, (Decided, &Call))| match decided {
        Decided::Ended(answer) => *answer,
        Decided::Stored(_) => Ok(stored.get(&index).cloned().map_or(Made::Overtaken, Made::New)),
        Decided::Repeats(earlier) => match stored.get(&earlier) {
            Some(known) => replay(known.clone(), call).map(Made::Known),
            None => Ok(Made::Overtaken),
        },
    };
    decided.into_iter().zip(calls).enumerate().map(answer).collect()
}

/// The stored request, if this call asks for the same.
pub(super) fn replay(stored: Withdrawal, call: &Call) -> Result<Withdrawal, WithdrawalError> {
    let fields = call.draft.differences(&stored, &call.requested_by);
    if fields.is_empty() { Ok(stored) } else { Err(WithdrawalError::KeyReused { fields }) }
}

pub(super) fn unknown_asset(chain: &ChainName, asset: &AssetSymbol) -> Violation {
    Violation::new("asset", format_args!("{asset} is not known on {chain}"))
}

/// A request that is right in itself.
struct Admitted {
    key: IdempotencyKey,
    payload: Payload,
    required: u32,
}

impl Admitted {
    fn withdrawal(self, call: &Call, now: DateTime<Utc>) -> Withdrawal {
        Withdrawal {
            id: WithdrawalId::new(),
            origin: Origin::Request,
            key: self.key,
            payload: self.payload,
            requested_by: call.requested_by.clone(),
            required_approvals: self.required,
            approvals: Vec::new(),
            state: State::Pending,
            sequence: 1,
            created_at: now,
            updated_at: now,
        }
    }
}

type Asset = (ChainName, AssetSymbol);

/// What the requests of a group are held against.
struct Terms {
    entries: BTreeMap<Asset, Entry>,
    policies: BTreeMap<Asset, Option<Policy>>,
    limits: BTreeMap<Asset, Vec<Limit>>,
}

impl Terms {
    async fn load(tx: &mut PgConnection, calls: &[Call]) -> Result<Self, WithdrawalError> {
        let named = |call: &Call| Some((call.draft.chain.parse().ok()?, call.draft.asset.parse().ok()?));
        let assets: BTreeSet<Asset> = calls.iter().filter_map(named).collect();
        let mut terms = Self { entries: BTreeMap::new(), policies: BTreeMap::new(), limits: BTreeMap::new() };
        for (chain, asset) in assets {
            let Some(entry) = catalogue::repo::find_in(tx, &chain, &asset).await? else { continue };
            let policy = policy::repo::find_in(tx, &chain, &asset).await?;
            let limits = limit::repo::of_asset_in(tx, &chain, &asset).await?;
            let asset = (chain, asset);
            terms.policies.insert(asset.clone(), policy);
            terms.limits.insert(asset.clone(), limits);
            terms.entries.insert(asset, entry);
        }
        Ok(terms)
    }

    /// Reads every draft; each that is wrong comes with all of its mistakes.
    async fn read(
        &self,
        tx: &mut PgConnection,
        calls: &[Call],
        default_required_approvals: Option<u32>,
    ) -> Result<Vec<Result<Admitted, WithdrawalError>>, WithdrawalError> {
        let standings = self.standings_in(tx, calls).await?;
        let mut read = Vec::with_capacity(calls.len());
        for call in calls {
            let mut wrong = Vec::new();
            let key = IdempotencyKey::parse(&call.draft.idempotency_key);
            let key = key.map_err(|violation| wrong.push(violation)).ok();
            let payload = self.payload_in(tx, &call.draft, &standings, &mut wrong).await?;
            read.push(match (key, payload) {
                (Some(key), Some(payload)) => self
                    .required(&payload, default_required_approvals)
                    .map(|required| Admitted { key, payload, required }),
                _ => Err(WithdrawalError::Invalid(wrong)),
            });
        }
        Ok(read)
    }

    /// What the destinations are to us.
    async fn standings_in(
        &self,
        tx: &mut PgConnection,
        calls: &[Call],
    ) -> Result<HashMap<(ChainName, Address), Standing>, WithdrawalError> {
        let named = |call: &Call| {
            let asset = (call.draft.chain.parse().ok()?, call.draft.asset.parse().ok()?);
            let address = self.entries.get(&asset)?.read_destination(&call.draft.destination).ok()?;
            Some((asset.0, address))
        };
        Ok(catalogue::repo::standings_in(tx, calls.iter().filter_map(named).collect()).await?)
    }

    /// `None` when anything is wrong, with all of it in `wrong`.
    async fn payload_in(
        &self,
        tx: &mut PgConnection,
        draft: &Draft,
        standings: &HashMap<(ChainName, Address), Standing>,
        wrong: &mut Vec<Violation>,
    ) -> Result<Option<Payload>, WithdrawalError> {
        let names = draft.read_names(wrong);
        let (Some(chain), Some(asset)) = (names.chain, names.asset) else { return Ok(None) };
        let asset = (chain, asset);
        let Some(entry) = self.entries.get(&asset) else {
            let (chain, asset) = asset;
            wrong.push(if catalogue::repo::chain_known_in(tx, &chain).await? {
                unknown_asset(&chain, &asset)
            } else {
                Violation::new("chain", format_args!("{chain} is not known"))
            });
            return Ok(None);
        };
        let destination = entry.read_destination(&draft.destination).and_then(|address| {
            let standing = standings.get(&(asset.0, address)).copied().unwrap_or(Standing::Foreign);
            standing.check().map(|()| address)
        });
        Ok(draft.clone().read_payload(names.user_id, entry, destination, wrong))
    }

    fn required(&self, payload: &Payload, by_default: Option<u32>) -> Result<u32, WithdrawalError> {
        let policy = self.policies.get(&asset_of(payload)).and_then(Option::as_ref);
        let required = policy.map_or(by_default, |policy| policy.required_for(payload.amount));
        required.ok_or_else(|| WithdrawalError::NoPolicy {
            chain: payload.chain.clone(),
            asset: payload.asset.clone(),
        })
    }

    fn limits_of(&self, payload: &Payload) -> &[Limit] {
        self.limits.get(&asset_of(payload)).map_or(&[], Vec::as_slice)
    }

    /// Takes the locks of all limits that any of these counts towards.
    async fn lock(
        &self,
        tx: &mut PgConnection,
        read: &[Result<Admitted, WithdrawalError>],
    ) -> Result<(), WithdrawalError> {
        let names = read.iter().flatten().flat_map(|admitted| {
            let user = admitted.payload.user_id;
            self.limits_of(&admitted.payload).iter().map(move |limit| limit.lock_name(user))
        });
        Ok(limit::repo::lock_in(tx, &names.collect()).await?)
    }

    /// The limits that any of these counts towards, each with whom it is about.
    fn wanted<'a>(&'a self, read: &[Result<Admitted, WithdrawalError>]) -> Vec<limit::Whose<'a>> {
        let whose = read.iter().flatten().flat_map(|admitted| {
            let user = admitted.payload.user_id;
            self.limits_of(&admitted.payload).iter().map(move |limit| limit.whose(user))
        });
        let mut seen = HashSet::new();
        whose.filter(|whose| seen.insert(whose.key())).collect()
    }

    /// Lets a request in if there is room for it under every limit, and takes that room.
    fn admit(
        &self,
        room: &mut Room,
        read: Result<Admitted, WithdrawalError>,
    ) -> Result<Admitted, WithdrawalError> {
        let admitted = read?;
        let Payload { user_id, amount, .. } = &admitted.payload;
        let (user, amount): (_, RawAmount) = (*user_id, *amount);
        let limits = self.limits_of(&admitted.payload);
        match limits.iter().find(|limit| !room.holds(&limit.whose(user), amount)) {
            Some(limit) => Err(WithdrawalError::LimitExceeded(Box::new(limit.clone()))),
            None => {
                limits.iter().for_each(|limit| room.take(&limit.whose(user), amount));
                Ok(admitted)
            }
        }
    }
}

fn asset_of(payload: &Payload) -> Asset {
    (payload.chain.clone(), payload.asset.clone())
}
