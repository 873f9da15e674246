//! `bursar logs`: the log of a part, of a stack that runs or of one that does not any more.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::Target;
use crate::output;
use crate::stack::Layout;

const FOLLOW: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub struct Logs {
    /// A service or another part: intent, execution, .., postgres, mongodb, redis, bsc, tron
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
        if !known.contains(&self.part) {
            match known.as_slice() {
                [] => bail!("no part has written a log in {}", layout.root().display()),
                known => bail!("no log of `{}`; there are logs of {}", self.part, known.join(", ")),
            }
        }
        let log = layout.log(&self.part);
        let tail = devstack::tail(&log, self.lines);
        if !tail.is_empty() {
            output::print(&tail)?;
        }
        if self.follow { follow(&log).await } else { Ok(()) }
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

fn known(layout: &Layout) -> Vec<String> {
    let entries = std::fs::read_dir(layout.root().join("logs")).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned());
    let mut known: Vec<String> = entries.filter_map(name).collect();
    known.sort();
    known
}
