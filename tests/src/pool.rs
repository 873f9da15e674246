//! Stacks that tests pass on to each other, because starting one costs more than most tests do with it.
//!
//! Invariants: a stack serves one test at a time; one that was not handed on in good order is thrown away; none outlives the last test that runs.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use proto::confirmation::v1 as confirmation_pb;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::execution::v1 as execution_pb;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;

use crate::payments::{PATIENCE, retried};
use crate::stack::Stack;

/// After how long without a block the development chain's payments are raised.
pub const BUMP_AFTER_SECONDS: u32 = 30;

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Stack>,
    /// Tests that hold or await a stack.
    active: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), active: 0 });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack that one test holds.
#[derive(Debug)]
pub struct PooledStack {
    stack: Option<Stack>,
    is_reusable: bool,
}

/// A stack that works: one that an earlier test left, or a new one.
pub async fn stack() -> Result<PooledStack> {
    let idle = {
        let mut pool = pool();
        pool.active += 1;
        pool.idle.pop()
    };
    // Made before anything can fail, because its drop ends the test's count.
    let mut pooled = PooledStack { stack: idle, is_reusable: false };
    match &pooled.stack {
        Some(stack) => restore(stack).await?,
        None => pooled.stack = Some(Stack::start()?),
    }
    Ok(pooled)
}

/// Undoes what tests change: services with faults in their environment, and the chain in the catalogue.
async fn restore(stack: &Stack) -> Result<()> {
    stack.restore()?;
    // First of all: a service whose only node is a proxy that has gone is not ready.
    nodes(stack, vec![stack.part("bsc")?.url]).await?;
    change_chain(stack, |chain| chain.bump_after_seconds = BUMP_AFTER_SECONDS).await?;
    for service in ["signer-gateway", "confirmation", "execution", "intent"] {
        stack.serving(service).await?;
    }
    Ok(())
}

/// Has the services use these nodes, and waits until both that talk to nodes do.
pub async fn nodes(stack: &Stack, nodes: Vec<String>) -> Result<()> {
    change_chain(stack, |chain| chain.nodes.clone_from(&nodes)).await?;
    let client = ConfirmationServiceClient::new(stack.client("confirmation", "operator")?);
    testkit::wait_for("confirmation to follow the nodes of the catalogue", PATIENCE, || async {
        let Ok(answer) = client.clone().list_heads(confirmation_pb::ListHeadsRequest {}).await else {
            return false;
        };
        let heads = answer.into_inner().heads;
        let used = heads.iter().filter(|head| head.chain == "bsc").flat_map(|head| &head.nodes);
        let used: BTreeSet<&str> = used.map(|node| node.node.trim_end_matches('/')).collect();
        used == nodes.iter().map(|node| node.trim_end_matches('/')).collect()
    })
    .await;
    Ok(())
}

/// Changes the development chain in the catalogue.
pub async fn change_chain(stack: &Stack, change: impl Fn(&mut execution_pb::Chain)) -> Result<()> {
    let client = CatalogueServiceClient::new(stack.client("execution", "operator")?);
    let all = execution_pb::ListChainsRequest::default();
    let listed = retried(|| async { client.clone().list_chains(all).await });
    for mut chain in listed.await?.chains.into_iter().filter(|chain| chain.name == "bsc") {
        change(&mut chain);
        let request = execution_pb::PutChainRequest { chain: Some(chain) };
        retried(|| async { client.clone().put_chain(request.clone()).await }).await?;
    }
    Ok(())
}

impl PooledStack {
    /// The test has passed and leaves nothing behind that the next one would trip over.
    pub fn hand_on(mut self) {
        self.is_reusable = true;
    }
}

impl Deref for PooledStack {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        match &self.stack {
            Some(stack) => stack,
            None => unreachable!("a pooled stack is held until it is dropped"),
        }
    }
}

impl Drop for PooledStack {
    fn drop(&mut self) {
        let mut discarded = Vec::new();
        {
            let mut pool = pool();
            pool.active -= 1;
            match self.stack.take() {
                Some(stack) if self.is_reusable => pool.idle.push(stack),
                Some(stack) => discarded.push(stack),
                None => {}
            }
            if pool.active == 0 {
                discarded.append(&mut pool.idle);
            }
        }
        // Stopping takes seconds and must not happen under the lock.
        drop(discarded);
    }
}
