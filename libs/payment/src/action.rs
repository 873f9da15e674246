use serde::{Deserialize, Serialize};
use types::Address;

use crate::{Effect, Transfer};

/// What a transaction is meant to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    Pay(Transfer),
    /// Uses a nonce for a transfer of nothing to the sender itself. It fills gaps and closes the nonce of a job that is given up.
    /// Chains without nonces have no cancellations.
    Cancel {
        sender: Address,
    },
    Call(ContractCall),
}

/// A call of a contract that moves no coin by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractCall {
    pub sender: Address,
    pub contract: Address,
    pub data: Vec<u8>,
}

impl Action {
    pub fn sender(&self) -> Address {
        match self {
            Self::Pay(transfer) => transfer.from,
            Self::Cancel { sender } => *sender,
            Self::Call(call) => call.sender,
        }
    }

    /// What must be seen on chain for a transaction with this action to count.
    pub fn effect(&self) -> Effect {
        match self {
            Self::Pay(transfer) => Effect::Moves(*transfer),
            Self::Cancel { sender } => Effect::Closes { sender: *sender },
            Self::Call(call) => Effect::Succeeds { sender: call.sender, contract: call.contract },
        }
    }

    pub fn is_cancellation(&self) -> bool {
        matches!(self, Self::Cancel { .. })
    }

    pub fn name(&self) -> &'static str {
        self.into()
    }
}
