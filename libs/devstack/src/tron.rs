//! A private TRON network: the `tron-devnet` program, which lies beside the programs of the services.
//!
//! One port serves all its nodes, each below a path of its own. With a journal the chain survives a restart on the same
//! directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::error::Error;
use crate::port;
use crate::process::{Launch, Lifetime, Process, StopPlan};
use crate::wait::until_ready;

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
    process: Process,
    port: u16,
}

impl Tron {
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGTERM, Duration::from_secs(10));

    pub async fn start(options: &TronOptions) -> Result<Tron, Error> {
        std::fs::create_dir_all(&options.dir).map_err(|e| Error::file("cannot create", &options.dir, e))?;
        let dir = options.dir.canonicalize().map_err(|e| Error::file("cannot resolve", &options.dir, e))?;
        let log = options.log.clone().unwrap_or_else(|| options.dir.join("tron.log"));
        let mut tries_left = port::PORT_TRIES;
        loop {
            tries_left -= 1;
            let port = port::for_try(PART, options.port)?;
            let launch = Launch {
                name: PART.to_owned(),
                command: command(&dir, port, options),
                env: [].into(),
                dir: dir.clone(),
                log: log.clone(),
                lifetime: options.lifetime.clone(),
                run_as: None,
                stop: Self::STOP,
            };
            let mut process = Process::spawn(&launch)?;
            match until_ready(&mut process, READY_LIMIT, || Self::ping(port)).await {
                Ok(()) => return Ok(Tron { process, port }),
                Err(error) => {
                    process.stop().await?;
                    if let Some(error) = port::after_failure(PART, options.port, tries_left, error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The first node.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub fn into_process(self) -> Process {
        self.process
    }

    pub async fn stop(&mut self) -> Result<(), Error> {
        self.process.stop().await
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
