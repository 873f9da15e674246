//! How a node answers a broadcast: java-tron's checks in java-tron's order, with its codes and texts.
//!
//! Only the pools change here, and only after every check has passed.

use std::sync::Arc;

use crate::crypto::recover;
use crate::ledger::execute::{ExecutionContext, Refusal, execute};
use crate::network::Network;
use crate::node::Pooled;
use crate::wire::{Operation, SignedTx};

const LARGEST_BYTES: i64 = 500 * 1024;
const RESULT_ROOM_BYTES: i64 = 64;
const DAY_MS: i64 = 86_400_000;
const SEEN_FOR_MS: i64 = 3_600_000;

/// How far an accepted transaction travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relay {
    /// To producers and peers.
    Everyone,
    /// Into this node's pool only.
    Nobody,
    /// Not even into the pool.
    Forget,
}

/// `code` is the name in java-tron's `response_code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastReply {
    pub code: &'static str,
    pub message: String,
}

impl BroadcastReply {
    pub fn success() -> Self {
        Self::new("SUCCESS", "")
    }

    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn is_success(&self) -> bool {
        self.code == "SUCCESS"
    }
}

impl From<Refusal> for BroadcastReply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Validate(text) => {
                Self::new("CONTRACT_VALIDATE_ERROR", format!("Contract validate error : {text}"))
            }
            Refusal::Resources => Self::new("BANDWITH_ERROR", "Account resource insufficient error."),
        }
    }
}

impl Network {
    pub fn broadcast(&mut self, node: usize, tx: SignedTx, relay: Relay) -> BroadcastReply {
        let tx = Arc::new(tx);
        let answer = match self.admit(node, &tx, true) {
            Ok(()) => BroadcastReply::success(),
            Err(answer) => answer,
        };
        if !answer.is_success() {
            return answer;
        }
        match relay {
            Relay::Everyone | Relay::Nobody => self.take_in(node, &tx),
            // The check has spent the balance in the pending state, which must be computed again without this transaction.
            Relay::Forget => self.nodes[node].pending = None,
        }
        if relay == Relay::Everyone && !self.nodes[node].isolated {
            // Another node may have relayed it before.
            if self.pool.iter().all(|known| known.id != tx.id) {
                self.pool.push(Arc::clone(&tx));
            }
            for peer in 0..self.nodes.len() {
                // The client does not learn that a peer refuses.
                if peer != node && !self.nodes[peer].isolated && self.admit(peer, &tx, false).is_ok() {
                    self.take_in(peer, &tx);
                }
            }
        }
        answer
    }

    fn take_in(&mut self, node: usize, tx: &Arc<SignedTx>) {
        let node = &mut self.nodes[node];
        let since_ms = node.view(&self.chain).head().timestamp_ms;
        node.pool.push(Pooled { tx: Arc::clone(tx), since_ms });
    }

    /// Records that a client sent this, and returns whether one did within the last hour.
    fn was_offered(&mut self, node: usize, tx: &SignedTx) -> bool {
        let node = &mut self.nodes[node];
        let now_ms = node.view(&self.chain).head().timestamp_ms;
        let fresh = |at_ms: &i64| now_ms - *at_ms < SEEN_FOR_MS;
        let offered = node.seen.get(&tx.id).is_some_and(fresh);
        if !offered {
            node.seen.insert(tx.id, now_ms);
        }
        offered
    }

    /// The checks in order. The last one executes on the pending state of the node, which keeps the effect.
    fn admit(&mut self, number: usize, tx: &SignedTx, by_client: bool) -> Result<(), BroadcastReply> {
        let node = &self.nodes[number];
        if by_client && node.busy {
            return Err(BroadcastReply::new("SERVER_BUSY", "Server busy."));
        }
        if by_client && node.disconnected {
            return Err(BroadcastReply::new("NO_CONNECTION", "No connection."));
        }
        // This check comes before the transaction is read, so that a refused one is called a duplicate too.
        if by_client && node.seen_cache && self.was_offered(number, tx) {
            return Err(BroadcastReply::new("DUP_TRANSACTION_ERROR", "Transaction already exists."));
        }
        let node = &self.nodes[number];
        let validate = |text: String| Err(Refusal::Validate(text).into());
        let Some(call) = &tx.call else {
            return validate("No contract!".to_owned());
        };
        let count = tx.raw.contract.len();
        if count != 1 {
            let id = hex::encode(tx.id);
            return validate(format!(
                "tx {id} contract size should be exactly 1, this is extend feature ,actual :{count}"
            ));
        }
        let view = node.view(&self.chain);
        let head_ms = view.head().timestamp_ms;
        let expired = || Err(BroadcastReply::new("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"));
        if tx.raw.expiration < head_ms + self.slot_ms {
            return expired();
        }
        check_signature(tx, call)
            .map_err(|text| BroadcastReply::new("SIGERROR", format!("Validate signature error: {text}")))?;
        if !view.knows_reference(&tx.raw.ref_block_bytes, &tx.raw.ref_block_hash) {
            return Err(BroadcastReply::new("TAPOS_ERROR", "Tapos check error."));
        }
        check_size(tx)?;
        if tx.raw.expiration <= head_ms || tx.raw.expiration > head_ms + DAY_MS {
            return expired();
        }
        if view.holds(&tx.id) || node.pooled(&tx.id).is_some() {
            return Err(BroadcastReply::new("DUP_TRANSACTION_ERROR", "Dup transaction."));
        }
        self.execute_pending(number, tx).map_err(BroadcastReply::from)
    }

    /// Executes on the state of the head with the pool applied, so that the second spend of one balance is refused here.
    fn execute_pending(&mut self, number: usize, tx: &SignedTx) -> Result<(), Refusal> {
        let node = &mut self.nodes[number];
        let now_ms = node.view(&self.chain).head().timestamp_ms;
        let moment = ExecutionContext { prices: &self.prices, now_ms };
        let mut pending = match node.pending.take() {
            Some(pending) => pending,
            None => {
                let mut world = (*node.view(&self.chain).state(false)).clone();
                // What is no longer valid on the new head is dropped from the pool without an error.
                node.pool.retain(|pooled| execute(&mut world, &pooled.tx, moment).is_ok());
                world
            }
        };
        let result = execute(&mut pending, tx, moment).map(drop);
        node.pending = Some(pending);
        result
    }
}

fn check_signature(tx: &SignedTx, call: &Operation) -> Result<(), String> {
    let Some(signature) = tx.signatures.first() else {
        return Err("miss sig or contract".to_owned());
    };
    if tx.signatures.len() > 1 {
        let count = tx.signatures.len();
        return Err(format!("Signature count is {count} more than key counts of permission : 1"));
    }
    if !(65..=68).contains(&signature.len()) {
        return Err(format!("Signature size is {}", signature.len()));
    }
    let permission = tx.raw.contract.first().map_or(0, |contract| contract.permission_id);
    // Every account here has its owner permission and the active one of a fresh account.
    if permission != 0 && permission != 2 {
        return Err("permission isn't exit".to_owned());
    }
    match (recover(tx.id, signature), call.owner()) {
        (None, _) => Err("sig error".to_owned()),
        (Some(signer), Some(owner)) if signer == owner => Ok(()),
        (Some(signer), _) => Err(format!(
            "{} is signed by {signer} but it is not contained of permission.",
            hex::encode(signature)
        )),
    }
}

fn check_size(tx: &SignedTx) -> Result<(), BroadcastReply> {
    let size = tx.bandwidth() - RESULT_ROOM_BYTES;
    if size <= LARGEST_BYTES {
        return Ok(());
    }
    let id = hex::encode(tx.id);
    let text = format!("Too big transaction, TxId {id}, the size is {size} bytes, maxTxSize {LARGEST_BYTES}");
    Err(BroadcastReply::new("TOO_BIG_TRANSACTION_ERROR", text))
}
