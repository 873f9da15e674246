//! One field of a request and what is wrong with it. All are collected before a request is refused, so that a caller mends
//! them in one go.

use std::fmt;

use types::{AssetSymbol, ChainName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// As the contract names it.
    pub field: String,
    pub description: String,
}

impl Violation {
    pub fn new(field: impl Into<String>, description: impl fmt::Display) -> Self {
        Self { field: field.into(), description: description.to_string() }
    }

    pub fn unknown_asset(chain: &ChainName, asset: &AssetSymbol) -> Self {
        Self::new("asset", format_args!("{asset} is not known on {chain}"))
    }
}

/// The refusal that names every one of them.
pub fn status(violations: &[Violation]) -> tonic::Status {
    rpc::error::invalid_all(violations.iter().map(|v| (v.field.clone(), v.description.clone())))
}

/// All of them in one line, for logs.
pub fn list(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations.iter().map(|v| format!("{}: {}", v.field, v.description)).collect();
    texts.join("; ")
}
