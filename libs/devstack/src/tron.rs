//! A private TRON network: the `tron-devnet` program, which lies beside the programs of the services.
//!
//! One port serves all its nodes, each below a path of its own. With a journal the chain survives a restart on the same
//! directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::error::Error;
use crate::process::{Lifetime, StopPlan};
use crate::server::{Server, Start, is_a_server, made};

const PART: &str = "tron";
const READY_LIMIT: Duration = Duration::from_secs(60);
const JOURNAL: &str = "chain.journal";

#[derive(Debug, Clone)]
pub struct TronOptions {
    /// The `tron-devnet` program.
    pub program: PathBuf,
    pub dir: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub port: Option<u16>,
    pub nodes: u8,
    pub slot_ms: u64,
    pub solid_lag: u64,
    /// Keeps the chain in `dir` across restarts.
    pub keep_state: bool,
    /// What the world begins with: addresses and sun.
    pub fund: Vec<(String, u64)>,
    /// Tokens by symbol and decimals, each with its holders and what they have.
    pub tokens: Vec<TronToken>,
    pub log: Option<PathBuf>,
    pub lifetime: Lifetime,
}

#[derive(Debug, Clone)]
pub struct TronToken {
    pub symbol: String,
    pub decimals: u8,
    pub mint: Vec<(String, u128)>,
}

#[derive(Debug)]
pub struct Tron {
    server: Server,
}

is_a_server!(Tron);

impl Tron {
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGTERM, Duration::from_secs(10));

    pub async fn start(options: &TronOptions) -> Result<Tron, Error> {
        let dir = made(&options.dir)?;
        let start = Start {
            part: PART,
            dir: dir.clone(),
            log: options.log.clone().unwrap_or_else(|| options.dir.join("tron.log")),
            port: options.port,
            env: [].into(),
            lifetime: options.lifetime.clone(),
            run_as: None,
            stop: Self::STOP,
            ready_limit: READY_LIMIT,
        };
        let server = Server::start(start, |port| command(&dir, port, options), Self::ping).await?;
        Ok(Tron { server })
    }

    /// The first node.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Whether a network answers there now; the text says why not.
    pub async fn ping(port: u16) -> Result<(), String> {
        let text = |error: reqwest::Error| error.to_string();
        let http = reqwest::Client::builder().no_proxy().build().map_err(text)?;
        let question = json!({ "detail": false });
        let answer =
            http.post(format!("http://127.0.0.1:{port}/wallet/getblock")).json(&question).send().await;
        let block: Value = answer.map_err(text)?.json().await.map_err(text)?;
        if block["blockID"].is_string() { Ok(()) } else { Err(block.to_string()) }
    }
}

fn command(dir: &Path, port: u16, options: &TronOptions) -> Vec<String> {
    let mut words = vec![options.program.display().to_string()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    add("--listen", format!("127.0.0.1:{port}"));
    add("--nodes", options.nodes.to_string());
    add("--slot-ms", options.slot_ms.to_string());
    add("--solid-lag", options.solid_lag.to_string());
    if options.keep_state {
        add("--state", dir.join(JOURNAL).display().to_string());
    }
    for (address, sun) in &options.fund {
        add("--fund", format!("{address}={sun}"));
    }
    for token in &options.tokens {
        add("--token", format!("{}:{}", token.symbol, token.decimals));
        for (address, amount) in &token.mint {
            add("--mint", format!("{}:{address}={amount}", token.symbol));
        }
    }
    words.push("--one-port".to_owned());
    words
}
