//! A signing request after parsing: typed values only, nothing believed. Owns the canonical form by which two
//! requests under one idempotency key are compared, and the guard's view of a request.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use types::{Address, AssetSymbol, ChainName, JobId, RawAmount, WalletGroupId, WithdrawalId};

use crate::builder::{Action, EvmFee, Parameters, Unsigned};
use crate::guard::{Act, Bid, Binding, PaymentKey, Proposal, Slot, Terms, VoidAttestation};
use crate::policy::ApprovalProof;

/// Why the caller thinks the signer should agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Pays a customer; authorised by approvers.
    Withdrawal {
        /// The payment.
        id: WithdrawalId,
        /// Symbol of the asset, as it was approved.
        asset: AssetSymbol,
        /// Who asked for it.
        requested_by: String,
        /// Approvers' consent.
        approvals: Vec<ApprovalProof>,
    },
    /// Moves a deposit to an operation wallet; authorised by its destination. The payment is the job.
    Sweep {
        /// Symbol of the asset.
        asset: AssetSymbol,
    },
    /// Gives a deposit wallet gas; authorised by its destination and a cap. The payment is the job.
    TopUp {
        /// Group of the destination.
        group: WalletGroupId,
        /// Index of the destination.
        index: u32,
    },
    /// Calls an allowed contract.
    Duty {
        /// The duty.
        id: String,
    },
}

impl Purpose {
    /// Stable name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Withdrawal { .. } => "withdrawal",
            Self::Sweep { .. } => "sweep",
            Self::TopUp { .. } => "top_up",
            Self::Duty { .. } => "duty",
        }
    }
}

/// A request for one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    /// `job/attempt`.
    pub idempotency_key: String,
    /// The job the caller works on.
    pub job: JobId,
    /// The caller's fencing token for that job.
    pub lease_epoch: u64,
    /// The chain.
    pub chain: ChainName,
    /// Group that holds the key.
    pub group: WalletGroupId,
    /// Index within it.
    pub index: u32,
    /// The address the caller believes it signs with.
    pub from: Address,
    /// What is to be done.
    pub action: Action,
    /// Numbers of the chain.
    pub parameters: Parameters,
    /// Why.
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

    /// Symbol of the asset, where the purpose names one.
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

    /// Whether it closes a nonce instead of paying.
    pub fn cancels(&self) -> bool {
        matches!(self.action, Action::Cancellation)
    }

    /// Everything that makes the bytes, under the names of the contract's fields. The lease epoch, approvals and
    /// attestations are left out: a worker that took the job over must get the same bytes.
    pub fn canonical(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put("chain", json!(self.chain.as_str()));
        put("wallet_group_id", json!(self.group.to_string()));
        put("derivation_index", json!(self.index));
        put("job_id", json!(self.job.to_string()));
        put("payment", json!(self.payment().as_str()));
        put("asset", json!(self.asset().map(AssetSymbol::as_str)));
        put("action", json!(self.action.name()));
        put("from", json!(self.from.to_string()));
        match &self.action {
            Action::Transfer { to, amount } => {
                put("to", json!(to.to_string()));
                put("amount", json!(amount.to_string()));
            }
            Action::TokenTransfer { contract, to, amount } => {
                put("to", json!(to.to_string()));
                put("amount", json!(amount.to_string()));
                put("contract_address", json!(contract.to_string()));
            }
            Action::Cancellation => {}
            Action::ContractCall { contract, data } => {
                put("contract_address", json!(contract.to_string()));
                put("data_sha256", json!(hex::encode(Sha256::digest(data))));
            }
        }
        match &self.parameters {
            Parameters::Evm(evm) => {
                put("chain_id", json!(evm.chain_id));
                put("nonce", json!(evm.nonce));
                put("gas_limit", json!(evm.gas_limit));
                match evm.fee {
                    EvmFee::Legacy { gas_price } => put("gas_price", json!(gas_price.to_string())),
                    EvmFee::Eip1559 { max_fee, max_priority_fee } => {
                        put("max_fee_per_gas", json!(max_fee.to_string()));
                        put("max_priority_fee_per_gas", json!(max_priority_fee.to_string()))
                    }
                };
            }
            Parameters::Tron(tron) => {
                put("ref_block_bytes", json!(hex::encode(tron.ref_block_bytes)));
                put("ref_block_hash", json!(hex::encode(tron.ref_block_hash)));
                put("expiration_ms", json!(tron.expiration_ms));
                put("timestamp_ms", json!(tron.timestamp_ms));
                put("fee_limit_sun", json!(tron.fee_limit_sun));
            }
        }
        map
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

/// The first field in which two canonical requests differ, by name.
pub fn first_difference(known: &Map<String, Value>, proposed: &Map<String, Value>) -> Option<String> {
    let mut names: Vec<&String> = known.keys().chain(proposed.keys()).collect();
    names.sort_unstable();
    names.into_iter().find(|name| known.get(*name) != proposed.get(*name)).cloned()
}
