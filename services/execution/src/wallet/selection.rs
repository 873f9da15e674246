//! Which wallet pays. Pure: the same candidates and amounts give the same choice.
//!
//! Order: the one that rested longest (never used first), then the one with least reserved, then by id. Only a wallet
//! whose balance exceeds what is reserved by at least the amount is looked at.
//!
//! Invariant: after any series of choices no candidate has more newly reserved than it had free.

use chrono::{DateTime, Utc};
use types::{RawAmount, WalletId};

/// A wallet that could pay, with its holding of the asset in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub wallet: WalletId,
    pub last_used_at: Option<DateTime<Utc>>,
    pub balance: RawAmount,
    pub reserved: RawAmount,
}

/// A wallet chosen, and since when it counts as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub wallet: WalletId,
    pub used_at: DateTime<Utc>,
}

impl Candidate {
    fn can_pay(&self, amount: RawAmount) -> bool {
        self.reserved.checked_add(amount).is_some_and(|spoken_for| spoken_for <= self.balance)
    }
}

/// Chooses the payer and books the amount with it. `now` is the database's time; several choices under one `now` still
/// follow each other, because each counts as used a little later than the one before.
pub fn choose(candidates: &mut [Candidate], amount: RawAmount, now: DateTime<Utc>) -> Option<Choice> {
    let newest = candidates.iter().filter_map(|candidate| candidate.last_used_at).max();
    let chosen = candidates
        .iter_mut()
        .filter(|candidate| candidate.can_pay(amount))
        .min_by_key(|candidate| (candidate.last_used_at, candidate.reserved, candidate.wallet))?;
    let after = newest.map_or(now, |newest| now.max(newest + chrono::TimeDelta::microseconds(1)));
    chosen.reserved = chosen.reserved.checked_add(amount)?;
    chosen.last_used_at = Some(after);
    Some(Choice { wallet: chosen.wallet, used_at: after })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).expect("a time")
    }

    fn wallet(n: u128, last_used: Option<i64>, balance: u64, reserved: u64) -> Candidate {
        Candidate {
            wallet: WalletId::from_uuid(uuid::Uuid::from_u128(n)),
            last_used_at: last_used.map(at),
            balance: balance.into(),
            reserved: reserved.into(),
        }
    }

    fn chosen(candidates: &mut [Candidate], amount: u64) -> Option<u128> {
        choose(candidates, amount.into(), at(1_000)).map(|choice| choice.wallet.as_uuid().as_u128())
    }

    #[test]
    fn never_used_first_then_longest_rested_then_least_reserved_then_id() {
        let mut all = [wallet(3, Some(5), 100, 0), wallet(2, None, 100, 50), wallet(1, None, 100, 60)];
        assert_eq!(chosen(&mut all, 10), Some(2));
        assert_eq!(chosen(&mut all, 10), Some(1));
        assert_eq!(chosen(&mut all, 10), Some(3));
        assert_eq!(chosen(&mut all, 10), Some(2), "all used now: the one that rested longest");
        let mut equal = [wallet(9, Some(1), 10, 0), wallet(8, Some(1), 10, 0)];
        assert_eq!(chosen(&mut equal, 1), Some(8));
    }

    #[test]
    fn only_what_is_free_counts() {
        let mut one = [wallet(1, None, 100, 95)];
        assert_eq!(chosen(&mut one, 6), None);
        assert_eq!(chosen(&mut one, 5), Some(1));
        assert_eq!(chosen(&mut one, 1), None);
        let mut overdrawn = [wallet(1, None, 10, 30)];
        assert_eq!(chosen(&mut overdrawn, 1), None);
    }

    proptest! {
        #[test]
        fn nothing_is_ever_promised_twice(
            balances in prop::collection::vec((0u64..1_000, 0u64..1_000), 1..6),
            amounts in prop::collection::vec(1u64..400, 0..60),
        ) {
            let mut all: Vec<Candidate> = balances
                .iter()
                .enumerate()
                .map(|(n, (balance, reserved))| wallet(n as u128, None, *balance, *reserved))
                .collect();
            let before = all.clone();
            for amount in amounts {
                chosen(&mut all, amount);
            }
            for (before, after) in before.iter().zip(&all) {
                let untouched = after.reserved == before.reserved;
                prop_assert!(untouched || after.reserved <= after.balance);
            }
        }
    }
}
