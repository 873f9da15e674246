//! Configuration: a TOML file, overridden by environment variables, read into typed values with every mistake reported at once.
//!
//! Owns how settings are found, typed and checked. It never guesses and never goes on after a mistake: a missing, misspelt or
//! unusable setting is reported with its key, where it came from and what would be right, together with all others.
//!
//! A variable `BURSAR_<SERVICE>__SECTION__KEY` overrides `section.key` (service and keys in upper case, `-` as `_`). Its text
//! becomes the type that is read; lists and tables are written inline, as TOML or JSON.

mod mistake;
mod reader;
mod shared;
mod tree;

pub use mistake::{ConfigErrors, Mistake};
pub use reader::{Reader, Value};
pub use rpc::Secret;
pub use shared::{auth, client, database, server, telemetry};
pub(crate) use tree::{prefix, same_key};
