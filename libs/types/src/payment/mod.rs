//! What approvers sign: the digest of a payment, and the message that carries one approver's consent to it.
//!
//! Intent computes these to check an approval, and the signer gateway computes them again from what it is asked to pay. The bytes
//! are therefore an interface: a change needs a new version in the tag.
//!
//! Every field is written as `u32be length || bytes`, so that no two different payments have the same bytes. The tags have a
//! fixed length and no length field.
//!
//! Payment digest, SHA-256 over:
//!
//! | bytes | what |
//! |---|---|
//! | `bursar/payment/v1` | tag, 17 bytes |
//! | field | withdrawal id, hyphenated lower-case text |
//! | field | chain name |
//! | field | asset symbol |
//! | field | destination, canonical text (EIP-55 or base58check) |
//! | field | amount in raw units, decimal text |
//!
//! Approval message, signed with Ed25519 without hashing it first:
//!
//! | bytes | what |
//! |---|---|
//! | `bursar/approval/v1` | tag, 18 bytes |
//! | field | payment digest, 32 bytes |
//! | field | approver's name, UTF-8 |
//! | field | expiry, seconds since 1970 UTC, decimal text |
//!
//! Void message, signed with Ed25519 by the confirmation service; it says that none of these transactions can ever pay.
//!
//! | bytes | what |
//! |---|---|
//! | `bursar/void/v1` | tag, 14 bytes |
//! | field | job id, hyphenated lower-case text |
//! | field | each transaction hash, 32 bytes, in ascending order without repeats |
//! | field | time of the finding, seconds since 1970 UTC, decimal text |
//!
//! This module never signs, verifies or reads a clock.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::text::serde_as_text;
use crate::{Address, AssetSymbol, ChainName, JobId, RawAmount, TxHash, WithdrawalId};

/// The most approvals that one payment can require or carry. Every service uses this limit, so that no service requires what
/// another refuses. Intent's table repeats it.
pub const MOST_APPROVALS: u8 = 100;

const PAYMENT_TAG: &[u8] = b"bursar/payment/v1";
const APPROVAL_TAG: &[u8] = b"bursar/approval/v1";
const VOID_TAG: &[u8] = b"bursar/void/v1";

/// The facts an approver consents to.
#[derive(Debug, Clone, Copy)]
pub struct Payment<'a> {
    pub id: WithdrawalId,
    pub chain: &'a ChainName,
    pub asset: &'a AssetSymbol,
    pub destination: &'a Address,
    pub amount: RawAmount,
}

/// Identifies one payment: another id, chain, asset, destination or amount gives another digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentDigest(pub [u8; 32]);

/// A text that is not a payment digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payment digest is not 64 lower-case hex digits")]
pub struct DigestError;

impl PaymentDigest {
    pub fn compute(payment: &Payment<'_>) -> Self {
        let mut bytes = PAYMENT_TAG.to_vec();
        push_field(&mut bytes, payment.id.to_string().as_bytes());
        push_field(&mut bytes, payment.chain.as_str().as_bytes());
        push_field(&mut bytes, payment.asset.as_str().as_bytes());
        push_field(&mut bytes, payment.destination.to_string().as_bytes());
        push_field(&mut bytes, payment.amount.to_string().as_bytes());
        Self(Sha256::digest(&bytes).into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The bytes an approver signs: this payment, in this name, until this second.
pub fn approval_message(digest: PaymentDigest, approver: &str, expires_at_unix: i64) -> Vec<u8> {
    let mut bytes = APPROVAL_TAG.to_vec();
    push_field(&mut bytes, digest.as_bytes());
    push_field(&mut bytes, approver.as_bytes());
    push_field(&mut bytes, expires_at_unix.to_string().as_bytes());
    bytes
}

/// The bytes the confirmation service signs when none of a job's transactions can ever pay.
pub fn void_message(job: JobId, transactions: &[TxHash], attested_at_unix: i64) -> Vec<u8> {
    let hashes: BTreeSet<&[u8]> = transactions.iter().map(TxHash::as_bytes).collect();
    let mut bytes = VOID_TAG.to_vec();
    push_field(&mut bytes, job.to_string().as_bytes());
    for hash in hashes {
        push_field(&mut bytes, hash);
    }
    push_field(&mut bytes, attested_at_unix.to_string().as_bytes());
    bytes
}

fn push_field(bytes: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).expect("impossible: a name or number longer than 4 GiB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(field);
}

impl fmt::Display for PaymentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex::encode(self.0))
    }
}

impl fmt::Debug for PaymentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PaymentDigest({self})")
    }
}

impl FromStr for PaymentDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        // Only one spelling is accepted, because digests are compared as text in logs and audits.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| DigestError)?;
        Ok(Self(bytes))
    }
}

serde_as_text!(PaymentDigest, "a payment digest of 64 hex digits");

#[cfg(test)]
mod tests;
