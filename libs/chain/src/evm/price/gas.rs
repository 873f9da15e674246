//! Gas limits for transfers, and what a failed estimate means.
//!
//! A plain transfer between accounts costs exactly 21,000 and gets no margin, so that a sweep can send the balance minus the exact
//! fee and leave nothing behind.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, NodeError, QuoteError};
use crate::evm::classify::{ReadFault, read_fault};
use crate::node::text::shorten;

/// For a transfer between two accounts without code.
pub const PLAIN_TRANSFER_GAS: u64 = 21_000;

/// How gas limits are chosen. The catalogue sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GasPolicy {
    /// Added to the estimate of the node, in thousandths, because storage may cost more when the transaction is mined.
    pub margin_permille: u32,
    /// A transfer that needs more is refused, because no ordinary token does.
    pub cap: u64,
}

impl Default for GasPolicy {
    fn default() -> Self {
        Self { margin_permille: 250, cap: 500_000 }
    }
}

impl GasPolicy {
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.cap < PLAIN_TRANSFER_GAS {
            let problem = format!("must be at least {PLAIN_TRANSFER_GAS}");
            return Err(ConfigError::Field { field: "gas.cap", problem });
        }
        Ok(())
    }

    /// The limit to sign for this estimate.
    pub fn limit(&self, estimate: u64) -> Result<u64, QuoteError> {
        if estimate > self.cap {
            return Err(QuoteError::GasAboveCap { needed: estimate, cap: self.cap });
        }
        if estimate <= PLAIN_TRANSFER_GAS {
            return Ok(PLAIN_TRANSFER_GAS);
        }
        let factor = 1000 + u128::from(self.margin_permille);
        let with_margin = (u128::from(estimate) * factor).div_ceil(1000);
        Ok(u64::try_from(with_margin).unwrap_or(u64::MAX).min(self.cap))
    }
}

/// What a node said about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimated {
    Gas(u64),
    /// Certainly about the call.
    Refused(QuoteError),
    /// In words that are not listed. They are about the call if the node can estimate others.
    Doubtful(QuoteError),
}

/// The meaning of an estimate. An error is about the node and not about the call, so another node may be asked.
pub fn estimated(estimate: Result<u64, NodeError>) -> Result<Estimated, NodeError> {
    let fault = match estimate {
        Ok(gas) => return Ok(Estimated::Gas(gas)),
        Err(NodeError::Rpc(fault)) => fault,
        Err(error) => return Err(error),
    };
    let reason = shorten(&fault.message);
    match read_fault(&fault) {
        ReadFault::Reverted => Ok(Estimated::Refused(QuoteError::WouldRevert { reason })),
        ReadFault::InsufficientFunds => Ok(Estimated::Refused(QuoteError::InsufficientFunds { reason })),
        ReadFault::RangeTooLarge | ReadFault::Other => {
            Ok(Estimated::Doubtful(QuoteError::WouldRevert { reason }))
        }
        ReadFault::NoSuchMethod | ReadFault::StateUnavailable | ReadFault::RateLimited | ReadFault::Busy => {
            Err(fault.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_transfer_gets_no_margin() {
        assert_eq!(GasPolicy::default().limit(21_000), Ok(21_000));
    }

    #[test]
    fn an_estimate_gets_its_margin_rounded_up_and_capped() {
        let policy = GasPolicy { margin_permille: 250, cap: 70_000 };
        assert_eq!(policy.limit(50_001), Ok(62_502));
        assert_eq!(policy.limit(69_000), Ok(70_000));
        assert_eq!(policy.limit(70_001), Err(QuoteError::GasAboveCap { needed: 70_001, cap: 70_000 }));
    }
}
