//! From the wire to typed values. Every refusal names the field.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use proto::signer::v1 as pb;
use proto::signer::v1::authorization::Kind;
use proto::signer::v1::sign_transaction_request::Parameters as WireParameters;
use proto::signer::v1::tx_intent::Action as WireAction;
use tonic::Status;
use types::{Address, AddressFormat, ChainName, JobId, RawAmount, WalletGroupId};

use crate::audit::{Check, Head};
use crate::builder::{Action, EvmFee, EvmParameters, Parameters, TronParameters};
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
const MAX_TOGETHER: usize = 256;
const MAX_ADDRESSES: u32 = 1_000;

fn invalid(field: &str, problem: impl Display) -> Status {
    ::rpc::error::invalid(field, problem.to_string())
}

fn missing(field: &str) -> Status {
    invalid(field, "is missing")
}

fn value<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Status> {
    text.parse().map_err(|error| invalid(field, error))
}

fn address(field: &str, format: AddressFormat, text: &str) -> Result<Address, Status> {
    Address::parse(format, text).map_err(|error| invalid(field, error))
}

fn visible(field: &str, text: &str) -> Result<(), Status> {
    let clean =
        !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_graphic());
    if clean { Ok(()) } else { Err(invalid(field, "must be 1 to 128 visible ASCII characters")) }
}

pub(super) fn signing_request(wire: pb::SignTransactionRequest) -> Result<SigningRequest, Status> {
    let job: JobId = value("job_id", &wire.job_id)?;
    let attempt = wire.idempotency_key.strip_prefix(&format!("{job}/"));
    let attempt = attempt.ok_or_else(|| invalid("idempotency_key", "must be `job_id/attempt`"))?;
    visible("idempotency_key", attempt)?;
    if i64::try_from(wire.lease_epoch).is_err() {
        return Err(invalid("lease_epoch", "is too large"));
    }
    let action =
        wire.tx_intent.and_then(|intent| intent.action).ok_or_else(|| missing("tx_intent.action"))?;
    let (from, action) = action_of(action)?;
    let parameters = wire.parameters.ok_or_else(|| missing("parameters"))?;
    let authorization = wire.authorization.ok_or_else(|| missing("authorization"))?;
    let void = authorization.void_attestation.map(void_attestation).transpose()?;
    let kind = authorization.kind.ok_or_else(|| missing("authorization.kind"))?;
    Ok(SigningRequest {
        job,
        lease_epoch: wire.lease_epoch,
        chain: value("chain", &wire.chain)?,
        group: value("wallet_group_id", &wire.wallet_group_id)?,
        index: wire.derivation_index,
        from,
        action,
        parameters: parameters_of(parameters)?,
        purpose: purpose_of(kind, job)?,
        void,
        idempotency_key: wire.idempotency_key,
    })
}

/// One request among many, readable or not, and the trace it belongs to.
pub(super) struct Item {
    pub(super) request: Result<SigningRequest, Status>,
    pub(super) traceparent: String,
}

pub(super) fn signing_requests(wire: pb::SignTransactionsRequest) -> Result<Vec<Item>, Status> {
    if !(1..=MAX_TOGETHER).contains(&wire.items.len()) {
        return Err(invalid("items", format!("must be 1 to {MAX_TOGETHER}")));
    }
    let item = |item: pb::SignTransactionsItem| Item {
        request: item.request.ok_or_else(|| missing("request")).and_then(signing_request),
        traceparent: item.traceparent,
    };
    Ok(wire.items.into_iter().map(item).collect())
}

pub(super) fn simulation(wire: pb::SimulatePolicyRequest) -> Result<SigningRequest, Status> {
    signing_request(wire.request.ok_or_else(|| missing("request"))?)
}

fn action_of(wire: WireAction) -> Result<(Address, Action), Status> {
    let (evm, tron) = (AddressFormat::Evm, AddressFormat::Tron);
    let from = |format, text: &str| address("tx_intent.from", format, text);
    let to = |format, text: &str| address("tx_intent.to", format, text);
    let contract = |format, text: &str| address("tx_intent.contract_address", format, text);
    let amount = |text: &str| value::<RawAmount>("tx_intent.amount", text);
    Ok(match wire {
        WireAction::NativeTransfer(it) => {
            let action = Action::Transfer { to: to(evm, &it.to)?, amount: amount(&it.amount_wei)? };
            (from(evm, &it.from)?, action)
        }
        WireAction::Erc20Transfer(it) => {
            let contract = contract(evm, &it.contract_address)?;
            let action =
                Action::TokenTransfer { contract, to: to(evm, &it.to)?, amount: amount(&it.amount)? };
            (from(evm, &it.from)?, action)
        }
        WireAction::Cancellation(it) => (from(evm, &it.from)?, Action::Cancellation),
        WireAction::SendTrx(it) => {
            let action = Action::Transfer { to: to(tron, &it.to)?, amount: amount(&it.amount_sun)? };
            (from(tron, &it.from)?, action)
        }
        WireAction::Trc20Transfer(it) => {
            let contract = contract(tron, &it.contract_address)?;
            let action =
                Action::TokenTransfer { contract, to: to(tron, &it.to)?, amount: amount(&it.amount)? };
            (from(tron, &it.from)?, action)
        }
        WireAction::ContractCall(it) => {
            let contract = contract(evm, &it.contract_address)?;
            (from(evm, &it.from)?, Action::ContractCall { contract, data: it.data })
        }
    })
}

fn parameters_of(wire: WireParameters) -> Result<Parameters, Status> {
    match wire {
        WireParameters::Evm(evm) => {
            let fee = fee_of(&evm)?;
            let pb::EvmParameters { chain_id, nonce, gas_limit, .. } = evm;
            Ok(Parameters::Evm(EvmParameters { chain_id, nonce, gas_limit, fee }))
        }
        WireParameters::Tron(tron) => Ok(Parameters::Tron(TronParameters {
            ref_block_bytes: tron
                .ref_block_bytes
                .try_into()
                .map_err(|_| invalid("tron.ref_block_bytes", "must be 2 bytes"))?,
            ref_block_hash: tron
                .ref_block_hash
                .try_into()
                .map_err(|_| invalid("tron.ref_block_hash", "must be 8 bytes"))?,
            expiration_ms: tron.expiration_ms,
            timestamp_ms: tron.timestamp_ms,
            fee_limit_sun: tron.fee_limit_sun,
        })),
    }
}

fn fee_of(evm: &pb::EvmParameters) -> Result<EvmFee, Status> {
    let wei = |field, text: &str| {
        let amount: RawAmount = value(field, text)?;
        amount.to_u128().ok_or_else(|| invalid(field, "is too large"))
    };
    match (evm.gas_price.is_empty(), evm.max_fee_per_gas.is_empty(), evm.max_priority_fee_per_gas.is_empty())
    {
        (false, true, true) => Ok(EvmFee::Legacy { gas_price: wei("evm.gas_price", &evm.gas_price)? }),
        (true, false, false) => Ok(EvmFee::Eip1559 {
            max_fee: wei("evm.max_fee_per_gas", &evm.max_fee_per_gas)?,
            max_priority_fee: wei("evm.max_priority_fee_per_gas", &evm.max_priority_fee_per_gas)?,
        }),
        _ => Err(invalid("evm", "needs either gas_price, or max_fee_per_gas and max_priority_fee_per_gas")),
    }
}

fn purpose_of(wire: Kind, job: JobId) -> Result<Purpose, Status> {
    // The payment of a sweep or top-up is its job: naming another would get around the guard.
    let same_job = |field, text: &str| match value::<JobId>(field, text)? == job {
        true => Ok(()),
        false => Err(invalid(field, "differs from job_id")),
    };
    match wire {
        Kind::Withdrawal(it) => {
            let requested_by = it.requested_by;
            if requested_by.is_empty() {
                return Err(missing("authorization.withdrawal.requested_by"));
            }
            for (field, name) in [
                ("authorization.withdrawal.requested_by", &requested_by),
                ("authorization.withdrawal.on_behalf_of", &it.on_behalf_of),
            ] {
                if name.len() > MAX_PERSON {
                    return Err(invalid(field, "is longer than 1000 bytes"));
                }
                // PostgreSQL reads no JSON with a NUL in it: one such name would end every later check of the log.
                if name.chars().any(char::is_control) {
                    return Err(invalid(field, "must have no control characters"));
                }
            }
            Ok(Purpose::Withdrawal {
                id: value("authorization.withdrawal.withdrawal_id", &it.withdrawal_id)?,
                asset: value("authorization.withdrawal.asset", &it.asset)?,
                requested_by,
                on_behalf_of: it.on_behalf_of,
                approvals: it.approvals.into_iter().map(approval).collect::<Result<_, _>>()?,
            })
        }
        Kind::Sweep(it) => {
            same_job("authorization.sweep.job_id", &it.job_id)?;
            Ok(Purpose::Sweep { asset: value("authorization.sweep.asset", &it.asset)? })
        }
        Kind::TopUp(it) => {
            same_job("authorization.top_up.job_id", &it.job_id)?;
            Ok(Purpose::TopUp {
                group: value("authorization.top_up.destination_group_id", &it.destination_group_id)?,
                index: it.destination_index,
            })
        }
        Kind::Duty(it) => {
            visible("authorization.duty.duty_id", &it.duty_id)?;
            Ok(Purpose::Duty { id: it.duty_id })
        }
    }
}

fn approval(wire: pb::ApprovalProof) -> Result<ApprovalProof, Status> {
    let field = "authorization.withdrawal.approvals.expires_at";
    let expires_at = wire.expires_at.ok_or_else(|| missing(field))?;
    let expires_at = proto::time::datetime(&expires_at).map_err(|error| invalid(field, error))?;
    Ok(ApprovalProof { approver: wire.approver, signature: wire.signature, expires_at })
}

fn void_attestation(wire: pb::VoidAttestation) -> Result<VoidAttestation, Status> {
    let field = "authorization.void_attestation.attested_at";
    let attested_at = wire.attested_at.ok_or_else(|| missing(field))?;
    let hashes = wire.tx_hashes.iter().map(|text| value("authorization.void_attestation.tx_hashes", text));
    Ok(VoidAttestation {
        job: value("authorization.void_attestation.job_id", &wire.job_id)?,
        tx_hashes: hashes.collect::<Result<BTreeSet<_>, Status>>()?,
        attested_at: proto::time::datetime(&attested_at).map_err(|error| invalid(field, error))?,
        signature: wire.signature,
    })
}

pub(super) fn new_group(name: &str, purpose: &str) -> Result<(GroupName, GroupPurpose), Status> {
    let name = GroupName::parse(name).map_err(|error| invalid("name", error))?;
    let purpose = match purpose {
        "operation" => GroupPurpose::Operation,
        "deposit" => GroupPurpose::Deposit,
        _ => return Err(invalid("purpose", "must be `operation` or `deposit`")),
    };
    Ok((name, purpose))
}

pub(super) struct Derivation {
    pub(super) group: WalletGroupId,
    pub(super) format: AddressFormat,
    pub(super) indices: Range<u32>,
}

pub(super) fn derivation(wire: &pb::DeriveAddressesRequest) -> Result<Derivation, Status> {
    let format = value("address_format", &wire.address_format)?;
    if !(1..=MAX_ADDRESSES).contains(&wire.count) {
        return Err(invalid("count", "must lie between 1 and 1000"));
    }
    let end = wire.from_index.checked_add(wire.count).filter(|end| *end <= 1 << 31);
    let end = end.ok_or_else(|| invalid("from_index", "must stay below 2147483648"))?;
    let group = value("wallet_group_id", &wire.wallet_group_id)?;
    Ok(Derivation { group, format, indices: wire.from_index..end })
}

pub(super) fn operation_wallet(wire: pb::RegisterOperationWalletRequest) -> Result<OperationWallet, Status> {
    let wallet = wire.wallet.ok_or_else(|| missing("wallet"))?;
    let key = match wallet.wallet_group_id.as_str() {
        "" => None,
        group => Some((value("wallet.wallet_group_id", group)?, wallet.derivation_index)),
    };
    Ok(OperationWallet {
        chain: value("wallet.chain", &wallet.chain)?,
        address: value("wallet.address", &wallet.address)?,
        key,
    })
}

pub(super) fn optional_chain(text: &str) -> Result<Option<ChainName>, Status> {
    if text.is_empty() { Ok(None) } else { value("chain", text).map(Some) }
}

pub(super) fn audit_page(wire: &pb::ListAuditRequest) -> Result<(u64, u32), Status> {
    match wire.page_size {
        0 => Ok((wire.after_sequence, 100)),
        size @ 1..=1000 => Ok((wire.after_sequence, size)),
        _ => Err(invalid("page_size", "must lie between 1 and 1000")),
    }
}

pub(super) fn check(wire: &pb::VerifyAuditRequest) -> Result<Check, Status> {
    let after = place(("after_sequence", wire.after_sequence), ("after_hash", &wire.after_hash))?;
    Ok(Check {
        after: after.unwrap_or(Head::GENESIS),
        anchor: place(("expected_sequence", wire.expected_sequence), ("expected_hash", &wire.expected_hash))?,
        max_entries: (wire.max_entries > 0).then_some(wire.max_entries),
    })
}

/// A place in the log: both fields, or neither.
fn place(sequence: (&str, u64), hash: (&str, &str)) -> Result<Option<Head>, Status> {
    match (sequence.1, hash.1) {
        (0, "") => Ok(None),
        (0, _) => Err(missing(sequence.0)),
        (_, "") => Err(missing(hash.0)),
        (sequence, text) => Ok(Some(Head { sequence, hash: value(hash.0, text)? })),
    }
}
