//! A request as the caller sent it, not yet parsed.
//!
//! Owns parsing it: first the fields that need no catalogue, then those that depend on the asset (amount) and the chain
//! (destination). All mistakes are collected. It also compares a repeated request with the stored one. No I/O.

use std::collections::BTreeMap;

use rpc::fields::{Violation, Violations};
use types::{Address, Amount, AssetSymbol, ChainName, Priority, UserId};

use super::{MAX_MEMO_CHARS, Payload, Withdrawal, check_labels, check_name, check_text};
use crate::catalogue::CatalogueEntry;
use crate::withdrawal::error::WithdrawalError;

/// Amount and destination stay text until the catalogue entry says how to parse them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithdrawalDraft {
    pub idempotency_key: String,
    pub user_id: String,
    pub chain: String,
    pub asset: String,
    pub amount: String,
    pub destination: String,
    pub memo: String,
    /// `None` when the caller sent an unknown priority.
    pub priority: Option<Priority>,
    pub labels: BTreeMap<String, String>,
    pub on_behalf_of: String,
}

/// The fields that need no catalogue; `None` for each that is wrong.
#[derive(Debug)]
pub struct ParsedNames {
    pub user_id: Option<UserId>,
    pub chain: Option<ChainName>,
    pub asset: Option<AssetSymbol>,
}

impl WithdrawalDraft {
    /// Adds mistakes to `wrong`.
    pub fn parse_names(&self, wrong: &mut Violations) -> ParsedNames {
        fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
            field: &str,
            text: &str,
            wrong: &mut Violations,
        ) -> Option<T> {
            text.parse().map_err(|error| wrong.push(Violation::new(field, error))).ok()
        }
        let names = ParsedNames {
            user_id: parse("user_id", &self.user_id, wrong),
            chain: parse("chain", &self.chain, wrong),
            asset: parse("asset", &self.asset, wrong),
        };
        wrong.extend(check_text("memo", &self.memo, MAX_MEMO_CHARS).err());
        wrong.extend(check_labels(&self.labels));
        wrong.extend(check_name("on_behalf_of", &self.on_behalf_of).err());
        if self.priority.is_none() {
            wrong.push(Violation::new("priority", "is not a known priority"));
        }
        names
    }

    /// Parses what depends on the asset. The destination is already parsed, because its kind had to be looked up. `None` when
    /// `wrong` contains anything.
    pub fn parse_payload(
        &self,
        user_id: Option<UserId>,
        entry: &CatalogueEntry,
        destination: Result<Address, String>,
        wrong: &mut Violations,
    ) -> Option<Payload> {
        if !entry.enabled {
            let text = format!("withdrawals of {} on {} are not enabled", entry.asset, entry.chain);
            wrong.push(Violation::new("asset", text));
        }
        let amount = entry
            .parse_amount(&self.amount)
            .and_then(|amount| entry.check_minimum(amount).map(|()| amount))
            .map_err(|why| wrong.push(Violation::new("amount", why)))
            .ok();
        let destination = destination.map_err(|why| wrong.push(Violation::new("destination", why))).ok();
        if !wrong.is_empty() {
            return None;
        }
        Some(Payload {
            user_id: user_id?,
            chain: entry.chain.clone(),
            asset: entry.asset.clone(),
            amount: amount?,
            decimals: entry.decimals,
            destination: destination?,
            memo: self.memo.clone(),
            priority: self.priority?,
            labels: self.labels.clone(),
            on_behalf_of: self.on_behalf_of.clone(),
        })
    }

    /// The stored request, if this one is a repetition of it.
    pub fn replay(&self, stored: &Withdrawal, requested_by: &str) -> Result<Withdrawal, WithdrawalError> {
        let fields = self.differences(stored, requested_by);
        if fields.is_empty() { Ok(stored.clone()) } else { Err(WithdrawalError::KeyReused { fields }) }
    }

    /// The fields that differ from a stored request. Texts are parsed with the stored request's own format, so `1.50` equals
    /// `1.5`, an address in lower case is the same address, and later changes of the catalogue do not matter.
    fn differences(&self, stored: &Withdrawal, requested_by: &str) -> Vec<&'static str> {
        let payload = &stored.payload;
        let destination = Address::parse(payload.destination.format(), &self.destination);
        let same = [
            ("user_id", self.user_id.parse() == Ok(payload.user_id)),
            ("chain", self.chain == payload.chain.as_str()),
            ("asset", self.asset == payload.asset.as_str()),
            ("amount", Amount::parse(&self.amount, payload.decimals) == Ok(payload.amount)),
            ("destination", destination == Ok(payload.destination)),
            ("memo", self.memo == payload.memo),
            ("priority", self.priority == Some(payload.priority)),
            ("labels", self.labels == payload.labels),
            ("on_behalf_of", self.on_behalf_of == payload.on_behalf_of),
            // Knowing another caller's key must not show that caller's request.
            ("requested_by", requested_by == stored.requested_by),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
    }
}
