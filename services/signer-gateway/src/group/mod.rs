//! Wallet groups and the seal over their seeds. Owns which seeds exist, what each may be used for, and which keys are in
//! memory. Never shows a seed; a recovery phrase is handed out once, on creation, when asked for.
//!
//! Invariant: while sealed, no key is in memory and nothing can be signed or derived.

mod app;
mod domain;
mod error;
mod repo;

pub use app::{Groups, Phrase};
pub use domain::{DerivedAddress, FreshGroup, GroupName, WalletGroup};
pub use error::GroupError;
