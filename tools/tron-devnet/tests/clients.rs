//! Unchanged clients of other people work against the devnet: tronweb and tronpy.
//!
//! Both are installed on demand, pinned, below `BURSAR_TOOLS` (default `~/.cache/bursar/tools`).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{ALICE, ALICE_KEY, CAROL};
use tron_devnet::network::wall_ms;
use tron_devnet::{Config, Devnet};

const TRONWEB: &str = "tronweb@6.5.1";
const TRONPY: &str = "tronpy==0.6.2";

fn tools() -> PathBuf {
    let chosen = std::env::var_os("BURSAR_TOOLS").map(PathBuf::from);
    chosen.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/bursar/tools"))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{told}");
    output
}

/// Installs into a folder of its own and renames it, so that two tests at once do not disturb each other.
fn install(folder: &Path, fill: impl FnOnce(&Path)) {
    if folder.exists() {
        return;
    }
    let parent = folder.parent().unwrap();
    std::fs::create_dir_all(parent).unwrap();
    let draft = tempfile::tempdir_in(parent).unwrap();
    fill(draft.path());
    // Fails when another test was first; then its folder serves as well.
    let renamed = std::fs::rename(draft.path(), folder);
    assert!(renamed.is_ok() || folder.exists(), "cannot install into {}", folder.display());
}

async fn devnet() -> (Devnet, String) {
    let fund = format!("{ALICE}=1000000000");
    let mint = format!("USDT:{ALICE}=1000000000");
    // tronpy dates by the wall clock, and blocks by hand run ahead of it: they begin an hour in the past.
    let genesis_ms = (wall_ms() / 3_000 * 3_000 - 3_600_000).to_string();
    let config = <Config as clap::Parser>::parse_from([
        "tron-devnet",
        "--manual",
        "--nodes=2",
        &format!("--genesis-ms={genesis_ms}"),
        &format!("--fund={fund}"),
        "--token=USDT:6",
        &format!("--mint={mint}"),
    ]);
    let token = config.tokens().unwrap()[0].2.base58();
    (Devnet::start(config).await.unwrap(), token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tronweb_works_unchanged() {
    let folder = tools().join("npm").join(TRONWEB);
    install(&folder, |draft| {
        run(Command::new("npm").current_dir(draft).args(["install", "--prefix", ".", "--silent"]).args([
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            TRONWEB,
        ]));
    });
    let (devnet, token) = devnet().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tronweb.cjs");
    let url = devnet.url(0);
    let driven = tokio::task::spawn_blocking(move || {
        run(Command::new("node").arg(script).arg(folder).args([&url, ALICE_KEY, CAROL, &token]));
    });
    driven.await.unwrap();
    devnet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tronpy_works_unchanged() {
    let folder = tools().join("python").join(TRONPY);
    install(&folder, |draft| {
        run(Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-warn-script-location", "--target"])
            .arg(draft)
            .arg(TRONPY));
    });
    let (devnet, token) = devnet().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tronpy_drive.py");
    let url = devnet.url(1);
    let driven = tokio::task::spawn_blocking(move || {
        run(Command::new("python3")
            .env("PYTHONPATH", folder)
            .arg(script)
            .args([&url, ALICE_KEY, CAROL, &token]));
    });
    driven.await.unwrap();
    devnet.stop().await;
}
