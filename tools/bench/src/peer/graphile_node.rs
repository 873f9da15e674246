//! graphile-worker, the original for Node: installed once into a cache outside any clone, run as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::Style;

/// The newest that runs on Node 20.
const VERSION: &str = "0.17.3";
const SCRIPT: &str = include_str!("graphile.cjs");
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
struct Figures {
    jobs: f64,
    seconds: f64,
}

/// Where it is installed; npm is asked only the first time.
pub(super) async fn install() -> Result<PathBuf> {
    let tools = devstack::tools_dir().context("there is no cache directory to install it into")?;
    let prefix = tools.join("npm").join(format!("graphile-worker-{VERSION}"));
    if !prefix.join("node_modules/graphile-worker/package.json").is_file() {
        std::fs::create_dir_all(&prefix).with_context(|| format!("cannot create {}", prefix.display()))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(&prefix);
        npm.arg(format!("graphile-worker@{VERSION}"));
        run(npm, "npm").await?;
    }
    Ok(prefix)
}

pub(super) async fn rate(url: &str, style: Style, prefix: &Path, jobs: usize) -> Result<f64> {
    let script = prefix.join("bench.cjs");
    std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    let style = match style {
        Style::Each { clients } => clients.to_string(),
        Style::Batches => "batches".to_owned(),
    };
    let mut node = Command::new("node");
    // By the environment, because everybody may read a command line.
    node.arg(&script).args([jobs.to_string(), style]).env("DATABASE_URL", url).env("NODE_ENV", "production");
    let said = run(node, "node").await?;
    let figures: Figures =
        serde_json::from_str(said.trim()).with_context(|| format!("no figures in: {said}"))?;
    Ok(figures.jobs / figures.seconds)
}

async fn run(mut command: Command, name: &str) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output =
        output.with_context(|| format!("{name} did not end"))?.with_context(|| format!("no {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
