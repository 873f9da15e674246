//! A payment that another system had approved and broadcast, as an operator describes it.
//!
//! Owns reading it and comparing a repeated import with what is stored. No I/O. The other system has made its own checks, so
//! limits, minimum and whether the asset is enabled do not matter here.
//!
//! Where it could hurt: what execution would refuse for good must be refused here, where the operator sees it; a request that
//! was stored and refused later stays queued until somebody looks. One transaction is one payment: a second request for the
//! same hash is refused by the table's constraint, whichever of two calls came first.

use chrono::{DateTime, TimeDelta, Utc};
use types::{Address, Amount, AssetSymbol, ChainName, Priority, TxHash, UserId, WithdrawalId};

use super::error::WithdrawalError;
use super::request::{ImportedPayment, Origin, Payload, Withdrawal};
use crate::catalogue::{Entry, Standing};
use crate::violation::Violation;

/// Clocks of two systems differ; a creation time further ahead than this is a mistake.
const CLOCK_SLACK: TimeDelta = TimeDelta::minutes(5);

/// What an operator says about the payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportDraft {
    pub id: WithdrawalId,
    pub user_id: UserId,
    pub chain: ChainName,
    pub asset: AssetSymbol,
    /// In the asset's unit, read with its decimals.
    pub amount: String,
    pub destination: String,
    pub from_address: String,
    pub tx_hash: TxHash,
    pub created_at: DateTime<Utc>,
}

impl ImportDraft {
    /// The address it was paid from, as far as it can be read.
    pub fn payer(&self, entry: &Entry) -> Option<Address> {
        Address::parse(entry.format, &self.from_address).ok()
    }

    /// Reads what depends on the asset. `payer` is what the address it was paid from is to us: execution watches only what its
    /// own wallets paid, so anything else would wait for ever.
    pub fn read(
        self,
        entry: &Entry,
        payer: Standing,
        now: DateTime<Utc>,
    ) -> Result<(Payload, ImportedPayment), Vec<Violation>> {
        let mut wrong = Vec::new();
        let mut address = |field: &str, text: &str| {
            Address::parse(entry.format, text).map_err(|error| wrong.push(Violation::new(field, error))).ok()
        };
        let destination = address("destination", &self.destination);
        let from_address = address("from_address", &self.from_address);
        if from_address.is_some() && payer != Standing::Own {
            wrong.push(Violation::new("from_address", "is not one of our own wallets"));
        }
        let amount =
            entry.read_amount(&self.amount).map_err(|why| wrong.push(Violation::new("amount", why))).ok();
        if self.created_at > now + CLOCK_SLACK {
            wrong.push(Violation::new("created_at", "lies in the future"));
        }
        let (Some(destination), Some(from_address), Some(amount), true) =
            (destination, from_address, amount, wrong.is_empty())
        else {
            return Err(wrong);
        };
        let payload = Payload {
            user_id: self.user_id,
            chain: self.chain,
            asset: self.asset,
            amount,
            decimals: entry.decimals,
            destination,
            memo: String::new(),
            priority: Priority::Normal,
            labels: std::collections::BTreeMap::new(),
            on_behalf_of: String::new(),
        };
        Ok((payload, ImportedPayment { from_address, tx_hash: self.tx_hash }))
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
        // The id of a request that was made here names no imported payment.
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
