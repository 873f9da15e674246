//! The use cases: sign, simulate. Everything that needs no memory (derivation, building, checking signatures) happens
//! here, in the caller's task and in parallel; the ledger only judges, signs and commits.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sqlx::PgPool;
use telemetry::crash_point;
use tokio::sync::watch;
use tracing::{Instrument as _, Span};
use types::{Address, TxHash};

use super::detail;
use super::facts::{Prepared, Record};
use super::judge::{Ruling, judge};
use super::ledger::{Clerk, Ledger};
use super::request::{Purpose, SigningRequest};
use super::{SigningError, repo};
use crate::audit::{self, Decision, Draft};
use crate::builder::Unsigned;
use crate::config::Config;
use crate::group::Groups;
use crate::keys::WalletKey;
use crate::policy::{Asker, CheckedSignatures, Checker, Derived, Finding, Policy, assess, claims};
use crate::wallet::Wallets;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTransaction {
    pub raw: Vec<u8>,
    pub tx_hash: TxHash,
    pub from: Address,
    pub replayed: bool,
}

impl SignedTransaction {
    pub(super) fn of(record: &Record, replayed: bool) -> Self {
        Self { raw: record.raw.clone(), tx_hash: record.tx_hash, from: record.from, replayed }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulation {
    /// Whether it would sign, or return bytes signed before.
    pub allowed: bool,
    pub findings: Vec<Finding>,
}

/// Where the rules come from: the settings themselves, so that whoever asks after a reload gets the new ones.
#[derive(Debug, Clone)]
pub struct PolicySource {
    settings: watch::Receiver<Arc<Config>>,
}

impl PolicySource {
    pub fn new(settings: watch::Receiver<Arc<Config>>) -> Self {
        Self { settings }
    }

    pub fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.settings.borrow().policy)
    }
}

#[derive(Debug, Clone)]
pub struct Signing {
    pool: PgPool,
    groups: Arc<Groups>,
    wallets: Wallets,
    policy: PolicySource,
    checker: Checker,
    ledger: Ledger,
}

impl Signing {
    pub(crate) fn new(
        pool: PgPool,
        groups: Arc<Groups>,
        wallets: Wallets,
        policy: PolicySource,
        patience: Duration,
    ) -> (Self, Clerk) {
        let (ledger, clerk) = Ledger::new(pool.clone(), patience);
        (Self { pool, groups, wallets, policy, checker: Checker::start(), ledger }, clerk)
    }

    /// Signs if every rule admits it. The answer leaves after the decision is durable. The approvers' signatures are checked
    /// together with those of other calls that are here.
    pub async fn sign(
        &self,
        asker: &Asker,
        request: SigningRequest,
    ) -> Result<SignedTransaction, SigningError> {
        let claimed = claims(&self.policy.current(), &request);
        let checked = self.checker.check(claimed).await;
        self.sign_checked(asker, request, &checked).await
    }

    /// The same for many requests, each judged and answered for itself, in their order, and within its span. The approvers'
    /// signatures of all of them are checked together.
    pub async fn sign_many(
        &self,
        asker: &Asker,
        requests: Vec<(SigningRequest, Span)>,
    ) -> Vec<Result<SignedTransaction, SigningError>> {
        let policy = self.policy.current();
        let claimed = requests.iter().flat_map(|(request, _)| claims(&policy, request)).collect();
        let checked = CheckedSignatures::together(claimed);
        let signing = requests
            .into_iter()
            .map(|(request, span)| self.sign_checked(asker, request, &checked).instrument(span));
        join_all(signing).await
    }

    async fn sign_checked(
        &self,
        asker: &Asker,
        request: SigningRequest,
        checked: &CheckedSignatures,
    ) -> Result<SignedTransaction, SigningError> {
        let built = match self.build(&request).await {
            Ok(built) => built,
            Err(error) => {
                self.note_early(asker, &request, &error).await?;
                return Err(error);
            }
        };
        let prepared = self.prepared(asker, request, built, checked);
        crash_point("signer.before_decision");
        let answer = self.ledger.decide(prepared).await;
        crash_point("signer.before_reply");
        answer
    }

    /// Says what every rule would answer. Writes nothing, signs nothing.
    pub async fn simulate(&self, asker: &Asker, request: SigningRequest) -> Result<Simulation, SigningError> {
        let built = self.build(&request).await?;
        let prepared = self.prepared(asker, request, built, &CheckedSignatures::default());
        let mut connection = self.pool.acquire().await.map_err(SigningError::Ledger)?;
        let (facts, _) = repo::load_in(&mut connection, &[&prepared]).await?;
        let judgement = judge(&facts, &prepared);
        let allowed = match judgement.ruling {
            Ruling::Replay(_) | Ruling::Sign(_) => true,
            Ruling::Refuse(_) => false,
        };
        Ok(Simulation { allowed, findings: judgement.findings })
    }

    /// What the signer itself makes of a request: the key, the addresses, the transaction.
    async fn build(&self, request: &SigningRequest) -> Result<Built, SigningError> {
        let format = request.from.format();
        let (key, purpose) = self.groups.wallet(request.group, format, request.index).await?;
        let from = Address::from_body(format, key.address_body());
        let top_up = match request.purpose {
            Purpose::TopUp { group, index } => {
                let (wallet, purpose) = self.groups.wallet(group, format, index).await?;
                Some((Address::from_body(format, wallet.address_body()), purpose))
            }
            Purpose::Withdrawal { .. } | Purpose::Sweep { .. } | Purpose::Duty { .. } => None,
        };
        let sweep_origin = match (&request.purpose, request.transfer()) {
            (Purpose::Sweep { .. }, Some((to, _))) => self.wallets.origin(&request.chain, to).await?,
            (Purpose::Sweep { .. }, None)
            | (Purpose::Withdrawal { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. }, _) => None,
        };
        let unsigned = Unsigned::build(from, &request.action, &request.parameters)?;
        let derived = Derived { from, purpose, top_up, sweep_origin, bandwidth: unsigned.bandwidth() };
        Ok(Built { key, derived, unsigned })
    }

    fn prepared(
        &self,
        asker: &Asker,
        request: SigningRequest,
        built: Built,
        checked: &CheckedSignatures,
    ) -> Prepared {
        let policy = self.policy.current();
        let assessment = assess(&policy, &request, &built.derived, checked);
        let payment = request.payment();
        Prepared {
            asker: asker.clone(),
            texts: request.texts(&payment),
            payment,
            request,
            assessment,
            unsigned: built.unsigned,
            key: built.key,
        }
    }

    /// Writes down that no transaction came of a request. It is answered only afterwards, like everything that was decided.
    async fn note_early(
        &self,
        asker: &Asker,
        request: &SigningRequest,
        error: &SigningError,
    ) -> Result<(), SigningError> {
        let Some(reason) = error.early_reason() else { return Ok(()) };
        let canonical = request.texts(&request.payment()).canonical;
        let explanation = detail::quoted(&::rpc::error::chain(error));
        let draft = Draft {
            caller: asker.name().to_owned(),
            action: "sign",
            decision: Decision::Refused,
            reason: reason.to_owned(),
            detail: detail::of(request, &canonical, &format!(",\"explanation\":{explanation}")),
        };
        let mut tx = db::begin(&self.pool).await.map_err(SigningError::Ledger)?;
        audit::append_in(&mut tx, vec![draft]).await.map_err(SigningError::Ledger)?;
        tx.commit().await.map_err(SigningError::Ledger)?;
        metrics::counter!("bursar_signer_requests_total", "outcome" => "refused", "reason" => reason)
            .increment(1);
        Ok(())
    }
}

struct Built {
    key: WalletKey,
    derived: Derived,
    unsigned: Unsigned,
}
