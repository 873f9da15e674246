//! Stacks that tests hand on to each other: starting one costs more than most tests do with it.
//!
//! Invariants: a stack serves one test at a time; one that was not handed on in good order is thrown away; none outlives the last test that runs.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use proto::confirmation::v1 as co;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::execution::v1 as ex;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;

use crate::payments::{PATIENCE, again};
use crate::stack::Stack;

/// After how long without a block the development chain's payments are raised.
pub const BUMP_AFTER_SECONDS: u32 = 30;

#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Stack>,
    /// Tests that hold or await a stack.
    active: usize,
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf { idle: Vec::new(), active: 0 });

fn shelf() -> MutexGuard<'static, Shelf> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack on loan.
#[derive(Debug)]
pub struct Borrowed {
    stack: Option<Stack>,
    /// Whether another test may have it.
    is_well: bool,
}

/// A stack that works: one that an earlier test left, or a new one.
pub async fn stack() -> Result<Borrowed> {
    let idle = {
        let mut shelf = shelf();
        shelf.active += 1;
        shelf.idle.pop()
    };
    // Made before anything can fail: its end counts the test out again.
    let mut borrowed = Borrowed { stack: idle, is_well: false };
    match &borrowed.stack {
        Some(stack) => restore(stack).await?,
        None => borrowed.stack = Some(Stack::start()?),
    }
    Ok(borrowed)
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
        let Ok(answer) = client.clone().list_heads(co::ListHeadsRequest {}).await else { return false };
        let heads = answer.into_inner().heads;
        let used = heads.iter().filter(|head| head.chain == "bsc").flat_map(|head| &head.nodes);
        let used: BTreeSet<&str> = used.map(|node| node.node.trim_end_matches('/')).collect();
        used == nodes.iter().map(|node| node.trim_end_matches('/')).collect()
    })
    .await;
    Ok(())
}

/// Changes the catalogue's word on the development chain.
pub async fn change_chain(stack: &Stack, change: impl Fn(&mut ex::Chain)) -> Result<()> {
    let client = CatalogueServiceClient::new(stack.client("execution", "operator")?);
    let listed = again(|| {
        let mut client = client.clone();
        async move { client.list_chains(ex::ListChainsRequest::default()).await }
    });
    for mut chain in listed.await?.chains.into_iter().filter(|chain| chain.name == "bsc") {
        change(&mut chain);
        again(|| {
            let (mut client, chain) = (client.clone(), chain.clone());
            async move { client.put_chain(ex::PutChainRequest { chain: Some(chain) }).await }
        })
        .await?;
    }
    Ok(())
}

impl Borrowed {
    /// The test has passed and leaves nothing behind that the next one would trip over.
    pub fn hand_on(mut self) {
        self.is_well = true;
    }
}

impl Deref for Borrowed {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        match &self.stack {
            Some(stack) => stack,
            None => unreachable!("a loan holds its stack until it ends"),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut over = Vec::new();
        {
            let mut shelf = shelf();
            shelf.active -= 1;
            match self.stack.take() {
                Some(stack) if self.is_well => shelf.idle.push(stack),
                Some(stack) => over.push(stack),
                None => {}
            }
            if shelf.active == 0 {
                over.append(&mut shelf.idle);
            }
        }
        // Stopping takes seconds; not under the lock.
        drop(over);
    }
}
