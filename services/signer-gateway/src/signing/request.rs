//! A signing request after parsing: typed values only, nothing believed. Owns the canonical form by which two
//! requests under one idempotency key are compared, and the guard's view of a request.

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use types::{Address, AssetSymbol, ChainName, JobId, RawAmount, WalletGroupId, WithdrawalId};

use crate::builder::{Action, EvmFee, EvmParameters, Parameters, Unsigned};
use crate::guard::{Act, Bid, Binding, PaymentKey, Proposal, Slot, Terms, VoidAttestation};
use crate::policy::ApprovalProof;

/// Why the caller thinks the signer should agree.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    Sweep {
        asset: AssetSymbol,
    },
    /// Gives a deposit wallet gas; authorised by its destination and a cap. The payment is the job.
    TopUp {
        group: WalletGroupId,
        index: u32,
    },
    Duty {
        id: String,
    },
}

impl Purpose {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Withdrawal { .. } => "withdrawal",
            Self::Sweep { .. } => "sweep",
            Self::TopUp { .. } => "top_up",
            Self::Duty { .. } => "duty",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    pub idempotency_key: String,
    pub job: JobId,
    /// The caller's fencing token for that job.
    pub lease_epoch: u64,
    pub chain: ChainName,
    pub group: WalletGroupId,
    pub index: u32,
    /// The address the caller believes it signs with.
    pub from: Address,
    pub action: Action,
    pub parameters: Parameters,
    pub purpose: Purpose,
    /// Proof that earlier transactions are dead.
    pub void: Option<VoidAttestation>,
}

impl SigningRequest {
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

    /// Receiver and amount of a transfer.
    pub fn transfer(&self) -> Option<(Address, RawAmount)> {
        match &self.action {
            Action::Transfer { to, amount } | Action::TokenTransfer { to, amount, .. } => {
                Some((*to, *amount))
            }
            Action::Cancellation | Action::ContractCall { .. } => None,
        }
    }

    pub fn cancels(&self) -> bool {
        matches!(self.action, Action::Cancellation)
    }

    /// Everything that makes the bytes, as JSON under the names of the contract's fields. The lease epoch, approvals and
    /// attestations are left out: a worker that took the job over must get the same bytes.
    pub(crate) fn texts(&self, payment: &PaymentKey) -> Texts {
        let from = self.from.to_string();
        let to = self.transfer().map(|(to, _)| to.to_string());
        let (contract, data) = match &self.action {
            Action::Transfer { .. } | Action::Cancellation => (None, None),
            Action::TokenTransfer { contract, .. } => (Some(contract), None),
            Action::ContractCall { contract, data } => (Some(contract), Some(data)),
        };
        let canonical = Canonical {
            chain: self.chain.as_str(),
            wallet_group_id: self.group,
            derivation_index: self.index,
            job_id: self.job,
            payment: payment.as_str(),
            asset: self.asset().map(AssetSymbol::as_str),
            action: self.action.name(),
            from: &from,
            to: to.as_deref(),
            amount: self.transfer().map(|(_, amount)| amount.to_string()),
            contract_address: contract.map(Address::to_string),
            data_sha256: data.map(|data| hex::encode(Sha256::digest(data))),
            numbers: Numbers::of(&self.parameters),
        };
        let canonical = serde_json::to_string(&canonical).expect("impossible: texts and numbers only");
        Texts { from, to, canonical }
    }

    /// What the guard is asked.
    pub fn proposal(&self, unsigned: &Unsigned) -> Proposal {
        let (slot, bid) = match &self.parameters {
            Parameters::Evm(evm) => (
                Slot::Nonce(evm.nonce),
                Bid { ceiling: evm.fee.ceiling(), tip: evm.fee.tip(), gas_limit: evm.gas_limit },
            ),
            Parameters::Tron(tron) => {
                let id = unsigned.tron_id().expect("a transaction built from TRON parameters has an id");
                (Slot::Transaction { id, expires_ms: tron.expiration_ms }, Bid::NONE)
            }
        };
        Proposal {
            binding: Binding { chain: self.chain.clone(), wallet: self.from, job: self.job },
            slot,
            bid,
            act: self.act(),
        }
    }

    fn act(&self) -> Act {
        match &self.action {
            Action::Cancellation => Act::Cancel,
            Action::Transfer { to, amount } => Act::Pay(Terms {
                asset: self.asset().cloned(),
                destination: *to,
                amount: *amount,
                call_hash: None,
                may_shrink: matches!(self.purpose, Purpose::Sweep { .. }),
            }),
            Action::TokenTransfer { to, amount, .. } => Act::Pay(Terms {
                asset: self.asset().cloned(),
                destination: *to,
                amount: *amount,
                call_hash: None,
                may_shrink: false,
            }),
            Action::ContractCall { contract, data } => Act::Pay(Terms {
                asset: None,
                destination: *contract,
                amount: RawAmount::ZERO,
                call_hash: Some(Sha256::digest(data).into()),
                may_shrink: false,
            }),
        }
    }
}

#[derive(Serialize)]
struct Canonical<'a> {
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

/// The chain's numbers within the canonical form.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Legacy {
        chain_id: u64,
        nonce: u64,
        gas_limit: u64,
        gas_price: String,
    },
    Eip1559 {
        chain_id: u64,
        nonce: u64,
        gas_limit: u64,
        max_fee_per_gas: String,
        max_priority_fee_per_gas: String,
    },
    Tron {
        ref_block_bytes: String,
        ref_block_hash: String,
        expiration_ms: i64,
        timestamp_ms: i64,
        fee_limit_sun: i64,
    },
}

impl Numbers {
    fn of(parameters: &Parameters) -> Self {
        match *parameters {
            Parameters::Evm(EvmParameters { chain_id, nonce, gas_limit, fee }) => match fee {
                EvmFee::Legacy { gas_price } => {
                    Self::Legacy { chain_id, nonce, gas_limit, gas_price: gas_price.to_string() }
                }
                EvmFee::Eip1559 { max_fee, max_priority_fee } => Self::Eip1559 {
                    chain_id,
                    nonce,
                    gas_limit,
                    max_fee_per_gas: max_fee.to_string(),
                    max_priority_fee_per_gas: max_priority_fee.to_string(),
                },
            },
            Parameters::Tron(tron) => Self::Tron {
                ref_block_bytes: hex::encode(tron.ref_block_bytes),
                ref_block_hash: hex::encode(tron.ref_block_hash),
                expiration_ms: tron.expiration_ms,
                timestamp_ms: tron.timestamp_ms,
                fee_limit_sun: tron.fee_limit_sun,
            },
        }
    }
}

/// A request's addresses and payment as text, written once: each address costs a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) from: String,
    pub(crate) to: Option<String>,
    pub(crate) canonical: String,
}

/// The first field in which two canonical requests differ, by name; none when they are the same.
pub fn first_difference(known: &str, proposed: &str) -> Option<String> {
    if known == proposed {
        return None;
    }
    let fields = |text| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let (known, proposed) = (&fields(known), &fields(proposed));
    let mut names: Vec<&String> = known.keys().chain(proposed.keys()).collect();
    names.sort_unstable();
    names.into_iter().find(|name| known.get(*name) != proposed.get(*name)).cloned()
}
