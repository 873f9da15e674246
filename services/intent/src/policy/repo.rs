//! SQL of approval policies.

use std::collections::BTreeMap;

use sqlx::{FromRow, PgConnection};
use types::{AssetSymbol, ChainName, Decimals};

use super::domain::{Policy, Tier};
use super::error::PolicyError;

const PUT: &str = include_str!("../../queries/policy_put.sql");
const PUT_TIERS: &str = include_str!("../../queries/policy_put_tiers.sql");
const SELECT: &str = include_str!("../../queries/policy_select.sql");

#[derive(FromRow)]
struct Row {
    chain: String,
    asset: String,
    decimals: i16,
    approvers: Vec<String>,
    from_amount_raw: String,
    required_approvals: i32,
}

fn corrupt(what: &str, error: impl std::fmt::Display) -> PolicyError {
    PolicyError::Corrupt(format!("{what}: {error}"))
}

/// Replaces the policy of an asset, tiers and all.
pub async fn put_in(tx: &mut PgConnection, policy: &Policy, by: &str) -> Result<(), PolicyError> {
    sqlx::query(PUT)
        .bind(policy.chain.as_str())
        .bind(policy.asset.as_str())
        .bind(&policy.approvers)
        .bind(i16::from(policy.decimals.get()))
        .bind(by)
        .execute(&mut *tx)
        .await?;
    sqlx::query("DELETE FROM approval_tiers WHERE chain = $1 AND asset = $2")
        .bind(policy.chain.as_str())
        .bind(policy.asset.as_str())
        .execute(&mut *tx)
        .await?;
    let from: Vec<String> = policy.tiers.iter().map(|tier| tier.from.to_string()).collect();
    let required: Vec<i32> =
        policy.tiers.iter().map(|tier| i32::try_from(tier.required).unwrap_or(i32::MAX)).collect();
    sqlx::query(PUT_TIERS)
        .bind(policy.chain.as_str())
        .bind(policy.asset.as_str())
        .bind(from)
        .bind(required)
        .execute(tx)
        .await?;
    Ok(())
}

/// The policy of an asset.
pub async fn find_in(
    connection: &mut PgConnection,
    chain: &ChainName,
    asset: &AssetSymbol,
) -> Result<Option<Policy>, PolicyError> {
    Ok(select_in(connection, Some(chain), Some(asset)).await?.pop())
}

/// Every policy, by chain and asset.
pub async fn list_in(connection: &mut PgConnection) -> Result<Vec<Policy>, PolicyError> {
    select_in(connection, None, None).await
}

async fn select_in(
    connection: &mut PgConnection,
    chain: Option<&ChainName>,
    asset: Option<&AssetSymbol>,
) -> Result<Vec<Policy>, PolicyError> {
    let rows: Vec<Row> = sqlx::query_as(SELECT)
        .bind(chain.map(ChainName::as_str))
        .bind(asset.map(AssetSymbol::as_str))
        .fetch_all(connection)
        .await?;
    let mut policies: BTreeMap<(String, String), Policy> = BTreeMap::new();
    for row in rows {
        let decimals = u8::try_from(row.decimals).map_err(|error| corrupt("decimals", error))?;
        let policy = Policy {
            chain: row.chain.parse().map_err(|error| corrupt("chain", error))?,
            asset: row.asset.parse().map_err(|error| corrupt("asset", error))?,
            decimals: Decimals::new(decimals).map_err(|error| corrupt("decimals", error))?,
            tiers: Vec::new(),
            approvers: row.approvers,
        };
        // The rows come with ascending amounts.
        policies.entry((row.chain, row.asset)).or_insert(policy).tiers.push(Tier {
            from: row.from_amount_raw.parse().map_err(|error| corrupt("from_amount_raw", error))?,
            required: u32::try_from(row.required_approvals)
                .map_err(|error| corrupt("required_approvals", error))?,
        });
    }
    Ok(policies.into_values().collect())
}
