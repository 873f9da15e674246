//! The row of the local seal's keyring.

use sqlx::{PgPool, Row};

use super::local::Keyring;
use super::{KdfParams, SealError, SealedSecret, UnsealError};

pub(super) async fn keyring(pool: &PgPool) -> Result<Option<Keyring>, UnsealError> {
    let row = sqlx::query(
        "SELECT memory_kib, iterations, parallelism, salt, verifier_version, verifier_nonce, verifier FROM keyring",
    );
    let Some(row) = row.fetch_optional(pool).await? else { return Ok(None) };
    let number = |column: &str| -> Result<u32, UnsealError> {
        Ok(u32::try_from(row.try_get::<i32, _>(column)?).map_err(|_| SealError::Keyring)?)
    };
    Ok(Some(Keyring {
        params: KdfParams {
            memory_kib: number("memory_kib")?,
            iterations: number("iterations")?,
            parallelism: number("parallelism")?,
        },
        salt: row.try_get("salt")?,
        verifier: SealedSecret {
            version: u16::try_from(row.try_get::<i16, _>("verifier_version")?)
                .map_err(|_| SealError::Keyring)?,
            nonce: row.try_get("verifier_nonce")?,
            ciphertext: row.try_get("verifier")?,
        },
    }))
}

/// Stores the first keyring; a replica that was faster wins.
pub(super) async fn insert_keyring(pool: &PgPool, keyring: &Keyring) -> Result<(), UnsealError> {
    let number = |number: u32| i32::try_from(number).map_err(|_| SealError::Keyring);
    sqlx::query(
        "INSERT INTO keyring \
         (memory_kib, iterations, parallelism, salt, verifier_version, verifier_nonce, verifier) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (only_row) DO NOTHING",
    )
    .bind(number(keyring.params.memory_kib)?)
    .bind(number(keyring.params.iterations)?)
    .bind(number(keyring.params.parallelism)?)
    .bind(&keyring.salt)
    .bind(i16::try_from(keyring.verifier.version).map_err(|_| SealError::Keyring)?)
    .bind(&keyring.verifier.nonce)
    .bind(&keyring.verifier.ciphertext)
    .execute(pool)
    .await?;
    Ok(())
}
