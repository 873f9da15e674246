//! Rows of wallet groups.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row};
use types::WalletGroupId;
use uuid::Uuid;

use super::{GroupError, WalletGroup};
use crate::policy::GroupPurpose;
use crate::seal::SealedSecret;

#[derive(Debug, Clone)]
pub(super) struct StoredGroup {
    pub(super) group: WalletGroup,
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
    // Null parameters match everything: there are few rows, so one statement serves all reads.
    let rows =
        sqlx::query(include_str!("../../queries/wallet_groups.sql")).bind(id).bind(name).fetch_all(pool);
    rows.await?.iter().map(stored).collect()
}

pub(super) async fn insert_in(connection: &mut PgConnection, new: &NewGroup<'_>) -> Result<(), GroupError> {
    let version = i16::try_from(new.sealed.version).map_err(|_| GroupError::Corrupt("sealed_version"))?;
    let inserted = sqlx::query(
        "INSERT INTO wallet_groups \
         (id, name, purpose, fingerprint, sealed_version, sealed_nonce, sealed_seed, created_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(new.id.as_uuid())
    .bind(new.name)
    .bind(new.purpose.into_str())
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

fn stored(row: &PgRow) -> Result<StoredGroup, GroupError> {
    let purpose = row.try_get::<String, _>("purpose")?.parse().map_err(|_| GroupError::Corrupt("purpose"))?;
    let version = u16::try_from(row.try_get::<i16, _>("sealed_version")?);
    Ok(StoredGroup {
        group: WalletGroup {
            id: row.try_get::<Uuid, _>("id")?.into(),
            name: row.try_get("name")?,
            purpose,
            created_at: row.try_get("created_at")?,
            unsealed: false,
        },
        fingerprint: row.try_get("fingerprint")?,
        sealed: SealedSecret {
            version: version.map_err(|_| GroupError::Corrupt("version"))?,
            nonce: row.try_get("sealed_nonce")?,
            ciphertext: row.try_get("sealed_seed")?,
        },
    })
}
