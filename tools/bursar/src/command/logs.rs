//! `bursar logs`: the log of a part or of a worker, of a stack that runs or of one that does not any more.
//!
//! A worker may be called as a service is, so its full name is `worker/ID`; the id alone is enough where no part has that name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::Target;
use crate::output;
use crate::stack::Layout;

const FOLLOW: Duration = Duration::from_millis(200);
/// What the name of a worker's log begins with.
const WORKER: &str = "worker/";

#[derive(Debug, Args)]
pub struct Logs {
    /// A service or another part: intent, execution, .., postgres, mongodb, redis, bsc, tron; or a worker: worker/ID
    part: String,
    /// Go on as the log grows
    #[arg(short, long)]
    follow: bool,
    /// How many of its last lines
    #[arg(short = 'n', long, default_value_t = 100)]
    lines: usize,
}

impl Logs {
    pub async fn run(self, target: Target) -> Result<()> {
        let layout =
            Layout::find(&target.data).with_context(|| format!("no stack in {}", target.data.display()))?;
        let known = known(&layout);
        let Some(log) = find(&known, &self.part) else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            match names.as_slice() {
                [] => bail!("no part has written a log in {}", layout.root().display()),
                names => bail!("no log of `{}`; there are logs of {}", self.part, names.join(", ")),
            }
        };
        let tail = devstack::tail(log, self.lines);
        if !tail.is_empty() {
            output::print(&tail)?;
        }
        if self.follow { follow(log).await } else { Ok(()) }
    }
}

/// Prints what is added until the reader goes away. A log that became shorter was begun anew by a restart.
async fn follow(log: &Path) -> Result<()> {
    let mut at = std::fs::metadata(log).map(|meta| meta.len()).unwrap_or(0);
    loop {
        let length = std::fs::metadata(log).map(|meta| meta.len()).unwrap_or(0);
        if length < at {
            at = 0;
        }
        if length > at {
            let mut file = File::open(log)?;
            file.seek(SeekFrom::Start(at))?;
            let mut added = Vec::new();
            at += u64::try_from(file.read_to_end(&mut added)?)?;
            let mut out = std::io::stdout();
            match out.write_all(&added).and_then(|()| out.flush()) {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            }
        }
        tokio::time::sleep(FOLLOW).await;
    }
}

/// The log of a part, or of a worker by its full name or its id.
fn find<'a>(known: &'a BTreeMap<String, PathBuf>, name: &str) -> Option<&'a Path> {
    known.get(name).or_else(|| known.get(&format!("{WORKER}{name}"))).map(PathBuf::as_path)
}

/// Every log there is, by the name under which it is asked for.
fn known(layout: &Layout) -> BTreeMap<String, PathBuf> {
    let parts = logs_in(&layout.root().join("logs"));
    let workers = logs_in(&layout.worker_logs());
    let named = workers.into_iter().map(|(id, log)| (format!("{WORKER}{id}"), log));
    parts.into_iter().chain(named).collect()
}

fn logs_in(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let log = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_str()?.strip_suffix(".log")?.to_owned();
        Some((name, entry.path()))
    };
    entries.filter_map(log).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_found_by_its_id_unless_a_part_is_called_so() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(dir.path()).unwrap();
        let workers = layout.worker_logs();
        std::fs::create_dir_all(&workers).unwrap();
        std::fs::create_dir_all(dir.path().join("logs")).unwrap();
        for log in [layout.log("indexer"), workers.join("indexer.log"), workers.join("confirmation-bsc.log")]
        {
            std::fs::write(log, "").unwrap();
        }
        let known = known(&layout);
        assert_eq!(
            known.keys().collect::<Vec<_>>(),
            ["indexer", "worker/confirmation-bsc", "worker/indexer"]
        );
        assert_eq!(find(&known, "indexer"), Some(layout.log("indexer").as_path()));
        assert_eq!(find(&known, "worker/indexer"), Some(workers.join("indexer.log").as_path()));
        assert_eq!(find(&known, "confirmation-bsc"), Some(workers.join("confirmation-bsc.log").as_path()));
        assert_eq!(find(&known, "confirmation"), None);
    }
}
