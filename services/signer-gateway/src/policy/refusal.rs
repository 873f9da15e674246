//! What a rule says about a request: stable names for machines, a sentence for people.

use std::fmt;

/// The rules, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    Caller,
    Freeze,
    Fence,
    /// Same key, same request.
    Idempotency,
    /// The chain is known and the parameters are its own.
    Chain,
    /// The paying wallet may pay this kind of thing.
    Source,
    /// The asset is known and the action is that asset's transfer.
    Asset,
    /// Where the money goes.
    Destination,
    Fee,
    Approvals,
    VoidAttestation,
    LimitTransaction,
    LimitWindow,
    PaymentGuard,
}

impl Rule {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Freeze => "freeze",
            Self::Fence => "fence",
            Self::Idempotency => "idempotency",
            Self::Chain => "chain",
            Self::Source => "source",
            Self::Asset => "asset",
            Self::Destination => "destination",
            Self::Fee => "fee",
            Self::Approvals => "approvals",
            Self::VoidAttestation => "void_attestation",
            Self::LimitTransaction => "limit/transaction",
            Self::LimitWindow => "limit/window",
            Self::PaymentGuard => "payment_guard",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub rule: Rule,
    /// Stable reason, e.g. `payment_guard.second_nonce`.
    pub reason: &'static str,
    /// A sentence for people; names no secret.
    pub detail: String,
    /// The request's field at fault, where there is one.
    pub field: Option<&'static str>,
}

impl Refusal {
    pub fn new(rule: Rule, reason: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, reason, detail: detail.into(), field: None }
    }

    pub fn of_field(
        rule: Rule,
        reason: &'static str,
        field: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: Some(field), ..Self::new(rule, reason, detail) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: Rule,
    /// Why it admits the request, or its refusal.
    pub outcome: Result<&'static str, Refusal>,
}

impl Finding {
    pub fn admits(rule: Rule, why: &'static str) -> Self {
        Self { rule, outcome: Ok(why) }
    }
}

impl From<Refusal> for Finding {
    fn from(refusal: Refusal) -> Self {
        Self { rule: refusal.rule, outcome: Err(refusal) }
    }
}
