//! The operator's wallets, what they hold, and how the one that pays is chosen.

mod app;
mod domain;
mod error;
pub(crate) mod repo;
mod selection;

pub use app::Wallets;
pub use domain::{Holding, NewWallet, OperationWallet, WalletRole, WalletStatus};
pub use error::WalletError;
pub use selection::{Candidate, Choice, choose};
