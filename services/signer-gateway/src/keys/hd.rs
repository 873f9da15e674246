//! BIP-32 over libsecp256k1, limited to one BIP-44 branch for each family of chains. The branch `m/44'/coin'/0'/0` is
//! derived once and cached with its public key, so that a wallet's key costs one HMAC and one scalar addition.

use hmac::{Hmac, Mac};
use secp256k1::{Message, PublicKey, SECP256K1, Scalar, SecretKey};
use sha2::Sha512;
use types::Address;
use zeroize::{Zeroize, Zeroizing};

use super::KeyError;

const HARDENED: u32 = 1 << 31;

/// How a family of chains derives its wallets from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Scheme {
    /// The BIP-44 coin of its branch.
    pub coin: u32,
    /// The address of an uncompressed public key.
    pub address: fn(&[u8; 65]) -> Address,
}

impl Scheme {
    /// The path of one wallet, as people write it.
    pub fn path(&self, index: u32) -> String {
        format!("m/44'/{}'/0'/0/{index}", self.coin)
    }

    pub fn address_of(&self, leaf: &LeafKey) -> Result<Address, KeyError> {
        Ok((self.address)(&leaf.public()?))
    }
}

/// A BIP-39 seed, wiped when dropped.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 64]>);

impl Seed {
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads a seed that was sealed; `None` when the length is wrong.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut seed = Zeroizing::new([0u8; 64]);
        if bytes.len() != seed.len() {
            return None;
        }
        seed.copy_from_slice(bytes);
        Some(Self(seed))
    }

    /// For sealing only.
    pub fn expose(&self) -> &[u8; 64] {
        &self.0
    }

    /// Derives `m/44'/coin'/0'/0`.
    pub fn branch(&self, coin: u32) -> Result<BranchKey, KeyError> {
        let mut node = Node::master(self)?;
        for child in [44 | HARDENED, coin | HARDENED, HARDENED, 0] {
            node = node.child(child, None)?;
        }
        let public = node.public();
        Ok(BranchKey { node, public })
    }
}

/// A private key with its chain code; both wiped when dropped.
struct Node {
    key: Zeroizing<[u8; 32]>,
    chain_code: Zeroizing<[u8; 32]>,
}

impl Node {
    fn master(seed: &Seed) -> Result<Self, KeyError> {
        let node = Self::split(hmac_sha512(b"Bitcoin seed", &[seed.expose()]));
        let mut checked = secret_key(&node.key)?;
        checked.non_secure_erase();
        Ok(node)
    }

    fn split(digest: Zeroizing<[u8; 64]>) -> Self {
        let mut key = Zeroizing::new([0u8; 32]);
        let mut chain_code = Zeroizing::new([0u8; 32]);
        key.copy_from_slice(&digest[..32]);
        chain_code.copy_from_slice(&digest[32..]);
        Self { key, chain_code }
    }

    fn public(&self) -> [u8; 33] {
        let mut secret = secret_key(&self.key).expect("a node's key was checked when it was derived");
        let public = PublicKey::from_secret_key(SECP256K1, &secret).serialize();
        secret.non_secure_erase();
        public
    }

    /// CKDpriv. `public` spares the point multiplication when the caller has it already.
    fn child(&self, index: u32, public: Option<&[u8; 33]>) -> Result<Self, KeyError> {
        let number = index.to_be_bytes();
        let digest = if index & HARDENED != 0 {
            hmac_sha512(self.chain_code.as_slice(), &[&[0], self.key.as_slice(), &number])
        } else {
            let computed;
            let public = match public {
                Some(known) => known,
                None => {
                    computed = self.public();
                    &computed
                }
            };
            hmac_sha512(self.chain_code.as_slice(), &[public, &number])
        };
        let mut derived = Self::split(digest);
        let mut tweak = Scalar::from_be_bytes(*derived.key).map_err(|_| KeyError::OutOfRange)?;
        // Both are copies that know nothing of wiping; whoever has the tweak and the child has the parent.
        let mut parent = secret_key(&self.key)?;
        let sum = parent.add_tweak(&tweak);
        parent.non_secure_erase();
        tweak.non_secure_erase();
        let mut sum = sum.map_err(|_| KeyError::OutOfRange)?;
        derived.key.copy_from_slice(sum.as_ref());
        sum.non_secure_erase();
        Ok(derived)
    }
}

/// The key of `m/44'/coin'/0'/0`, from which every wallet of a group is one step away.
pub struct BranchKey {
    node: Node,
    public: [u8; 33],
}

impl BranchKey {
    pub fn leaf(&self, index: u32) -> Result<LeafKey, KeyError> {
        if index >= HARDENED {
            return Err(KeyError::IndexTooLarge);
        }
        let node = self.node.child(index, Some(&self.public))?;
        Ok(LeafKey { key: node.key })
    }
}

/// One wallet's private key, wiped when dropped.
pub struct LeafKey {
    key: Zeroizing<[u8; 32]>,
}

redact_debug!(Seed, BranchKey, LeafKey);

/// A low-s signature with the parity of its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverableSignature {
    pub compact: [u8; 64],
    /// Recovery id, 0 or 1.
    pub odd_y: bool,
}

impl LeafKey {
    fn public(&self) -> Result<[u8; 65], KeyError> {
        let mut secret = secret_key(&self.key)?;
        let public = PublicKey::from_secret_key(SECP256K1, &secret).serialize_uncompressed();
        secret.non_secure_erase();
        Ok(public)
    }

    /// Signs a digest deterministically (RFC 6979), low-s.
    pub fn sign(&self, digest: [u8; 32]) -> Result<RecoverableSignature, KeyError> {
        let mut secret = secret_key(&self.key)?;
        let signature = SECP256K1.sign_ecdsa_recoverable(Message::from_digest(digest), &secret);
        secret.non_secure_erase();
        let (recovery, compact) = signature.serialize_compact();
        // Ids 2 and 3 mean r overflowed the order (about 2^-127): EVM transactions cannot carry them.
        match i32::from(recovery) {
            0 => Ok(RecoverableSignature { compact, odd_y: false }),
            1 => Ok(RecoverableSignature { compact, odd_y: true }),
            _ => Err(KeyError::OutOfRange),
        }
    }

    #[cfg(test)]
    pub(crate) fn from_hex(text: &str) -> Self {
        let mut key = Zeroizing::new([0u8; 32]);
        hex::decode_to_slice(text, key.as_mut()).expect("32 bytes of hex");
        Self { key }
    }
}

fn secret_key(bytes: &Zeroizing<[u8; 32]>) -> Result<SecretKey, KeyError> {
    SecretKey::from_byte_array(**bytes).map_err(|_| KeyError::OutOfRange)
}

fn hmac_sha512(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 64]> {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("HMAC takes keys of every length");
    for part in parts {
        mac.update(part);
    }
    let mut digest = mac.finalize().into_bytes();
    let mut out = Zeroizing::new([0u8; 64]);
    out.copy_from_slice(&digest);
    digest.as_mut_slice().zeroize();
    out
}

#[cfg(test)]
mod tests {
    use types::AddressFormat;

    use super::*;
    use crate::builder::family;
    use crate::keys::seed_from_phrase;

    const PHRASE: &str = "test test test test test test test test test test test junk";

    const ETHEREUM: u32 = 60;

    fn leaf(coin: u32, index: u32) -> LeafKey {
        seed_from_phrase(PHRASE, "").expect("phrase").branch(coin).expect("branch").leaf(index).expect("leaf")
    }

    fn check(format: AddressFormat, index: u32, key: &str, address: &str) {
        let scheme = family(format).scheme();
        let leaf = leaf(scheme.coin, index);
        assert_eq!(hex::encode(*leaf.key), key);
        assert_eq!(scheme.address_of(&leaf).expect("address").to_string(), address);
    }

    #[test]
    fn ethereum_wallets_match_the_published_test_accounts() {
        for (index, key, address) in [
            (
                0,
                "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
                "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
            ),
            (
                1,
                "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
                "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
            ),
        ] {
            check(AddressFormat::Evm, index, key, address);
        }
    }

    #[test]
    fn tron_wallets_match_the_reference_derivations() {
        for (index, key, address) in [
            (
                0,
                "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954",
                "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
            ),
            (
                1,
                "9b6ac6a6faf1dc64240f654475a7e668141e4205262367feb7269ef332113929",
                "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C",
            ),
        ] {
            check(AddressFormat::Tron, index, key, address);
        }
    }

    #[test]
    fn bip32_vector_one_is_reproduced() {
        // Vector 1 of BIP-32: chain m/0' of seed 000102..0f.
        let digest =
            hmac_sha512(b"Bitcoin seed", &[&hex::decode("000102030405060708090a0b0c0d0e0f").expect("hex")]);
        let child = Node::split(digest).child(HARDENED, None).expect("child");
        assert_eq!(
            hex::encode(*child.key),
            "edb2e14f9ee77d26dd93b4ecede8d16ed408ce149b6cd80b0715a2d911a0afea"
        );
        let grandchild = child.child(1, None).expect("grandchild");
        assert_eq!(
            hex::encode(*grandchild.key),
            "3c6cb8d0f6a264c91ea8b5030fadaa8e538b020f0a387421a12de9319dc93368"
        );
    }

    #[test]
    fn hardened_indices_are_refused() {
        let branch = seed_from_phrase(PHRASE, "").expect("phrase").branch(ETHEREUM).expect("branch");
        assert_eq!(branch.leaf(HARDENED).unwrap_err(), KeyError::IndexTooLarge);
        assert!(branch.leaf(HARDENED - 1).is_ok());
    }

    #[test]
    fn signatures_are_deterministic_low_s_and_recover_to_the_signer() {
        let half_order =
            hex::decode("7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0").expect("hex");
        let leaf = leaf(ETHEREUM, 0);
        for i in 0..64u8 {
            let digest = [i; 32];
            let signature = leaf.sign(digest).expect("signature");
            assert_eq!(signature, leaf.sign(digest).expect("signature"));
            assert!(signature.compact[32..] <= half_order[..], "s is in the lower half");
            let parsed =
                alloy_primitives::Signature::from_bytes_and_parity(&signature.compact, signature.odd_y);
            let recovered = recover(digest, &signature);
            assert_eq!(recovered, leaf.public().expect("key"));
            assert_eq!(parsed.v(), signature.odd_y);
        }
    }

    fn recover(digest: [u8; 32], signature: &RecoverableSignature) -> [u8; 65] {
        let id = secp256k1::ecdsa::RecoveryId::try_from(i32::from(signature.odd_y)).expect("id");
        let parsed =
            secp256k1::ecdsa::RecoverableSignature::from_compact(&signature.compact, id).expect("signature");
        parsed.recover(Message::from_digest(digest)).expect("recovers").serialize_uncompressed()
    }

    #[test]
    fn debug_output_shows_no_key_material() {
        let seed = seed_from_phrase(PHRASE, "").expect("phrase");
        let branch = seed.branch(ETHEREUM).expect("branch");
        let shown = format!("{seed:?} {branch:?} {:?}", branch.leaf(0).expect("leaf"));
        assert_eq!(shown, "Seed(..) BranchKey(..) LeafKey(..)");
    }
}
