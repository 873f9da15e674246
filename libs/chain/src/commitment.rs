//! What signed bytes commit to: their hash, their sender, and what can close them. All of it is computed from the bytes, so that
//! the service which passes them on need not be trusted.

use types::{Address, AddressFormat, TxHash};

use crate::edge::SignedError;
use crate::{evm, tron};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commitment {
    pub hash: TxHash,
    pub sender: Address,
    pub bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Nonce {
        network_id: u64,
        nonce: u64,
    },
    /// `reference` is the end of the number of the block they refer to.
    Window {
        reference: u16,
        expiration_ms: u64,
    },
}

/// Reads signed bytes of a chain of this kind.
///
/// # Errors
/// When they are not exactly one transaction with a good signature.
pub fn commitment(kind: AddressFormat, raw: &[u8]) -> Result<Commitment, SignedError> {
    match kind {
        AddressFormat::Evm => {
            let signed = evm::tx::SignedTx::decode(raw)?;
            let sender = Address::from_body(AddressFormat::Evm, signed.sender.into_array());
            let bound = Bound::Nonce { network_id: signed.tx.chain_id, nonce: signed.tx.nonce };
            Ok(Commitment { hash: signed.hash, sender, bound })
        }
        AddressFormat::Tron => {
            let signed = tron::tx::SignedTx::decode(raw)?;
            let undecodable = |reason: &str| SignedError::Undecodable { reason: reason.to_owned() };
            let reference = <[u8; 2]>::try_from(signed.raw.ref_block_bytes.as_slice())
                .map_err(|_| undecodable("its reference to a block has not two bytes"))?;
            let expiration_ms = u64::try_from(signed.raw.expiration)
                .map_err(|_| undecodable("its expiration is negative"))?;
            let bound = Bound::Window { reference: u16::from_be_bytes(reference), expiration_ms };
            Ok(Commitment { hash: signed.hash, sender: signed.sender, bound })
        }
    }
}
