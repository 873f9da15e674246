//! Balances, resources and TRC-20 ledgers at one block (`World`), and the execution of one transaction on them.
//!
//! Blocks, pools and nodes are unknown here. Time and prices are arguments, so that the same transaction on the same world always
//! ends the same way. A refusal leaves the world unchanged.

pub mod execute;
pub mod resource;
pub mod token;

use std::collections::BTreeMap;

use crate::crypto::Address;
use resource::Meter;
use token::Token;

/// What the chain charges, under the names of `getchainparameters`.
#[derive(Clone, Debug)]
pub struct Prices {
    pub energy_fee_sun: i64,
    pub bandwidth_fee_sun: i64,
    pub create_account_fee_sun: i64,
    pub activation_fee_sun: i64,
    pub memo_fee_sun: i64,
    pub max_fee_limit_sun: i64,
    pub free_bandwidth: i64,
}

impl Default for Prices {
    /// The prices of mainnet.
    fn default() -> Self {
        Self {
            energy_fee_sun: 100,
            bandwidth_fee_sun: 1_000,
            create_account_fee_sun: 100_000,
            activation_fee_sun: 1_000_000,
            memo_fee_sun: 1_000_000,
            max_fee_limit_sun: 15_000_000_000,
            free_bandwidth: 600,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Account {
    pub balance_sun: i64,
    pub created_ms: i64,
    pub last_operation_ms: i64,
    pub free_bandwidth: Meter,
    pub bandwidth: Meter,
    pub energy: Meter,
    pub bandwidth_limit: i64,
    pub energy_limit: i64,
}

/// The whole state at one block.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub accounts: BTreeMap<Address, Account>,
    pub tokens: BTreeMap<Address, Token>,
}

impl World {
    /// Adds to a balance, opening the account when there is none.
    pub fn credit(&mut self, to: Address, sun: i64, now_ms: i64) {
        let account =
            self.accounts.entry(to).or_insert_with(|| Account { created_ms: now_ms, ..Account::default() });
        account.balance_sun = account.balance_sun.saturating_add(sun);
    }
}
