//! Running the example as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::{wait_for, wait_for_value};
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_secs(20);

pub(crate) fn config(database: &str, greeting: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhealth.interval_ms = 50\nhealth.timeout_ms = 300\nlimits.drain_ms = 2000\n\
         [database]\nurl = \"{database}\"\n[greeter]\ngreeting = \"{greeting}\"\n"
    )
}

/// A configuration file and the program to run with it.
pub(crate) struct Greeter {
    dir: TempDir,
}

pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn last_line(&self) -> String {
        self.stderr.lines().last().unwrap_or_default().to_owned()
    }
}

/// `cargo test -p service` builds the package's examples too, beside its tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples").join("greeter");
    assert!(
        program.exists(),
        "run `cargo build -p service --example greeter` first: `--test` alone does not build it"
    );
    program
}

impl Greeter {
    pub(crate) fn new(text: &str) -> Self {
        let greeter = Self { dir: tempfile::tempdir().unwrap() };
        greeter.write(text);
        greeter
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("greeter.toml")
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    /// A file beside the configuration.
    pub(crate) fn beside(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.env_remove("RUST_LOG").stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// With this configuration, to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        let file = self.file();
        let mut all = arguments.to_vec();
        all.extend(["--config", file.to_str().unwrap()]);
        self.run_plain(&all).await
    }

    pub(crate) async fn run_plain(&self, arguments: &[&str]) -> Ended {
        let output = self.command().args(arguments).output();
        let output = tokio::time::timeout(SOON, output).await.expect("the program hangs").unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Serving, until told otherwise.
    pub(crate) fn spawn(&self) -> Process {
        self.spawn_to(&["serve"])
    }

    /// The same with another subcommand.
    pub(crate) fn spawn_to(&self, arguments: &[&str]) -> Process {
        let log = self.dir.path().join("log");
        let stderr = fs::File::create(&log).unwrap();
        let child =
            self.command().args(arguments).arg("--config").arg(self.file()).stderr(stderr).spawn().unwrap();
        Process { child, log }
    }
}

pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) async fn logged(&self, text: &str) {
        wait_for(text, SOON, || async { self.log().contains(text) }).await;
    }

    /// Where it listens, as its log says.
    pub(crate) async fn address(&self) -> String {
        wait_for_value("the service listens", SOON, || async {
            let log = self.log();
            let (_, rest) = log.split_once(r#""listen":""#)?;
            rest.split_once('"').map(|(address, _)| address.to_owned())
        })
        .await
    }

    pub(crate) async fn metrics(&self, address: &str) -> String {
        reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn ready(&self, address: &str) -> bool {
        reqwest::get(format!("http://{address}/readyz")).await.is_ok_and(|reply| reply.status().is_success())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    pub(crate) async fn exit(&mut self) -> i32 {
        let status =
            tokio::time::timeout(SOON, self.child.wait()).await.expect("the process does not end").unwrap();
        status.code().unwrap_or(-1)
    }
}
