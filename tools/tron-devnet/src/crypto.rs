//! Addresses, hashes and signatures as TRON defines them.
//!
//! The only keys here are those of the devnet's own block producers.

use std::fmt;

use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, PublicKey, SECP256K1, SecretKey};
use sha2::{Digest, Sha256};

/// The byte that begins every TRON address.
pub const ADDRESS_PREFIX: u8 = 0x41;

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A 21-byte TRON address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address([u8; 21]);

impl Address {
    /// From the 20 bytes that contracts use.
    pub fn from_body(body: [u8; 20]) -> Self {
        let mut bytes = [ADDRESS_PREFIX; 21];
        bytes[1..].copy_from_slice(&body);
        Self(bytes)
    }

    /// From the 21 bytes of a protobuf field.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; 21] = bytes.try_into().ok()?;
        (bytes[0] == ADDRESS_PREFIX).then_some(Self(bytes))
    }

    /// From Base58Check, strictly.
    pub fn from_base58(text: &str) -> Option<Self> {
        Self::from_bytes(&bs58::decode(text).with_check(None).into_vec().ok()?)
    }

    /// From `41..` hex.
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::from_bytes(&hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok()?)
    }

    /// From Base58Check or hex.
    pub fn from_any(text: &str) -> Option<Self> {
        Self::from_base58(text).or_else(|| Self::from_hex(text))
    }

    /// From an uncompressed public key.
    pub fn from_public_key(key: &PublicKey) -> Self {
        let hash = alloy_primitives::keccak256(&key.serialize_uncompressed()[1..]);
        let mut body = [0; 20];
        body.copy_from_slice(&hash[12..]);
        Self::from_body(body)
    }

    pub fn as_bytes(&self) -> &[u8; 21] {
        &self.0
    }

    /// The 20 bytes without the prefix.
    pub fn body(&self) -> &[u8] {
        &self.0[1..]
    }

    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    pub fn base58(&self) -> String {
        bs58::encode(self.0).with_check().into_string()
    }

    /// The form that a request selects with `visible`.
    pub fn text(&self, visible: bool) -> String {
        if visible { self.base58() } else { self.hex() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base58())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base58())
    }
}

/// The address that signed `digest`. Nodes accept `v` from 0 to 3 and from 27 to 34.
pub fn recover(digest: [u8; 32], signature: &[u8]) -> Option<Address> {
    let v = *signature.get(64)?;
    let header = if v < 27 { v.checked_add(27)? } else { v };
    let id = match header {
        27..=30 => header - 27,
        31..=34 => header - 31,
        _ => return None,
    };
    let id = RecoveryId::try_from(i32::from(id)).ok()?;
    let signature = RecoverableSignature::from_compact(&signature[..64], id).ok()?;
    let key = SECP256K1.recover_ecdsa(Message::from_digest(digest), &signature).ok()?;
    Some(Address::from_public_key(&key))
}

/// `r || s || v` with v 0 or 1, as block producers write it.
pub fn sign(digest: [u8; 32], key: &SecretKey) -> Vec<u8> {
    let (id, compact) =
        SECP256K1.sign_ecdsa_recoverable(Message::from_digest(digest), key).serialize_compact();
    let mut signature = compact.to_vec();
    // The id of a signature is 0..3, so the cast loses nothing.
    signature.push(i32::from(id) as u8);
    signature
}

/// A block producer: its key is derived from its number alone, so that runs repeat.
#[derive(Clone)]
pub struct Producer {
    key: SecretKey,
    pub address: Address,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producer({})", self.address)
    }
}

impl Producer {
    pub fn numbered(number: u8) -> Self {
        let mut seed = sha256(&[b"tron-devnet producer ".as_slice(), &[number]].concat());
        let key = loop {
            match SecretKey::from_byte_array(seed) {
                Ok(key) => break key,
                // Only one in 2^128 digests is no key; hashing it again gives another.
                Err(_) => seed = sha256(&seed),
            }
        };
        Self { key, address: Address::from_public_key(&PublicKey::from_secret_key(SECP256K1, &key)) }
    }

    pub fn sign(&self, digest: [u8; 32]) -> Vec<u8> {
        sign(digest, &self.key)
    }
}
