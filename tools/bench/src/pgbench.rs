//! Runs pgbench, PostgreSQL's own load generator: the raw limit of what a statement can reach on this server.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// Threads of pgbench itself; more than cores only take time from the server.
const THREADS: u32 = 2;
/// The session settings of `libs/db`, so that the raw limit is planned the same way.
const SESSION: &str = "-c enable_seqscan=off -c jit=off";

#[derive(Debug)]
pub(crate) struct Pgbench {
    program: PathBuf,
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    Seconds(u32),
    TransactionsEach(u32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) database: &'a str,
    pub(crate) script: &'a str,
    pub(crate) clients: u32,
    pub(crate) extent: Extent,
    /// What the script's variables are at its first run.
    pub(crate) variables: &'a [(&'a str, &'a str)],
}

impl Pgbench {
    /// It comes with the server and lies beside it.
    pub(crate) fn beside(postgres: &Path, dir: &Path) -> Result<Pgbench> {
        let program = postgres.with_file_name("pgbench");
        ensure!(
            program.is_file(),
            "{} is not there; Debian's package `postgresql` holds it",
            program.display()
        );
        Ok(Pgbench { program, dir: dir.to_owned() })
    }

    /// Runs of the script per second over all clients, without the time to connect.
    pub(crate) async fn rate(&self, load: &Load<'_>) -> Result<f64> {
        let script = self.dir.join("pgbench.sql");
        std::fs::write(&script, load.script).with_context(|| format!("cannot write {}", script.display()))?;
        let (address, password) = without_password(load.database)?;
        let mut command = Command::new(&self.program);
        command.args(["--no-vacuum", "--protocol=prepared"]);
        command.arg(format!("--client={}", load.clients));
        command.arg(format!("--jobs={}", THREADS.min(load.clients)));
        command.arg(match load.extent {
            Extent::Seconds(seconds) => format!("--time={seconds}"),
            Extent::TransactionsEach(count) => format!("--transactions={count}"),
        });
        for (name, value) in load.variables {
            command.arg(format!("--define={name}={value}"));
        }
        command.arg("--file").arg(&script).arg(address);
        command.env("PGPASSWORD", password).env("PGOPTIONS", SESSION).current_dir(&self.dir);
        let output =
            command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("cannot run pgbench")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "pgbench failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        rate_in(&said).with_context(|| format!("pgbench gave no rate: {said}"))
    }
}

/// The password goes by the environment: everybody may read a command line.
fn without_password(url: &str) -> Result<(String, String)> {
    let parsed = url.strip_prefix("postgres://").and_then(|rest| {
        let (role, rest) = rest.split_once(':')?;
        let (password, place) = rest.split_once('@')?;
        Some((format!("postgres://{role}@{place}"), password.to_owned()))
    });
    parsed.context("the database's address has no password")
}

fn rate_in(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_pgbench_says() {
        let said =
            "number of failed transactions: 0 (0.000%)\ntps = 3012.512 (without initial connection time)\n";
        assert_eq!(rate_in(said), Some(3012.512));
        assert_eq!(rate_in("pgbench: error"), None);
    }

    #[test]
    fn the_password_is_taken_out_of_the_address() {
        let (address, password) = without_password("postgres://postgres:pw@127.0.0.1:5/q").unwrap();
        assert_eq!((address.as_str(), password.as_str()), ("postgres://postgres@127.0.0.1:5/q", "pw"));
    }
}
