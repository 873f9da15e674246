//! A request as a caller wrote it, before anybody knows what its texts mean.
//!
//! Owns reading it: the fields that stand alone, then those that depend on the asset (amount) and chain (destination). All
//! mistakes are collected. Also compares a repeated request with what is stored. No I/O.

use std::collections::BTreeMap;

use types::{Address, Amount, AssetSymbol, ChainName, Priority, UserId};

use super::request::{MAX_MEMO_CHARS, Payload, Withdrawal, check_labels, check_name, check_text};
use crate::catalogue::Entry;
use crate::violation::Violation;

/// What a caller asks for. Amount and destination stay texts until the catalogue says how to read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub idempotency_key: String,
    pub user_id: String,
    pub chain: String,
    pub asset: String,
    pub amount: String,
    pub destination: String,
    pub memo: String,
    /// `None` when the caller sent a number that names no priority.
    pub priority: Option<Priority>,
    pub labels: BTreeMap<String, String>,
    pub on_behalf_of: String,
}

/// The fields that stand alone; `None` for each that is wrong.
#[derive(Debug)]
pub struct Names {
    pub user_id: Option<UserId>,
    pub chain: Option<ChainName>,
    pub asset: Option<AssetSymbol>,
}

impl Draft {
    /// Reads what needs no catalogue; mistakes are added to `wrong`.
    pub fn read_names(&self, wrong: &mut Vec<Violation>) -> Names {
        fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
            field: &str,
            text: &str,
            wrong: &mut Vec<Violation>,
        ) -> Option<T> {
            text.parse().map_err(|error| wrong.push(Violation::new(field, error))).ok()
        }
        let names = Names {
            user_id: read("user_id", &self.user_id, wrong),
            chain: read("chain", &self.chain, wrong),
            asset: read("asset", &self.asset, wrong),
        };
        wrong.extend(check_text("memo", &self.memo, MAX_MEMO_CHARS).err());
        wrong.extend(check_labels(&self.labels));
        wrong.extend(check_name("on_behalf_of", &self.on_behalf_of).err());
        if self.priority.is_none() {
            wrong.push(Violation::new("priority", "is not a known priority"));
        }
        names
    }

    /// Reads what depends on the asset; the destination comes read, since what it is to us had to be looked up. `None` when
    /// anything is wrong, here or before.
    pub fn read_payload(
        self,
        user_id: Option<UserId>,
        entry: &Entry,
        destination: Result<Address, String>,
        wrong: &mut Vec<Violation>,
    ) -> Option<Payload> {
        if !entry.enabled {
            let text = format!("withdrawals of {} on {} are not enabled", entry.asset, entry.chain);
            wrong.push(Violation::new("asset", text));
        }
        let amount = entry
            .read_amount(&self.amount)
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
            memo: self.memo,
            priority: self.priority?,
            labels: self.labels,
            on_behalf_of: self.on_behalf_of,
        })
    }

    /// The fields in which this differs from a stored request. Texts are read as that request's asset reads them, so `1.50` is
    /// `1.5` and an address in lower case is the same address; what the catalogue has become since does not matter.
    pub fn differences(&self, stored: &Withdrawal, requested_by: &str) -> Vec<&'static str> {
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
            // Another caller's key is no way to see another caller's request.
            ("requested_by", requested_by == stored.requested_by),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
    }
}
