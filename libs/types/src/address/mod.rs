//! Addresses: bytes of a key or contract, and the family of chains whose text they are written in.
//!
//! ```text
//! evm    `0x` and 40 hex digits, with the checksum of EIP-55
//! tron   base58check with the prefix 0x41
//! error  why a text is not an address
//! ```
//!
//! A payment to a mistyped address is lost, so every check that a text allows is made and each refusal says what is wrong.
//! Nothing is trimmed or repaired. Addresses of families have different lengths; a new family is a module beside these two, and
//! one line in [`AddressFormat::family`].
//!
//! Never says whether an address is a fit destination (the zero address and token contracts parse); that is policy.

mod error;
mod evm;
mod tron;

use std::fmt;
use std::str::FromStr;

use crate::TxHash;
use crate::inline::InlineBytes;
use crate::text::{excerpt, serde_as_text};
pub use error::{AddressError, AddressFormatError};
pub use tron::TRON_PREFIX;

/// The longest address of any family that is foreseen.
const MAX_BYTES: usize = 32;

/// A family of chains, by how it writes its addresses and transaction ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFormat {
    Evm,
    Tron,
}

/// How one family reads and writes its texts.
pub(crate) struct Family {
    name: &'static str,
    parse: fn(&str) -> Result<Address, AddressError>,
    write: fn(&Address) -> String,
    pub(crate) write_tx: fn(&TxHash) -> String,
}

impl AddressFormat {
    const ALL: [Self; 2] = [Self::Evm, Self::Tron];

    pub(crate) const fn family(self) -> &'static Family {
        match self {
            Self::Evm => &evm::FAMILY,
            Self::Tron => &tron::FAMILY,
        }
    }

    pub const fn as_str(self) -> &'static str {
        self.family().name
    }
}

impl FromStr for AddressFormat {
    type Err = AddressFormatError;

    fn from_str(text: &str) -> Result<Self, AddressFormatError> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == text);
        found.ok_or_else(|| AddressFormatError { text: excerpt(text) })
    }
}

impl fmt::Display for AddressFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A well-formed address. The same bytes in two formats are two addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    format: AddressFormat,
    bytes: InlineBytes<MAX_BYTES>,
}

impl Address {
    /// An address of 20 bytes, as EVM chains and TRON have them.
    pub const fn from_body(format: AddressFormat, body: [u8; 20]) -> Self {
        Self { format, bytes: InlineBytes::of(body) }
    }

    /// Reads an address written for a chain of this format.
    pub fn parse(format: AddressFormat, text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        (format.family().parse)(text)
    }

    pub const fn format(&self) -> AddressFormat {
        self.format
    }

    /// Without prefix and checksum; how many there are depends on the format.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The address nobody has a key for; what is sent there is gone.
    pub fn is_zero(&self) -> bool {
        self.bytes().iter().all(|byte| *byte == 0)
    }
}

/// Hex digits only; `offset` is where they begin in what the caller was given.
fn check_hex(digits: &str, offset: usize) -> Result<(), AddressError> {
    match digits.char_indices().find(|(_, character)| !character.is_ascii_hexdigit()) {
        None => Ok(()),
        Some((at, character)) => Err(AddressError::NotHex { character, at: offset + at }),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&(self.format.family().write)(self))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Reads either format by its shape, which is never ambiguous: `0x` begins no base58 text. For what Bursar stored
/// itself; where the chain is known, [`Address::parse`] also refuses an address of the other network.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let format = if text.starts_with("0x") { AddressFormat::Evm } else { AddressFormat::Tron };
        Self::parse(format, text)
    }
}

serde_as_text!(Address, "an evm or tron address");

#[cfg(test)]
mod tests;
