//! Transaction hashes. Families may have ids of different lengths; those of EVM chains and TRON have 32 bytes, written as 64 hex
//! digits. EVM nodes write them with `0x`, TRON nodes without. Both texts are read, and both are the same hash.
//!
//! A hash says nothing about whether such a transaction exists.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::B256;

use crate::AddressFormat;
use crate::inline::InlineBytes;
use crate::text::serde_as_text;

/// Why a text is not a transaction hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxHashError {
    #[error("transaction hash has {found} hex digits, expected 64")]
    WrongLength { found: usize },
    #[error("transaction hash has {character:?} at position {at}, which is not a hex digit")]
    NotHex { character: char, at: usize },
}

/// The longest id of any family that is foreseen.
const MAX_BYTES: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxHash(InlineBytes<MAX_BYTES>);

impl TxHash {
    /// An id of 32 bytes, as all families have them so far.
    pub const fn from_array(bytes: [u8; 32]) -> Self {
        Self(InlineBytes::of(bytes))
    }

    /// Lower-case digits without `0x`, as TRON writes it.
    pub fn bare(&self) -> String {
        hex::encode(self.as_bytes())
    }

    /// As the nodes and explorers of a chain of this family write it.
    pub fn in_format(&self, format: AddressFormat) -> String {
        (format.family().write_tx)(self)
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// For chains whose ids have 32 bytes. `None` for an id of another length.
    pub fn as_b256(&self) -> Option<B256> {
        B256::try_from(self.as_bytes()).ok()
    }
}

impl From<[u8; 32]> for TxHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self::from_array(bytes)
    }
}

impl From<B256> for TxHash {
    fn from(hash: B256) -> Self {
        Self::from_array(hash.0)
    }
}

impl fmt::Display for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", self.bare())
    }
}

impl fmt::Debug for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxHash({self})")
    }
}

impl FromStr for TxHash {
    type Err = TxHashError;

    fn from_str(text: &str) -> Result<Self, TxHashError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let offset = text.len() - digits.len();
        if let Some((at, character)) = digits.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(TxHashError::NotHex { character, at: offset + at });
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes)
            .map_err(|_| TxHashError::WrongLength { found: digits.len() })?;
        Ok(Self::from_array(bytes))
    }
}

serde_as_text!(TxHash, "a transaction hash of 64 hex digits");

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "00e1d2c3b4a5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f";

    #[test]
    fn both_spellings_are_one_hash() {
        let bare: TxHash = BARE.parse().unwrap();
        assert_eq!(format!("0x{BARE}").parse::<TxHash>().unwrap(), bare);
        assert_eq!(BARE.to_uppercase().parse::<TxHash>().unwrap(), bare);
        assert_eq!(bare.to_string(), format!("0x{BARE}"));
        assert_eq!(bare.bare(), BARE);
        assert_eq!(bare.in_format(AddressFormat::Tron), BARE);
        assert_eq!(bare.in_format(AddressFormat::Evm), format!("0x{BARE}"));
        assert_eq!(bare.as_b256().map(TxHash::from), Some(bare));
        let json = serde_json::to_string(&bare).unwrap();
        assert_eq!(serde_json::from_str::<TxHash>(&json).unwrap(), bare);
    }

    #[test]
    fn an_id_of_another_length_is_never_cut_to_32_bytes() {
        let longer = TxHash(InlineBytes::of([1; MAX_BYTES]));
        assert_eq!((longer.as_bytes(), longer.as_b256()), ([1; MAX_BYTES].as_slice(), None));
        assert_ne!(longer, TxHash::from_array([1; 32]));
        assert_eq!(longer.bare(), "01".repeat(MAX_BYTES));
    }

    #[test]
    fn each_refusal_says_why() {
        let error = |text: &str| text.parse::<TxHash>().unwrap_err();
        assert_eq!(error(""), TxHashError::WrongLength { found: 0 });
        assert_eq!(error("0x"), TxHashError::WrongLength { found: 0 });
        assert_eq!(error(&BARE[1..]), TxHashError::WrongLength { found: 63 });
        assert_eq!(error(&format!("{BARE}00")), TxHashError::WrongLength { found: 66 });
        assert_eq!(error(&format!("0X{BARE}")), TxHashError::NotHex { character: 'X', at: 1 });
        assert_eq!(error(&format!("0x0x{}", &BARE[2..])), TxHashError::NotHex { character: 'x', at: 3 });
        assert_eq!(error(&format!(" {BARE}")), TxHashError::NotHex { character: ' ', at: 0 });
    }
}
