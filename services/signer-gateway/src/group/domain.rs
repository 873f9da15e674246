//! Names and shapes of groups.

use chrono::{DateTime, Utc};
use types::{Address, WalletGroupId};

use super::GroupError;
use crate::policy::GroupPurpose;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupName(String);

impl GroupName {
    pub fn parse(text: &str) -> Result<Self, GroupError> {
        let length = text.chars().count();
        let clean = text.trim() == text && !text.chars().any(char::is_control);
        if !(1..=64).contains(&length) || !clean {
            return Err(GroupError::Name);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshGroup<'a> {
    pub name: &'a GroupName,
    pub purpose: GroupPurpose,
    /// Words of its phrase: 12 or 24.
    pub words: u32,
    /// Whether the phrase is returned, this once. The log records it.
    pub reveal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletGroup {
    pub id: WalletGroupId,
    pub name: String,
    pub purpose: GroupPurpose,
    pub created_at: DateTime<Utc>,
    /// Whether its keys are in memory.
    pub unsealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedAddress {
    pub index: u32,
    pub address: Address,
    pub path: String,
}
