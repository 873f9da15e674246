//! Names and shapes of groups.

use chrono::{DateTime, Utc};
use types::{Address, WalletGroupId};

use super::GroupError;
use crate::policy::GroupPurpose;

/// A unique name of 1 to 64 visible characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupName(String);

impl GroupName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, GroupError> {
        let length = text.chars().count();
        let clean = text.trim() == text && !text.chars().any(char::is_control);
        if !(1..=64).contains(&length) || !clean {
            return Err(GroupError::Name);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A group to be made from the system's randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshGroup<'a> {
    /// Its name.
    pub name: &'a GroupName,
    /// What its keys may do.
    pub purpose: GroupPurpose,
    /// Words of its phrase: 12 or 24.
    pub words: u32,
    /// Whether the phrase is handed out, this once. The log tells.
    pub reveal: bool,
}

/// A seed from which wallets are derived, without the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub id: WalletGroupId,
    /// Its name.
    pub name: String,
    /// What its keys may do.
    pub purpose: GroupPurpose,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Whether its keys are in memory.
    pub unsealed: bool,
}

/// A wallet of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedAddress {
    /// Index within the group.
    pub index: u32,
    /// The address.
    pub address: Address,
    /// BIP-44 path.
    pub path: String,
}
