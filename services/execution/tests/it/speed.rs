use crate::world::{World, ether, fresh_address};
use execution::job::{Evidence, Finding, Receipt, Verdict};
use std::time::Instant;
use testkit::Mining;
use worker::Tick as _;

#[tokio::test(flavor = "multi_thread")]
async fn speed() {
    let world = World::new(Mining::Every(1000)).await;
    world.hot_wallet(0).await;
    let n = 3000usize;
    let news: Vec<_> = (0..n).map(|_| world.withdrawal(&fresh_address(), ether(1))).collect();
    let t = Instant::now();
    let ids: Vec<_> =
        futures::stream::StreamExt::collect::<Vec<_>>(futures::stream::StreamExt::buffer_unordered(
            futures::stream::iter(news.into_iter().map(|new| {
                let jobs = world.jobs.clone();
                async move { jobs.enqueue(new).await.unwrap() }
            })),
            64,
        ))
        .await;
    eprintln!("enqueue {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    let t = Instant::now();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let mut w = world.worker();
            tokio::spawn(async move { while w.tick().await.unwrap() == worker::Ticked::Worked {} })
        })
        .collect();
    for w in workers {
        w.await.unwrap();
    }
    eprintln!("work {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    let mut verdicts = Vec::new();
    for id in ids {
        let (job, _) = world.job(id).await;
        assert_eq!(job.state.name(), "confirming");
        let tx_hash = job.tx_hash.unwrap();
        verdicts.push(Verdict {
            id: uuid::Uuid::now_v7(),
            job: id,
            at: chrono::Utc::now(),
            finding: Finding::Settled { tx_hash },
            evidence: Evidence::Receipt(Receipt { tx_hash, block_number: 9, gas_used: 21000, gas_price: 1 }),
            proof: None,
        });
    }
    let t = Instant::now();
    futures::stream::StreamExt::collect::<Vec<_>>(futures::stream::StreamExt::buffer_unordered(
        futures::stream::iter(verdicts.into_iter().map(|v| {
            let jobs = world.jobs.clone();
            async move { jobs.record_verdict(&v).await.unwrap() }
        })),
        64,
    ))
    .await;
    eprintln!("verdicts {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    let mut lat = Vec::new();
    for _ in 0..30 {
        let t = Instant::now();
        let (_id, _) = world.pay_somebody().await;
        world.worker().tick().await.unwrap();
        lat.push(t.elapsed().as_micros());
    }
    lat.sort();
    eprintln!("latency median {} us", lat[15]);
}
