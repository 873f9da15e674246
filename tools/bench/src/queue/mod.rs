//! The job queue: what both measurements of it share. The raw limit runs the very statements of `libs/db`, turned into
//! scripts of pgbench, on the same tables.

pub(crate) mod batches;
pub(crate) mod each;

use std::time::Duration;

use anyhow::Result;
use db::queue::{NewJob, QUEUE_SCHEMA};
use db::{Due, Queue};
use sqlx::PgPool;
use sqlx::pool::PoolConnection;
use types::Priority;
use uuid::Uuid;

use crate::server::{self, Server};

const CLAIM: &str = include_str!("../../../../libs/db/queries/queue_claim.sql");
const QUEUE: &str = "withdrawal/bench";
const OWNER: &str = "bench";
const LEASE: Duration = Duration::from_secs(60);
const PUSHED_AT_ONCE: usize = 5_000;

async fn database(server: &Server, name: &str, connections: u32) -> Result<(String, PgPool)> {
    let url = server.database(name).await?;
    let pool = Server::pool(&url, connections).await?;
    sqlx::raw_sql(QUEUE_SCHEMA).execute(&pool).await?;
    Ok((url, pool))
}

/// Starts over with this many jobs that are due.
async fn fill(pool: &PgPool, jobs: usize) -> Result<()> {
    sqlx::query("TRUNCATE job_ready, job_lease").execute(pool).await?;
    let queue = Queue::new(QUEUE);
    let mut left = jobs;
    while left > 0 {
        let count = left.min(PUSHED_AT_ONCE);
        let new = || NewJob { job_id: Uuid::now_v7(), priority: Priority::Normal, due: Due::Now };
        let jobs: Vec<NewJob> = std::iter::repeat_with(new).take(count).collect();
        let mut tx = db::begin(pool).await?;
        queue.push_many_in(&mut tx, &jobs).await?;
        tx.commit().await?;
        left -= count;
    }
    sqlx::query("VACUUM ANALYZE job_ready").execute(pool).await?;
    server::settle(pool).await
}

/// Connections opened before the clock starts, as pgbench does it.
async fn connections(pool: &PgPool, count: u32) -> Result<Vec<PoolConnection<sqlx::Postgres>>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(pool.acquire().await?);
    }
    Ok(connections)
}

/// The claim with its arguments in place, for pgbench. `due_at` and `job_id` are variables of the script: where the
/// client's last claim ended, which is where `libs/db` starts the next one too.
fn claim_script(batch: u32) -> String {
    let rank = Priority::Normal.rank();
    let start = |last: &str, head: &str| {
        let ranks =
            (0..=3_i16).rev().map(|of| if of == rank { last.to_owned() } else { format!("'{head}'") });
        format!("(ARRAY[{}])", ranks.collect::<Vec<_>>().join(", "))
    };
    let arguments = [
        ("$1", format!("'{QUEUE}'")),
        ("$2", "'{3,2,1,0}'".to_owned()),
        ("$3", start(":due_at", "epoch")),
        ("$4", start(":job_id", &Uuid::nil().to_string())),
        ("$5", batch.to_string()),
        ("$6", format!("'{OWNER}'")),
        ("$7", LEASE.as_millis().to_string()),
    ];
    let statement: Vec<&str> = CLAIM.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let statement = statement.join("\n");
    arguments.iter().fold(statement, |text, (name, value)| text.replace(name, value)).trim().to_owned()
}

/// The script's variables before its first claim.
fn script_start(nil: &str) -> [(&'static str, &str); 2] {
    [("due_at", "epoch"), ("job_id", nil)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_script_holds_no_argument_and_no_comment() {
        let script = claim_script(1);
        assert!(!script.contains('$') && !script.contains("--"), "{script}");
        assert!(script.contains("'epoch', 'epoch', :due_at, 'epoch'"), "{script}");
        assert!(script.ends_with("tries, lapses, rank"), "{script}");
    }
}
