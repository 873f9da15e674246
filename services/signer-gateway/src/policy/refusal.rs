//! What a rule says about a request: stable names for machines, a sentence for people.

/// The rules, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
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
    #[strum(serialize = "limit/transaction")]
    LimitTransaction,
    #[strum(serialize = "limit/window")]
    LimitWindow,
    PaymentGuard,
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

/// Why a rule admits a request, or its refusal.
pub type Outcome = Result<&'static str, Refusal>;

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
    pub outcome: Outcome,
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
