//! ERC-20: calldata of the calls that Bursar makes, and Transfer logs. Whether a contract can be trusted is decided elsewhere.

use alloy::sol;
use alloy::sol_types::{SolCall as _, SolEvent as _};
use alloy_primitives::{Address, B256, Bytes, U256};

use super::wire::WireLog;

sol! {
    function transfer(address to, uint256 value) external returns (bool);
    function balanceOf(address holder) external view returns (uint256);

    #[derive(Debug, PartialEq, Eq)]
    event Transfer(address indexed from, address indexed to, uint256 value);
}

pub fn transfer_calldata(to: Address, value: U256) -> Bytes {
    transferCall { to, value }.abi_encode().into()
}

pub fn balance_of_calldata(holder: Address) -> Bytes {
    balanceOfCall { holder }.abi_encode().into()
}

/// Reads one returned word as a number; anything shorter is no answer.
pub fn decode_uint(word: &[u8]) -> Option<U256> {
    word.get(..32).map(U256::from_be_slice)
}

pub const TRANSFER_TOPIC: B256 = Transfer::SIGNATURE_HASH;

/// Reads a Transfer log in the form of ERC-20. ERC-721 uses the same topic together with a fourth one.
pub fn decode_transfer(log: &WireLog) -> Option<Transfer> {
    if log.removed || log.topics.len() != 3 || log.data.len() != 32 {
        return None;
    }
    Transfer::decode_raw_log_validate(log.topics.iter().copied(), &log.data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_calldata_is_the_well_known_layout() {
        let data = transfer_calldata(Address::repeat_byte(0x11), U256::from(0x2a));
        assert_eq!(data.len(), 68);
        assert_eq!(data[..4], [0xa9, 0x05, 0x9c, 0xbb]);
        assert_eq!((data[35], data[67]), (0x11, 0x2a));
    }

    #[test]
    fn an_empty_answer_is_not_zero() {
        assert_eq!(decode_uint(&[]), None);
        assert_eq!(decode_uint(&[0; 32]), Some(U256::ZERO));
    }
}
