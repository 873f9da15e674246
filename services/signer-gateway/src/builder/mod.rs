//! From an intent to the exact bytes of a transaction. Owns what each action means on each kind of chain. Never
//! takes call data or raw bytes for a payment from a caller: a digest that is signed was computed here, from typed
//! fields. Never holds a key for longer than one signature.

mod evm;
mod tron;

use types::{Address, RawAmount, TxHash};

use crate::keys::{KeyError, WalletKey};

pub use evm::{EvmFee, EvmParameters};
pub use tron::TronParameters;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Transfer {
        to: Address,
        amount: RawAmount,
    },
    TokenTransfer {
        contract: Address,
        to: Address,
        amount: RawAmount,
    },
    /// Sends nothing to oneself, so that a nonce closes without a payment.
    Cancellation,
    /// Calls a method; the policy decides which contracts and methods.
    ContractCall {
        contract: Address,
        data: Vec<u8>,
    },
}

impl Action {
    /// Stable name, as records and audits spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Transfer { .. } => "transfer",
            Self::TokenTransfer { .. } => "token_transfer",
            Self::Cancellation => "cancellation",
            Self::ContractCall { .. } => "contract_call",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameters {
    Evm(EvmParameters),
    Tron(TronParameters),
}

impl Parameters {
    /// The most its gas or its energy can cost in the chain's own asset. On TRON more is burnt besides: see
    /// [`Unsigned::bandwidth`].
    pub fn max_cost(&self) -> RawAmount {
        match self {
            Self::Evm(evm) => evm.max_cost(),
            Self::Tron(tron) => RawAmount::from(u64::try_from(tron.fee_limit_sun).unwrap_or(0)),
        }
    }
}

/// Why no transaction can be built. Each names the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("{field} is not of this chain's kind")]
    WrongKind {
        field: &'static str,
    },
    #[error("{field} {problem}")]
    OutOfRange {
        field: &'static str,
        problem: &'static str,
    },
    /// TRON has no nonces, so nothing can be closed without a payment.
    #[error("this chain has no cancellations")]
    NoCancellation,
    /// Calls of contracts are made for on-chain duties only, on EVM chains.
    #[error("this chain has no contract calls")]
    NoContractCall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    body: Body,
    digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Evm(evm::EvmBody),
    Tron(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub raw: Vec<u8>,
    pub tx_hash: TxHash,
}

impl Unsigned {
    pub fn build(from: Address, action: &Action, parameters: &Parameters) -> Result<Self, BuildError> {
        match parameters {
            Parameters::Evm(evm) => {
                let body = evm::build(from, action, evm)?;
                let digest = body.digest();
                Ok(Self { body: Body::Evm(body), digest })
            }
            Parameters::Tron(tron) => {
                let raw = tron::build(from, action, tron)?;
                let digest = tron::digest(&raw);
                Ok(Self { body: Body::Tron(raw), digest })
            }
        }
    }

    /// The id a TRON transaction has before it is signed; EVM hashes exist only afterwards.
    pub fn tron_id(&self) -> Option<TxHash> {
        match self.body {
            Body::Evm(_) => None,
            Body::Tron(_) => Some(TxHash(self.digest)),
        }
    }

    /// Bytes for which TRON counts bandwidth once it is signed; nothing on EVM chains, where gas pays for them.
    pub fn bandwidth(&self) -> u64 {
        match &self.body {
            Body::Evm(_) => 0,
            Body::Tron(raw) => tron::bandwidth(raw),
        }
    }

    pub fn sign(self, key: &WalletKey) -> Result<Signed, KeyError> {
        let signature = key.sign(self.digest)?;
        Ok(match self.body {
            Body::Evm(body) => body.finish(&signature),
            Body::Tron(raw) => tron::finish(raw, self.digest, &signature),
        })
    }
}

/// Call data of a token's `transfer(address,uint256)`.
fn token_transfer_call(to: Address, amount: RawAmount) -> Vec<u8> {
    let mut data = Vec::with_capacity(68);
    data.extend_from_slice(&[0xa9, 0x05, 0x9c, 0xbb]);
    data.extend_from_slice(&[0; 12]);
    data.extend_from_slice(&to.body());
    data.extend_from_slice(&amount.as_u256().to_be_bytes::<32>());
    data
}

fn positive(amount: RawAmount) -> Result<RawAmount, BuildError> {
    if amount.is_zero() {
        return Err(BuildError::OutOfRange { field: "amount", problem: "must be greater than zero" });
    }
    Ok(amount)
}
