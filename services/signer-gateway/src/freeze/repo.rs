use sqlx::{PgConnection, PgPool};

/// A freeze that is there already keeps its reason.
pub(super) async fn insert_in(
    connection: &mut PgConnection,
    chain: &str,
    reason: &str,
    caller: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO freezes (chain, reason, frozen_by) VALUES ($1, $2, $3) ON CONFLICT (chain) DO NOTHING",
    )
    .bind(chain)
    .bind(reason)
    .bind(caller)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete_in(connection: &mut PgConnection, chain: &str) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM freezes WHERE chain = $1").bind(chain).execute(connection).await?;
    Ok(())
}

pub(super) async fn chains(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT chain FROM freezes ORDER BY chain").fetch_all(pool).await
}
