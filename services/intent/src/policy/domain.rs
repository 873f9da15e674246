//! The approval policy of one asset.
//!
//! Owns its rules. No I/O; it never counts approvals.
//!
//! Invariants: tiers ascend from 0, so every amount has exactly one; the listed approvers are enough persons for every tier.

use rpc::fields::{Violation, Violations};
use types::{Amount, AssetSymbol, ChainName, Decimals, MOST_APPROVALS, RawAmount};

use crate::approvers::Approvers;

pub const MAX_TIERS: usize = 16;
pub const MAX_APPROVERS: usize = MOST_APPROVALS as usize;

/// From this amount on, so many approvals are required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    pub from: RawAmount,
    pub required: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub decimals: Decimals,
    /// Ascending, the first from 0.
    pub tiers: Vec<Tier>,
    /// Empty admits every approver.
    pub approvers: Vec<String>,
}

/// A policy as an operator writes it, with amounts in the asset's unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDraft {
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub tiers: Vec<(String, u32)>,
    pub approvers: Vec<String>,
}

impl PolicyDraft {
    pub fn check(self, decimals: Decimals, known: &Approvers) -> Result<Policy, Violations> {
        let mut wrong = Violations::default();
        let mut tiers: Vec<Tier> = Vec::new();
        if self.tiers.is_empty() || self.tiers.len() > MAX_TIERS {
            wrong.push(Violation::new("policy.tiers", format_args!("must be 1 to {MAX_TIERS}")));
        }
        for (index, (from, required)) in self.tiers.iter().enumerate() {
            match Amount::parse(from, decimals) {
                Ok(from) => tiers.push(Tier { from, required: *required }),
                Err(error) => wrong.push(Violation::new(format!("policy.tiers[{index}].from_amount"), error)),
            }
        }
        if wrong.is_empty() && !tiers[0].from.is_zero() {
            wrong.push(Violation::new(
                "policy.tiers[0].from_amount",
                "must be 0, so that every amount has a tier",
            ));
        }
        for (index, pair) in tiers.windows(2).enumerate() {
            if pair[0].from >= pair[1].from {
                let field = format!("policy.tiers[{}].from_amount", index + 1);
                wrong.push(Violation::new(field, "must be more than that of the tier before"));
            }
        }
        wrong.extend(check_approvers(&self.approvers, known));
        // Persons are counted, not names, because one person counts once.
        let voters = known.persons(&self.approvers);
        for (index, tier) in tiers.iter().enumerate() {
            let field = || format!("policy.tiers[{index}].required_approvals");
            if tier.required == 0 {
                wrong.push(Violation::new(field(), "must be at least 1"));
            } else if tier.required > u32::from(MOST_APPROVALS) {
                wrong.push(Violation::new(field(), format_args!("must be at most {MOST_APPROVALS}")));
            } else if usize::try_from(tier.required).map_or(true, |required| required > voters) {
                wrong.push(Violation::new(
                    field(),
                    format_args!("can never be reached by approvers who are {voters} persons"),
                ));
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let Self { chain, asset, approvers, .. } = self;
        Ok(Policy { chain, asset, decimals, tiers, approvers })
    }
}

fn check_approvers(names: &[String], known: &Approvers) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if names.len() > MAX_APPROVERS {
        wrong.push(Violation::new("policy.approvers", format_args!("must be at most {MAX_APPROVERS}")));
    }
    for (index, name) in names.iter().enumerate().take(MAX_APPROVERS) {
        let field = format!("policy.approvers[{index}]");
        if !known.is_known(name) {
            wrong.push(Violation::new(field, "is not an approver with a configured public key"));
        } else if names[..index].contains(name) {
            wrong.push(Violation::new(field, "is named twice"));
        }
    }
    wrong
}

impl Policy {
    /// How many approvals this amount requires.
    pub fn required_for(&self, amount: RawAmount) -> Option<u32> {
        self.tiers.iter().rev().find(|tier| tier.from <= amount).map(|tier| tier.required)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ed25519_dalek::SigningKey;

    use super::*;
    use crate::approvers::Approver;

    fn known(names: &[&str]) -> Approvers {
        let key = |n: usize| SigningKey::from_bytes(&[u8::try_from(n + 1).unwrap(); 32]).verifying_key();
        let approver = |(n, name): (usize, &&str)| {
            let name = (*name).to_owned();
            (name.clone(), Approver { key: key(n), person: name })
        };
        Approvers::new(BTreeMap::from_iter(names.iter().enumerate().map(approver)))
    }

    fn draft(tiers: &[(&str, u32)], approvers: &[&str]) -> PolicyDraft {
        PolicyDraft {
            chain: "bsc".parse().unwrap(),
            asset: "USDT".parse().unwrap(),
            tiers: tiers.iter().map(|(from, required)| ((*from).to_owned(), *required)).collect(),
            approvers: approvers.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn check(tiers: &[(&str, u32)], approvers: &[&str]) -> Result<Policy, Violations> {
        draft(tiers, approvers).check(Decimals::new(2).unwrap(), &known(&["ann", "bob", "cid"]))
    }

    #[test]
    fn an_amount_has_the_last_tier_at_or_below_it() {
        let policy = check(&[("0", 1), ("10", 2), ("100.5", 3)], &[]).unwrap();
        for (raw, required) in [(0_u64, 1), (999, 1), (1000, 2), (10_049, 2), (10_050, 3), (u64::MAX, 3)] {
            assert_eq!(policy.required_for(RawAmount::from(raw)), Some(required), "{raw}");
        }
    }

    #[test]
    fn a_policy_that_cannot_work_is_refused() {
        for (tiers, approvers) in [
            (&[][..], &[][..]),
            (&[("1", 1)], &[]),
            (&[("0", 0)], &[]),
            (&[("0", 4)], &[]),
            (&[("0", 2)], &["ann"]),
            (&[("0", 1)], &["zoe"]),
            (&[("0", 1)], &["ann", "ann"]),
            (&[("0", 1), ("0", 2)], &[]),
            (&[("0", 1), ("5", 2), ("4", 3)], &[]),
            (&[("0", 1), ("1.005", 2)], &[]),
            (&[("0", 1), ("-1", 2)], &[]),
        ] {
            assert!(check(tiers, approvers).is_err(), "{tiers:?} {approvers:?}");
        }
        assert_eq!(
            check(&[("1", 0), ("x", 1)], &["zoe"]).unwrap_err().iter().len(),
            3,
            "all mistakes at once"
        );
    }

    #[test]
    fn two_names_of_one_person_are_one_approver() {
        let key = |n: u8| SigningKey::from_bytes(&[n; 32]).verifying_key();
        let of = |n: u8, person: &str| Approver { key: key(n), person: person.to_owned() };
        let known = Approvers::new(BTreeMap::from([
            ("ann".to_owned(), of(1, "ann")),
            ("ann-2".to_owned(), of(2, "ann")),
            ("bob".to_owned(), of(3, "bob")),
        ]));
        let decimals = Decimals::new(2).unwrap();
        let check = |required, names: &[&str]| draft(&[("0", required)], names).check(decimals, &known);
        let refused = check(2, &["ann", "ann-2"]).unwrap_err();
        assert_eq!(refused.iter().next().unwrap().field, "policy.tiers[0].required_approvals");
        assert!(check(3, &[]).is_err(), "also where everybody may approve");
        assert!(check(2, &[]).is_ok() && check(2, &["ann", "ann-2", "bob"]).is_ok());
        assert!(check(1, &["ann", "ann-2"]).is_ok());
    }
}
