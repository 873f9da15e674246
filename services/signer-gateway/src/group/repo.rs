//! Rows of groups and of the keyring.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row};
use types::WalletGroupId;
use uuid::Uuid;

use super::{Group, GroupError};
use crate::policy::GroupPurpose;
use crate::seal::{KdfParams, Keyring, SealedSecret};

/// Null parameters match everything: few rows, one statement.
const SELECT: &str = "SELECT id, name, purpose, fingerprint, sealed_version, sealed_nonce, sealed_seed, created_at \
     FROM wallet_groups \
     WHERE ($1::uuid IS NULL OR id = $1) AND ($2::text IS NULL OR name = $2) \
     ORDER BY created_at, id";
const INSERT: &str = "INSERT INTO wallet_groups \
     (id, name, purpose, fingerprint, sealed_version, sealed_nonce, sealed_seed, created_by) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const KEYRING: &str = "SELECT memory_kib, iterations, parallelism, salt, verifier_version, verifier_nonce, verifier \
     FROM keyring";
const INSERT_KEYRING: &str = "INSERT INTO keyring \
     (memory_kib, iterations, parallelism, salt, verifier_version, verifier_nonce, verifier) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (only_row) DO NOTHING";

#[derive(Debug, Clone)]
pub(super) struct StoredGroup {
    pub(super) group: Group,
    pub(super) fingerprint: String,
    pub(super) sealed: SealedSecret,
}

#[derive(Debug)]
pub(super) struct NewGroup<'a> {
    pub(super) id: WalletGroupId,
    pub(super) name: &'a str,
    pub(super) purpose: GroupPurpose,
    pub(super) fingerprint: &'a str,
    pub(super) sealed: &'a SealedSecret,
    pub(super) created_by: &'a str,
}

pub(super) async fn all(pool: &PgPool) -> Result<Vec<StoredGroup>, GroupError> {
    select(pool, None, None).await
}

pub(super) async fn by_id(pool: &PgPool, id: WalletGroupId) -> Result<Option<StoredGroup>, GroupError> {
    Ok(select(pool, Some(id.as_uuid()), None).await?.pop())
}

pub(super) async fn by_name(pool: &PgPool, name: &str) -> Result<Option<StoredGroup>, GroupError> {
    Ok(select(pool, None, Some(name)).await?.pop())
}

async fn select(pool: &PgPool, id: Option<Uuid>, name: Option<&str>) -> Result<Vec<StoredGroup>, GroupError> {
    sqlx::query(SELECT).bind(id).bind(name).fetch_all(pool).await?.iter().map(stored).collect()
}

pub(super) async fn insert_in(connection: &mut PgConnection, new: &NewGroup<'_>) -> Result<(), GroupError> {
    let version = i16::try_from(new.sealed.version).map_err(|_| GroupError::Corrupt("sealed_version"))?;
    let inserted = sqlx::query(INSERT)
        .bind(new.id.as_uuid())
        .bind(new.name)
        .bind(new.purpose.as_str())
        .bind(new.fingerprint)
        .bind(version)
        .bind(&new.sealed.nonce)
        .bind(&new.sealed.ciphertext)
        .bind(new.created_by)
        .execute(connection)
        .await;
    match inserted {
        Ok(_) => Ok(()),
        Err(error) => Err(match db::constraint(&error) {
            Some("wallet_groups_name_unique") => GroupError::Exists("name"),
            Some("wallet_groups_seed_unique") => GroupError::Exists("recovery_phrase"),
            Some(_) | None => GroupError::Database(error),
        }),
    }
}

pub(super) async fn keyring(pool: &PgPool) -> Result<Option<Keyring>, GroupError> {
    let Some(row) = sqlx::query(KEYRING).fetch_optional(pool).await? else {
        return Ok(None);
    };
    let number = |column: &str| -> Result<u32, GroupError> {
        u32::try_from(row.try_get::<i32, _>(column)?).map_err(|_| GroupError::Corrupt("keyring"))
    };
    Ok(Some(Keyring {
        params: KdfParams {
            memory_kib: number("memory_kib")?,
            iterations: number("iterations")?,
            parallelism: number("parallelism")?,
        },
        salt: row.try_get("salt")?,
        verifier: SealedSecret {
            version: version(&row, "verifier_version")?,
            nonce: row.try_get("verifier_nonce")?,
            ciphertext: row.try_get("verifier")?,
        },
    }))
}

/// Stores the first keyring; a replica that was faster wins.
pub(super) async fn insert_keyring(pool: &PgPool, keyring: &Keyring) -> Result<(), GroupError> {
    let number = |number: u32| i32::try_from(number).map_err(|_| GroupError::Corrupt("keyring"));
    let version = i16::try_from(keyring.verifier.version).map_err(|_| GroupError::Corrupt("keyring"))?;
    sqlx::query(INSERT_KEYRING)
        .bind(number(keyring.params.memory_kib)?)
        .bind(number(keyring.params.iterations)?)
        .bind(number(keyring.params.parallelism)?)
        .bind(&keyring.salt)
        .bind(version)
        .bind(&keyring.verifier.nonce)
        .bind(&keyring.verifier.ciphertext)
        .execute(pool)
        .await?;
    Ok(())
}

fn stored(row: &PgRow) -> Result<StoredGroup, GroupError> {
    let purpose = match row.try_get::<String, _>("purpose")?.as_str() {
        "operation" => GroupPurpose::Operation,
        "deposit" => GroupPurpose::Deposit,
        _ => return Err(GroupError::Corrupt("purpose")),
    };
    Ok(StoredGroup {
        group: Group {
            id: row.try_get::<Uuid, _>("id")?.into(),
            name: row.try_get("name")?,
            purpose,
            created_at: row.try_get("created_at")?,
            unsealed: false,
        },
        fingerprint: row.try_get("fingerprint")?,
        sealed: SealedSecret {
            version: version(row, "sealed_version")?,
            nonce: row.try_get("sealed_nonce")?,
            ciphertext: row.try_get("sealed_seed")?,
        },
    })
}

fn version(row: &PgRow, column: &str) -> Result<u16, GroupError> {
    u16::try_from(row.try_get::<i16, _>(column)?).map_err(|_| GroupError::Corrupt("version"))
}
