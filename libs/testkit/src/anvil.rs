//! A chain of its own for each call.

use std::path::PathBuf;

use devstack::{Anvil, AnvilOptions, JsonRpc, Lifetime, Tools};
use serde_json::{Value, json};

use crate::scratch;

/// A private anvil. It ends when the value is dropped.
#[derive(Debug)]
pub struct Chain {
    anvil: Anvil,
    dir: PathBuf,
    node: JsonRpc,
}

/// Starts anvil with these options; its directory and lifetime are chosen here.
pub async fn anvil(options: AnvilOptions) -> Chain {
    let dir = scratch::server_dir("anvil");
    let options =
        AnvilOptions { dir: dir.clone(), lifetime: Lifetime::OwnedWithDirectory(dir.clone()), ..options };
    let anvil = Anvil::start(&Tools::locate(), &options).await;
    let anvil = anvil.unwrap_or_else(|error| panic!("this test needs anvil: {error}"));
    let node = JsonRpc::new(anvil.url()).unwrap_or_else(|error| panic!("{error}"));
    Chain { anvil, dir, node }
}

impl Chain {
    pub fn url(&self) -> String {
        self.anvil.url()
    }

    /// The node's `127.0.0.1:port`, as the target of a [`FaultProxy`](crate::FaultProxy).
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.anvil.port())
    }

    /// One JSON-RPC call that must succeed, such as `evm_mine` or `anvil_reorg`.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        self.node.call(method, params).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes `count` empty blocks.
    pub async fn mine(&self, count: u64) {
        self.call("anvil_mine", json!([format!("{count:#x}")])).await;
    }

    pub fn server(&mut self) -> &mut Anvil {
        &mut self.anvil
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // Anvil keeps nothing there but its log; the lifeline removes the directory if we are killed before this.
        std::fs::remove_dir_all(&self.dir).ok();
    }
}
