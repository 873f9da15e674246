//! `bursar down`: stops whatever runs on the data directory, detached or not. Doing it twice does no harm.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::signal::Signal;

use crate::client::Target;
use crate::progress::say;
use crate::stack::{self, Layout, StackFile};

/// A launcher stops six services and four servers one after the other, each within a limit of its own.
const LAUNCHER_LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Args)]
pub struct Down {
    /// Remove the data directory too, with everything in it
    #[arg(long)]
    purge: bool,
}

impl Down {
    pub async fn run(self, target: Target) -> Result<()> {
        let Some(layout) = Layout::find(&target.data) else {
            say(format_args!("nothing runs in {}", target.data.display()));
            return Ok(());
        };
        let launcher_stopped = stop_launcher(&layout).await?;
        let _lock = layout.lock()?;
        let mut stopped = stack::stop_everything(&layout).await?;
        // What the file names and the look at the processes did not find: a part that was started in another way.
        let file = StackFile::read(&layout.stack_file()).unwrap_or_else(|error| {
            // It would stand in the way of every later command; what runs was found without it.
            say(format_args!("{error:#}; removing it"));
            None
        });
        for (name, part) in file.iter().flat_map(|file| &file.parts) {
            if part.identity().is_alive() {
                part.identity().stop(name, &stack::file::stop_plan(name)).await?;
                stopped.push(name.clone());
            }
        }
        stack::forget(&layout)?;
        match stopped.len() {
            0 if launcher_stopped => say("everything stopped"),
            0 => say(format_args!("nothing runs in {}", layout.root().display())),
            count => say(format_args!("{count} parts stopped")),
        }
        if self.purge { purge(&layout) } else { Ok(()) }
    }
}

/// The cluster may lie outside the directory, where only the server's user could reach it.
fn purge(layout: &Layout) -> Result<()> {
    let mut dirs = vec![layout.root().to_owned()];
    dirs.extend(devstack::Postgres::elsewhere(&layout.part(stack::POSTGRES)));
    for dir in dirs.iter().rev() {
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    say(format_args!("removed {}", layout.root().display()));
    Ok(())
}

/// A stack in the foreground is stopped by the bursar that runs it, which then ends. Whether there was one.
async fn stop_launcher(layout: &Layout) -> Result<bool> {
    let Some(launcher) = layout.holder() else { return Ok(false) };
    say(format_args!("asking bursar (pid {}) to stop", launcher.pid));
    launcher.signal(Signal::SIGTERM);
    let deadline = Instant::now() + LAUNCHER_LIMIT;
    // It may also let go of the lock and live on, as a detached start does for a moment.
    while launcher.is_alive() && layout.holder().is_some() {
        if Instant::now() > deadline {
            bail!("bursar (pid {}) does not stop; kill it, then run `bursar down` again", launcher.pid);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(true)
}
