use serde::{Deserialize, Serialize};
use types::{Address, RawAmount};

/// What is moved: the chain's own coin, or a token named by its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssetRef {
    Native,
    Token(Address),
}

impl AssetRef {
    pub fn of_contract(contract: Option<Address>) -> Self {
        contract.map_or(Self::Native, Self::Token)
    }

    pub fn contract(&self) -> Option<Address> {
        match self {
            Self::Native => None,
            Self::Token(contract) => Some(*contract),
        }
    }
}

/// A movement of money as the chain should show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    pub asset: AssetRef,
    pub from: Address,
    pub to: Address,
    pub amount: RawAmount,
}
