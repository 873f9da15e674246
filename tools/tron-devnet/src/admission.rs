//! What a node says to a broadcast: java-tron's checks in java-tron's order.
//!
//! Owns the order of checks and the code and text of each answer. Nothing but the network's pools changes
//! here, and only after every check has passed.

use std::sync::Arc;

use crate::crypto::recover;
use crate::ledger::execute::{Moment, Refusal, execute};
use crate::network::Network;
use crate::node::Pooled;
use crate::wire::{Call, SignedTx};

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

/// The node's answer; `code` is the name in java-tron's `response_code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: &'static str,
    pub message: String,
}

impl Answer {
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

impl From<Refusal> for Answer {
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
    /// Offers a transaction to a node.
    pub fn broadcast(&mut self, node: usize, tx: SignedTx, relay: Relay) -> Answer {
        let tx = Arc::new(tx);
        let answer = match self.admit(node, &tx, true) {
            Ok(()) => Answer::success(),
            Err(answer) => answer,
        };
        if !answer.is_success() {
            return answer;
        }
        match relay {
            Relay::Everyone | Relay::Nobody => self.take_in(node, &tx),
            // The check has spent the balance in the pending state; nothing stands behind that now.
            Relay::Forget => self.nodes[node].pending = None,
        }
        if relay == Relay::Everyone && !self.nodes[node].isolated {
            // Another node may have brought it before.
            if self.pool.iter().all(|known| known.id != tx.id) {
                self.pool.push(Arc::clone(&tx));
            }
            for peer in 0..self.nodes.len() {
                // A peer that refuses says so to nobody.
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

    /// Notes that a client has offered this; whether one did within the last hour.
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

    /// The checks in order. The last one executes upon the node's pending state, which keeps the effect.
    fn admit(&mut self, number: usize, tx: &SignedTx, by_client: bool) -> Result<(), Answer> {
        let node = &self.nodes[number];
        if by_client && node.busy {
            return Err(Answer::new("SERVER_BUSY", "Server busy."));
        }
        if by_client && node.disconnected {
            return Err(Answer::new("NO_CONNECTION", "No connection."));
        }
        // Before anything is known of the transaction, so what was refused is called a duplicate too.
        if by_client && node.seen_cache && self.was_offered(number, tx) {
            return Err(Answer::new("DUP_TRANSACTION_ERROR", "Transaction already exists."));
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
        let expired = || Err(Answer::new("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"));
        if tx.raw.expiration < head_ms + self.slot_ms {
            return expired();
        }
        check_signature(tx, call)
            .map_err(|text| Answer::new("SIGERROR", format!("Validate signature error: {text}")))?;
        if !view.knows_reference(&tx.raw.ref_block_bytes, &tx.raw.ref_block_hash) {
            return Err(Answer::new("TAPOS_ERROR", "Tapos check error."));
        }
        check_size(tx)?;
        if tx.raw.expiration <= head_ms || tx.raw.expiration > head_ms + DAY_MS {
            return expired();
        }
        if view.holds(&tx.id) || node.pooled(&tx.id).is_some() {
            return Err(Answer::new("DUP_TRANSACTION_ERROR", "Dup transaction."));
        }
        self.execute_pending(number, tx).map_err(Answer::from)
    }

    /// Executes upon the head's state with the pool applied, so that two spends of one balance collide here.
    fn execute_pending(&mut self, number: usize, tx: &SignedTx) -> Result<(), Refusal> {
        let node = &mut self.nodes[number];
        let now_ms = node.view(&self.chain).head().timestamp_ms;
        let moment = Moment { prices: &self.prices, now_ms };
        let mut pending = match node.pending.take() {
            Some(pending) => pending,
            None => {
                let mut world = (*node.view(&self.chain).state(false)).clone();
                // What no longer validates on the new head leaves the pool without a word.
                node.pool.retain(|pooled| execute(&mut world, &pooled.tx, moment).is_ok());
                world
            }
        };
        let result = execute(&mut pending, tx, moment).map(drop);
        node.pending = Some(pending);
        result
    }
}

fn check_signature(tx: &SignedTx, call: &Call) -> Result<(), String> {
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

fn check_size(tx: &SignedTx) -> Result<(), Answer> {
    let size = tx.bandwidth() - RESULT_ROOM_BYTES;
    if size <= LARGEST_BYTES {
        return Ok(());
    }
    let id = hex::encode(tx.id);
    let text = format!("Too big transaction, TxId {id}, the size is {size} bytes, maxTxSize {LARGEST_BYTES}");
    Err(Answer::new("TOO_BIG_TRANSACTION_ERROR", text))
}
