//! Why sealing or opening failed. Never carries key material or plaintext.

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("the unseal key is wrong")]
    WrongKey,
    #[error("the sealed secret does not open for this group")]
    Corrupt,
    /// Parameters of the key derivation are outside what is accepted.
    #[error("key derivation parameters are out of range")]
    BadParameters,
    #[error("sealed layout version {0} is unknown")]
    UnknownVersion(u16),
    /// An empty unseal key protects nothing.
    #[error("the unseal key is shorter than {min} bytes", min = super::local::MIN_KEY_BYTES)]
    KeyTooShort,
    #[error("the system's random source failed")]
    NoRandomness,
    #[error("the stored keyring cannot be understood")]
    Keyring,
}

/// Why the seal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("the keyring cannot be read or written")]
    Database(#[from] sqlx::Error),
}
