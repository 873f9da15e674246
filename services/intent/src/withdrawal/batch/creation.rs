//! New requests: checked against the catalogue, the policies and the limits, and stored.
//!
//! - The same key twice: in one batch the later command gets the request of the earlier one. In two batches the locks of the
//!   limits are taken before keys are looked up, so that the second finds the stored row and does not count it against its own
//!   repetition; without limits, the constraint on the key makes the second transaction start over.
//! - Two requests that fit a limit alone and not together: each reduces what is left for the next one in the batch, and batches
//!   wait for each other at the locks of the limits.
//! - Two batches with the same keys: rows are inserted in the order of their keys, so that they cannot deadlock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use rpc::fields::{Violation, Violations};
use sqlx::PgConnection;
use telemetry::crash_point;
use types::{Address, ChainName, WithdrawalId};

use super::{Batch, Moment, Rules};
use crate::catalogue::{self, AddressKind, AssetOnChain, CatalogueEntry};
use crate::limit::{self, AppliedLimit, Headroom, Limit};
use crate::policy::{self, Policy};
use crate::withdrawal::domain::State;
use crate::withdrawal::error::WithdrawalError;
use crate::withdrawal::repo;
use crate::withdrawal::request::draft::WithdrawalDraft;
use crate::withdrawal::request::{IdempotencyKey, Origin, Payload, Withdrawal};

#[derive(Debug, Clone)]
pub(in crate::withdrawal) struct Creation {
    /// The id of the request, should it be stored.
    pub(in crate::withdrawal) id: WithdrawalId,
    pub(in crate::withdrawal) draft: WithdrawalDraft,
    pub(in crate::withdrawal) requested_by: String,
}

#[derive(Debug)]
pub(in crate::withdrawal) enum CreationOutcome {
    Created(Withdrawal),
    /// The same caller had stored it before, with the same key.
    AlreadyStored(Withdrawal),
}

pub(super) struct CreationBatch {
    now: DateTime<Utc>,
    terms: Terms,
    headroom: Headroom,
    by_key: HashMap<String, Withdrawal>,
    created: Vec<Withdrawal>,
}

impl Batch for CreationBatch {
    type Command = Creation;
    type Outcome = CreationOutcome;

    async fn load_in(
        tx: &mut PgConnection,
        rules: &Rules,
        commands: &[Creation],
    ) -> Result<Self, WithdrawalError> {
        let terms = Terms::load_in(tx, commands).await?;
        let valid: Vec<ValidRequest> =
            commands.iter().filter_map(|command| terms.check(rules, &command.draft).ok()).collect();
        let mut applied: Vec<AppliedLimit<'_>> =
            valid.iter().flat_map(|request| terms.limits_of(&request.payload)).collect();
        let mut seen = HashSet::new();
        applied.retain(|limit| seen.insert(limit.key()));
        limit::repo::lock_in(tx, &applied.iter().map(AppliedLimit::lock_name).collect()).await?;
        // What is not a valid key names no request, not even an imported one, and must not reach the database.
        let keys: Vec<IdempotencyKey> = commands
            .iter()
            .filter_map(|command| IdempotencyKey::parse(&command.draft.idempotency_key).ok())
            .collect();
        let by_key = repo::find_by_keys_in(tx, &keys.iter().map(IdempotencyKey::as_str).collect()).await?;
        let headroom = limit::repo::headroom_in(tx, &applied).await?;
        let now = repo::now_in(tx).await?;
        Ok(Self { now, terms, headroom, by_key, created: Vec::new() })
    }

    fn must_save_before(&self, _: &Creation) -> bool {
        false
    }

    fn decide(&mut self, rules: &Rules, command: &Creation) -> Result<CreationOutcome, WithdrawalError> {
        let Creation { id, draft, requested_by } = command;
        if let Some(stored) = self.by_key.get(&draft.idempotency_key) {
            return draft.replay(stored, requested_by).map(CreationOutcome::AlreadyStored);
        }
        let ValidRequest { key, payload, required_approvals } = self.terms.check(rules, draft)?;
        let limits: Vec<AppliedLimit<'_>> = self.terms.limits_of(&payload).collect();
        if let Some(exceeded) = limits.iter().find(|limit| !self.headroom.fits(limit, payload.amount)) {
            return Err(WithdrawalError::LimitExceeded(Box::new(exceeded.limit.clone())));
        }
        limits.iter().for_each(|limit| self.headroom.take(limit, payload.amount));
        let withdrawal = Withdrawal {
            id: *id,
            origin: Origin::Request,
            key,
            payload,
            requested_by: requested_by.clone(),
            required_approvals,
            approvals: Vec::new(),
            state: State::Pending,
            sequence: 1,
            created_at: self.now,
            updated_at: self.now,
        };
        self.by_key.insert(draft.idempotency_key.clone(), withdrawal.clone());
        self.created.push(withdrawal.clone());
        Ok(CreationOutcome::Created(withdrawal))
    }

    async fn save_in(&mut self, tx: &mut PgConnection) -> Result<(), WithdrawalError> {
        repo::insert_in(tx, &self.created.iter().collect::<Vec<_>>()).await
    }

    fn crash_points(moment: Moment, _: &Creation, outcome: &CreationOutcome) {
        match (moment, outcome) {
            (Moment::BeforeCommit, CreationOutcome::Created(_)) => crash_point("intent.before_create"),
            (Moment::AfterCommit, CreationOutcome::Created(_)) => crash_point("intent.after_create"),
            (_, CreationOutcome::AlreadyStored(_)) => {}
        }
    }
}

/// A request without mistakes.
struct ValidRequest {
    key: IdempotencyKey,
    payload: Payload,
    required_approvals: u32,
}

/// What the requests of a batch are checked against.
struct Terms {
    entries: BTreeMap<AssetOnChain, CatalogueEntry>,
    policies: BTreeMap<AssetOnChain, Policy>,
    limits: BTreeMap<AssetOnChain, Vec<Limit>>,
    known_chains: BTreeSet<ChainName>,
    address_kinds: HashMap<(ChainName, Address), AddressKind>,
}

impl Terms {
    async fn load_in(tx: &mut PgConnection, commands: &[Creation]) -> Result<Self, WithdrawalError> {
        let named = |draft: &WithdrawalDraft| Some((draft.chain.parse().ok()?, draft.asset.parse().ok()?));
        let drafts = || commands.iter().map(|command| &command.draft);
        let assets: BTreeSet<AssetOnChain> = drafts().filter_map(named).collect();
        let entries = catalogue::repo::find_many_in(tx, &assets).await?;
        let mut known_chains: BTreeSet<ChainName> = entries.keys().map(|(chain, _)| chain.clone()).collect();
        let doubtful: BTreeSet<ChainName> = assets
            .iter()
            .map(|(chain, _)| chain)
            .filter(|chain| !known_chains.contains(*chain))
            .cloned()
            .collect();
        if !doubtful.is_empty() {
            known_chains.extend(catalogue::repo::known_chains_in(tx, &doubtful).await?);
        }
        let destinations = drafts().filter_map(|draft| {
            let asset = named(draft)?;
            let address = entries.get(&asset)?.parse_destination(&draft.destination).ok()?;
            Some((asset.0, address))
        });
        let address_kinds = catalogue::repo::address_kinds_in(tx, destinations.collect()).await?;
        let policies = policy::repo::find_many_in(tx, &assets).await?;
        let limits = limit::repo::find_many_in(tx, &assets).await?;
        Ok(Self { entries, policies, limits, known_chains, address_kinds })
    }

    /// The request, or all of its mistakes.
    fn check(&self, rules: &Rules, draft: &WithdrawalDraft) -> Result<ValidRequest, WithdrawalError> {
        let mut wrong = Violations::default();
        let key = IdempotencyKey::parse(&draft.idempotency_key);
        let key = key.map_err(|violation| wrong.push(violation)).ok();
        let payload = self.payload(draft, &mut wrong);
        let (Some(key), Some(payload)) = (key, payload) else {
            return Err(WithdrawalError::Invalid(wrong));
        };
        let required_approvals = self
            .policies
            .get(&asset_of(&payload))
            .map_or(rules.default_required_approvals, |policy| policy.required_for(payload.amount));
        match required_approvals {
            Some(required_approvals) => Ok(ValidRequest { key, payload, required_approvals }),
            None => Err(WithdrawalError::NoPolicy { chain: payload.chain, asset: payload.asset }),
        }
    }

    /// `None` when anything is wrong; all of it is then in `wrong`.
    fn payload(&self, draft: &WithdrawalDraft, wrong: &mut Violations) -> Option<Payload> {
        let names = draft.parse_names(wrong);
        let asset = (names.chain?, names.asset?);
        let Some(entry) = self.entries.get(&asset) else {
            let (chain, asset) = &asset;
            wrong.push(if self.known_chains.contains(chain) {
                catalogue::unknown_asset(chain, asset)
            } else {
                Violation::new("chain", format_args!("{chain} is not known"))
            });
            return None;
        };
        let destination = entry.parse_destination(&draft.destination).and_then(|address| {
            let kind = self.address_kinds.get(&(asset.0, address)).copied().unwrap_or(AddressKind::Unknown);
            kind.check_destination().map(|()| address)
        });
        draft.parse_payload(names.user_id, entry, destination, wrong)
    }

    /// The limits that a request counts towards.
    fn limits_of(&self, payload: &Payload) -> impl Iterator<Item = AppliedLimit<'_>> {
        let user = payload.user_id;
        let limits = self.limits.get(&asset_of(payload));
        limits.into_iter().flatten().map(move |limit| limit.for_user(user))
    }
}

fn asset_of(payload: &Payload) -> AssetOnChain {
    (payload.chain.clone(), payload.asset.clone())
}
