//! The vocabulary of one payment, shared by execution, confirmation, the signer and the chain adapters.
//!
//! ```text
//! transfer   an amount of an asset that moves from one address to another
//! action     what a transaction is meant to do
//! binding    what makes at most one transaction of an attempt land: a nonce, or a time window
//! price      what is signed as the most it may cost, by family of chain
//! effect     what a transaction must show on chain to count
//! watched    a signed transaction under watch, with its own effect
//! finding    what confirmation proved about a job, and the verdict that carries it
//! ```
//!
//! Sharing these words is not sharing judgement: the signer builds its own bytes from them and checks them by its own rules,
//! confirmation reads the chain by itself, and neither believes the other's values because they have the same type.
//!
//! Invariants, as absences: no I/O, no async, no clock, no protobuf (`libs/proto` converts each type once), no rule that only
//! one service applies.

mod action;
mod binding;
mod effect;
mod finding;
mod price;
mod transfer;
mod watched;

pub use action::{Action, ContractCall};
pub use binding::{Binding, BindingKind, BlockRef, BlockReference, Closing, Window};
pub use effect::{Effect, EffectCheck, NoEffect};
pub use finding::{Cost, Finding, Inclusion, Verdict, VoidProof};
pub use price::{GasFee, Price, Quote};
pub use transfer::{AssetRef, Transfer};
pub use watched::WatchedTransaction;
