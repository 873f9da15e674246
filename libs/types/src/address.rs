//! Addresses of the two families of chains: EVM (`0x` and 40 hex digits, EIP-55) and TRON (base58check, prefix 0x41).
//!
//! Both are the same 20 bytes of a key or contract; the text says which network they are meant for. A payment to a
//! mistyped address is lost, so every check a text allows is made and each refusal says what is wrong. Nothing is
//! trimmed or repaired.
//!
//! Never says whether an address is a fit destination (the zero address and token contracts parse); that is policy.

mod error;

use std::fmt;
use std::str::FromStr;

use alloy_primitives::Address as EvmAddress;
use sha2::{Digest, Sha256};

use crate::text::{excerpt, serde_as_text};
pub use error::{AddressError, AddressFormatError};

/// How a chain writes its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressFormat {
    Evm,
    Tron,
}

impl AddressFormat {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evm => "evm",
            Self::Tron => "tron",
        }
    }
}

impl FromStr for AddressFormat {
    type Err = AddressFormatError;

    fn from_str(text: &str) -> Result<Self, AddressFormatError> {
        [Self::Evm, Self::Tron]
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| AddressFormatError { text: excerpt(text) })
    }
}

impl fmt::Display for AddressFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A well-formed address. The same 20 bytes in two formats are two addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    format: AddressFormat,
    body: [u8; 20],
}

/// First byte of every TRON mainnet address.
pub const TRON_PREFIX: u8 = 0x41;

/// Prefix, body and checksum.
const TRON_BYTES: usize = 25;
/// No text of 25 bytes is longer; checked first, because base58 decoding takes quadratic time.
const TRON_MAX_CHARS: usize = 64;
const EVM_DIGITS: usize = 40;

impl Address {
    pub const fn from_body(format: AddressFormat, body: [u8; 20]) -> Self {
        Self { format, body }
    }

    /// Reads an address written for a chain of this format.
    pub fn parse(format: AddressFormat, text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        match format {
            AddressFormat::Evm => parse_evm(text),
            AddressFormat::Tron => parse_tron(text),
        }
    }

    /// Reads the 21-byte hex form of TRON's node API (`41` and 40 digits). For replies of nodes only: it has no
    /// checksum, so people's input goes through [`Address::parse`].
    pub fn parse_tron_hex(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        check_hex(text, 0)?;
        let mut bytes = [0; 21];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| AddressError::TronHexLength { found: text.len() })?;
        let [prefix, body @ ..] = bytes;
        if prefix != TRON_PREFIX {
            return Err(AddressError::TronPrefix { found: prefix });
        }
        Ok(Self { format: AddressFormat::Tron, body })
    }

    pub const fn format(&self) -> AddressFormat {
        self.format
    }

    pub const fn body(&self) -> [u8; 20] {
        self.body
    }

    /// The address nobody has a key for; what is sent there is gone.
    pub fn is_zero(&self) -> bool {
        self.body == [0; 20]
    }

    /// The body as the EVM sees it. On TRON this is what contracts and event logs carry.
    pub const fn as_evm(&self) -> EvmAddress {
        EvmAddress::new(self.body)
    }

    /// Prefix and body, as TRON's protobuf messages carry an address.
    pub fn tron_bytes(&self) -> [u8; 21] {
        let mut bytes = [TRON_PREFIX; 21];
        bytes[1..].copy_from_slice(&self.body);
        bytes
    }

    /// [`Self::tron_bytes`] in hex, as TRON's node API writes an address.
    pub fn tron_hex(&self) -> String {
        hex::encode(self.tron_bytes())
    }
}

fn parse_evm(text: &str) -> Result<Address, AddressError> {
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(if is_tron(text) { AddressError::TronForEvm } else { AddressError::EvmPrefix });
    };
    check_hex(digits, 2)?;
    let mut body = [0; 20];
    hex::decode_to_slice(digits, &mut body)
        .map_err(|_| AddressError::EvmLength { found: digits.len(), expected: EVM_DIGITS })?;
    let address = Address { format: AddressFormat::Evm, body };
    let has_lower = digits.bytes().any(|byte| byte.is_ascii_lowercase());
    let has_upper = digits.bytes().any(|byte| byte.is_ascii_uppercase());
    // One case throughout carries no checksum; mixed case always claims to be EIP-55.
    if has_lower && has_upper {
        let expected = address.to_string();
        if expected != text {
            return Err(AddressError::EvmChecksum { expected });
        }
    }
    Ok(address)
}

fn parse_tron(text: &str) -> Result<Address, AddressError> {
    if let Some(digits) = text.strip_prefix("0x")
        && digits.len() == EVM_DIGITS
        && check_hex(digits, 2).is_ok()
    {
        return Err(AddressError::EvmForTron);
    }
    if text.len() == 42 && check_hex(text, 0).is_ok() {
        return Err(AddressError::TronHexForm);
    }
    let bytes = decode_base58(text)?;
    let bytes: [u8; TRON_BYTES] = bytes
        .try_into()
        .map_err(|bytes: Vec<u8>| AddressError::TronLength { found: bytes.len(), expected: TRON_BYTES })?;
    let (payload, checksum) = bytes.split_at(TRON_BYTES - 4);
    if Sha256::digest(Sha256::digest(payload))[..4] != *checksum {
        return Err(AddressError::TronChecksum);
    }
    let [prefix, rest @ ..] = bytes;
    if prefix != TRON_PREFIX {
        return Err(AddressError::TronPrefix { found: prefix });
    }
    let mut body = [0; 20];
    body.copy_from_slice(&rest[..20]);
    Ok(Address { format: AddressFormat::Tron, body })
}

fn decode_base58(text: &str) -> Result<Vec<u8>, AddressError> {
    // The decoder reports a byte of a non-ASCII character; people are told the character.
    let foreign = |character: char| !character.is_ascii_alphanumeric() || "0OIl".contains(character);
    if let Some((at, character)) = text.char_indices().find(|(_, character)| foreign(*character)) {
        return Err(AddressError::NotBase58 { character, at });
    }
    if text.len() > TRON_MAX_CHARS {
        return Err(AddressError::TooLong { found: text.len() });
    }
    // Every character was checked above; whatever else the decoder may refuse is no address either.
    bs58::decode(text).into_vec().map_err(|_| AddressError::TronChecksum)
}

/// A whole, valid TRON address, so that the answer "this is a TRON address" is never a guess.
fn is_tron(text: &str) -> bool {
    parse_tron(text).is_ok()
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
        match self.format {
            AddressFormat::Evm => f.pad(&self.as_evm().to_checksum(None)),
            AddressFormat::Tron => f.pad(&bs58::encode(self.tron_bytes()).with_check().into_string()),
        }
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
