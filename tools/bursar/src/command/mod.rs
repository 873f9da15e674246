//! One file for each command.

pub mod demo;
pub mod down;
pub mod import;
pub mod index;
pub mod job;
pub mod logs;
pub mod signer;
pub mod status;
pub mod up;
pub mod wallet;
pub mod withdraw;
pub mod worker;
