//! Entries of the signer's audit log, their canonical bytes and their hashes. No I/O: the same code checks the signer's
//! database and an exported file, wherever that lies.
//!
//! `hash = sha256(previous_hash || canonical)`, where canonical is the tag `bursar/audit/v1` and then, each as
//! `u32be length || bytes`: sequence (decimal), time (microseconds since 1970, decimal), caller, action, decision,
//! reason, detail.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const TAG: &[u8] = b"bursar/audit/v1";

/// Hash of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first entry follows.
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

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Done.
    Allowed,
    /// Not done.
    Refused,
}

impl Decision {
    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
        }
    }
}

/// A decision that has no place in the chain yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Who asked.
    pub caller: String,
    /// What was asked, e.g. `sign`.
    pub action: &'static str,
    /// What was decided.
    pub decision: Decision,
    /// Stable reason.
    pub reason: String,
    /// The particulars, as JSON text; hashed as it stands.
    pub detail: String,
}

/// One row of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Position, from 1 without gaps.
    pub sequence: u64,
    /// When, to the microsecond.
    pub at: DateTime<Utc>,
    /// Who asked.
    pub caller: String,
    /// What was asked.
    pub action: String,
    /// What was decided, `allowed` or `refused`.
    pub decision: String,
    /// Stable reason.
    pub reason: String,
    /// The particulars.
    pub detail: String,
    /// Hash of the entry before.
    pub previous_hash: Hash,
    /// Hash of this entry.
    pub hash: Hash,
}

/// The newest place of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Sequence of the newest entry; 0 when there is none.
    pub sequence: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Head {
    /// The head of an empty log.
    pub const GENESIS: Self = Self { sequence: 0, hash: Hash::GENESIS };

    /// Puts a draft at the end and moves the head to it. `at` must have no more than microseconds, as the
    /// database keeps no more.
    pub fn append(&mut self, at: DateTime<Utc>, draft: Draft) -> Entry {
        let mut entry = Entry {
            sequence: self.sequence + 1,
            at,
            caller: draft.caller,
            action: draft.action.to_owned(),
            decision: draft.decision.as_str().to_owned(),
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

impl Entry {
    /// The hash its contents ask for.
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

/// Where a chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// A row is missing, doubled or out of order.
    #[error("entry {expected} is missing; {found} stands in its place")]
    Sequence {
        /// The sequence that should stand here.
        expected: u64,
        /// The one that does.
        found: u64,
    },
    /// The row before was changed, or this row was moved here.
    #[error("entry {sequence} does not follow the entry before it")]
    Link {
        /// The row.
        sequence: u64,
    },
    /// The row itself was changed.
    #[error("entry {sequence} was changed after it was written")]
    Content {
        /// The row.
        sequence: u64,
    },
    /// Rows were cut off the end, or the stored head was changed.
    #[error("the log ends at entry {found}, but {expected} were written")]
    Tail {
        /// Entries that should exist.
        expected: u64,
        /// Entries that do.
        found: u64,
    },
    /// The whole chain was computed anew.
    #[error("entry {sequence} is not the one that was noted")]
    Anchor {
        /// The noted row.
        sequence: u64,
    },
    /// A signature exists that the log does not tell of, or tells otherwise.
    #[error("signing record {key} does not agree with entry {sequence}")]
    Record {
        /// Idempotency key of the record.
        key: String,
        /// The row it names.
        sequence: u64,
    },
}

impl Break {
    /// The first row that does not fit.
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

/// Follows a chain row by row.
#[derive(Debug, Clone)]
pub struct Verifier {
    head: Head,
    anchor: Option<Head>,
}

impl Verifier {
    /// Starts at the beginning. `anchor` is a head noted earlier, kept where the database's owner cannot reach.
    pub fn new(anchor: Option<Head>) -> Self {
        Self::after(Head::GENESIS, anchor)
    }

    /// Goes on after a row that was checked before.
    pub fn after(head: Head, anchor: Option<Head>) -> Self {
        Self { head, anchor }
    }

    /// Takes the next row.
    pub fn push(&mut self, entry: &Entry) -> Result<(), Break> {
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

    /// Ends the chain; `stored` is the head the database claims, where there is one.
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

    /// The last row that held.
    pub fn head(&self) -> Head {
        self.head
    }
}

/// Checks exported rows, first to last.
pub fn verify<'a>(entries: impl IntoIterator<Item = &'a Entry>, anchor: Option<Head>) -> Result<Head, Break> {
    let mut verifier = Verifier::new(anchor);
    for entry in entries {
        verifier.push(entry)?;
    }
    verifier.finish(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(length: usize) -> Vec<Entry> {
        let mut head = Head::GENESIS;
        (0..length)
            .map(|i| {
                let at =
                    DateTime::from_timestamp_micros(1_800_000_000_000_000 + i64::try_from(i).expect("small"))
                        .expect("time");
                head.append(
                    at,
                    Draft {
                        caller: "execution".to_owned(),
                        action: "sign",
                        decision: if i % 3 == 0 { Decision::Refused } else { Decision::Allowed },
                        reason: format!("reason.{i}"),
                        detail: format!("{{\"n\":{i}}}"),
                    },
                )
            })
            .collect()
    }

    #[test]
    fn an_untouched_log_holds_and_survives_export() {
        let entries = log(20);
        let head = verify(&entries, None).expect("holds");
        assert_eq!(head.sequence, 20);
        let lines: Vec<String> =
            entries.iter().map(|entry| serde_json::to_string(entry).expect("json")).collect();
        let back: Vec<Entry> = lines.iter().map(|line| serde_json::from_str(line).expect("entry")).collect();
        assert_eq!(verify(&back, Some(head)), Ok(head));
    }

    #[test]
    fn the_hash_is_fixed_for_ever() {
        // A change of the canonical bytes would make every log ever written look forged.
        assert_eq!(
            log(1)[0].hash.to_string(),
            hex::encode(Sha256::digest(
                [
                    [0u8; 32].as_slice(),
                    b"bursar/audit/v1",
                    b"\0\0\0\x011",
                    b"\0\0\0\x101800000000000000",
                    b"\0\0\0\x09execution",
                    b"\0\0\0\x04sign",
                    b"\0\0\0\x07refused",
                    b"\0\0\0\x08reason.0",
                    b"\0\0\0\x07{\"n\":0}",
                ]
                .concat()
            ))
        );
    }

    #[test]
    fn a_rewritten_or_shortened_log_is_found_by_a_noted_head() {
        let entries = log(10);
        let noted = Head { sequence: 10, hash: entries[9].hash };
        assert_eq!(verify(&entries[..8], Some(noted)), Err(Break::Tail { expected: 10, found: 8 }));
        let mut head = Head::GENESIS;
        let forged: Vec<Entry> = log(10)
            .into_iter()
            .map(|entry| {
                let draft = Draft {
                    caller: entry.caller,
                    action: "sign",
                    decision: Decision::Allowed,
                    reason: entry.reason,
                    detail: entry.detail,
                };
                head.append(entry.at, draft)
            })
            .collect();
        assert!(verify(&forged, None).is_ok(), "a chain computed anew holds in itself");
        assert_eq!(verify(&forged, Some(noted)), Err(Break::Anchor { sequence: 10 }));
    }

    proptest! {
        #[test]
        fn every_edit_is_found_where_it_was_made(at in 0usize..12, field in 0usize..7) {
            let mut entries = log(12);
            let entry = &mut entries[at];
            match field {
                0 => entry.caller.push('x'),
                1 => entry.action.push('x'),
                2 => entry.decision = if entry.decision == "allowed" { "refused" } else { "allowed" }.to_owned(),
                3 => entry.reason.push('x'),
                4 => entry.detail.push(' '),
                5 => entry.at += chrono::TimeDelta::microseconds(1),
                _ => entry.hash.0[0] ^= 1,
            }
            let found = verify(&entries, None).unwrap_err();
            prop_assert_eq!(found.sequence(), u64::try_from(at).expect("small") + 1);
        }

        #[test]
        fn every_removal_and_every_swap_is_found(a in 0usize..12, b in 0usize..12) {
            let mut removed = log(12);
            removed.remove(a);
            // Cutting the very end leaves a shorter chain that holds; a noted head finds that.
            prop_assert_eq!(verify(&removed, None).is_ok(), a == 11);
            let mut swapped = log(12);
            swapped.swap(a, b);
            prop_assert_eq!(verify(&swapped, None).is_ok(), a == b);
        }

        #[test]
        fn moving_bytes_between_fields_changes_the_hash(split in 1usize..8) {
            let mut entry = log(1).remove(0);
            let before = entry.computed_hash();
            let moved = entry.reason.split_off(split.min(entry.reason.len() - 1));
            entry.detail = moved + &entry.detail;
            prop_assert_ne!(entry.computed_hash(), before);
        }
    }
}
