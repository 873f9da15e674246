//! A limit over one rolling window.
//!
//! Owns the rules of a limit. No I/O; what a window contains is added up in SQL, under the locks that `repo` describes.

use std::collections::HashMap;

use rpc::fields::{Violation, Violations};
use types::{Amount, AssetSymbol, ChainName, Decimals, RawAmount, UserId, format_amount, typed_id};

/// Longest window, in seconds: a leap year. The table repeats it.
pub const MAX_WINDOW_SECONDS: i64 = 366 * 24 * 3600;

typed_id!(
    /// A limit.
    LimitId,
    "limit id"
);

/// Whose withdrawals are added up.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Scope {
    /// Those of each customer separately.
    User,
    /// Those of all customers together.
    Asset,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub id: LimitId,
    pub scope: Scope,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub window_seconds: i64,
    pub max: RawAmount,
    pub decimals: Decimals,
}

/// A limit as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitDraft {
    pub scope: Scope,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub window_seconds: i64,
    /// In the asset's unit.
    pub max: String,
}

impl LimitDraft {
    pub fn check(self, decimals: Decimals) -> Result<Limit, Violations> {
        let mut wrong = Violations::default();
        if !(1..=MAX_WINDOW_SECONDS).contains(&self.window_seconds) {
            wrong.push(Violation::new("limit.window", "must be 1 second to 366 days"));
        }
        let max = Amount::parse(&self.max, decimals)
            .map_err(|error| wrong.push(Violation::new("limit.max_amount", error)))
            .unwrap_or(RawAmount::ZERO);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let Self { scope, chain, asset, window_seconds, .. } = self;
        Ok(Limit { id: LimitId::new(), scope, chain, asset, window_seconds, max, decimals })
    }
}

impl Limit {
    pub fn for_user(&self, user: UserId) -> AppliedLimit<'_> {
        AppliedLimit { limit: self, user: (self.scope == Scope::User).then_some(user) }
    }

    /// For error messages.
    pub fn describe(&self) -> String {
        let whose = match self.scope {
            Scope::User => "per customer",
            Scope::Asset => "for all customers",
        };
        let max = format_amount(self.max, self.decimals);
        format!("{max} {} on {} {whose} within {} s", self.asset, self.chain, self.window_seconds)
    }
}

/// A limit, with the customer whose withdrawals it adds up unless it adds up everybody's.
#[derive(Debug, Clone, Copy)]
pub struct AppliedLimit<'a> {
    pub limit: &'a Limit,
    pub user: Option<UserId>,
}

impl AppliedLimit<'_> {
    pub fn key(&self) -> (LimitId, Option<UserId>) {
        (self.limit.id, self.user)
    }

    /// Only one transaction at a time may add to what this names; it is hashed into an advisory lock.
    pub fn lock_name(&self) -> String {
        let Limit { chain, asset, .. } = self.limit;
        match self.user {
            Some(user) => format!("limit/user/{chain}/{asset}/{user}"),
            None => format!("limit/asset/{chain}/{asset}"),
        }
    }
}

/// What is left under limits, while their locks are held. A limit that is not in here has nothing left.
#[derive(Debug, Default)]
pub struct Headroom(HashMap<(LimitId, Option<UserId>), RawAmount>);

impl Headroom {
    pub fn set(&mut self, limit: &AppliedLimit<'_>, left: RawAmount) {
        self.0.insert(limit.key(), left);
    }

    pub fn fits(&self, limit: &AppliedLimit<'_>, amount: RawAmount) -> bool {
        self.0.get(&limit.key()).is_some_and(|left| amount <= *left)
    }

    /// Takes an amount that fits.
    pub fn take(&mut self, limit: &AppliedLimit<'_>, amount: RawAmount) {
        if let Some(left) = self.0.get_mut(&limit.key()) {
            *left = left.checked_sub(amount).unwrap_or(RawAmount::ZERO);
        }
    }
}
