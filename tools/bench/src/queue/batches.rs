//! Batches of 100: one claim for all, each job with its own lease and token, one completion under those tokens.

use std::time::Instant;

use anyhow::{Result, ensure};
use db::Queue;
use futures::future::try_join_all;
use sqlx::PgPool;
use uuid::Uuid;

use super::{LEASE, OWNER, QUEUE, claim_script, connections, database, fill, script_start};
use crate::Mode;
use crate::peer::{self, Style};
use crate::pgbench::{Extent, Load};
use crate::server::Server;
use crate::table::{Goal, Row, Unit, median};

const CLIENTS: u32 = 8;
const BATCH: u32 = 100;
/// Jobs beyond those that are measured, so that the last claims find a full batch too.
const SPARE: u32 = CLIENTS * BATCH;

pub(crate) async fn rows(server: &Server, mode: Mode) -> Result<Vec<Row>> {
    let batches = mode.pick(50_u32, 300);
    let jobs = batches * BATCH * CLIENTS;
    let (url, pool) = database(server, "queue_batches", CLIENTS + 2).await?;
    let peers = peer::all(server, mode, Style::Batches).await?;
    let script = script();
    let nil = Uuid::nil().to_string();
    let (mut raw, mut our, mut theirs) = (Vec::new(), Vec::new(), vec![Vec::new(); peers.len()]);
    for _ in 0..mode.rounds() {
        fill(&pool, (jobs + SPARE) as usize).await?;
        let extent = Extent::TransactionsEach(batches);
        let load = Load {
            database: &url,
            script: &script,
            clients: CLIENTS,
            extent,
            variables: &script_start(&nil),
        };
        raw.push(server.pgbench.rate(&load).await? * f64::from(BATCH));
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM job_ready").fetch_one(&pool).await?;
        ensure!(left == i64::from(SPARE), "the raw batches were not full: {left} jobs are left");
        fill(&pool, (jobs + SPARE) as usize).await?;
        our.push(ours(&pool, batches).await?);
        for (peer, rates) in peers.iter().zip(&mut theirs) {
            rates.push(peer.rate(jobs as usize).await?);
        }
    }
    let row = Row::new("queue, batches of 100, each job fenced", Unit::PerSecond)
        .ours(median(&our))
        .raw(median(&raw))
        .goal(Goal::OfRaw(0.9))
        .goal(Goal::OfPeer(1.0));
    Ok(vec![peers.iter().zip(&theirs).fold(row, |row, (peer, rates)| row.peer(peer.name(), median(rates)))])
}

/// The same claim, aggregated into one row, because a script's variables hold one.
fn script() -> String {
    let claim =
        claim_script(BATCH).replacen("\nINSERT INTO job_lease", ", leased AS (\nINSERT INTO job_lease", 1);
    format!(
        "{claim}\n)\n\
         SELECT array_agg(job_id) AS ids, array_agg(token) AS tokens, max(due_at) AS due_at,\n\
             (array_agg(job_id ORDER BY due_at DESC, job_id DESC))[1] AS job_id\n\
         FROM leased \\gset\n\
         DELETE FROM job_lease\n\
         WHERE job_id = ANY ((SELECT :ids::uuid[])::uuid[]) AND queue IS NOT DISTINCT FROM '{QUEUE}'\n\
           AND token = ANY (:tokens::bigint[]) AND lease_until > clock_timestamp()\n\
         RETURNING job_id;\n"
    )
}

async fn ours(pool: &PgPool, batches: u32) -> Result<f64> {
    let queue = Queue::new(QUEUE);
    let connections = connections(pool, CLIENTS).await?;
    let began = Instant::now();
    let workers = connections.into_iter().map(|mut connection| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut done = 0;
            for _ in 0..batches {
                let leases = queue.claim_in(&mut connection, OWNER, BATCH, LEASE).await?;
                done += queue.complete_many_in(&mut connection, &leases).await?.len();
            }
            anyhow::Ok(done)
        })
    });
    let done = try_join_all(workers).await?.into_iter().sum::<Result<usize>>()?;
    let (expected, seconds) = (batches * BATCH * CLIENTS, began.elapsed().as_secs_f64());
    ensure!(done == expected as usize, "{done} jobs of {expected} were completed");
    Ok(f64::from(expected) / seconds)
}
