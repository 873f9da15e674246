use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use types::{JobId, RawAmount, TxHash};
use uuid::Uuid;

/// What was paid for inclusion, read off the receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Gas, or energy where the chain counts that.
    pub units: u64,
    /// In the chain's smallest unit.
    pub unit_price: u128,
    /// All that was taken.
    pub fee: RawAmount,
}

/// A transaction that is final in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    pub tx: TxHash,
    pub block_number: u64,
    /// `None` in verdicts of a release that did not say it.
    pub block_hash: Option<TxHash>,
    pub cost: Cost,
}

/// Confirmation's signed word that these transactions can never pay. The signer asks for it before it signs for the same
/// payment under another binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoidProof {
    pub tx_hashes: Vec<TxHash>,
    /// Ed25519. Stored as hex.
    #[serde(with = "hex::serde")]
    pub signature: Vec<u8>,
    pub attested_at: DateTime<Utc>,
}

/// What confirmation proved about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Final, and the effect was seen.
    Settled(Inclusion),
    /// Final without the expected effect. The proof is missing where value moved, or where what was signed rests on
    /// somebody's word.
    Reverted {
        inclusion: Inclusion,
        reason: String,
        value_moved: bool,
        void: Vec<TxHash>,
        proof: Option<VoidProof>,
    },
    /// None of `void` can land any more: `foreign` is final at their nonce, or, without it, their window has closed.
    Void { void: Vec<TxHash>, foreign: Option<TxHash>, reason: String, proof: Option<VoidProof> },
    /// The job's own cancellation is final at the nonce of `void`.
    Cancelled { inclusion: Inclusion, void: Vec<TxHash>, proof: Option<VoidProof> },
    /// Not included for longer than the chain's limit; a higher fee may help.
    Stuck { newest: TxHash, waited: TimeDelta },
    /// A block that held it is no longer canonical.
    Reopened { tx: TxHash, block_hash: Option<TxHash> },
    /// Something final was undone, or something ruled out has landed.
    Contradicted { tx: Option<TxHash>, reason: String },
}

impl Finding {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Settled(_) => "settled",
            Self::Reverted { .. } => "reverted",
            Self::Void { .. } => "void",
            Self::Cancelled { .. } => "cancelled",
            Self::Stuck { .. } => "stuck",
            Self::Reopened { .. } => "reopened",
            Self::Contradicted { .. } => "contradicted",
        }
    }

    /// The final transaction it rests on.
    pub fn inclusion(&self) -> Option<&Inclusion> {
        match self {
            Self::Settled(inclusion)
            | Self::Reverted { inclusion, .. }
            | Self::Cancelled { inclusion, .. } => Some(inclusion),
            Self::Void { .. } | Self::Stuck { .. } | Self::Reopened { .. } | Self::Contradicted { .. } => {
                None
            }
        }
    }

    pub fn proof(&self) -> Option<&VoidProof> {
        match self {
            Self::Reverted { proof, .. } | Self::Void { proof, .. } | Self::Cancelled { proof, .. } => {
                proof.as_ref()
            }
            Self::Settled(_) | Self::Stuck { .. } | Self::Reopened { .. } | Self::Contradicted { .. } => None,
        }
    }
}

/// A finding about one job, as confirmation sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub id: Uuid,
    pub job: JobId,
    pub at: DateTime<Utc>,
    pub finding: Finding,
}
