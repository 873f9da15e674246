//! A whole stack, started by the real `bursar` and driven from its `stack.json` as anybody would.
//!
//! Invariant: it is stopped and its data removed when dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rpc::{Client, ClientConfig, Secret};
use serde::Deserialize;

use crate::programs;

pub(crate) const SERVICES: [&str; 6] =
    ["intent", "execution", "confirmation", "signer-gateway", "indexer", "worker-control"];

/// A slow machine shall get a low figure, not none.
const PATIENCE_MS: u64 = 60_000;

#[derive(Debug, Deserialize)]
struct Part {
    url: String,
    pid: u32,
}

#[derive(Debug, Deserialize)]
struct File {
    parts: BTreeMap<String, Part>,
    api_keys: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct Stack {
    bursar: PathBuf,
    data: PathBuf,
    file: File,
}

impl Stack {
    pub(crate) fn start(dir: &Path) -> Result<Stack> {
        let (bursar, data) = (programs::find("bursar")?, dir.join("stack"));
        // Before the start, so that a failed one is cleared away too.
        let mut stack =
            Stack { bursar, data, file: File { parts: BTreeMap::new(), api_keys: BTreeMap::new() } };
        stack.run(&["up", "--detach", "--workers", "inline"])?;
        let text = std::fs::read_to_string(stack.data.join("stack.json")).context("no stack.json")?;
        stack.file = serde_json::from_str(&text).context("stack.json is damaged")?;
        Ok(stack)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.bursar);
        command.args(arguments).arg("--data").arg(&self.data).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot run {}", self.bursar.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "bursar {} failed\n{said}", arguments.join(" "));
        Ok(())
    }

    fn part(&self, name: &str) -> Result<&Part> {
        self.file.parts.get(name).with_context(|| format!("stack.json names no {name}"))
    }

    pub(crate) fn pid(&self, name: &str) -> Result<u32> {
        Ok(self.part(name)?.pid)
    }

    pub(crate) fn url(&self, name: &str) -> Result<&str> {
        Ok(&self.part(name)?.url)
    }

    pub(crate) fn key(&self, who: &str) -> Result<&str> {
        let key = self.file.api_keys.get(who).with_context(|| format!("stack.json has no key of {who}"))?;
        Ok(key)
    }

    pub(crate) fn client(&self, service: &str, who: &str) -> Result<Client> {
        let config = ClientConfig::new(self.url(service)?).with_key(Secret::new(self.key(who)?.to_owned()));
        Ok(rpc::connect_lazy(&ClientConfig { timeout_ms: PATIENCE_MS, ..config })?)
    }

    pub(crate) fn approver_seed(&self, name: &str) -> Result<[u8; 32]> {
        let file = self.data.join("approvers").join(format!("{name}.key"));
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        hex::decode(text.trim())?.try_into().ok().context("a seed has 32 bytes")
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--purge"]) {
            eprintln!("the stack could not be stopped: {error:#}");
        }
    }
}
