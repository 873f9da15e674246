//! The decision about one request: every rule, in order, over the request's assessment and the facts of the ledger. No I/O.

use std::sync::Arc;

use payment::Transfer;
use types::RawAmount;

use super::facts::{Facts, Grant, PreparedRequest, Registered, SigningRecord};
use super::request::first_difference;
use crate::builder::families;
use crate::guard::{Evidence, GuardedPayment, Step, StepKind};
use crate::policy::{Finding, Outcome, Refusal, Registration, Rule};

pub(crate) const FEE_COUNTER: &str = "fee";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    Replay(Arc<SigningRecord>),
    Sign(Box<Grant>),
    Refuse(Refusal),
}

/// The ruling, and what each rule said on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) findings: Vec<Finding>,
    pub(crate) ruling: Ruling,
}

/// Asks every rule. The first refusal decides; the others are still heard, for simulations.
pub(crate) fn judge(facts: &Facts, prepared: &PreparedRequest) -> Judgement {
    let mut findings = vec![
        finding(Rule::Caller, caller_rule(prepared)),
        finding(Rule::Freeze, freeze_rule(facts, prepared)),
        finding(Rule::Fence, fence_rule(facts, prepared)),
        finding(Rule::Idempotency, idempotency_rule(facts, prepared)),
    ];
    let known = facts.records.get(&prepared.request.idempotency_key);
    if let Some(record) = known.filter(|_| findings.iter().all(|finding| finding.outcome.is_ok())) {
        return Judgement { findings, ruling: Ruling::Replay(Arc::clone(record)) };
    }
    for known in &prepared.assessment.findings {
        findings.push(match (&known.outcome, known.rule) {
            (Ok(_), Rule::Chain) => finding(Rule::Chain, chain_rule(facts, prepared)),
            (Ok(_), Rule::Destination) => finding(Rule::Destination, destination_rule(facts, prepared)),
            (Ok(_), Rule::Approvals) => finding(Rule::Approvals, approvals_rule(facts, prepared)),
            (Ok(_) | Err(_), _) => known.clone(),
        });
    }
    let guarded = guard_rule(facts, prepared);
    let charges = match &guarded {
        Ok(step) => charges(facts, prepared, step),
        Err(_) => Vec::new(),
    };
    findings.push(finding(Rule::LimitWindow, window_rule(facts, prepared, &charges)));
    findings.push(match &guarded {
        Ok(step) => Finding::admits(Rule::PaymentGuard, step.kind.into_str()),
        Err(refusal) => refusal.clone().into(),
    });
    let refusal = findings.iter().find_map(|finding| finding.outcome.as_ref().err()).cloned();
    let ruling = match (refusal, guarded) {
        (Some(refusal), _) | (None, Err(refusal)) => Ruling::Refuse(refusal),
        (None, Ok(step)) => Ruling::Sign(Box::new(grant(facts, prepared, step, charges))),
    };
    Judgement { findings, ruling }
}

fn finding(rule: Rule, outcome: Outcome) -> Finding {
    Finding { rule, outcome }
}

fn caller_rule(prepared: &PreparedRequest) -> Outcome {
    let purpose = &prepared.request.purpose;
    if !prepared.caller.may_request(purpose) {
        let detail = format!("{} may not ask for a {}", prepared.caller.name(), purpose.into_str());
        return Err(Refusal::of_field(Rule::Caller, "caller.purpose", "authorization.kind", detail));
    }
    Ok("the caller may ask for this")
}

fn freeze_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    if facts.is_frozen(&prepared.request.chain) {
        let detail = format!("nothing is signed for {} at the moment", prepared.request.chain);
        return Err(Refusal::new(Rule::Freeze, "freeze.frozen", detail));
    }
    Ok("the chain is not frozen")
}

fn fence_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    let request = &prepared.request;
    match facts.fences.get(&request.job) {
        Some(seen) if request.lease_epoch < *seen => Err(Refusal::of_field(
            Rule::Fence,
            "fence.stale",
            "lease_epoch",
            format!("epoch {} of this job is over; {seen} was seen", request.lease_epoch),
        )),
        Some(_) | None => Ok("the lease is the newest seen"),
    }
}

fn idempotency_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    let Some(record) = facts.records.get(&prepared.request.idempotency_key) else {
        return Ok("the key is new");
    };
    match first_difference(&record.canonical, &prepared.texts.canonical) {
        None => Ok("the same request was signed before"),
        Some(field) => Err(Refusal {
            rule: Rule::Idempotency,
            reason: "idempotency.conflict",
            detail: format!("this key was used for a request with another {field}"),
            field: Some(contract_field(&field)),
        }),
    }
}

/// Where the contract has a canonical field.
fn contract_field(name: &str) -> &'static str {
    match name {
        "action" => "tx_intent.action",
        "amount" => "tx_intent.amount",
        "asset" => "authorization.asset",
        "chain" => "chain",
        "contract_address" => "tx_intent.contract_address",
        "data_sha256" => "tx_intent.data",
        "derivation_index" => "derivation_index",
        "from" => "tx_intent.from",
        "job_id" => "job_id",
        "payment" => "authorization",
        "to" => "tx_intent.to",
        "wallet_group_id" => "wallet_group_id",
        _ => {
            let mut fields = families().flat_map(|family| family.fields());
            let field = fields.find(|field| field.rsplit_once('.').is_some_and(|(_, last)| last == name));
            field.copied().unwrap_or("request")
        }
    }
}

fn chain_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    let parameters = &prepared.request.parameters;
    let family = parameters.family();
    family.map_or(Ok("the parameters are of this chain"), |family| family.check_time(facts.now, parameters))
}

fn destination_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    let refuse = |reason, detail: &str| {
        Err(Refusal::of_field(Rule::Destination, reason, "tx_intent.to", detail.to_owned()))
    };
    let Some(Transfer { to, .. }) = prepared.request.transfer() else {
        return Ok("pays nobody");
    };
    let registered = facts.registered.get(&(prepared.request.chain.clone(), to));
    match (&prepared.assessment.registration, registered) {
        (Registration::Required(targets), Some(registered)) => match registered {
            Registered::ColdStorage if !targets.cold => {
                refuse("destination.cold_storage", "the destination is not listed as cold storage any more")
            }
            Registered::Group => match targets.group {
                None => refuse("destination.underived", "the destination is not derived from its group"),
                Some(false) => {
                    refuse("destination.operation_group", "the destination's group is not listed for sweeps")
                }
                Some(true) => Ok("the destination is a registered operation wallet"),
            },
            Registered::ColdStorage => Ok("the destination is a registered operation wallet"),
        },
        (Registration::Required(_), None) => {
            refuse("destination.sweep", "sweeps go to registered operation wallets only")
        }
        // Whatever the configuration says now, it was ours when it was registered.
        (Registration::Forbidden, Some(_)) => {
            refuse("destination.own", "withdrawals never go to an operation wallet of our own")
        }
        (Registration::Forbidden, None) => Ok("the destination is not ours"),
        (Registration::Irrelevant, _) => Ok("the destination is derived here or listed"),
    }
}

fn approvals_rule(facts: &Facts, prepared: &PreparedRequest) -> Outcome {
    let Some(quorum) = &prepared.assessment.quorum else {
        return Ok("needs no approvals");
    };
    // Once a payment was authorised, its replacements must not depend on approvals that ran out meanwhile.
    let first_paid = facts.payments.get(&prepared.payment).and_then(|known| known.first_paid_at);
    quorum.judge(first_paid.unwrap_or(facts.now), facts.now)?;
    Ok("enough approvers signed exactly this payment")
}

fn guard_rule(facts: &Facts, prepared: &PreparedRequest) -> Result<Step, Refusal> {
    let proposal = prepared.request.proposal(&prepared.unsigned);
    let owner = prepared.nonce().and_then(|nonce| facts.owners.get(&nonce));
    let step = match facts.payments.get(&prepared.payment) {
        None => GuardedPayment::open(proposal, owner),
        Some(known) => known.guarded.apply(
            proposal,
            &Evidence {
                signed: &known.signed,
                void: prepared.assessment.void.as_ref(),
                owner,
                max_bumps: prepared.assessment.max_bumps,
            },
        ),
    };
    step.map_err(|refused| Refusal::new(Rule::PaymentGuard, refused.into_str(), refused.to_string()))
}

/// What the step adds to the counters: a payment's amount once, fees by how much they grew.
fn charges(facts: &Facts, prepared: &PreparedRequest, step: &Step) -> Vec<(String, RawAmount)> {
    let mut charges = Vec::with_capacity(2);
    let known = facts.payments.get(&prepared.payment);
    let pays_first = !prepared.request.cancels() && known.is_none_or(|known| known.first_paid_at.is_none());
    if let Some(charge) = prepared.assessment.charge.as_ref().filter(|_| pays_first) {
        charges.push((charge.counter.clone(), charge.amount));
    }
    if prepared.assessment.fee_limit.is_some() {
        let cost = prepared.assessment.max_cost;
        let grown = match step.kind {
            StepKind::First | StepKind::NewSlot => cost,
            // These very bytes were paid for when they were first signed.
            StepKind::Same => RawAmount::ZERO,
            StepKind::FeeBump | StepKind::Cancellation => {
                cost.saturating_sub(known.map_or(RawAmount::ZERO, |known| known.guarded.bid.cost()))
            }
        };
        if !grown.is_zero() {
            charges.push((FEE_COUNTER.to_owned(), grown));
        }
    }
    charges
}

fn window_rule(facts: &Facts, prepared: &PreparedRequest, charges: &[(String, RawAmount)]) -> Outcome {
    for (counter, amount) in charges {
        let limit = match (&prepared.assessment.charge, prepared.assessment.fee_limit) {
            (Some(charge), _) if charge.counter == *counter => charge.limit,
            (_, Some(limit)) => limit,
            (_, None) => continue,
        };
        let key = (prepared.request.chain.clone(), counter.clone());
        let used = facts.usage.get(&key).copied().unwrap_or(RawAmount::ZERO);
        let after = used.checked_add(*amount).unwrap_or(RawAmount::MAX);
        if after > limit.amount {
            let detail = format!(
                "{counter} on {} would reach {after} within {} s; the limit is {}",
                prepared.request.chain,
                limit.window.as_secs(),
                limit.amount
            );
            return Err(Refusal::new(Rule::LimitWindow, "limit.window", detail));
        }
    }
    Ok("within the limits over time")
}

fn grant(facts: &Facts, prepared: &PreparedRequest, step: Step, charges: Vec<(String, RawAmount)>) -> Grant {
    let known = facts.payments.get(&prepared.payment).and_then(|known| known.first_paid_at);
    let pays = !prepared.request.cancels();
    Grant { step, first_paid_at: known.or(pays.then_some(facts.now)), charges }
}
