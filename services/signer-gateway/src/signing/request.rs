//! A signing request after parsing: typed values only, nothing believed. Owns the canonical form by which two
//! requests under one idempotency key are compared, and the guard's view of a request.

use payment::{Action, AssetRef, ContractCall, Transfer};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use types::{Address, AssetSymbol, ChainName, JobId, RawAmount, WalletGroupId, WithdrawalId};

use crate::builder::{Numbers, Parameters, Unsigned};
use crate::guard::{Parties, PaymentKey, Proposal, ProposedAction, Terms, VoidAttestation};
use crate::policy::ApprovalProof;

/// Why the caller thinks the signer should agree.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Purpose {
    /// Pays a customer; authorised by approvers.
    Withdrawal {
        id: WithdrawalId,
        /// Symbol of the asset, as it was approved.
        asset: AssetSymbol,
        requested_by: String,
        /// For whom; empty when for themselves.
        on_behalf_of: String,
        approvals: Vec<ApprovalProof>,
    },
    /// Moves a deposit to an operation wallet; authorised by its destination. The payment is the job.
    Sweep { asset: AssetSymbol },
    /// Gives a deposit wallet gas; authorised by its destination and a cap. The payment is the job.
    TopUp { group: WalletGroupId, index: u32 },
    /// Calls an allowed contract.
    Duty { id: String },
}

/// A request for one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    /// `job/attempt`.
    pub idempotency_key: String,
    pub job: JobId,
    /// The caller's fencing token for that job.
    pub lease_epoch: u64,
    pub chain: ChainName,
    pub group: WalletGroupId,
    pub index: u32,
    pub action: Action,
    pub parameters: Parameters,
    pub purpose: Purpose,
    pub void: Option<VoidAttestation>,
}

/// The name of an action in records and audits, which is older than the shared vocabulary.
pub(crate) fn action_name(action: &Action) -> &'static str {
    match action {
        Action::Pay(transfer) => match transfer.asset {
            AssetRef::Native => "transfer",
            AssetRef::Token(_) => "token_transfer",
        },
        Action::Cancel { .. } => "cancellation",
        Action::Call(_) => "contract_call",
    }
}

impl SigningRequest {
    /// The address the caller believes it signs with.
    pub fn from(&self) -> Address {
        self.action.sender()
    }

    /// The payment that the guard protects.
    pub fn payment(&self) -> PaymentKey {
        match &self.purpose {
            Purpose::Withdrawal { id, .. } => PaymentKey::withdrawal(*id),
            Purpose::Sweep { .. } => PaymentKey::sweep(self.job),
            Purpose::TopUp { .. } => PaymentKey::top_up(self.job),
            Purpose::Duty { id } => PaymentKey::duty(id),
        }
    }

    pub fn asset(&self) -> Option<&AssetSymbol> {
        match &self.purpose {
            Purpose::Withdrawal { asset, .. } | Purpose::Sweep { asset } => Some(asset),
            Purpose::TopUp { .. } | Purpose::Duty { .. } => None,
        }
    }

    pub fn transfer(&self) -> Option<Transfer> {
        match &self.action {
            Action::Pay(transfer) => Some(*transfer),
            Action::Cancel { .. } | Action::Call(_) => None,
        }
    }

    pub fn cancels(&self) -> bool {
        self.action.is_cancellation()
    }

    /// Everything that makes the bytes, as JSON under the names of the contract's fields. The lease epoch, approvals and
    /// attestations are left out, because a worker that took the job over must get the same bytes.
    pub(crate) fn texts(&self, payment: &PaymentKey) -> RequestTexts {
        let from = self.from().to_string();
        let transfer = self.transfer();
        let to = transfer.map(|transfer| transfer.to.to_string());
        let (contract, data) = match &self.action {
            Action::Pay(transfer) => (transfer.asset.contract(), None),
            Action::Cancel { .. } => (None, None),
            Action::Call(ContractCall { contract, data, .. }) => (Some(*contract), Some(data)),
        };
        let numbers = self.parameters.family().map(|family| family.numbers(&self.parameters));
        let canonical = CanonicalRequest {
            chain: self.chain.as_str(),
            wallet_group_id: self.group,
            derivation_index: self.index,
            job_id: self.job,
            payment: payment.as_str(),
            asset: self.asset().map(AssetSymbol::as_str),
            action: action_name(&self.action),
            from: &from,
            to: to.as_deref(),
            amount: transfer.map(|transfer| transfer.amount.to_string()),
            contract_address: contract.map(|contract| contract.to_string()),
            data_sha256: data.map(|data| hex::encode(Sha256::digest(data))),
            numbers: numbers.unwrap_or_default(),
        };
        let canonical = serde_json::to_string(&canonical).expect("impossible: texts and numbers only");
        RequestTexts { from, to, canonical }
    }

    /// What the guard is asked to allow.
    pub(crate) fn proposal(&self, unsigned: &Unsigned) -> Proposal {
        Proposal {
            parties: Parties { chain: self.chain.clone(), wallet: self.from(), job: self.job },
            slot: unsigned.slot,
            bid: unsigned.bid,
            action: self.proposed_action(),
        }
    }

    fn proposed_action(&self) -> ProposedAction {
        match &self.action {
            Action::Cancel { .. } => ProposedAction::Cancel,
            Action::Pay(Transfer { asset, to, amount, .. }) => ProposedAction::Pay(Terms {
                asset: self.asset().cloned(),
                destination: *to,
                amount: *amount,
                call_hash: None,
                may_shrink: *asset == AssetRef::Native && matches!(self.purpose, Purpose::Sweep { .. }),
            }),
            Action::Call(ContractCall { contract, data, .. }) => ProposedAction::Pay(Terms {
                asset: None,
                destination: *contract,
                amount: RawAmount::ZERO,
                call_hash: Some(Sha256::digest(data).into()),
                may_shrink: false,
            }),
        }
    }
}

/// The fields in the order in which they are written. The text is stored and compared: it must never change.
#[derive(Serialize)]
struct CanonicalRequest<'a> {
    chain: &'a str,
    wallet_group_id: WalletGroupId,
    derivation_index: u32,
    job_id: JobId,
    payment: &'a str,
    asset: Option<&'a str>,
    action: &'static str,
    from: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_sha256: Option<String>,
    #[serde(flatten)]
    numbers: Numbers,
}

/// A request's addresses and canonical form as text. They are written once, because each address costs a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTexts {
    pub(crate) from: String,
    pub(crate) to: Option<String>,
    pub(crate) canonical: String,
}

/// The first field in which two canonical requests differ, by name; none when they are the same.
pub(super) fn first_difference(known: &str, proposed: &str) -> Option<String> {
    if known == proposed {
        return None;
    }
    let fields = |text| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let (known, proposed) = (&fields(known), &fields(proposed));
    let mut names: Vec<&String> = known.keys().chain(proposed.keys()).collect();
    names.sort_unstable();
    names.into_iter().find(|name| known.get(*name) != proposed.get(*name)).cloned()
}
