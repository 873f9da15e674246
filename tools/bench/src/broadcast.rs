//! Signed transactions handed to a node: our broadcaster against a plain loop of JSON-RPC batches, on the same anvil.
//!
//! Blocks are not made meanwhile: what counts is how fast transactions reach the pool. Every round uses accounts that
//! were never used, and starts with an empty pool.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use chain::{ChainEdge as _, EvmChain, EvmConfig, Finality, NodeConfig};
use devstack::{Anvil, AnvilOptions, DEV_MNEMONIC, JsonRpc, Lifetime, Mining, Tools};
use futures::future::try_join_all;
use payment::{Action, AssetRef, Binding, GasFee, Price, Transfer};
use serde_json::{Value, json};
use signer_gateway::builder::{Parameters, Unsigned, scheme};
use signer_gateway::keys::{KeyRing, seed_from_phrase};
use types::{Address, AddressFormat, RawAmount, WalletGroupId};

use crate::Mode;
use crate::table::{Goal, Row, Unit, median};

const CHAIN_ID: u64 = 56;
const BATCH: usize = 100;
/// Accounts that send at the same time, each in the order of its nonces.
const LANES: u32 = 4;

type Lanes = Vec<Vec<Vec<Vec<u8>>>>;

pub(crate) async fn rows(tools: &Tools, dir: &Path, mode: Mode) -> Result<Vec<Row>> {
    let rounds = u32::try_from(mode.rounds())? + 1;
    let batches = mode.pick(6, 40);
    let options = AnvilOptions {
        dir: dir.join("anvil"),
        chain_id: CHAIN_ID,
        mining: Mining::Manual,
        lifetime: Lifetime::OwnedWithDirectory(dir.join("anvil")),
        extra_args: vec!["--accounts".to_owned(), (rounds * LANES * 2).to_string(), "--quiet".to_owned()],
        ..AnvilOptions::default()
    };
    let mut anvil = Anvil::start(tools, &options).await?;
    let mut wallets = Wallets::new()?;
    let nodes = vec![NodeConfig { name: "anvil".to_owned(), url: anvil.url() }];
    let chain = EvmChain::new(EvmConfig::new("bsc".parse()?, CHAIN_ID, nodes, Finality::Depth(2)))?;
    let node = JsonRpc::new(anvil.url())?;
    let (mut raw, mut our) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (theirs, own) = (wallets.lanes(batches)?, wallets.lanes(batches)?);
        empty_pool(&node).await?;
        let plain = Box::pin(plain(&node, theirs)).await?;
        empty_pool(&node).await?;
        let ours = Box::pin(ours(&chain, own)).await?;
        // The first round opens connections and fills caches.
        if round > 0 {
            raw.push(plain);
            our.push(ours);
        }
    }
    anvil.stop().await?;
    let row = Row::new("broadcast to anvil, batches of 100", Unit::PerSecond);
    Ok(vec![row.ours(median(&our)).raw(median(&raw)).goal(Goal::OfRaw(0.8))])
}

async fn ours(chain: &EvmChain, lanes: Lanes) -> Result<f64> {
    let count = count(&lanes);
    let began = Instant::now();
    let senders = lanes.into_iter().map(|lane| async move {
        for batch in lane {
            for sent in chain.broadcast(&batch).await {
                ensure!(sent.merged.in_pool(), "a transaction was not taken: {:?}", sent.merged);
            }
        }
        Ok(())
    });
    try_join_all(senders).await?;
    Ok(count / began.elapsed().as_secs_f64())
}

/// What anybody would write by hand.
async fn plain(node: &JsonRpc, lanes: Lanes) -> Result<f64> {
    let count = count(&lanes);
    let began = Instant::now();
    let senders = lanes.into_iter().map(|lane| async move {
        for batch in lane {
            let params: Vec<Value> =
                batch.iter().map(|raw| json!([format!("0x{}", hex::encode(raw))])).collect();
            let taken = node.batch("eth_sendRawTransaction", &params).await?.len();
            ensure!(taken == batch.len(), "{taken} transactions of {} were taken", batch.len());
        }
        Ok(())
    });
    try_join_all(senders).await?;
    Ok(count / began.elapsed().as_secs_f64())
}

fn count(lanes: &Lanes) -> f64 {
    lanes.iter().flatten().map(Vec::len).sum::<usize>() as f64
}

async fn empty_pool(node: &JsonRpc) -> Result<()> {
    node.call("anvil_dropAllTransactions", json!([])).await.context("the pool cannot be emptied")?;
    Ok(())
}

/// The development accounts, each used once.
struct Wallets {
    ring: KeyRing,
    group: WalletGroupId,
    next: u32,
}

impl Wallets {
    fn new() -> Result<Wallets> {
        let (ring, group) = (KeyRing::new(vec![scheme(AddressFormat::Evm).coin]), WalletGroupId::new());
        ring.insert(group, &seed_from_phrase(DEV_MNEMONIC, "")?, &ring.epoch())?;
        Ok(Wallets { ring, group, next: 0 })
    }

    fn lanes(&mut self, batches: usize) -> Result<Lanes> {
        let mut lanes = Vec::new();
        for _ in 0..LANES {
            let signed = (0..batches * BATCH).map(|nonce| self.transfer(u64::try_from(nonce)?));
            let signed = signed.collect::<Result<Vec<_>>>()?;
            lanes.push(signed.chunks(BATCH).map(<[_]>::to_vec).collect());
            self.next += 1;
        }
        Ok(lanes)
    }

    fn transfer(&self, nonce: u64) -> Result<Vec<u8>> {
        let wallet = self.ring.wallet(self.group, &scheme(AddressFormat::Evm), self.next)?;
        let from = wallet.address();
        let to = Address::from_body(AddressFormat::Evm, [0x42; 20]);
        let amount = RawAmount::from(1_u128);
        let action = Action::Pay(Transfer { asset: AssetRef::Native, from, to, amount });
        let fee = GasFee::Dynamic { max_fee: 10_000_000_000, max_priority: 1_000_000_000 };
        let parameters = Parameters {
            network_id: Some(CHAIN_ID),
            binding: Binding::Nonce { sender: from, nonce },
            price: Price::Gas { limit: 21_000, fee },
        };
        Ok(Unsigned::build(from, &action, &parameters)?.sign(&wallet)?.raw)
    }
}
