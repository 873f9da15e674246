//! A withdrawal request and its values, and the hash that binds an idempotency key to them.
//!
//! Owns the rules for single fields. No I/O; it knows no catalogue, limit or policy.

pub mod draft;
pub mod import;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use rpc::fields::Violation;
use sha2::{Digest as _, Sha256};
use types::{
    Address, AssetSymbol, ChainName, Decimals, Payment, PaymentDigest, Priority, RawAmount, TxHash, UserId,
    WithdrawalId, format_amount,
};

use super::approval::Approval;
use super::domain::{State, Transition};

/// The keys of imported requests begin with this; callers cannot use it.
pub const IMPORT_KEY_PREFIX: &str = "import:";
pub const MAX_KEY_CHARS: usize = 128;
pub const MAX_MEMO_CHARS: usize = 500;
pub const MAX_REASON_CHARS: usize = 500;
pub const MAX_LABELS: usize = 16;
pub const MAX_LABEL_CHARS: usize = 128;
pub const MAX_NAME_CHARS: usize = 128;

/// The caller's own name for a request. It is never freed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub fn parse(text: &str) -> Result<Self, Violation> {
        let refuse = |why: &str| Err(Violation::new("idempotency_key", why));
        let length = text.chars().count();
        if length == 0 || length > MAX_KEY_CHARS {
            return refuse("must have 1 to 128 characters");
        }
        // With spaces at the ends or control characters, two different keys could look alike.
        if text.chars().any(|c| !(' '..='~').contains(&c)) || text.trim() != text {
            return refuse("must be printable ASCII, without spaces at its ends");
        }
        if text.starts_with(IMPORT_KEY_PREFIX) {
            return refuse("must not begin with `import:`, which is kept for imported withdrawals");
        }
        Ok(Self(text.to_owned()))
    }

    pub fn of_import(id: WithdrawalId) -> Self {
        Self(format!("{IMPORT_KEY_PREFIX}{id}"))
    }

    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Free text is bounded and contains nothing that breaks a terminal or a log.
pub fn check_text(field: &str, text: &str, max_chars: usize) -> Result<(), Violation> {
    if text.chars().count() > max_chars {
        return Err(Violation::new(field, format_args!("must have at most {max_chars} characters")));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(Violation::new(field, "must not contain control characters"));
    }
    Ok(())
}

/// The name of the person a request is for is compared with approvers' names, so it must have only one spelling.
pub fn check_name(field: &str, name: &str) -> Result<(), Violation> {
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(Violation::new(field, format_args!("must have at most {MAX_NAME_CHARS} characters")));
    }
    if name.chars().any(|c| !(' '..='~').contains(&c)) || name.trim() != name {
        return Err(Violation::new(field, "must be printable ASCII, without spaces at its ends"));
    }
    Ok(())
}

pub fn check_labels(labels: &BTreeMap<String, String>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if labels.len() > MAX_LABELS {
        violations.push(Violation::new("labels", format_args!("must be at most {MAX_LABELS}")));
    }
    for (key, value) in labels.iter().take(MAX_LABELS) {
        if key.is_empty() {
            violations.push(Violation::new("labels", "must not have an empty name"));
        }
        violations.extend(check_text("labels", key, MAX_LABEL_CHARS).err());
        violations.extend(check_text("labels", value, MAX_LABEL_CHARS).err());
    }
    violations
}

/// Everything that the caller chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    pub user_id: UserId,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub amount: RawAmount,
    /// The asset's decimals when the request was made.
    pub decimals: Decimals,
    pub destination: Address,
    pub memo: String,
    pub priority: Priority,
    pub labels: BTreeMap<String, String>,
    /// The person the caller acts for; empty when nobody was named.
    pub on_behalf_of: String,
}

impl Payload {
    pub fn digest(&self, id: WithdrawalId) -> PaymentDigest {
        PaymentDigest::compute(&Payment {
            id,
            chain: &self.chain,
            asset: &self.asset,
            destination: &self.destination,
            amount: self.amount,
        })
    }

    pub fn amount_text(&self) -> String {
        format_amount(self.amount, self.decimals)
    }

    /// The hash stored beside the key. Each field is preceded by its length, so that no two payloads share the same bytes.
    pub fn hash(&self, requested_by: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        field("bursar/withdrawal-request/v1");
        field(requested_by);
        field(&self.user_id.to_string());
        field(self.chain.as_str());
        field(self.asset.as_str());
        field(&self.amount.to_string());
        field(&self.destination.to_string());
        field(&self.memo);
        field(self.priority.as_str());
        for (key, value) in &self.labels {
            field(key);
            field(value);
        }
        // Written only where it is used, so that requests from before this field keep their hash. Labels are pairs, so three
        // fields cannot be mistaken for labels.
        if !self.on_behalf_of.is_empty() {
            field("on_behalf_of");
            field(&self.on_behalf_of);
            field("");
        }
        hash.finalize().into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Origin {
    /// Made by a caller of this service.
    Request,
    /// Another system had already broadcast the payment.
    Import(ImportedPayment),
}

/// What the other system reported about its payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportedPayment {
    pub from_address: Address,
    pub tx_hash: TxHash,
}

/// A stored request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    pub id: WithdrawalId,
    pub origin: Origin,
    pub key: IdempotencyKey,
    pub payload: Payload,
    pub requested_by: String,
    pub required_approvals: u32,
    pub approvals: Vec<Approval>,
    pub state: State,
    /// Sequence of the newest transition; every change is a compare-and-set on it.
    pub sequence: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Withdrawal {
    /// What approvers sign.
    pub fn digest(&self) -> PaymentDigest {
        self.payload.digest(self.id)
    }

    /// The first entry of its history.
    pub fn first_transition(&self) -> Transition {
        let payload = &self.payload;
        let detail = match &self.origin {
            Origin::Request => {
                format!("requested {} {} on {}", payload.amount_text(), payload.asset, payload.chain)
            }
            Origin::Import(payment) => {
                format!("imported from another system, broadcast as {}", payment.tx_hash)
            }
        };
        Transition {
            sequence: 1,
            from: None,
            to: self.state.status(),
            actor: self.requested_by.clone(),
            detail,
            at: self.updated_at,
        }
    }

    /// Moves to `state`, or stays in it if `None`, and returns the new entry of the history.
    pub fn record(
        &mut self,
        state: Option<State>,
        actor: &str,
        detail: String,
        now: DateTime<Utc>,
    ) -> Transition {
        let from = self.state.status();
        if let Some(state) = state {
            self.state = state;
        }
        self.sequence += 1;
        self.updated_at = now;
        let (sequence, to) = (self.sequence, self.state.status());
        Transition { sequence, from: Some(from), to, actor: actor.to_owned(), detail, at: now }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn payload() -> Payload {
        Payload {
            user_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            chain: "bsc".parse().unwrap(),
            asset: "USDT".parse().unwrap(),
            amount: RawAmount::from(5_u64),
            decimals: Decimals::new(18).unwrap(),
            destination: "0x52908400098527886E0F7030069857D2E4169EE7".parse().unwrap(),
            memo: String::new(),
            priority: Priority::Normal,
            labels: BTreeMap::new(),
            on_behalf_of: String::new(),
        }
    }

    #[test]
    fn every_field_a_caller_chose_changes_the_hash() {
        let base = payload().hash("alice");
        assert_eq!(payload().hash("alice"), base);
        assert_ne!(payload().hash("bob"), base);
        let changes: [fn(&mut Payload); 9] = [
            |p| p.user_id = UserId::new(),
            |p| p.chain = "bsc-2".parse().unwrap(),
            |p| p.asset = "USDC".parse().unwrap(),
            |p| p.amount = RawAmount::from(6_u64),
            |p| p.destination = "0x8617E340B3D01FA5F11F306F4090FD50E238070D".parse().unwrap(),
            |p| p.memo = "x".to_owned(),
            |p| p.priority = Priority::High,
            |p| p.labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            |p| p.on_behalf_of = "carol".to_owned(),
        ];
        for change in changes {
            let mut other = payload();
            change(&mut other);
            assert_ne!(other.hash("alice"), base, "{other:?}");
        }
        let (mut one, mut two) = (payload(), payload());
        one.labels = BTreeMap::from([("ab".to_owned(), "c".to_owned())]);
        two.labels = BTreeMap::from([("a".to_owned(), "bc".to_owned())]);
        assert_ne!(one.hash("alice"), two.hash("alice"));
    }

    #[test]
    fn keys_have_one_spelling() {
        for good in ["a", "order-1", "a b", &"x".repeat(128)] {
            assert_eq!(IdempotencyKey::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", " a", "a ", "a\n", "a\u{0}", "ключ", "import:1", &"x".repeat(129)] {
            assert!(IdempotencyKey::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_and_texts_are_bounded() {
        let many: BTreeMap<_, _> = (0..17).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(check_labels(&many).len(), 1);
        assert!(!check_labels(&BTreeMap::from([(String::new(), "x".to_owned())])).is_empty());
        assert!(!check_labels(&BTreeMap::from([("x".repeat(129), String::new())])).is_empty());
        assert!(check_text("memo", &"é".repeat(500), 500).is_ok());
        assert!(check_text("memo", &"é".repeat(501), 500).is_err());
        assert!(check_text("memo", "\u{1b}[2J", 500).is_err());
    }
}
