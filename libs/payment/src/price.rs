use alloy_primitives::U256;
use serde::{Deserialize, Serialize};
use types::RawAmount;

/// What is offered for a unit of gas, in the chain's smallest unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GasFee {
    /// EIP-1559.
    Dynamic {
        max_fee: u128,
        max_priority: u128,
    },
    Legacy {
        gas_price: u128,
    },
}

impl GasFee {
    /// The most one unit of gas can cost.
    pub fn ceiling(&self) -> u128 {
        match self {
            Self::Dynamic { max_fee, .. } => *max_fee,
            Self::Legacy { gas_price } => *gas_price,
        }
    }

    /// What goes to whoever includes it, at most. A legacy price has no part of its own for that: it is all of it.
    pub fn tip(&self) -> u128 {
        match self {
            Self::Dynamic { max_priority, .. } => *max_priority,
            Self::Legacy { gas_price } => *gas_price,
        }
    }

    /// The most this much gas can cost.
    pub fn cost(&self, gas: u64) -> RawAmount {
        // 64 and 128 bits multiply into 192.
        RawAmount::from_u256(U256::from(gas) * U256::from(self.ceiling()))
    }
}

/// What is signed as the most a transaction may cost, by family of chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Price {
    Gas {
        limit: u64,
        fee: GasFee,
    },
    /// The most a contract call may burn. It bounds neither the price of the bytes nor the opening of the receiver's account.
    FeeLimit {
        sun: u64,
    },
}

/// A price, and the most that is taken from the sender in the chain's own coin besides the amount itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    pub price: Price,
    pub max_cost: RawAmount,
}

impl Quote {
    pub fn for_gas(limit: u64, fee: GasFee) -> Self {
        Self { price: Price::Gas { limit, fee }, max_cost: fee.cost(limit) }
    }
}
