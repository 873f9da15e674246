//! graphile-worker, the original for Node: installed once into a cache outside any clone, run as a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tokio::process::Command;

use super::Style;
use crate::programs;

/// The newest that runs on Node 20.
const VERSION: &str = "0.17.3";
const SCRIPT: &str = include_str!("graphile.cjs");
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
struct Figures {
    jobs: f64,
    seconds: f64,
}

pub(super) async fn install() -> Result<PathBuf> {
    let installed = "node_modules/graphile-worker/package.json";
    let package = format!("graphile-worker@{VERSION}");
    programs::npm(&format!("graphile-worker-{VERSION}"), &["--prefix", ".", &package], installed).await
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
    let said = programs::run(node, "node", PATIENCE).await?;
    let figures: Figures =
        serde_json::from_str(said.trim()).with_context(|| format!("no figures in: {said}"))?;
    Ok(figures.jobs / figures.seconds)
}
