//! BIP-32 by hand on libsecp256k1, with nothing wiped and nothing checked: the limit of deriving keys.

use alloy_primitives::keccak256;
use anyhow::{Context as _, Result};
use hmac::{Hmac, Mac as _};
use secp256k1::{PublicKey, SECP256K1, Scalar, SecretKey};
use sha2::Sha512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One step from an account whose public key is known.
    OneLevel,
    /// From the master key: three hardened steps and two others.
    FullPath,
}

/// Derives a key, and the first byte of its address.
pub(crate) fn derive(master: &[u8; 32], way: Way, number: u64) -> Result<u8> {
    let (mut secret, mut code) = (SecretKey::from_byte_array(*master)?, [3; 32]);
    let index = u32::try_from(number % (1 << 30))?;
    match way {
        Way::OneLevel => step(&mut secret, &mut code, &[2; 33], index)?,
        Way::FullPath => {
            for level in 0..5 {
                let mut input = [0; 33];
                if level < 3 {
                    input[1..].copy_from_slice(secret.as_ref());
                } else {
                    input = PublicKey::from_secret_key(SECP256K1, &secret).serialize();
                }
                step(&mut secret, &mut code, &input, index)?;
            }
        }
    }
    let public = PublicKey::from_secret_key(SECP256K1, &secret).serialize_uncompressed();
    Ok(keccak256(&public[1..])[12])
}

fn step(secret: &mut SecretKey, code: &mut [u8; 32], input: &[u8; 33], index: u32) -> Result<()> {
    let mut mac = Hmac::<Sha512>::new_from_slice(code)?;
    mac.update(input);
    mac.update(&index.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let (left, right) = digest.split_at(32);
    let tweak = Scalar::from_be_bytes(left.try_into()?).ok().context("an unlucky tweak")?;
    *secret = secret.add_tweak(&tweak)?;
    code.copy_from_slice(right);
    Ok(())
}
