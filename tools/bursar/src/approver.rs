//! An approver's Ed25519 key, and the approval it signs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ed25519_dalek::{Signer, SigningKey};
use proto::intent::v1 as pb;
use types::{Address, Payment, PaymentDigest, approval_message};

pub struct ApproverKey {
    name: String,
    key: SigningKey,
}

impl std::fmt::Debug for ApproverKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApproverKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ApproverKey {
    pub fn from_hex(name: &str, seed: &str) -> Result<Self> {
        let bytes = hex::decode(seed.trim()).context("the seed is not hex")?;
        let seed: [u8; 32] = bytes.try_into().ok().context("the seed is not 32 bytes")?;
        Ok(Self { name: name.to_owned(), key: SigningKey::from_bytes(&seed) })
    }

    pub fn read(name: &str, file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::from_hex(name, &text).with_context(|| format!("{} is no signing key", file.display()))
    }

    /// Hex of the public key: what the services' configuration holds.
    pub fn public_hex(&self) -> String {
        hex::encode(self.key.verifying_key().as_bytes())
    }

    /// Signs consent to exactly what the withdrawal says. The digest is computed here from the fields a person sees; a
    /// service that shows one payment and asks for a signature over another is found out.
    pub fn approve(&self, w: &pb::Withdrawal, valid: Duration) -> Result<pb::ApproveWithdrawalRequest> {
        let (chain, asset) = (w.chain.parse()?, w.asset.parse()?);
        let destination: Address =
            w.destination.parse().with_context(|| format!("destination {}", w.destination))?;
        let digest = PaymentDigest::compute(&Payment {
            id: w.id.parse()?,
            chain: &chain,
            asset: &asset,
            destination: &destination,
            amount: w.amount_raw.parse()?,
        });
        ensure!(
            digest.to_string() == w.payment_digest,
            "the service's digest {} is not that of the payment shown ({digest}); not signed",
            w.payment_digest
        );
        let valid = chrono::TimeDelta::from_std(valid).ok();
        let expires_at = valid.and_then(|valid| chrono::Utc::now().checked_add_signed(valid));
        let expires_at = expires_at.context("no calendar reaches the end of so long a validity")?;
        let message = approval_message(digest, &self.name, expires_at.timestamp());
        Ok(pb::ApproveWithdrawalRequest {
            id: w.id.clone(),
            signature: self.key.sign(&message).to_bytes().to_vec(),
            // The signed message knows whole seconds only.
            expires_at: Some(prost_types::Timestamp { seconds: expires_at.timestamp(), nanos: 0 }),
        })
    }
}
