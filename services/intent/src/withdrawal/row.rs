//! A request's row, and its way to the domain: one conversion that checks again what the table's constraints promise.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;
use types::{Address, Decimals, Priority};
use uuid::Uuid;

use super::approval::Approval;
use super::domain::{Blockage, Handover, State, Status};
use super::error::WithdrawalError;
use super::request::{IdempotencyKey, ImportedPayment, Origin, Payload, Withdrawal};

#[derive(Debug, FromRow)]
pub(super) struct WithdrawalRow {
    pub(super) id: Uuid,
    origin: String,
    idempotency_key: String,
    payload_hash: Vec<u8>,
    user_id: Uuid,
    chain: String,
    asset: String,
    amount_raw: String,
    decimals: i16,
    destination: String,
    memo: String,
    priority_rank: i16,
    labels: Json<BTreeMap<String, String>>,
    requested_by: String,
    on_behalf_of: String,
    required_approvals: i32,
    status: String,
    blocked_reason: Option<String>,
    blocked_changed_at: Option<DateTime<Utc>>,
    failure_reason: Option<String>,
    final_tx_hash: Option<String>,
    final_block: Option<i64>,
    last_sequence: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    approved_at: Option<DateTime<Utc>>,
    queued_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    from_address: Option<String>,
    import_tx_hash: Option<String>,
}

#[derive(Debug, FromRow)]
pub(super) struct ApprovalRow {
    pub(super) request_id: Uuid,
    approver: String,
    signature: Vec<u8>,
    expires_at: DateTime<Utc>,
    approved_at: DateTime<Utc>,
}

fn corrupt(what: &str, error: impl std::fmt::Display) -> WithdrawalError {
    WithdrawalError::Corrupt(format!("{what}: {error}"))
}

fn present<T>(what: &'static str, value: Option<T>) -> Result<T, WithdrawalError> {
    value.ok_or_else(|| corrupt(what, "missing"))
}

impl TryFrom<ApprovalRow> for Approval {
    type Error = WithdrawalError;

    fn try_from(row: ApprovalRow) -> Result<Self, WithdrawalError> {
        let signature =
            row.signature.try_into().map_err(|bytes: Vec<u8>| corrupt("signature length", bytes.len()))?;
        Ok(Self {
            approver: row.approver,
            signature,
            expires_at: row.expires_at,
            approved_at: row.approved_at,
        })
    }
}

impl WithdrawalRow {
    /// The request with its approvals.
    pub(super) fn into_domain(self, approvals: Vec<Approval>) -> Result<Withdrawal, WithdrawalError> {
        let state = self.state()?;
        let origin = self.origin()?;
        let decimals = u8::try_from(self.decimals).map_err(|error| corrupt("decimals", error))?;
        let payload = Payload {
            user_id: self.user_id.into(),
            chain: self.chain.parse().map_err(|error| corrupt("chain", error))?,
            asset: self.asset.parse().map_err(|error| corrupt("asset", error))?,
            amount: self.amount_raw.parse().map_err(|error| corrupt("amount_raw", error))?,
            decimals: Decimals::new(decimals).map_err(|error| corrupt("decimals", error))?,
            destination: read_address("destination", &self.destination)?,
            memo: self.memo,
            priority: Priority::from_rank(self.priority_rank)
                .map_err(|error| corrupt("priority_rank", error))?,
            labels: self.labels.0,
            on_behalf_of: self.on_behalf_of,
        };
        // Whoever changed a payload behind our back, trigger or not, is found out before anybody pays it.
        if payload.hash(&self.requested_by).as_slice() != self.payload_hash {
            return Err(corrupt("payload_hash", format_args!("withdrawal {} was altered", self.id)));
        }
        Ok(Withdrawal {
            id: self.id.into(),
            origin,
            key: IdempotencyKey::from_stored(self.idempotency_key),
            payload,
            requested_by: self.requested_by,
            required_approvals: u32::try_from(self.required_approvals)
                .map_err(|error| corrupt("required_approvals", error))?,
            approvals,
            state,
            sequence: u64::try_from(self.last_sequence).map_err(|error| corrupt("last_sequence", error))?,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }

    fn origin(&self) -> Result<Origin, WithdrawalError> {
        match self.origin.as_str() {
            "request" => Ok(Origin::Request),
            "import" => {
                let from = present("from_address", self.from_address.as_deref())?;
                let hash = present("import tx_hash", self.import_tx_hash.as_deref())?;
                Ok(Origin::Import(ImportedPayment {
                    from_address: read_address("from_address", from)?,
                    tx_hash: hash.parse().map_err(|error| corrupt("import tx_hash", error))?,
                }))
            }
            other => Err(corrupt("origin", other)),
        }
    }

    fn state(&self) -> Result<State, WithdrawalError> {
        let status: Status = self.status.parse().map_err(|error| corrupt("status", error))?;
        let handover = || -> Result<Handover, WithdrawalError> {
            Ok(Handover { approved_at: self.approved_at, queued_at: present("queued_at", self.queued_at)? })
        };
        let finished_at = || present("finished_at", self.finished_at);
        let reason = || present("failure_reason", self.failure_reason.clone());
        Ok(match status {
            Status::Pending => State::Pending,
            Status::Approved => State::Approved {
                approved_at: present("approved_at", self.approved_at)?,
                refused: self.blocked_reason.clone(),
            },
            Status::Queued => State::Queued {
                handover: handover()?,
                blockage: Blockage {
                    reason: self.blocked_reason.clone(),
                    changed_at: self.blocked_changed_at,
                },
            },
            Status::Completed => State::Completed {
                handover: handover()?,
                tx_hash: present("final_tx_hash", self.final_tx_hash.as_deref())?
                    .parse()
                    .map_err(|error| corrupt("final_tx_hash", error))?,
                block: u64::try_from(present("final_block", self.final_block)?)
                    .map_err(|error| corrupt("final_block", error))?,
                finished_at: finished_at()?,
            },
            Status::Failed => {
                State::Failed { handover: handover()?, reason: reason()?, finished_at: finished_at()? }
            }
            Status::Rejected => State::Rejected { reason: reason()?, finished_at: finished_at()? },
            Status::Cancelled => State::Cancelled { reason: reason()?, finished_at: finished_at()? },
        })
    }
}

fn read_address(what: &str, text: &str) -> Result<Address, WithdrawalError> {
    text.parse().map_err(|error| corrupt(what, error))
}
