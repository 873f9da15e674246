//! What the orchestrator's health round costs: every worker's heartbeat, state and restart flag read, every process looked at.
//!
//! The raw limit is one plain question to the same Redis for as many keys.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rpc::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Mode;
use crate::stack::Stack;
use crate::table::{Goal, Row, Unit};

const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
/// Heartbeat, state and restart flag.
const KEYS_PER_WORKER: usize = 3;
/// A hundredth of the interval between two rounds.
const GOAL_MS: f64 = 100.0;

pub(crate) async fn rows(stack: &Stack, mode: Mode) -> Result<Vec<Row>> {
    let workers = mode.pick(200, 1_000);
    let mut client = WorkerServiceClient::new(stack.client("worker-control", "operator")?);
    let before = orchestrator(&mut client).await?.running;
    for n in 0..workers {
        let spec = pb::WorkerSpec {
            id: format!("bench-{n}"),
            command: vec!["sleep".to_owned(), "3600".to_owned()],
            enabled: true,
            ..Default::default()
        };
        client.start_worker(pb::StartWorkerRequest { spec: Some(spec) }).await?;
    }
    let wanted = before + u32::try_from(workers)?;
    let began = Instant::now();
    while orchestrator(&mut client).await?.running < wanted {
        ensure!(began.elapsed() < PATIENCE, "not all workers run");
        tokio::time::sleep(LOOK).await;
    }
    let ours = median_ms(&mut client, mode.pick(3, 7)).await?;
    let raw = raw_ms(stack.url("redis")?, workers * KEYS_PER_WORKER, mode.pick(20, 100)).await?;
    let row = Row::new(format!("health round over {workers} workers"), Unit::Milliseconds);
    Ok(vec![row.ours(ours).raw(raw).goal(Goal::Below(GOAL_MS))])
}

async fn orchestrator(client: &mut WorkerServiceClient<Client>) -> Result<pb::GetOrchestratorResponse> {
    Ok(client.get_orchestrator(pb::GetOrchestratorRequest {}).await?.into_inner())
}

/// The middle one of several rounds, each as the orchestrator itself timed it.
async fn median_ms(client: &mut WorkerServiceClient<Client>, rounds: usize) -> Result<f64> {
    let mut seen: Vec<Duration> = Vec::new();
    let began = Instant::now();
    while seen.len() < rounds {
        ensure!(began.elapsed() < PATIENCE, "only {} rounds in {PATIENCE:?}", seen.len());
        let round = orchestrator(client).await?.last_round.context("no round was timed")?;
        let round = Duration::try_from(round).ok().context("a round takes no negative time")?;
        // Two rounds never take the same number of nanoseconds.
        if !seen.contains(&round) {
            seen.push(round);
        }
        tokio::time::sleep(LOOK).await;
    }
    seen.sort();
    Ok(seen[seen.len() / 2].as_secs_f64() * 1_000.0)
}

/// One MGET of so many keys on a bare connection; the middle one of several.
async fn raw_ms(url: &str, keys: usize, rounds: usize) -> Result<f64> {
    let address = url.strip_prefix("redis://").context("the stack's Redis has no plain address")?;
    let mut socket = TcpStream::connect(address.trim_end_matches('/')).await?;
    socket.set_nodelay(true)?;
    let mut question = format!("*{}\r\n$4\r\nMGET\r\n", keys + 1);
    for n in 0..keys {
        let key = format!("btr:worker:bench-{n}:heartbeat");
        write!(question, "${}\r\n{key}\r\n", key.len())?;
    }
    // The head, then "$-1" for each key that is not there, or its value; here most are not.
    let mut times = Vec::with_capacity(rounds);
    let mut answer = vec![0_u8; 1 << 20];
    for _ in 0..rounds {
        let began = Instant::now();
        socket.write_all(question.as_bytes()).await?;
        let mut lines = 0;
        while lines < keys + 1 {
            let read = socket.read(&mut answer).await?;
            ensure!(read > 0, "Redis hung up");
            lines += answer[..read].iter().filter(|byte| **byte == b'\n').count();
        }
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1_000.0)
}
