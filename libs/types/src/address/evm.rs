use alloy_primitives::Address as EvmAddress;

use super::{Address, AddressError, AddressFormat, Family, check_hex, tron};

const DIGITS: usize = 40;

pub(super) const FAMILY: Family = Family {
    name: "evm",
    parse,
    write: |address| address.as_evm().to_checksum(None),
    write_tx: ToString::to_string,
};

impl Address {
    /// The 20 bytes that contracts and event logs of the EVM carry, on TRON too.
    ///
    /// # Panics
    /// For an address of a family whose addresses have another length. Adapters check the format before; a payment must
    /// never go to bytes that were cut.
    pub fn body(&self) -> [u8; 20] {
        EvmAddress::from_slice(self.bytes()).into_array()
    }

    /// Reads an address of the EVM, for callers that work with EVM chains only.
    pub fn parse_evm(text: &str) -> Result<EvmAddress, AddressError> {
        parse(text).map(|address| address.as_evm())
    }

    /// [`Self::body`] as the EVM's own type.
    pub fn as_evm(&self) -> EvmAddress {
        EvmAddress::from_slice(self.bytes())
    }
}

/// Whether this is the text of an EVM address, whatever its checksum.
pub(super) fn is_evm(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| digits.len() == DIGITS && check_hex(digits, 2).is_ok())
}

fn parse(text: &str) -> Result<Address, AddressError> {
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(if tron::is_tron(text) { AddressError::TronForEvm } else { AddressError::EvmPrefix });
    };
    check_hex(digits, 2)?;
    let mut body = [0; 20];
    hex::decode_to_slice(digits, &mut body)
        .map_err(|_| AddressError::EvmLength { found: digits.len(), expected: DIGITS })?;
    let address = Address::from_body(AddressFormat::Evm, body);
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
