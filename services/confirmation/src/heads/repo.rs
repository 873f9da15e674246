//! The ring of heads, the final block, halts and nodes' heads between the tables and the domain.

use std::collections::BTreeMap;

use chain::{Head, HeadRing};
use payment::BlockRef;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::{ChainName, TxHash};

use super::{ChainStanding, NodeStanding};
use crate::chains::ChainsError;
use crate::watch::WatchError;
use crate::watch::error::corrupt;

/// The stored ring, oldest first.
pub async fn load_ring(pool: &PgPool, chain: &ChainName, capacity: usize) -> Result<HeadRing, WatchError> {
    let rows =
        sqlx::query("SELECT number, hash, parent, timestamp_ms FROM heads WHERE chain = $1 ORDER BY number")
            .bind(chain.as_str())
            .fetch_all(pool)
            .await?;
    let heads = rows.iter().map(head).collect::<Result<Vec<_>, _>>()?;
    Ok(HeadRing::restore(capacity, heads))
}

fn head(row: &PgRow) -> Result<Head, WatchError> {
    let number = |value: i64| u64::try_from(value).map_err(|error| corrupt("head", error));
    Ok(Head {
        number: number(row.try_get("number")?)?,
        hash: TxHash(row.try_get("hash")?),
        parent: TxHash(row.try_get("parent")?),
        timestamp_ms: number(row.try_get("timestamp_ms")?)?,
    })
}

/// Makes the stored ring equal to `ring`, given that everything below `from` is the same.
pub async fn save_ring_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    ring: &HeadRing,
    from: u64,
) -> Result<(), WatchError> {
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
    .bind(new.iter().map(|head| head.hash.0.to_vec()).collect::<Vec<_>>())
    .bind(new.iter().map(|head| head.parent.0.to_vec()).collect::<Vec<_>>())
    .bind(new.iter().map(|head| signed(head.timestamp_ms)).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets the ring: the next look begins at a final block.
pub async fn clear_ring_in(tx: &mut PgConnection, chain: &ChainName) -> Result<(), WatchError> {
    sqlx::query("DELETE FROM heads WHERE chain = $1").bind(chain.as_str()).execute(tx).await?;
    Ok(())
}

pub async fn save_final_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    block: BlockRef,
) -> Result<(), WatchError> {
    sqlx::query("UPDATE chain_loops SET final_number = $2, final_hash = $3 WHERE chain = $1")
        .bind(chain.as_str())
        .bind(signed(block.number))
        .bind(block.hash.0.as_slice())
        .execute(tx)
        .await?;
    Ok(())
}

/// Stops verdicts on a chain until a person lets it go on. The first reason stays.
pub async fn halt_in(tx: &mut PgConnection, chain: &ChainName, reason: &str) -> Result<(), WatchError> {
    sqlx::query(
        "UPDATE chain_loops SET halted_at = now(), halted_reason = $2 WHERE chain = $1 AND halted_at IS NULL",
    )
    .bind(chain.as_str())
    .bind(reason)
    .execute(tx)
    .await?;
    Ok(())
}

/// What the nodes say, in place of what they said before.
pub async fn save_nodes_in(
    tx: &mut PgConnection,
    chain: &ChainName,
    nodes: &[NodeStanding],
) -> Result<(), WatchError> {
    let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
    sqlx::query("DELETE FROM node_heads WHERE chain = $1 AND node <> ALL($2)")
        .bind(chain.as_str())
        .bind(&names)
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("../../queries/node_heads_save.sql"))
        .bind(chain.as_str())
        .bind(&names)
        .bind(nodes.iter().map(|node| signed(node.number)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|node| node.hash.map(|hash| hash.0.to_vec())).collect::<Vec<_>>())
        .bind(nodes.iter().map(|node| node.problem.as_str()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Where every chain stands, by name.
pub async fn standings(pool: &PgPool) -> Result<Vec<ChainStanding>, ChainsError> {
    let mut by_chain = BTreeMap::new();
    for row in sqlx::query(include_str!("../../queries/chain_standings.sql")).fetch_all(pool).await? {
        let chain: ChainName = row.try_get::<String, _>("chain")?.parse().map_err(unreadable)?;
        let tip = match (row.try_get("number")?, row.try_get("hash")?) {
            (Some(number), Some(hash)) => Some((unsigned(number)?, TxHash(hash))),
            _ => None,
        };
        let standing = ChainStanding {
            chain: chain.clone(),
            tip,
            final_number: row.try_get::<Option<i64>, _>("final_number")?.map(unsigned).transpose()?,
            nodes: Vec::new(),
            halted_reason: row.try_get("halted_reason")?,
        };
        by_chain.insert(chain, standing);
    }
    let nodes = sqlx::query("SELECT chain, node, number, hash, problem FROM node_heads ORDER BY chain, node");
    for row in nodes.fetch_all(pool).await? {
        let chain: ChainName = row.try_get::<String, _>("chain")?.parse().map_err(unreadable)?;
        let node = NodeStanding {
            node: row.try_get("node")?,
            number: unsigned(row.try_get("number")?)?,
            hash: row.try_get::<Option<[u8; 32]>, _>("hash")?.map(TxHash),
            problem: row.try_get("problem")?,
        };
        if let Some(standing) = by_chain.get_mut(&chain) {
            standing.nodes.push(node);
        }
    }
    Ok(by_chain.into_values().collect())
}

fn unsigned(value: i64) -> Result<u64, ChainsError> {
    u64::try_from(value).map_err(unreadable)
}

fn unreadable(reason: impl std::fmt::Display) -> ChainsError {
    ChainsError::Corrupt { reason: reason.to_string() }
}

/// Block numbers and times fit in 63 bits for longer than any chain will last; what does not is refused by sorting last.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
