//! From the contract's messages to typed values. Every refusal names the fields that are wrong.

use std::ops::Range;

use ::rpc::error::invalid;
use ::rpc::fields::{Fields, parse, required};
use proto::payment::{read_transaction, read_void_attestation};
use proto::signer::v1 as pb;
use proto::signer::v1::authorization::Kind;
use tonic::Status;
use types::{AddressFormat, ChainName, JobId, WalletGroupId};

use crate::audit::{Check, Head};
use crate::builder::Parameters;
use crate::group::GroupName;
use crate::guard::VoidAttestation;
use crate::policy::{ApprovalProof, GroupPurpose};
use crate::signing::{Purpose, SigningRequest};
use crate::wallet::OperationWallet;

/// Longest text that names an attempt or a duty.
const MAX_NAME: usize = 128;
/// Longest name of a person; the log keeps it with every decision.
const MAX_PERSON: usize = 1_000;
/// Requests in one call; as many as share a commit.
const MAX_BATCH: usize = 256;
const MAX_ADDRESSES: u32 = 1_000;

pub(super) fn signing_request(request: pb::SignTransactionRequest) -> Result<SigningRequest, Status> {
    let mut fields = Fields::new();
    let read = read_signing_request(&mut fields, request);
    fields.finish(read)
}

fn read_signing_request(fields: &mut Fields, request: pb::SignTransactionRequest) -> Option<SigningRequest> {
    let job: Option<JobId> = fields.parse("job_id", &request.job_id);
    let key = request.idempotency_key;
    match job.and_then(|job| key.strip_prefix(&format!("{job}/"))) {
        Some(attempt) => _ = fields.visible_ascii("idempotency_key", attempt, MAX_NAME),
        None => fields.wrong("idempotency_key", "must be `job_id/attempt`"),
    }
    let lease_epoch = request.lease_epoch;
    fields.check("lease_epoch", i64::try_from(lease_epoch).is_ok(), "is too large");
    let chain = fields.parse("chain", &request.chain);
    let group = fields.parse("wallet_group_id", &request.wallet_group_id);
    let transaction = converted(fields, read_transaction(request.tx_intent, request.parameters));
    let authorization = fields.required("authorization", request.authorization)?;
    let void = authorization.void_attestation;
    let void = void.map(|void| converted(fields, read_void_attestation(void)));
    let kind = fields.required("authorization.kind", authorization.kind);
    let (job, transaction) = (job?, transaction?);
    let purpose = fields.nested("authorization", |fields| purpose(fields, kind?, job))?;
    let void = match void {
        Some(read) => Some(read.map(|(job, proof)| VoidAttestation { job, proof })?),
        None => None,
    };
    Some(SigningRequest {
        idempotency_key: key,
        job,
        lease_epoch,
        chain: chain?,
        group: group?,
        index: request.derivation_index,
        action: transaction.action,
        parameters: Parameters {
            network_id: transaction.network_id,
            binding: transaction.binding,
            price: transaction.price,
        },
        purpose,
        void,
    })
}

fn converted<T>(fields: &mut Fields, read: Result<T, proto::payment::FieldError>) -> Option<T> {
    read.map_err(|error| fields.wrong(error.field, error.problem)).ok()
}

/// One request of a batch, readable or not, and the trace it belongs to.
pub(super) struct BatchItem {
    pub(super) request: Result<SigningRequest, Status>,
    pub(super) traceparent: String,
}

pub(super) fn signing_requests(request: pb::SignTransactionsRequest) -> Result<Vec<BatchItem>, Status> {
    let mut fields = Fields::new();
    fields.count("items", request.items.len(), 1..=MAX_BATCH);
    fields.done()?;
    let item = |item: pb::SignTransactionsItem| BatchItem {
        request: required("request", item.request).and_then(signing_request),
        traceparent: item.traceparent,
    };
    Ok(request.items.into_iter().map(item).collect())
}

pub(super) fn simulation(request: pb::SimulatePolicyRequest) -> Result<SigningRequest, Status> {
    signing_request(required("request", request.request)?)
}

fn purpose(fields: &mut Fields, kind: Kind, job: JobId) -> Option<Purpose> {
    // The payment of a sweep or top-up is its job: naming another would get around the guard.
    let same_job = |fields: &mut Fields, text: &str| {
        let named: Option<JobId> = fields.parse("job_id", text);
        fields.check("job_id", named.is_none_or(|named| named == job), "differs from job_id");
    };
    match kind {
        Kind::Withdrawal(it) => fields.nested("withdrawal", |fields| withdrawal(fields, it)),
        Kind::Sweep(it) => fields.nested("sweep", |fields| {
            same_job(fields, &it.job_id);
            Some(Purpose::Sweep { asset: fields.parse("asset", &it.asset)? })
        }),
        Kind::TopUp(it) => fields.nested("top_up", |fields| {
            same_job(fields, &it.job_id);
            let group = fields.parse("destination_group_id", &it.destination_group_id)?;
            Some(Purpose::TopUp { group, index: it.destination_index })
        }),
        Kind::Duty(it) => fields.nested("duty", |fields| {
            Some(Purpose::Duty { id: fields.visible_ascii("duty_id", &it.duty_id, MAX_NAME)? })
        }),
    }
}

fn withdrawal(fields: &mut Fields, it: pb::WithdrawalAuthorization) -> Option<Purpose> {
    fields.check("requested_by", !it.requested_by.is_empty(), "is missing");
    for (field, name) in [("requested_by", &it.requested_by), ("on_behalf_of", &it.on_behalf_of)] {
        fields.check(field, name.len() <= MAX_PERSON, "is longer than 1000 bytes");
        // PostgreSQL reads no JSON with a NUL in it: one such name would make every later check of the log fail.
        fields.check(field, !name.chars().any(char::is_control), "must have no control characters");
    }
    let id = fields.parse("withdrawal_id", &it.withdrawal_id);
    let asset = fields.parse("asset", &it.asset);
    let approval = |proof: pb::ApprovalProof| {
        let expires_at = fields.timestamp("approvals.expires_at", proof.expires_at.as_ref())?;
        Some(ApprovalProof { approver: proof.approver, signature: proof.signature, expires_at })
    };
    let approvals = it.approvals.into_iter().map(approval).collect::<Option<_>>();
    Some(Purpose::Withdrawal {
        id: id?,
        asset: asset?,
        requested_by: it.requested_by,
        on_behalf_of: it.on_behalf_of,
        approvals: approvals?,
    })
}

pub(super) fn new_group(name: &str, purpose: &str) -> Result<(GroupName, GroupPurpose), Status> {
    let mut fields = Fields::new();
    let name = fields.take("name", GroupName::parse(name));
    let purpose = fields.take("purpose", purpose.parse().map_err(|_| "must be `operation` or `deposit`"));
    fields.finish(name.zip(purpose))
}

/// Which addresses to derive.
pub(super) struct Derivation {
    pub(super) group: WalletGroupId,
    pub(super) format: AddressFormat,
    pub(super) indices: Range<u32>,
}

pub(super) fn derivation(request: &pb::DeriveAddressesRequest) -> Result<Derivation, Status> {
    let mut fields = Fields::new();
    let format = fields.parse("address_format", &request.address_format);
    let valid = (1..=MAX_ADDRESSES).contains(&request.count);
    fields.check("count", valid, "must lie between 1 and 1000");
    let end = request.from_index.checked_add(request.count).filter(|end| *end <= 1 << 31);
    let end = fields.take("from_index", end.ok_or("must stay below 2147483648"));
    let group = fields.parse("wallet_group_id", &request.wallet_group_id);
    let read = group.zip(format).zip(end);
    let read =
        read.map(|((group, format), end)| Derivation { group, format, indices: request.from_index..end });
    fields.finish(read)
}

pub(super) fn operation_wallet(
    request: pb::RegisterOperationWalletRequest,
) -> Result<OperationWallet, Status> {
    let wallet = required("wallet", request.wallet)?;
    let mut fields = Fields::new();
    let group = fields.parse_optional("wallet.wallet_group_id", &wallet.wallet_group_id);
    let place =
        fields.parse("wallet.chain", &wallet.chain).zip(fields.parse("wallet.address", &wallet.address));
    let key = group.map(|group| (group, wallet.derivation_index));
    fields.finish(place.map(|(chain, address)| OperationWallet { chain, address, key }))
}

pub(super) fn optional_chain(text: &str) -> Result<Option<ChainName>, Status> {
    if text.is_empty() { Ok(None) } else { parse("chain", text).map(Some) }
}

pub(super) fn audit_page(request: &pb::ListAuditRequest) -> Result<(u64, u32), Status> {
    match request.page_size {
        0 => Ok((request.after_sequence, 100)),
        size @ 1..=1000 => Ok((request.after_sequence, size)),
        _ => Err(invalid("page_size", "must lie between 1 and 1000")),
    }
}

pub(super) fn check(request: &pb::VerifyAuditRequest) -> Result<Check, Status> {
    let after = place(("after_sequence", request.after_sequence), ("after_hash", &request.after_hash))?;
    let expected = ("expected_sequence", request.expected_sequence);
    Ok(Check {
        after: after.unwrap_or(Head::GENESIS),
        anchor: place(expected, ("expected_hash", &request.expected_hash))?,
        max_entries: (request.max_entries > 0).then_some(request.max_entries),
    })
}

/// A place in the log: both fields, or neither.
fn place(sequence: (&str, u64), hash: (&str, &str)) -> Result<Option<Head>, Status> {
    match (sequence.1, hash.1) {
        (0, "") => Ok(None),
        (0, _) => Err(invalid(sequence.0, "is missing")),
        (_, "") => Err(invalid(hash.0, "is missing")),
        (sequence, text) => Ok(Some(Head { sequence, hash: parse(hash.0, text)? })),
    }
}
