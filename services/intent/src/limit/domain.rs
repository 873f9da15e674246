//! One ceiling over one rolling window.
//!
//! Owns the rules of a limit. No I/O; adding up what a window holds is SQL's, under the lock that `repo` describes.

use std::collections::HashMap;
use std::fmt;

use types::{Amount, AssetSymbol, ChainName, Decimals, RawAmount, UserId, format_amount, typed_id};

use crate::violation::Violation;

/// Longest window, in seconds: a leap year. The table repeats it.
pub const MAX_WINDOW_SECONDS: i64 = 366 * 24 * 3600;

typed_id!(
    /// A limit.
    LimitId,
    "limit id"
);

/// Whose withdrawals are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Each customer alone.
    User,
    /// All customers together.
    Asset,
}

impl Scope {
    /// As the table spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Asset => "asset",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
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
pub struct Draft {
    pub scope: Scope,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub window_seconds: i64,
    /// In the asset's unit.
    pub max: String,
}

impl Draft {
    /// Checks a draft against the asset's decimals.
    pub fn check(self, decimals: Decimals) -> Result<Limit, Vec<Violation>> {
        let mut wrong = Vec::new();
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
    /// What must not be added to by two at a time: the text that is hashed into an advisory lock.
    pub fn lock_name(&self, user: UserId) -> String {
        match self.scope {
            Scope::User => format!("limit/user/{}/{}/{user}", self.chain, self.asset),
            Scope::Asset => format!("limit/asset/{}/{}", self.chain, self.asset),
        }
    }

    /// This limit, as it is counted for a customer.
    pub fn whose(&self, user: UserId) -> Whose<'_> {
        Whose { limit: self, user: (self.scope == Scope::User).then_some(user) }
    }

    /// In words, for refusals.
    pub fn describe(&self) -> String {
        let whose = match self.scope {
            Scope::User => "per customer",
            Scope::Asset => "for all customers",
        };
        let max = format_amount(self.max, self.decimals);
        format!("{max} {} on {} {whose} within {} s", self.asset, self.chain, self.window_seconds)
    }
}

/// A limit and the customer it is counted for, if it is counted for each.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    pub limit: &'a Limit,
    pub user: Option<UserId>,
}

impl Whose<'_> {
    /// What tells two of them apart.
    pub fn key(&self) -> (LimitId, Option<UserId>) {
        (self.limit.id, self.user)
    }
}

/// What is left under limits, while their locks are held.
#[derive(Debug, Default)]
pub struct Room(HashMap<(LimitId, Option<UserId>), RawAmount>);

impl Room {
    /// Notes what is left. Where nothing is noted, nothing is.
    pub fn note(&mut self, whose: &Whose<'_>, left: RawAmount) {
        self.0.insert(whose.key(), left);
    }

    /// Whether an amount still fits.
    pub fn holds(&self, whose: &Whose<'_>, amount: RawAmount) -> bool {
        self.0.get(&whose.key()).is_some_and(|left| amount <= *left)
    }

    /// Takes an amount that fits.
    pub fn take(&mut self, whose: &Whose<'_>, amount: RawAmount) {
        if let Some(left) = self.0.get_mut(&whose.key()) {
            *left = left.checked_sub(amount).unwrap_or(RawAmount::ZERO);
        }
    }
}
