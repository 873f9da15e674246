use sha2::{Digest, Sha256};

use super::{Address, AddressError, AddressFormat, Family, check_hex, evm};

/// First byte of every TRON mainnet address.
pub const TRON_PREFIX: u8 = 0x41;
/// Prefix, body and checksum.
const BYTES: usize = 25;
/// No text of 25 bytes is longer; checked first, because base58 decoding takes quadratic time.
const MAX_CHARS: usize = 64;

pub(super) const FAMILY: Family = Family {
    name: "tron",
    parse,
    write: |address| bs58::encode(address.tron_bytes()).with_check().into_string(),
    write_tx: |hash| hash.bare(),
};

impl Address {
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
        Ok(Self::from_body(AddressFormat::Tron, body))
    }

    /// Prefix and body, as TRON's protobuf messages carry an address.
    pub fn tron_bytes(&self) -> [u8; 21] {
        let mut bytes = [TRON_PREFIX; 21];
        bytes[1..].copy_from_slice(&self.body());
        bytes
    }

    /// [`Self::tron_bytes`] in hex, as TRON's node API writes an address.
    pub fn tron_hex(&self) -> String {
        hex::encode(self.tron_bytes())
    }
}

fn parse(text: &str) -> Result<Address, AddressError> {
    if evm::is_evm(text) {
        return Err(AddressError::EvmForTron);
    }
    if text.len() == 42 && check_hex(text, 0).is_ok() {
        return Err(AddressError::TronHexForm);
    }
    let bytes: [u8; BYTES] = decode_base58(text)?
        .try_into()
        .map_err(|bytes: Vec<u8>| AddressError::TronLength { found: bytes.len(), expected: BYTES })?;
    let (payload, checksum) = bytes.split_at(BYTES - 4);
    if Sha256::digest(Sha256::digest(payload))[..4] != *checksum {
        return Err(AddressError::TronChecksum);
    }
    let [prefix, rest @ ..] = bytes;
    if prefix != TRON_PREFIX {
        return Err(AddressError::TronPrefix { found: prefix });
    }
    let mut body = [0; 20];
    body.copy_from_slice(&rest[..20]);
    Ok(Address::from_body(AddressFormat::Tron, body))
}

fn decode_base58(text: &str) -> Result<Vec<u8>, AddressError> {
    // The decoder reports a byte of a non-ASCII character; people are told the character.
    let foreign = |character: char| !character.is_ascii_alphanumeric() || "0OIl".contains(character);
    if let Some((at, character)) = text.char_indices().find(|(_, character)| foreign(*character)) {
        return Err(AddressError::NotBase58 { character, at });
    }
    if text.len() > MAX_CHARS {
        return Err(AddressError::TooLong { found: text.len() });
    }
    // Every character was checked above; whatever else the decoder may refuse is no address either.
    bs58::decode(text).into_vec().map_err(|_| AddressError::TronChecksum)
}

/// A whole, valid TRON address, so that the answer "this is a TRON address" is never a guess.
pub(super) fn is_tron(text: &str) -> bool {
    parse(text).is_ok()
}
