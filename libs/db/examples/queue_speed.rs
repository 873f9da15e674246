use db::{DatabaseConfig, Due, Queue, queue::*};
use std::time::{Duration, Instant};
use types::Priority;
use uuid::Uuid;
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let (mode, clients, secs): (&str, usize, u64) = (&a[1], a[2].parse()?, a[3].parse()?);
    let mut cfg = DatabaseConfig::new("postgres://postgres@127.0.0.1:54999/q", "speed");
    cfg.max_connections = 70;
    let pool = db::connect(&cfg).await?;
    let batch: u32 = if mode == "batch" { 100 } else { 1 };
    if a.len() > 4 {
        let n: usize = a[4].parse()?;
        let q = Queue::new("withdrawal/bsc");
        for _ in 0..n / 1000 {
            let jobs: Vec<NewJob> = (0..1000)
                .map(|_| NewJob { job_id: Uuid::now_v7(), priority: Priority::Normal, due: Due::Now })
                .collect();
            let mut tx = pool.begin().await?;
            q.push_many_in(&mut tx, &jobs).await?;
            tx.commit().await?;
        }
    }
    let start = Instant::now();
    let end = start + Duration::from_secs(secs);
    let q = Queue::new("withdrawal/bsc");
    let mut hs = vec![];
    for _ in 0..clients {
        let (pool, q, pooled) = (pool.clone(), q.clone(), mode == "pooled");
        hs.push(tokio::spawn(async move {
            let mut n = 0u64;
            let mut c = pool.acquire().await?;
            let mut marks = vec![];
            let mut m = 0;
            let mut t = Instant::now();
            while Instant::now() < end {
                let l = if pooled {
                    q.claim(&pool, "w", batch, Duration::from_secs(60)).await?
                } else {
                    q.claim_in(&mut c, "w", batch, Duration::from_secs(60)).await?
                };
                if l.is_empty() {
                    break;
                }
                if batch == 1 {
                    if pooled {
                        q.complete_many(&pool, &l).await?;
                    } else {
                        q.complete_in(&mut c, &l[0]).await?;
                    }
                } else {
                    q.complete_many_in(&mut c, &l).await?;
                }
                n += l.len() as u64;
                m += l.len() as u64;
                if t.elapsed() > Duration::from_secs(2) {
                    marks.push(m);
                    m = 0;
                    t = Instant::now();
                }
            }
            anyhow::Ok((n, marks))
        }))
    }
    let mut n = 0;
    let mut by: Vec<u64> = vec![];
    for h in hs {
        let (k, marks) = h.await??;
        n += k;
        for (i, m) in marks.iter().enumerate() {
            if by.len() <= i {
                by.push(0)
            }
            by[i] += m / 2;
        }
    }
    println!(
        "{mode} c={clients}: {} jobs/s  per 2s window: {:?}",
        (n as f64 / start.elapsed().as_secs_f64()) as u64,
        by
    );
    Ok(())
}
