//! SQL of approval policies.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{FromRow, PgConnection};

use super::domain::{Policy, Tier};
use crate::catalogue::{AssetOnChain, columns};
use crate::error::{StoreError, decimals, number, parse};

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

/// Replaces the policy of an asset and its tiers.
pub async fn put_in(tx: &mut PgConnection, policy: &Policy, by: &str) -> Result<(), StoreError> {
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

pub async fn find_many_in(
    connection: &mut PgConnection,
    assets: &BTreeSet<AssetOnChain>,
) -> Result<BTreeMap<AssetOnChain, Policy>, StoreError> {
    select_in(connection, Some(columns(assets))).await
}

/// Every policy, by chain and asset.
pub async fn list_in(connection: &mut PgConnection) -> Result<Vec<Policy>, StoreError> {
    Ok(select_in(connection, None).await?.into_values().collect())
}

async fn select_in(
    connection: &mut PgConnection,
    assets: Option<(Vec<&str>, Vec<&str>)>,
) -> Result<BTreeMap<AssetOnChain, Policy>, StoreError> {
    let (chains, symbols) = assets.unzip();
    let rows: Vec<Row> = sqlx::query_as(SELECT).bind(chains).bind(symbols).fetch_all(connection).await?;
    let mut policies: BTreeMap<AssetOnChain, Policy> = BTreeMap::new();
    for row in rows {
        let asset: AssetOnChain = (parse("chain", &row.chain)?, parse("asset", &row.asset)?);
        let policy = Policy {
            chain: asset.0.clone(),
            asset: asset.1.clone(),
            decimals: decimals(row.decimals)?,
            tiers: Vec::new(),
            approvers: row.approvers,
        };
        // The rows are ordered by ascending amounts.
        policies.entry(asset).or_insert(policy).tiers.push(Tier {
            from: parse("from_amount_raw", &row.from_amount_raw)?,
            required: number("required_approvals", row.required_approvals.into())?,
        });
    }
    Ok(policies)
}
