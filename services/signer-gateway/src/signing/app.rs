//! The use cases: sign, simulate. Everything that needs no stored facts (derivation, building, checking signatures) happens
//! here, in the caller's task and in parallel; the ledger only decides, signs and commits.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sqlx::PgPool;
use telemetry::crash_point;
use tokio::sync::watch;
use tracing::{Instrument as _, Span};
use types::{Address, TxHash};

use super::detail;
use super::facts::{PreparedRequest, SigningRecord};
use super::judge::{Ruling, judge};
use super::ledger::{Ledger, LedgerWorker};
use super::request::{Purpose, SigningRequest};
use super::{SigningError, repo};
use crate::audit::{self, Decision, Draft};
use crate::builder::Unsigned;
use crate::config::Config;
use crate::group::Groups;
use crate::keys::WalletKey;
use crate::policy::{
    Derived, Finding, Policy, SignatureChecker, SigningCaller, VerifiedSignatures, assess, claims,
};
use crate::wallet::Wallets;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTransaction {
    pub raw: Vec<u8>,
    pub tx_hash: TxHash,
    pub from: Address,
    pub replayed: bool,
}

impl SignedTransaction {
    pub(super) fn of(record: &SigningRecord, replayed: bool) -> Self {
        Self { raw: record.raw.clone(), tx_hash: record.tx_hash, from: record.from, replayed }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulation {
    /// Whether it would sign, or return bytes signed before.
    pub allowed: bool,
    pub findings: Vec<Finding>,
}

/// Where the rules come from: the settings themselves, so that every request after a reload gets the new ones.
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
    checker: SignatureChecker,
    ledger: Ledger,
}

impl Signing {
    pub(crate) fn new(
        pool: PgPool,
        groups: Arc<Groups>,
        wallets: Wallets,
        policy: PolicySource,
        timeout: Duration,
    ) -> (Self, LedgerWorker) {
        let (ledger, worker) = Ledger::new(pool.clone(), timeout);
        (Self { pool, groups, wallets, policy, checker: SignatureChecker::start(), ledger }, worker)
    }

    /// Signs if every rule admits it, and returns after the decision is durable. The approvers' signatures are verified in one
    /// batch with those of other calls that arrive at the same time.
    pub async fn sign(
        &self,
        caller: &SigningCaller,
        request: SigningRequest,
    ) -> Result<SignedTransaction, SigningError> {
        let claimed = claims(&self.policy.current(), &request);
        let verified = self.checker.check(claimed).await;
        self.sign_checked(caller, request, &verified).await
    }

    /// [`Signing::sign`] for many requests, each decided by itself and within its span; the results are in their order. Only the
    /// approvers' signatures are verified as one batch.
    pub async fn sign_batch(
        &self,
        caller: &SigningCaller,
        requests: Vec<(SigningRequest, Span)>,
    ) -> Vec<Result<SignedTransaction, SigningError>> {
        let policy = self.policy.current();
        let claimed = requests.iter().flat_map(|(request, _)| claims(&policy, request)).collect();
        let verified = VerifiedSignatures::check_batch(claimed);
        let signing = requests
            .into_iter()
            .map(|(request, span)| self.sign_checked(caller, request, &verified).instrument(span));
        join_all(signing).await
    }

    async fn sign_checked(
        &self,
        caller: &SigningCaller,
        request: SigningRequest,
        verified: &VerifiedSignatures,
    ) -> Result<SignedTransaction, SigningError> {
        let built = match self.build(&request).await {
            Ok(built) => built,
            Err(error) => {
                self.record_early_refusal(caller, &request, &error).await?;
                return Err(error);
            }
        };
        let prepared = self.prepared(caller, request, built, verified);
        crash_point("signer.before_decision");
        let answer = self.ledger.decide(prepared).await;
        crash_point("signer.before_reply");
        answer
    }

    /// Returns what every rule would say. Writes nothing, signs nothing.
    pub async fn simulate(
        &self,
        caller: &SigningCaller,
        request: SigningRequest,
    ) -> Result<Simulation, SigningError> {
        let built = self.build(&request).await?;
        let prepared = self.prepared(caller, request, built, &VerifiedSignatures::default());
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
        let format = request.from().format();
        let (key, purpose) = self.groups.wallet(request.group, format, request.index).await?;
        let from = key.address();
        let top_up = match request.purpose {
            Purpose::TopUp { group, index } => {
                let (wallet, purpose) = self.groups.wallet(group, format, index).await?;
                Some((wallet.address(), purpose))
            }
            Purpose::Withdrawal { .. } | Purpose::Sweep { .. } | Purpose::Duty { .. } => None,
        };
        let sweep_origin = match (&request.purpose, request.transfer()) {
            (Purpose::Sweep { .. }, Some(transfer)) => {
                self.wallets.origin(&request.chain, transfer.to).await?
            }
            (Purpose::Sweep { .. }, None)
            | (Purpose::Withdrawal { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. }, _) => None,
        };
        let unsigned = Unsigned::build(from, &request.action, &request.parameters)?;
        Ok(Built { key, derived: Derived { from, purpose, top_up, sweep_origin }, unsigned })
    }

    fn prepared(
        &self,
        caller: &SigningCaller,
        request: SigningRequest,
        built: Built,
        verified: &VerifiedSignatures,
    ) -> PreparedRequest {
        let policy = self.policy.current();
        let assessment = assess(&policy, &request, (&built.derived, &built.unsigned), verified);
        let payment = request.payment();
        PreparedRequest {
            caller: caller.clone(),
            texts: request.texts(&payment),
            payment,
            request,
            assessment,
            unsigned: built.unsigned,
            key: built.key,
        }
    }

    /// Records that no transaction could be built from a request. The caller is answered only afterwards, as after every decision.
    async fn record_early_refusal(
        &self,
        caller: &SigningCaller,
        request: &SigningRequest,
        error: &SigningError,
    ) -> Result<(), SigningError> {
        let Some(reason) = error.early_reason() else { return Ok(()) };
        let canonical = request.texts(&request.payment()).canonical;
        let explanation = detail::quoted(&::rpc::error::chain(error));
        let draft = Draft {
            caller: caller.name().to_owned(),
            action: "sign",
            decision: Decision::Refused,
            reason: reason.to_owned(),
            detail: detail::of(request, &canonical, &format!(",\"explanation\":{explanation}")),
        };
        audit::append(&self.pool, draft).await.map_err(SigningError::Ledger)?;
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
