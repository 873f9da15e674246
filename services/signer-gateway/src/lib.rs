//! The signer gateway: the only process that holds keys.
pub mod builder;
pub mod guard;
pub mod keys;
pub mod seal;
