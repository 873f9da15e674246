//! The ring of heads, the final block, halts and nodes' heads between the tables and the domain.

pub mod lease;

use std::collections::BTreeMap;

use chain::{Head, HeadRing};
use payment::BlockRef;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::ChainName;

use super::{ChainStatus, NodeStatus, Tips};
use crate::columns::{self, bytes, signed};
use crate::error::Error;

/// The stored ring, oldest first.
pub async fn load_ring(pool: &PgPool, chain: &ChainName, capacity: usize) -> Result<HeadRing, Error> {
    let rows =
        sqlx::query("SELECT number, hash, parent, timestamp_ms FROM heads WHERE chain = $1 ORDER BY number")
            .bind(chain.as_str())
            .fetch_all(pool)
            .await?;
    let heads = rows.iter().map(head).collect::<Result<Vec<_>, _>>()?;
    Ok(HeadRing::restore(capacity, heads))
}

fn head(row: &PgRow) -> Result<Head, Error> {
    Ok(Head {
        number: columns::number(row, "number")?,
        hash: columns::hash(row, "hash")?,
        parent: columns::hash(row, "parent")?,
        timestamp_ms: columns::number(row, "timestamp_ms")?,
    })
}

/// Makes the stored ring equal to `ring`, given that everything below `from` is the same.
pub async fn save_ring_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    ring: &HeadRing,
    from: u64,
) -> Result<(), Error> {
    let new: Vec<&Head> = ring.iter().filter(|head| head.number >= from).collect();
    let lowest = ring.lowest().map_or(from, |head| head.number);
    sqlx::query("DELETE FROM heads WHERE chain = $1 AND (number >= $2 OR number < $3)")
        .bind(chain.as_str())
        .bind(signed(from))
        .bind(signed(lowest))
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "INSERT INTO heads (chain, number, hash, parent, timestamp_ms)
         SELECT $1, * FROM unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[])",
    )
    .bind(chain.as_str())
    .bind(new.iter().map(|head| signed(head.number)).collect::<Vec<_>>())
    .bind(new.iter().map(|head| bytes(&head.hash)).collect::<Vec<_>>())
    .bind(new.iter().map(|head| bytes(&head.parent)).collect::<Vec<_>>())
    .bind(new.iter().map(|head| signed(head.timestamp_ms)).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes the ring; the next tick begins at a final block.
pub async fn clear_ring_in(tx: &mut PgConnection, chain: &ChainName) -> Result<(), Error> {
    sqlx::query("DELETE FROM heads WHERE chain = $1").bind(chain.as_str()).execute(tx).await?;
    Ok(())
}

pub async fn save_final_in(tx: &mut PgConnection, chain: &ChainName, block: BlockRef) -> Result<(), Error> {
    sqlx::query("UPDATE chain_loops SET final_number = $2, final_hash = $3 WHERE chain = $1")
        .bind(chain.as_str())
        .bind(signed(block.number))
        .bind(bytes(&block.hash))
        .execute(tx)
        .await?;
    Ok(())
}

/// Stops verdicts on a chain until an operator resumes it. The first reason stays.
pub async fn halt_in(tx: &mut PgConnection, chain: &ChainName, reason: &str) -> Result<(), Error> {
    sqlx::query(
        "UPDATE chain_loops SET halted_at = now(), halted_reason = $2 WHERE chain = $1 AND halted_at IS NULL",
    )
    .bind(chain.as_str())
    .bind(reason)
    .execute(tx)
    .await?;
    Ok(())
}

/// Replaces what is stored of the chain's nodes.
pub async fn save_nodes_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    nodes: &[NodeStatus],
) -> Result<(), Error> {
    let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
    sqlx::query("DELETE FROM node_heads WHERE chain = $1 AND node <> ALL($2)")
        .bind(chain.as_str())
        .bind(&names)
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("../../../queries/node_heads_save.sql"))
        .bind(chain.as_str())
        .bind(&names)
        .bind(nodes.iter().map(|node| signed(node.number)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|node| node.hash.as_ref().map(bytes)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|node| node.problem.as_str()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// The status of every chain, ordered by name.
pub async fn statuses(pool: &PgPool) -> Result<Vec<ChainStatus>, Error> {
    let mut by_chain = BTreeMap::new();
    for row in sqlx::query(include_str!("../../../queries/chain_statuses.sql")).fetch_all(pool).await? {
        let chain = chain_name(&row)?;
        let number = columns::optional_number(&row, "number")?;
        let status = ChainStatus {
            chain: chain.clone(),
            tip: number.zip(columns::optional_hash(&row, "hash")?),
            final_number: columns::optional_number(&row, "final_number")?,
            nodes: Vec::new(),
            halted_reason: row.try_get("halted_reason")?,
        };
        by_chain.insert(chain, status);
    }
    let nodes = sqlx::query("SELECT chain, node, number, hash, problem FROM node_heads ORDER BY chain, node");
    for row in nodes.fetch_all(pool).await? {
        let node = NodeStatus {
            node: row.try_get("node")?,
            number: columns::number(&row, "number")?,
            hash: columns::optional_hash(&row, "hash")?,
            problem: row.try_get("problem")?,
        };
        if let Some(status) = by_chain.get_mut(&chain_name(&row)?) {
            status.nodes.push(node);
        }
    }
    Ok(by_chain.into_values().collect())
}

pub async fn tips(pool: &PgPool) -> Result<Tips, Error> {
    let mut tips = Tips::new();
    for row in sqlx::query(include_str!("../../../queries/chain_statuses.sql")).fetch_all(pool).await? {
        if let Some(number) = columns::optional_number(&row, "number")? {
            tips.insert(chain_name(&row)?, number);
        }
    }
    Ok(tips)
}

fn chain_name(row: &PgRow) -> Result<ChainName, Error> {
    row.try_get::<String, _>("chain")?.parse().map_err(|error| Error::corrupt("chain", error))
}
