//! Each job by itself: one claim with lease and fencing token, one completion under that token; two durable commits.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use db::Queue;
use futures::future::try_join_all;
use sqlx::{Connection as _, PgConnection, PgPool};
use uuid::Uuid;

use super::{LEASE, OWNER, QUEUE, claim_script, connections, database, fill, script_start};
use crate::Mode;
use crate::peer::{self, Style};
use crate::pgbench::{Extent, Load};
use crate::server::Server;
use crate::table::{Goal, Row, Unit, median};

const CLIENTS: u32 = 32;
/// More than any machine completes, so that nobody runs dry.
const JOBS_PER_SECOND: usize = 10_000;
/// About what a peer completes: it is timed until its queue is empty.
const PEER_JOBS_PER_SECOND: usize = 1_500;

pub(crate) async fn rows(server: &Server, mode: Mode) -> Result<Vec<Row>> {
    let seconds = mode.pick(1_u32, 8);
    let (url, pool) = database(server, "queue_each", CLIENTS + 2).await?;
    let peers = peer::all(server, mode, Style::Each { clients: CLIENTS }).await?;
    let jobs = JOBS_PER_SECOND * (seconds as usize + 1);
    let script = script();
    let nil = Uuid::nil().to_string();
    let (mut raw, mut our, mut theirs) = (Vec::new(), Vec::new(), vec![Vec::new(); peers.len()]);
    let load = Load {
        database: &url,
        script: &script,
        clients: CLIENTS,
        extent: Extent::Seconds(seconds),
        variables: &script_start(&nil),
    };
    let both = async || {
        fill(&pool, jobs).await?;
        let raw = server.pgbench.rate(&load).await?;
        fill(&pool, jobs).await?;
        anyhow::Ok((raw, ours(&pool, Duration::from_secs(seconds.into())).await?))
    };
    for _ in 0..mode.rounds() {
        let (limit, rate) = both().await?;
        raw.push(limit);
        our.push(rate);
        for (peer, rates) in peers.iter().zip(&mut theirs) {
            rates.push(peer.rate(PEER_JOBS_PER_SECOND * seconds as usize).await?);
        }
    }
    let row = Row::new("queue, claim and complete, 2 commits a job", Unit::PerSecond)
        .ours(median(&our))
        .raw(median(&raw))
        .goal(Goal::OfRaw(0.9))
        .goal(Goal::OfPeer(1.3));
    let mut rows =
        vec![peers.iter().zip(&theirs).fold(row, |row, (peer, rates)| row.peer(peer.name(), median(rates)))];
    if mode == Mode::Full {
        let pinned = pin(&url).await?;
        let (limit, rate) = both().await?;
        pinned.close().await?;
        let row = Row::new("queue, the same beside a transaction that stays open", Unit::PerSecond);
        rows.push(row.ours(rate).raw(limit).goal(Goal::OfRaw(0.9)));
    }
    Ok(rows)
}

/// A transaction that keeps its view of the database, as a backup does: rows deleted meanwhile cannot be cleaned up, and stand in
/// the way of every claim.
async fn pin(url: &str) -> Result<PgConnection> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()")
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

fn script() -> String {
    let claim = claim_script(1);
    format!(
        "{claim} \\gset\n\
         DELETE FROM job_lease\n\
         WHERE job_id = :job_id AND queue IS NOT DISTINCT FROM '{QUEUE}' AND token = :token\n\
           AND lease_until > clock_timestamp();\n"
    )
}

async fn ours(pool: &PgPool, duration: Duration) -> Result<f64> {
    let queue = Queue::new(QUEUE);
    let connections = connections(pool, CLIENTS).await?;
    let began = Instant::now();
    let workers = connections.into_iter().map(|mut connection| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < duration {
                let leases = queue.claim_in(&mut connection, OWNER, 1, LEASE).await?;
                let lease = leases.first().context("the queue ran dry")?;
                queue.complete_in(&mut connection, lease).await?;
                done += 1;
            }
            anyhow::Ok(done)
        })
    });
    let done = try_join_all(workers).await?.into_iter().sum::<Result<u32>>()?;
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}
