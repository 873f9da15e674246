//! A private anvil: the BSC node of a development stack.
//!
//! With a state file the chain survives a restart on the same directory. `--slots-in-an-epoch 1` lets the `finalized`
//! block follow the head two blocks behind, as a real chain's does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::error::Error;
use crate::process::{Lifetime, StopPlan};
use crate::server::{Server, Start, is_a_server, made};
use crate::tools::{Tool, Tools};

const PART: &str = "bsc";
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How often the chain is written to its state file, so that a crash loses little.
const STATE_INTERVAL_SECONDS: u32 = 5;

/// The mnemonic every Ethereum development tool knows: its accounts are rich on a private chain and worthless elsewhere.
pub const DEV_MNEMONIC: &str = "test test test test test test test test test test test junk";

/// When blocks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mining {
    /// One block for each transaction, at once.
    #[default]
    Instant,
    /// One block every so many milliseconds.
    Every(u64),
    /// Only on `evm_mine`.
    Manual,
}

#[derive(Debug, Clone)]
pub struct AnvilOptions {
    pub dir: PathBuf,
    /// Taken or refused when given; a free one is chosen otherwise.
    pub port: Option<u16>,
    pub chain_id: u64,
    pub mining: Mining,
    /// Keeps the chain in `dir/state.json` across restarts.
    pub keep_state: bool,
    pub log: Option<PathBuf>,
    pub lifetime: Lifetime,
    /// Passed to anvil as they are, after ours.
    pub extra_args: Vec<String>,
}

impl Default for AnvilOptions {
    fn default() -> Self {
        AnvilOptions {
            dir: PathBuf::new(),
            port: None,
            chain_id: 56,
            mining: Mining::default(),
            keep_state: false,
            log: None,
            lifetime: Lifetime::default(),
            extra_args: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Anvil {
    server: Server,
}

is_a_server!(Anvil);

impl Anvil {
    /// SIGINT, because that is what makes anvil write its state before it goes.
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGINT, Duration::from_secs(15));

    pub async fn start(tools: &Tools, options: &AnvilOptions) -> Result<Anvil, Error> {
        let program = tools.find(Tool::Anvil)?;
        let dir = made(&options.dir)?;
        if options.keep_state {
            repair_state(&dir)?;
        }
        // A chain worth keeping is given the time to be written even when our owner is already dead.
        let abandoned = if options.keep_state { Signal::SIGINT } else { Signal::SIGKILL };
        let start = Start {
            part: PART,
            dir: dir.clone(),
            log: options.log.clone().unwrap_or_else(|| options.dir.join("bsc.log")),
            port: options.port,
            env: [].into(),
            lifetime: options.lifetime.clone(),
            run_as: None,
            stop: StopPlan { abandoned, ..Self::STOP },
            ready_limit: READY_LIMIT,
        };
        let command = |port| command(&program, &dir, port, options);
        let server = Server::start(start, command, |port| Self::ping(port, options.chain_id)).await?;
        Ok(Anvil { server })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Whether a node of that chain answers there now; the text says why not.
    pub async fn ping(port: u16, chain_id: u64) -> Result<(), String> {
        // A proxy of the machine's environment knows nothing of our loopback.
        let http = reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
        ping(&http, port, chain_id).await
    }
}

fn command(program: &Path, dir: &Path, port: u16, options: &AnvilOptions) -> Vec<String> {
    let mut words: Vec<String> = vec![program.display().to_string()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    add("--host", "127.0.0.1".to_owned());
    add("--port", port.to_string());
    add("--chain-id", options.chain_id.to_string());
    add("--mnemonic", DEV_MNEMONIC.to_owned());
    add("--slots-in-an-epoch", "1".to_owned());
    match options.mining {
        Mining::Instant => {}
        // Anvil takes fractions of a second here.
        Mining::Every(milliseconds) => {
            add("--block-time", format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000));
        }
        Mining::Manual => words.push("--no-mining".to_owned()),
    }
    if options.keep_state {
        let state = dir.join("state.json").display().to_string();
        words.extend(["--state".to_owned(), state]);
        words.extend(["--state-interval".to_owned(), STATE_INTERVAL_SECONDS.to_string()]);
    }
    words.extend(options.extra_args.iter().cloned());
    words
}

/// Anvil writes its state in place: one that was killed half-way leaves a file it cannot read. The last state that could
/// be read is kept beside it and takes its place then.
fn repair_state(dir: &Path) -> Result<(), Error> {
    let (state, good) = (dir.join("state.json"), dir.join("state.good.json"));
    let Ok(bytes) = std::fs::read(&state) else { return Ok(()) };
    if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
        std::fs::copy(&state, &good).map_err(|e| Error::file("cannot write", &good, e))?;
        return Ok(());
    }
    tracing::warn!(state = %state.display(), "the chain's state was written half-way; going back to the last good one");
    match std::fs::copy(&good, &state) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::remove_file(&state).map_err(|e| Error::file("cannot remove", &state, e))
        }
        Err(e) => Err(Error::file("cannot write", &state, e)),
        Ok(_) => Ok(()),
    }
}

/// The answer must carry our chain id: any other node on that port is not ours.
async fn ping(http: &reqwest::Client, port: u16, chain_id: u64) -> Result<(), String> {
    let text = |error: reqwest::Error| error.to_string();
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": [] });
    let response = http.post(format!("http://127.0.0.1:{port}")).json(&request).send().await.map_err(text)?;
    let answer: Value = response.json().await.map_err(text)?;
    if answer["result"] == json!(format!("{chain_id:#x}")) { Ok(()) } else { Err(answer.to_string()) }
}
