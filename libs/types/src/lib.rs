//! The values that all parts of Bursar share: ids, amounts, names, addresses, transaction hashes, priorities, retry schedules, the
//! digest that approvers sign, and the entries of the signer's audit log.
//!
//! Text is parsed into these types once, where it enters a service; a value of one of these types is well formed.
//!
//! What is not here: I/O, async, a clock, floating point, and parsers that trim, guess or repair. `Display` writes the canonical
//! form, and parsing it gives the same value back.

mod inline;
mod text;

pub mod address;
pub mod amount;
pub mod audit;
pub mod backoff;
pub mod id;
pub mod name;
mod native;
pub mod payment;
pub mod priority;
pub mod tx_hash;

pub use address::{Address, AddressError, AddressFormat, AddressFormatError};
pub use amount::{Amount, AmountError, Decimals, RawAmount, format_amount};
pub use backoff::Backoff;
pub use id::{AssetId, AttemptId, IdError, JobId, UserId, WalletGroupId, WalletId, WithdrawalId};
pub use name::{AssetSymbol, ChainName, NameError};
pub use payment::{DigestError, MOST_APPROVALS, Payment, PaymentDigest, approval_message, void_message};
pub use priority::{Priority, PriorityError};
pub use tx_hash::{TxHash, TxHashError};

/// Used by the expansion of `typed_id!`; not an interface of its own.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use uuid;
}
