//! Operation wallets: the addresses to which sweeps may go. Owns their registration. Never registers an address on a
//! caller's word: it is derived here from an operation group, or listed as cold storage in the configuration.
//!
//! Being registered is not enough: every sweep checks again whether the configuration still lists the address or its group, so
//! that removing it there takes effect. A row is not enough either: the address is derived again before anything is swept there.

mod app;
mod repo;

pub use app::{OperationWallet, WalletError, Wallets};
