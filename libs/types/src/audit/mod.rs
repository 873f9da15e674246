//! Entries of the signer's audit log, their canonical bytes and their hashes. It does no I/O, so that the same code can check
//! the signer's database and an exported file.
//!
//! `hash = sha256(previous_hash || canonical)`, where canonical is the tag `bursar/audit/v1` and then, each as
//! `u32be length || bytes`: sequence (decimal), time (microseconds since 1970, decimal), caller, action, decision,
//! reason, detail.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::text::serde_as_text;

const TAG: &[u8] = b"bursar/audit/v1";

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The previous hash of the first entry.
    pub const GENESIS: Self = Self([0; 32]);
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl std::str::FromStr for Hash {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

serde_as_text!(Hash, "a hash of 64 hex digits");

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Decision {
    Allowed,
    Refused,
}

/// A decision that is not in the log yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub caller: String,
    /// What the caller asked for, for example `sign`.
    pub action: &'static str,
    pub decision: Decision,
    pub reason: String,
    /// JSON text, which is hashed byte for byte.
    pub detail: String,
}

/// One row of the log. Its hash covers the hash of the row before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Position, from 1 without gaps.
    pub sequence: u64,
    /// To the microsecond.
    pub at: DateTime<Utc>,
    pub caller: String,
    pub action: String,
    /// `allowed` or `refused`; text, so that a forged export can be read and reported.
    pub decision: String,
    pub reason: String,
    pub detail: String,
    /// Hash of the row before this one.
    pub previous_hash: Hash,
    pub hash: Hash,
}

/// The newest row of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Sequence of the newest entry; 0 when there is none.
    pub sequence: u64,
    pub hash: Hash,
}

impl Head {
    pub const GENESIS: Self = Self { sequence: 0, hash: Hash::GENESIS };

    /// Appends a draft and moves the head to it. `at` must be cut to microseconds, because the database keeps no more.
    pub fn append(&mut self, at: DateTime<Utc>, draft: Draft) -> AuditEntry {
        let mut entry = AuditEntry {
            sequence: self.sequence + 1,
            at,
            caller: draft.caller,
            action: draft.action.to_owned(),
            decision: <&str>::from(draft.decision).to_owned(),
            reason: draft.reason,
            detail: draft.detail,
            previous_hash: self.hash,
            hash: Hash::GENESIS,
        };
        entry.hash = entry.computed_hash();
        *self = Self { sequence: entry.sequence, hash: entry.hash };
        entry
    }
}

impl AuditEntry {
    /// The hash that the contents of this row must have.
    pub fn computed_hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        hasher.update(self.previous_hash.0);
        hasher.update(TAG);
        let mut field = |bytes: &[u8]| {
            // Longer fields cannot be inserted; saturating keeps a forged export from causing a panic.
            hasher.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            hasher.update(bytes);
        };
        field(self.sequence.to_string().as_bytes());
        field(self.at.timestamp_micros().to_string().as_bytes());
        for text in [&self.caller, &self.action, &self.decision, &self.reason, &self.detail] {
            field(text.as_bytes());
        }
        Hash(hasher.finalize().into())
    }
}

/// Where and how a log was tampered with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// A row is missing, repeated or out of order.
    #[error("entry {expected} is missing; {found} is in its place")]
    Sequence { expected: u64, found: u64 },
    /// The row before was changed, or this row was moved here.
    #[error("entry {sequence} does not follow the entry before it")]
    Link { sequence: u64 },
    /// The row itself was changed.
    #[error("entry {sequence} was changed after it was written")]
    Content { sequence: u64 },
    /// Rows were cut off the end, or the stored head was changed.
    #[error("the log ends at entry {found}, but {expected} were written")]
    Tail { expected: u64, found: u64 },
    /// The whole log was rewritten with new hashes.
    #[error("entry {sequence} is not the one that was noted")]
    Anchor { sequence: u64 },
    /// A signature exists that the log does not mention, or mentions differently.
    #[error("signing record {key} does not agree with entry {sequence}")]
    Record { key: String, sequence: u64 },
}

impl Break {
    /// The first row that is wrong.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Sequence { expected, .. } => *expected,
            Self::Link { sequence }
            | Self::Content { sequence }
            | Self::Anchor { sequence }
            | Self::Record { sequence, .. } => *sequence,
            Self::Tail { found, .. } => found + 1,
        }
    }
}

/// Checks a log row by row.
#[derive(Debug, Clone)]
pub struct Verifier {
    head: Head,
    anchor: Option<Head>,
}

impl Verifier {
    /// Starts at the first row. `anchor` is a head that was noted earlier and kept where the owner of the database cannot
    /// change it.
    pub fn new(anchor: Option<Head>) -> Self {
        Self::after(Head::GENESIS, anchor)
    }

    /// Continues after a row that was checked before.
    pub fn after(head: Head, anchor: Option<Head>) -> Self {
        Self { head, anchor }
    }

    pub fn push(&mut self, entry: &AuditEntry) -> Result<(), Break> {
        let expected = self.head.sequence + 1;
        if entry.sequence != expected {
            return Err(Break::Sequence { expected, found: entry.sequence });
        }
        if entry.previous_hash != self.head.hash {
            return Err(Break::Link { sequence: expected });
        }
        if entry.computed_hash() != entry.hash {
            return Err(Break::Content { sequence: expected });
        }
        if self.anchor.is_some_and(|anchor| anchor.sequence == expected && anchor.hash != entry.hash) {
            return Err(Break::Anchor { sequence: expected });
        }
        self.head = Head { sequence: expected, hash: entry.hash };
        Ok(())
    }

    /// Ends the check. `stored` is the head that the database claims to have, if there is a database.
    pub fn finish(self, stored: Option<Head>) -> Result<Head, Break> {
        let found = self.head.sequence;
        for claim in [stored, self.anchor].into_iter().flatten() {
            if claim.sequence > found {
                return Err(Break::Tail { expected: claim.sequence, found });
            }
        }
        match stored {
            Some(stored) if stored.sequence < found => Err(Break::Tail { expected: stored.sequence, found }),
            Some(stored) if stored.hash != self.head.hash => Err(Break::Link { sequence: found }),
            Some(_) | None => Ok(self.head),
        }
    }

    /// The last row that was correct.
    pub fn head(&self) -> Head {
        self.head
    }
}

/// Checks exported rows, from the first to the last.
pub fn verify<'a>(
    entries: impl IntoIterator<Item = &'a AuditEntry>,
    anchor: Option<Head>,
) -> Result<Head, Break> {
    let mut verifier = Verifier::new(anchor);
    for entry in entries {
        verifier.push(entry)?;
    }
    verifier.finish(None)
}

#[cfg(test)]
mod tests;
