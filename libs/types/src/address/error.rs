//! Why a text is not an address, or not the name of a format. Every refusal has its own variant, because a person who mistyped
//! an address can only correct it when the message says what is wrong.

use crate::text::excerpt;

/// Why a text is not an address of the chain it was given for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("address is empty")]
    Empty,
    #[error("address has {found} characters, which is too long")]
    TooLong { found: usize },
    #[error("address has {character:?} at position {at}, which is not a hex digit")]
    NotHex { character: char, at: usize },
    #[error("address has {character:?} at position {at}, which is not in the base58 alphabet")]
    NotBase58 { character: char, at: usize },
    #[error("evm address does not begin with 0x")]
    EvmPrefix,
    #[error("evm address has {found} hex digits, expected {expected}")]
    EvmLength { found: usize, expected: usize },
    #[error("evm address does not match its checksum; its bytes are written {expected}")]
    EvmChecksum { expected: String },
    #[error("this is a tron address, expected an evm address")]
    TronForEvm,
    #[error("this is an evm address, expected a tron address")]
    EvmForTron,
    #[error("this is the hex form of an address, expected tron's base58 form")]
    TronHexForm,
    #[error("tron address in hex has {found} digits, expected 42")]
    TronHexLength { found: usize },
    #[error("tron address decodes to {found} bytes, expected {expected}")]
    TronLength { found: usize, expected: usize },
    #[error("tron address does not match its checksum")]
    TronChecksum,
    #[error("address has network prefix {found:#04x}, tron's is 0x41")]
    TronPrefix { found: u8 },
}

/// A text that names no family of chains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither evm nor tron")]
pub struct AddressFormatError {
    /// The beginning of what was refused.
    pub text: String,
}

impl AddressFormatError {
    pub(super) fn unknown(text: &str) -> Self {
        Self { text: excerpt(text) }
    }
}
