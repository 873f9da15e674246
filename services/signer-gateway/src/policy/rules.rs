//! The rules that need no memory: everything that can be said about a request from the configuration, the derived
//! addresses and the signatures alone. What needs the ledger (usage, registered wallets, expiry) is handed on in
//! the [`Assessment`].

use payment::{Action, AssetRef, Transfer};
use types::{Address, PaymentDigest, RawAmount};

use super::approvals::Consent;
use super::{
    AssetPolicy, ChainPolicy, Finding, GroupPurpose, Outcome, Policy, Quorum, Refusal, Rule, SignatureClaim,
    VerifiedSignatures, WindowLimit,
};
use crate::builder::{Unsigned, family};
use crate::guard::VerifiedVoid;
use crate::signing::{Purpose, SigningRequest, action_name};

/// What the signer derived itself, not what the caller said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Derived {
    pub(crate) from: Address,
    pub(crate) purpose: GroupPurpose,
    /// Address and group purpose of a top-up's destination.
    pub(crate) top_up: Option<(Address, GroupPurpose)>,
    /// First address of the group from which a sweep's destination is derived; none when it is not.
    pub(crate) sweep_origin: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The counter, unique within the chain.
    pub counter: String,
    pub amount: RawAmount,
    pub limit: WindowLimit,
}

/// Which registered wallets the present configuration admits as a sweep's destination: what was registered under an older one
/// does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweepTargets {
    pub(crate) cold: bool,
    /// Whether sweeps may end in the group from which the destination is derived; none when it is derived from none.
    pub(crate) group: Option<bool>,
}

/// What the ledger must know about the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registration {
    /// A sweep: only to a registered operation wallet among these.
    Required(SweepTargets),
    /// A withdrawal: never to one of them.
    Forbidden,
    /// Decided already.
    Irrelevant,
}

/// All that can be said without the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    pub findings: Vec<Finding>,
    /// Approvals whose expiry is yet to be judged; none where none are needed.
    pub quorum: Option<Quorum>,
    pub void: Option<VerifiedVoid>,
    /// Counted when the payment is first signed.
    pub charge: Option<Charge>,
    /// Counter and limit of the chain's fees.
    pub fee_limit: Option<WindowLimit>,
    /// The most the transaction can cost in the chain's own asset, besides what it moves.
    pub max_cost: RawAmount,
    pub max_bumps: u32,
    pub(crate) registration: Registration,
}

/// Asks every rule that needs no memory.
pub(crate) fn assess(
    policy: &Policy,
    request: &SigningRequest,
    (derived, unsigned): (&Derived, &Unsigned),
    verified: &VerifiedSignatures,
) -> Assessment {
    let mut assessment = Assessment {
        findings: Vec::with_capacity(13),
        quorum: None,
        void: None,
        charge: None,
        fee_limit: None,
        max_cost: RawAmount::MAX,
        max_bumps: 0,
        registration: Registration::Irrelevant,
    };
    let Some(chain) = policy.chains.get(&request.chain) else {
        let detail = format!("chain {} is not configured here", request.chain);
        assessment.findings.push(Refusal::of_field(Rule::Chain, "chain.unknown", "chain", detail).into());
        return assessment;
    };
    let asset = request.asset().and_then(|symbol| chain.assets.get(symbol));
    assessment.max_bumps = chain.max_bumps;
    assessment.fee_limit = chain.fee_window;
    assessment.charge = charge(chain, asset, request);
    assessment.max_cost = unsigned.max_cost(&chain.settings);
    assessment.registration = registration(policy, chain, request, derived);
    let outcomes = [
        (Rule::Chain, chain_rule(chain, request)),
        (Rule::Source, source_rule(request, derived)),
        (Rule::Asset, asset_rule(chain, asset, request)),
        (Rule::Destination, destination_rule(chain, request, derived)),
        (Rule::Fee, fee_rule(chain, assessment.max_cost)),
        (Rule::LimitTransaction, transaction_limit_rule(chain, asset, request)),
        (Rule::Approvals, approvals_rule(policy, request, verified, &mut assessment.quorum)),
        (Rule::VoidAttestation, void_rule(policy, request, &mut assessment.void)),
    ];
    assessment.findings.extend(outcomes.map(|(rule, outcome)| Finding { rule, outcome }));
    assessment
}

fn chain_rule(chain: &ChainPolicy, request: &SigningRequest) -> Outcome {
    if request.from().format() != chain.format {
        let detail = format!("parameters are not of the kind of {}", request.chain);
        return Err(Refusal::of_field(Rule::Chain, "chain.kind", "parameters", detail));
    }
    family(chain.format).check_network(&request.chain, &chain.settings, &request.parameters)
}

fn source_rule(request: &SigningRequest, derived: &Derived) -> Outcome {
    if request.from() != derived.from {
        let detail = format!("this group and index sign as {}", derived.from);
        return Err(Refusal::of_field(Rule::Source, "source.address", "tx_intent.from", detail));
    }
    match (&request.purpose, derived.purpose) {
        (
            Purpose::Withdrawal { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. },
            GroupPurpose::Operation,
        ) => Ok("the wallet belongs to an operation group"),
        (Purpose::Sweep { .. }, GroupPurpose::Operation | GroupPurpose::Deposit) => {
            Ok("sweeps may leave from every group")
        }
        (
            Purpose::Withdrawal { .. } | Purpose::TopUp { .. } | Purpose::Duty { .. },
            GroupPurpose::Deposit,
        ) => {
            let detail = format!("a {} never leaves from a deposit group", request.purpose.into_str());
            Err(Refusal::of_field(Rule::Source, "source.purpose", "wallet_group_id", detail))
        }
    }
}

fn asset_rule(chain: &ChainPolicy, asset: Option<&AssetPolicy>, request: &SigningRequest) -> Outcome {
    if request.cancels() {
        return Ok("a cancellation moves no asset");
    }
    let wrong = |detail: String| Err(Refusal::of_field(Rule::Asset, "asset.action", "tx_intent", detail));
    match (&request.purpose, &request.action) {
        (Purpose::Withdrawal { asset: symbol, .. } | Purpose::Sweep { asset: symbol }, action) => {
            let Some(asset) = asset else {
                let detail = format!("{symbol} on {} is not configured here", request.chain);
                return Err(Refusal::of_field(Rule::Asset, "asset.unknown", "authorization.asset", detail));
            };
            match (action, asset.contract) {
                (Action::Pay(transfer), known) if transfer.asset.contract() == known => Ok(match known {
                    None => "moves the chain's own asset",
                    Some(_) => "moves the token of that symbol",
                }),
                (Action::Pay(Transfer { asset: AssetRef::Token(_), .. }), Some(known)) => {
                    Err(Refusal::of_field(
                        Rule::Asset,
                        "asset.contract",
                        "tx_intent.contract_address",
                        format!("the contract of {symbol} is {known}"),
                    ))
                }
                _ => wrong(format!("a {} does not move {symbol}", action_name(action))),
            }
        }
        (Purpose::TopUp { .. }, Action::Pay(Transfer { asset: AssetRef::Native, .. })) => {
            Ok("moves the chain's own asset")
        }
        (Purpose::TopUp { .. }, _) => wrong(format!("a top-up moves {} only", chain.native)),
        (Purpose::Duty { .. }, Action::Call(_)) => Ok("calls a contract"),
        (Purpose::Duty { .. }, _) => wrong("a duty is a contract call".to_owned()),
    }
}

fn destination_rule(chain: &ChainPolicy, request: &SigningRequest, derived: &Derived) -> Outcome {
    let refuse =
        |reason, detail: String| Err(Refusal::of_field(Rule::Destination, reason, "tx_intent.to", detail));
    if let Action::Call(call) = &request.action {
        let allowed = chain.duties.iter().any(|duty| {
            duty.contract == call.contract
                && call.data.first_chunk().is_some_and(|method| duty.selectors.contains(method))
        });
        return match allowed {
            true => Ok("the contract and method are listed"),
            false => refuse("destination.method", "the contract or method is not listed".to_owned()),
        };
    }
    let Some(Transfer { to, .. }) = request.transfer() else {
        return Ok("a cancellation goes home");
    };
    if to.is_zero() {
        return refuse("destination.zero", "the zero address burns what it receives".to_owned());
    }
    if to == derived.from {
        return refuse("destination.self", "the wallet would pay itself".to_owned());
    }
    if chain.assets.values().any(|asset| asset.contract == Some(to)) {
        return refuse("destination.contract", "a token's contract keeps what it receives".to_owned());
    }
    match (&request.purpose, derived.top_up) {
        (Purpose::TopUp { .. }, Some((expected, GroupPurpose::Deposit))) if expected == to => {
            Ok("the destination is a derived deposit wallet")
        }
        (Purpose::TopUp { .. }, Some((expected, GroupPurpose::Deposit))) => {
            refuse("destination.top_up", format!("that group and index are {expected}"))
        }
        (Purpose::TopUp { .. }, _) => {
            refuse("destination.top_up", "top-ups go to deposit wallets of this signer only".to_owned())
        }
        (Purpose::Withdrawal { .. } | Purpose::Sweep { .. } | Purpose::Duty { .. }, _) => {
            Ok("the destination is a usable address")
        }
    }
}

fn fee_rule(chain: &ChainPolicy, cost: RawAmount) -> Outcome {
    if cost > chain.max_fee {
        let detail = format!("may cost {cost}, more than {}", chain.max_fee);
        return Err(Refusal::of_field(Rule::Fee, "fee.cap", "parameters", detail));
    }
    Ok("the fee is below the chain's cap")
}

fn transaction_limit_rule(
    chain: &ChainPolicy,
    asset: Option<&AssetPolicy>,
    request: &SigningRequest,
) -> Outcome {
    let Some(Transfer { amount, .. }) = request.transfer() else {
        return Ok("moves no amount");
    };
    let limit = match (&request.purpose, asset) {
        (Purpose::Withdrawal { .. }, Some(asset)) => asset.max_transaction,
        // An unknown asset is refused by its own rule; a limit of zero keeps this one from admitting it.
        (Purpose::Withdrawal { .. }, None) => RawAmount::ZERO,
        (Purpose::TopUp { .. }, _) => chain.max_top_up.unwrap_or(RawAmount::ZERO),
        (Purpose::Sweep { .. } | Purpose::Duty { .. }, _) => return Ok("stays among our own wallets"),
    };
    if amount > limit {
        let detail = format!("{amount} is above {limit}, the most of one {}", request.purpose.into_str());
        return Err(Refusal::of_field(Rule::LimitTransaction, "limit.transaction", "amount", detail));
    }
    Ok("the amount is within the limit of one transaction")
}

/// The signatures a request depends on, so that those of many requests can be checked as a batch.
pub(crate) fn claims(policy: &Policy, request: &SigningRequest) -> Vec<SignatureClaim> {
    consent(request).map(|consent| consent.claims(policy)).unwrap_or_default()
}

/// What approvers must have signed; `None` where nobody has to.
fn consent(request: &SigningRequest) -> Option<Consent<'_>> {
    let Purpose::Withdrawal { id, asset, approvals, .. } = &request.purpose else { return None };
    let Transfer { to, amount, .. } = request.transfer()?;
    let payment = types::Payment { id: *id, chain: &request.chain, asset, destination: &to, amount };
    Some(Consent { digest: PaymentDigest::compute(&payment), proofs: approvals })
}

fn approvals_rule(
    policy: &Policy,
    request: &SigningRequest,
    verified: &VerifiedSignatures,
    quorum: &mut Option<Quorum>,
) -> Outcome {
    let Purpose::Withdrawal { asset, requested_by, on_behalf_of, .. } = &request.purpose else {
        return Ok("needs no approvals");
    };
    let (Some(consent), Some(Transfer { amount, .. })) = (consent(request), request.transfer()) else {
        return Ok("a cancellation needs no approvals");
    };
    let asset = policy.chains.get(&request.chain).and_then(|chain| chain.assets.get(asset));
    let required = asset.map_or(u32::MAX, |asset| asset.approvals_for(amount));
    let requesters = [requested_by.as_str(), on_behalf_of.as_str()];
    *quorum = Some(Quorum::verify(policy, &consent, requesters, required, verified)?);
    Ok("every signature is for exactly this payment")
}

fn void_rule(policy: &Policy, request: &SigningRequest, void: &mut Option<VerifiedVoid>) -> Outcome {
    let Some(attestation) = &request.void else {
        return Ok("no attestation was given");
    };
    let proof = attestation.verify(&policy.confirmation_keys).map_err(|error| {
        let field = "authorization.void_attestation";
        Refusal::of_field(Rule::VoidAttestation, error.into_str(), field, error.to_string())
    })?;
    *void = Some(proof);
    Ok("signed by the confirmation service")
}

fn charge(chain: &ChainPolicy, asset: Option<&AssetPolicy>, request: &SigningRequest) -> Option<Charge> {
    let amount = request.transfer()?.amount;
    let (counter, limit) = match &request.purpose {
        Purpose::Withdrawal { asset: symbol, .. } => (format!("withdrawal/{symbol}"), asset?.window?),
        Purpose::TopUp { .. } => ("top_up".to_owned(), chain.top_up_window?),
        Purpose::Sweep { .. } | Purpose::Duty { .. } => return None,
    };
    Some(Charge { counter, amount, limit })
}

fn registration(
    policy: &Policy,
    chain: &ChainPolicy,
    request: &SigningRequest,
    derived: &Derived,
) -> Registration {
    match (&request.purpose, request.cancels()) {
        (_, true) => Registration::Irrelevant,
        (Purpose::Sweep { .. }, false) => Registration::Required(SweepTargets {
            cold: request.transfer().is_some_and(|transfer| chain.cold_storage.contains(&transfer.to)),
            group: derived.sweep_origin.map(|first_address| policy.admits_group(&first_address)),
        }),
        (Purpose::Withdrawal { .. }, false) => Registration::Forbidden,
        (Purpose::TopUp { .. } | Purpose::Duty { .. }, false) => Registration::Irrelevant,
    }
}
