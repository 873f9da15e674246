//! Converts rows to domain values and checks again what the constraints of the tables promise.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;
use types::Priority;
use uuid::Uuid;

use crate::error::{StoreError, decimals, number, parse};
use crate::withdrawal::approval::Approval;
use crate::withdrawal::domain::{Blockage, Handover, State, Status};
use crate::withdrawal::error::WithdrawalError;
use crate::withdrawal::request::{IdempotencyKey, ImportedPayment, Origin, Payload, Withdrawal};

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

fn present<T>(column: &str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::corrupt(column, "missing"))
}

impl TryFrom<ApprovalRow> for Approval {
    type Error = StoreError;

    fn try_from(row: ApprovalRow) -> Result<Self, StoreError> {
        let length = |bytes: Vec<u8>| StoreError::corrupt("signature length", bytes.len());
        let signature = row.signature.try_into().map_err(length)?;
        Ok(Self {
            approver: row.approver,
            signature,
            expires_at: row.expires_at,
            approved_at: row.approved_at,
        })
    }
}

impl WithdrawalRow {
    pub(super) fn into_domain(self, approvals: Vec<Approval>) -> Result<Withdrawal, WithdrawalError> {
        let state = self.state()?;
        let origin = self.origin()?;
        let payload = Payload {
            user_id: self.user_id.into(),
            chain: parse("chain", &self.chain)?,
            asset: parse("asset", &self.asset)?,
            amount: parse("amount_raw", &self.amount_raw)?,
            decimals: decimals(self.decimals)?,
            destination: parse("destination", &self.destination)?,
            memo: self.memo,
            priority: Priority::from_rank(self.priority_rank)
                .map_err(|error| StoreError::corrupt("priority_rank", error))?,
            labels: self.labels.0,
            on_behalf_of: self.on_behalf_of,
        };
        // Finds a payload that was changed in the database, past the trigger, before it is paid.
        if payload.hash(&self.requested_by).as_slice() != self.payload_hash {
            let why = format_args!("withdrawal {} was altered", self.id);
            return Err(StoreError::corrupt("payload_hash", why).into());
        }
        Ok(Withdrawal {
            id: self.id.into(),
            origin,
            key: IdempotencyKey::from_stored(self.idempotency_key),
            payload,
            requested_by: self.requested_by,
            required_approvals: number("required_approvals", self.required_approvals.into())?,
            approvals,
            state,
            sequence: number("last_sequence", self.last_sequence)?,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }

    fn origin(&self) -> Result<Origin, StoreError> {
        match self.origin.as_str() {
            "request" => Ok(Origin::Request),
            "import" => {
                let from = present("from_address", self.from_address.as_deref())?;
                let hash = present("import tx_hash", self.import_tx_hash.as_deref())?;
                Ok(Origin::Import(ImportedPayment {
                    from_address: parse("from_address", from)?,
                    tx_hash: parse("import tx_hash", hash)?,
                }))
            }
            other => Err(StoreError::corrupt("origin", other)),
        }
    }

    fn state(&self) -> Result<State, StoreError> {
        let status: Status = parse("status", &self.status)?;
        let handover = || -> Result<Handover, StoreError> {
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
                tx_hash: parse("final_tx_hash", present("final_tx_hash", self.final_tx_hash.as_deref())?)?,
                block: number("final_block", present("final_block", self.final_block)?)?,
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
