//! A payment that another system approved and broadcast, as an operator describes it.
//!
//! Owns parsing it and comparing a repeated import with the stored one. No I/O. The other system has made its own checks, so
//! limits, the minimum and whether the asset is enabled are not checked here.
//!
//! What execution would refuse for good must be refused here, where the operator sees it, because a request that is stored and
//! refused later stays queued until somebody looks. One transaction is one payment: a constraint of the table refuses a second
//! request for the same hash, also when two calls arrive at the same time.

use chrono::{DateTime, TimeDelta, Utc};
use rpc::fields::{Violation, Violations};
use types::{Address, Amount, AssetSymbol, ChainName, Priority, TxHash, UserId, WithdrawalId};

use super::{IdempotencyKey, ImportedPayment, Origin, Payload, Withdrawal};
use crate::catalogue::{AddressKind, CatalogueEntry};
use crate::withdrawal::domain::{Blockage, Handover, State};
use crate::withdrawal::error::WithdrawalError;

/// The clocks of two systems differ; a creation time further ahead than this is a mistake.
const CLOCK_SLACK: TimeDelta = TimeDelta::minutes(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportDraft {
    pub id: WithdrawalId,
    pub user_id: UserId,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub amount: String,
    pub destination: String,
    pub from_address: String,
    pub tx_hash: TxHash,
    pub created_at: DateTime<Utc>,
}

impl ImportDraft {
    /// The sender's address, if it can be parsed.
    pub fn sender(&self, entry: &CatalogueEntry) -> Option<Address> {
        Address::parse(entry.format, &self.from_address).ok()
    }

    /// The queued request. `sender` is the kind of the sender's address: execution watches only payments of its own wallets, so
    /// any other would wait for ever.
    pub fn accept(
        &self,
        entry: &CatalogueEntry,
        sender: AddressKind,
        requested_by: &str,
        now: DateTime<Utc>,
    ) -> Result<(Withdrawal, ImportedPayment), Violations> {
        let mut wrong = Violations::default();
        let mut address = |field: &str, text: &str| {
            Address::parse(entry.format, text).map_err(|error| wrong.push(Violation::new(field, error))).ok()
        };
        let destination = address("destination", &self.destination);
        let from_address = address("from_address", &self.from_address);
        if from_address.is_some() && sender != AddressKind::OwnWallet {
            wrong.push(Violation::new("from_address", "is not one of our own wallets"));
        }
        let amount =
            entry.parse_amount(&self.amount).map_err(|why| wrong.push(Violation::new("amount", why))).ok();
        if self.created_at > now + CLOCK_SLACK {
            wrong.push(Violation::new("created_at", "lies in the future"));
        }
        let (Some(destination), Some(from_address), Some(amount), true) =
            (destination, from_address, amount, wrong.is_empty())
        else {
            return Err(wrong);
        };
        let payment = ImportedPayment { from_address, tx_hash: self.tx_hash };
        let payload = Payload {
            user_id: self.user_id,
            chain: self.chain.clone(),
            asset: self.asset.clone(),
            amount,
            decimals: entry.decimals,
            destination,
            memo: String::new(),
            priority: Priority::Normal,
            labels: std::collections::BTreeMap::new(),
            on_behalf_of: String::new(),
        };
        let handover = Handover { approved_at: None, queued_at: now };
        let withdrawal = Withdrawal {
            id: self.id,
            origin: Origin::Import(payment),
            key: IdempotencyKey::of_import(self.id),
            payload,
            requested_by: requested_by.to_owned(),
            required_approvals: 0,
            approvals: Vec::new(),
            state: State::Queued { handover, blockage: Blockage::default() },
            sequence: 1,
            created_at: self.created_at,
            updated_at: now,
        };
        Ok((withdrawal, payment))
    }

    /// The stored request, if this describes the same payment.
    pub fn replay(&self, stored: Withdrawal) -> Result<Withdrawal, WithdrawalError> {
        let fields = self.differences(&stored);
        if fields.is_empty() {
            Ok(stored)
        } else {
            Err(WithdrawalError::ImportDiffers { id: self.id, fields })
        }
    }

    fn differences(&self, stored: &Withdrawal) -> Vec<&'static str> {
        // A request that was made here is not an import.
        let Origin::Import(payment) = &stored.origin else { return vec!["id"] };
        let payload = &stored.payload;
        let address = |text: &str, stored: Address| Address::parse(stored.format(), text) == Ok(stored);
        let same = [
            ("user_id", self.user_id == payload.user_id),
            ("chain", self.chain == payload.chain),
            ("asset", self.asset == payload.asset),
            ("amount", Amount::parse(&self.amount, payload.decimals) == Ok(payload.amount)),
            ("destination", address(&self.destination, payload.destination)),
            ("from_address", address(&self.from_address, payment.from_address)),
            ("tx_hash", self.tx_hash == payment.tx_hash),
            ("created_at", self.created_at == stored.created_at),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
    }
}
