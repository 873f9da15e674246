//! ponder on the same chain, with PostgreSQL as its authors advise for production; installed once into a cache outside any clone.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::Expected;
use super::chain::{CHAIN_ID, EventChain};
use crate::programs;

const VERSION: &str = "0.16.10";
/// The release that ponder asks for is not offered everywhere; this one works with it.
const PACKAGE: &str = r#"{
  "name": "bench-ponder",
  "private": true,
  "type": "module",
  "dependencies": { "hono": "^4", "ponder": "0.16.10", "viem": "2.38.0" },
  "overrides": { "viem": "2.38.0" }
}"#;
const FILES: [(&str, &str); 4] = [
    ("ponder.config.ts", include_str!("ponder/ponder.config.ts")),
    ("ponder.schema.ts", include_str!("ponder/ponder.schema.ts")),
    ("src/index.ts", include_str!("ponder/index.ts")),
    ("src/api/index.ts", include_str!("ponder/api.ts")),
];
const SCHEMA: &str = "bench";
const DONE: &str = "Completed backfill indexing across all chains";
const PATIENCE: Duration = Duration::from_secs(900);

pub(super) async fn install() -> Result<PathBuf> {
    let folder = format!("ponder-{VERSION}");
    let tools = devstack::tools_dir().context("there is no cache directory to install it into")?;
    let prefix = tools.join("npm").join(&folder);
    std::fs::create_dir_all(prefix.join("src/api"))
        .with_context(|| format!("cannot create {}", prefix.display()))?;
    for (file, text) in FILES.into_iter().chain([("package.json", PACKAGE)]) {
        std::fs::write(prefix.join(file), text)?;
    }
    programs::npm(&folder, &[], "node_modules/.bin/ponder").await
}

#[derive(Deserialize)]
struct Line {
    msg: String,
    duration: Option<f64>,
}

/// Events a second over its backfill, as it measures itself: without start, and with everything stored at the end.
pub(super) async fn rate(prefix: &Path, url: &str, chain: &EventChain) -> Result<f64> {
    let port = devstack::free_port()?.to_string();
    let mut ponder = Command::new(prefix.join("node_modules/.bin/ponder"));
    ponder.args(["start", "--schema", SCHEMA, "--port", &port, "--log-format", "json"]).current_dir(prefix);
    ponder
        .env("DATABASE_URL", url)
        .env("CHAIN_ID", CHAIN_ID.to_string())
        .env("NODE_URL", chain.url())
        .env("CONTRACT", &chain.contract)
        .env("END_BLOCK", chain.last.to_string())
        .env("PONDER_TELEMETRY_DISABLED", "true")
        .env("NODE_ENV", "production");
    ponder.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = ponder.spawn().context("cannot start ponder")?;
    let out = child.stdout.take().context("no output")?;
    let mut lines = BufReader::new(out).lines();
    let wait = async {
        let mut said = String::new();
        while let Some(text) = lines.next_line().await? {
            match serde_json::from_str::<Line>(&text) {
                Ok(line) if line.msg.starts_with(DONE) => {
                    return line.duration.context("no duration in ponder's log");
                }
                _ => said = text,
            }
        }
        anyhow::bail!("ponder ended: {said}")
    };
    let ms = tokio::time::timeout(PATIENCE, wait).await.context("ponder did not end")??;
    child.kill().await.ok();
    check(url, chain.expected).await?;
    Ok(chain.expected.events as f64 * 1000.0 / ms)
}

async fn check(url: &str, expected: Expected) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let query =
        "SELECT count(*), sum(31 * block_number + 7 * log_index + integrator_fee)::text FROM bench.fees";
    let row = sqlx::query(query).fetch_one(&mut connection).await?;
    let (events, checksum): (i64, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    let checksum: u128 = checksum.unwrap_or_default().parse()?;
    let found = Expected { events: u64::try_from(events)?, checksum: u64::try_from(checksum)? };
    ensure!(found == expected, "ponder stored {found:?}, the chain holds {expected:?}");
    Ok(())
}
