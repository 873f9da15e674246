//! A seeded stack and the program that is run against it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Stopped when the test ends, however it does.
pub(crate) struct Stack {
    scratch: TempDir,
}

impl Stack {
    pub(crate) fn start() -> Stack {
        let scratch = testkit::scratch_dir();
        // The user postgres has to enter it.
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let stack = Stack { scratch };
        let mut up = stack.command(&["up", "--detach"]);
        // Somebody who drives another installation too: that is neither seeded nor asked.
        up.env("BURSAR_EXECUTION_URL", "http://127.0.0.1:1").env("BURSAR_API_KEY", "of-another-installation");
        let output = up.output().unwrap();
        assert!(output.status.success(), "bursar up: {}", said(&output));
        stack
    }

    /// A file beside the stack's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(words).stdin(Stdio::null()).current_dir(self.scratch.path());
        if !words.contains(&"--data") {
            command.args(["--data", "data"]);
        }
        command
    }

    /// What a command prints that must end well.
    pub(crate) fn text(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "bursar {words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let text = self.text(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("bursar {words:?}: {error}: {text}"))
    }

    pub(crate) fn json_lines(&self, words: &[&str]) -> Vec<Value> {
        lines(&self.text(&[words, &["--json"]].concat()))
    }

    /// What a command says that must fail, in one line and with the same one when JSON is asked for.
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let printed = [words.to_vec(), [words, &["--json"]].concat()].map(|words| {
            let output = self.command(&words).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "bursar {words:?}: {}", said(&output));
            let printed = String::from_utf8(output.stderr).unwrap();
            assert!(
                printed.starts_with("error: ") && printed.lines().count() == 1,
                "bursar {words:?}: {printed}"
            );
            printed
        });
        assert_eq!(printed[0], printed[1], "bursar {words:?}");
        let [printed, _] = printed;
        printed
    }

    pub(crate) fn url(&self, part: &str) -> String {
        let file = std::fs::read_to_string(self.path("data").join("stack.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        file["parts"][part]["url"].as_str().unwrap().to_owned()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.command(&["down"]).output().unwrap();
    }
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The value of a `name  value` line.
pub(crate) fn field(text: &str, name: &str) -> String {
    let value = |line: &str| {
        let (found, value) = line.split_once("  ")?;
        (found == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(value).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// A command that runs beside the test.
pub(crate) struct Running {
    child: Mutex<Child>,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    words: String,
}

impl Running {
    pub(crate) fn start(stack: &Stack, words: &[&str]) -> Running {
        let mut child = stack.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line));
        });
        Running { child: Mutex::new(child), lines, reader: Some(reader), words: words.join(" ") }
    }

    pub(crate) fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    pub(crate) fn last_line(&self) -> String {
        self.lines.lock().unwrap().last().cloned().unwrap()
    }

    /// Waits for more lines than these, from a program that still runs.
    pub(crate) async fn prints_more_than(&self, before: usize, what: &str) {
        testkit::wait_for(what, PATIENCE, || async {
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "bursar {} ended: {}", self.words, self.complaint());
            self.count() > before
        })
        .await;
    }

    fn complaint(&self) -> String {
        let mut printed = String::new();
        self.child.lock().unwrap().stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        printed
    }

    /// Waits for its end, which must be a good one, and gives what it printed.
    pub(crate) fn ended(mut self) -> String {
        let status = self.child.get_mut().unwrap().wait().unwrap();
        assert!(status.success(), "bursar {}: {}", self.words, self.complaint());
        self.reader.take().unwrap().join().unwrap();
        self.lines.lock().unwrap().join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        // One that has ended cannot be killed; that is what is wanted.
        child.kill().ok();
        child.wait().ok();
    }
}
