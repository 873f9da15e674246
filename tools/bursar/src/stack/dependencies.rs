//! Starting PostgreSQL, MongoDB, Redis and the development chains side by side.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};
use devstack::{
    Anvil, AnvilOptions, Error, Lifetime, Mining, Mongo, MongoOptions, Postgres, PostgresOptions, Process,
    Redis, RedisOptions, Tools, Tron, TronOptions,
};

use super::file::Kind;
use super::launcher::Running;
use super::services::{DEVNET, Programs};
use super::{BSC, BSC_CHAIN_ID, Layout, MONGODB, POSTGRES, REDIS, TRON, TRON_NODES};
use crate::progress::Step;
use crate::seed;

/// A block every second: quick enough to wait for, slow enough to see a payment pending.
const BLOCK_TIME_MS: u64 = 1_000;

/// TRON's blocks come quicker than the three seconds of the main network, and are solid after fewer: what takes a minute
/// there takes two seconds here.
const TRON_SLOT_MS: u64 = 500;
const TRON_SOLID_LAG: u64 = 3;

/// Starts all five; `ports` of the last run are used again where they are free, and updated.
///
/// When one does not start, the others are stopped again and every failure is told.
pub(super) async fn start(
    layout: &Layout,
    lifetime: &Lifetime,
    programs: &Programs,
    ports: &mut BTreeMap<String, u16>,
) -> Result<Vec<Running>> {
    let tools = Tools::locate();
    require(&tools)?;
    for part in [POSTGRES, MONGODB, REDIS, BSC, TRON] {
        layout.rotate_log(part);
    }
    let asked = |part: &str| devstack::claim_port(ports.get(part).copied());
    let asked = [asked(POSTGRES)?, asked(MONGODB)?, asked(REDIS)?, asked(BSC)?, asked(TRON)?];
    let started = tokio::join!(
        Box::pin(postgres(layout, lifetime, &tools, asked[0])),
        Box::pin(mongodb(layout, lifetime, &tools, asked[1])),
        Box::pin(redis(layout, lifetime, &tools, asked[2])),
        Box::pin(bsc(layout, lifetime, &tools, asked[3])),
        Box::pin(tron(layout, lifetime, programs, asked[4])),
    );
    let mut running = Vec::new();
    let mut failures = Vec::new();
    for result in [started.0, started.1, started.2, started.3, started.4] {
        match result {
            Ok(part) => running.push(part),
            Err(error) => failures.push(error),
        }
    }
    if !failures.is_empty() {
        for part in &mut running {
            part.process.stop().await?;
        }
        bail!(told(&failures));
    }
    ports.extend(running.iter().map(|part| (part.name.clone(), part.port)));
    Ok(running)
}

/// Names everything that is missing at once.
fn require(tools: &Tools) -> Result<()> {
    let missing = tools.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing.iter().map(|tool| format!("  {tool}")).collect();
    bail!("the stack needs programs that are not on this machine:\n{}", lines.join("\n"))
}

fn told(failures: &[Error]) -> anyhow::Error {
    let reasons: Vec<String> = failures.iter().map(|failure| rpc::error::chain(failure)).collect();
    anyhow!(reasons.join("\n"))
}

/// The port of the last run may be taken between our look and the bind; then any other will do.
macro_rules! start_on {
    ($server:ident, $tools:expr, $options:expr) => {{
        let options = $options;
        match $server::start($tools, &options).await {
            Err(Error::PortInUse { .. }) => {
                let mut anywhere = options;
                anywhere.port = None;
                $server::start($tools, &anywhere).await
            }
            other => other,
        }
    }};
}

async fn postgres(layout: &Layout, lifetime: &Lifetime, tools: &Tools, port: u16) -> Result<Running, Error> {
    let step = Step::new(POSTGRES);
    let options = PostgresOptions {
        dir: layout.part(POSTGRES),
        port: Some(port),
        durable: true,
        log: Some(layout.log(POSTGRES)),
        lifetime: lifetime.clone(),
        template_cache: None,
    };
    let server = start_on!(Postgres, tools, options)?;
    step.done(format_args!("ready on 127.0.0.1:{}", server.port()));
    let (url, port) = (server.url(), server.port());
    let process = Process::from(server);
    Ok(Running { name: POSTGRES.into(), kind: Kind::Dependency, url, http: None, port, process })
}

async fn mongodb(layout: &Layout, lifetime: &Lifetime, tools: &Tools, port: u16) -> Result<Running, Error> {
    let step = Step::new(MONGODB);
    let options = MongoOptions {
        dir: layout.part(MONGODB),
        port: Some(port),
        log: Some(layout.log(MONGODB)),
        lifetime: lifetime.clone(),
    };
    let server = start_on!(Mongo, tools, options)?;
    step.done(format_args!("ready on 127.0.0.1:{}", server.port()));
    let (url, port) = (server.url(), server.port());
    let process = Process::from(server);
    Ok(Running { name: MONGODB.into(), kind: Kind::Dependency, url, http: None, port, process })
}

async fn redis(layout: &Layout, lifetime: &Lifetime, tools: &Tools, port: u16) -> Result<Running, Error> {
    let step = Step::new(REDIS);
    let options = RedisOptions {
        dir: layout.part(REDIS),
        port: Some(port),
        durable: true,
        log: Some(layout.log(REDIS)),
        lifetime: lifetime.clone(),
    };
    let server = start_on!(Redis, tools, options)?;
    step.done(format_args!("ready on 127.0.0.1:{}", server.port()));
    let (url, port) = (server.url(), server.port());
    let process = Process::from(server);
    Ok(Running { name: REDIS.into(), kind: Kind::Dependency, url, http: None, port, process })
}

async fn bsc(layout: &Layout, lifetime: &Lifetime, tools: &Tools, port: u16) -> Result<Running, Error> {
    let step = Step::new(BSC);
    let options = AnvilOptions {
        dir: layout.part(BSC),
        port: Some(port),
        chain_id: BSC_CHAIN_ID,
        mining: Mining::Every(BLOCK_TIME_MS),
        keep_state: true,
        log: Some(layout.log(BSC)),
        lifetime: lifetime.clone(),
        extra_args: Vec::new(),
    };
    let server = start_on!(Anvil, tools, options)?;
    step.done(format_args!("ready on 127.0.0.1:{}", server.port()));
    let (url, port) = (server.url(), server.port());
    let process = Process::from(server);
    Ok(Running { name: BSC.into(), kind: Kind::Chain, url, http: None, port, process })
}

async fn tron(
    layout: &Layout,
    lifetime: &Lifetime,
    programs: &Programs,
    port: u16,
) -> Result<Running, Error> {
    let step = Step::new(TRON);
    let options = TronOptions {
        program: programs.get(DEVNET).cloned().unwrap_or_default(),
        dir: layout.part(TRON),
        port: Some(port),
        nodes: TRON_NODES,
        slot_ms: TRON_SLOT_MS,
        solid_lag: TRON_SOLID_LAG,
        keep_state: true,
        fund: seed::tron::funds(),
        tokens: seed::tron::tokens(),
        log: Some(layout.log(TRON)),
        lifetime: lifetime.clone(),
    };
    let server = match Tron::start(&options).await {
        Err(Error::PortInUse { .. }) => Tron::start(&TronOptions { port: None, ..options }).await,
        other => other,
    }?;
    step.done(format_args!("ready on 127.0.0.1:{}", server.port()));
    let (url, port) = (server.url(), server.port());
    let process = Process::from(server);
    Ok(Running { name: TRON.into(), kind: Kind::Chain, url, http: None, port, process })
}
