//! The meaning of nodes' error texts. This is the only place that reads them.
//!
//! JSON-RPC has no codes for the refusals that matter, and geth, bsc, erigon, nethermind, besu, reth, anvil and the hosted services
//! word them differently. A text is converted to lower case and compared with the table below; the first entry that matches decides.
//! A text that is not listed is `Unknown`, which is safe: the same bytes are sent again, the chain is checked, and nothing new is
//! signed.

use crate::broadcast::{BroadcastOutcome, Pricing, TransientCause};
use crate::error::{NodeError, RpcFault};
use crate::node::jsonrpc::Reply;
use crate::node::text::shorten;

enum Wording {
    /// The whole text, for words that are too short to be searched for in others.
    Is(&'static str),
    Has(&'static str),
}

use Wording::{Has, Is};

impl Wording {
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Is(wording) => text == *wording,
            Self::Has(wording) => text.contains(wording),
        }
    }
}

#[derive(Clone, Copy)]
enum Meaning {
    AlreadyKnown,
    NonceTooLow,
    Underpriced(Pricing),
    InsufficientFunds,
    GasLimit,
    Rejected,
    Transient(TransientCause),
}

use Meaning::{AlreadyKnown, GasLimit, InsufficientFunds, NonceTooLow, Rejected, Transient, Underpriced};

/// The order matters: where one wording contains another, the longer comes first.
const SEND: &[(Wording, Meaning)] = &[
    // Before "known transaction", which it contains: an unknown type of transaction is refused.
    (Has("unknown transaction"), Rejected),
    // The node has these bytes.
    (Has("already known"), AlreadyKnown),     // geth, bsc, erigon, reth
    (Has("alreadyknown"), AlreadyKnown),      // nethermind
    (Has("already imported"), AlreadyKnown),  // anvil, openethereum
    (Has("known transaction"), AlreadyKnown), // old geth, besu
    (Has("existing tx with same hash"), AlreadyKnown), // erigon
    (Has("transaction already exists"), AlreadyKnown), // hosted
    (Has("tx already in mempool"), AlreadyKnown),
    (Has("already in the mempool"), AlreadyKnown),
    (Has("already in mempool"), AlreadyKnown),
    // A replacement that does not pay enough more. Before the general "underpriced".
    (Has("replacement transaction underpriced"), Underpriced(Pricing::Replacement)), // geth, bsc, erigon, reth, anvil
    (Has("transaction replacement underpriced"), Underpriced(Pricing::Replacement)), // besu
    (Has("transaction_replacement_underpriced"), Underpriced(Pricing::Replacement)), // besu
    (Has("replacementnotallowed"), Underpriced(Pricing::Replacement)),               // nethermind
    (Has("replacement not allowed"), Underpriced(Pricing::Replacement)),
    (Has("could not replace existing tx"), Underpriced(Pricing::Replacement)), // erigon
    (Has("another transaction with same nonce"), Underpriced(Pricing::Replacement)), // openethereum
    (Has("repriced transaction underpriced"), Underpriced(Pricing::Replacement)),
    // Something is mined at this nonce.
    (Has("nonce too low"), NonceTooLow), // geth, bsc, erigon, reth, anvil, besu
    (Has("nonce_too_low"), NonceTooLow), // besu
    (Has("oldnonce"), NonceTooLow),      // nethermind
    (Has("nonce is too low"), NonceTooLow), // openethereum
    (Has("below account nonce"), NonceTooLow), // besu
    (Has("nonce has already been used"), NonceTooLow), // hosted
    (Has("ownnoncealreadyused"), NonceTooLow), // nethermind
    (Is("mined"), NonceTooLow),          // erigon
    // An earlier nonce is missing here.
    (Has("nonce too high"), Transient(TransientCause::NonceGap)),
    (Has("noncegap"), Transient(TransientCause::NonceGap)),
    (Has("nonce gap"), Transient(TransientCause::NonceGap)),
    (Has("nonce_too_far"), Transient(TransientCause::NonceGap)),
    (Has("noncetoofarinfuture"), Transient(TransientCause::NonceGap)),
    (Has("nonce too far in future"), Transient(TransientCause::NonceGap)),
    (Has("future transaction tries to replace pending"), Transient(TransientCause::NonceGap)),
    (Has("gapped-nonce tx from delegated accounts"), Transient(TransientCause::NonceGap)),
    // The pool is full.
    (Has("txpool is full"), Transient(TransientCause::PoolFull)),
    (Has("sub-pool is full"), Transient(TransientCause::PoolFull)), // erigon
    (Has("transaction pool is full"), Transient(TransientCause::PoolFull)),
    (Has("transaction pool not accepting transactions"), Transient(TransientCause::PoolFull)),
    (Has("account limit exceeded"), Transient(TransientCause::PoolFull)),
    (Has("too many transactions in the queue"), Transient(TransientCause::PoolFull)), // openethereum
    (Has("exceeds maximum in-flight"), Transient(TransientCause::PoolFull)),
    (Has("in-flight transaction limit reached"), Transient(TransientCause::PoolFull)),
    (Is("spammer"), Transient(TransientCause::PoolFull)), // erigon
    (Has("address already reserved"), Transient(TransientCause::PoolFull)),
    // Priced too low. Before the gas limit: "gas price below .." is about price.
    (Has("underpriced"), Underpriced(Pricing::Pool)), // geth, bsc, erigon, reth
    (Has("feetoolow"), Underpriced(Pricing::Pool)),   // nethermind
    (Has("fee too low"), Underpriced(Pricing::Pool)), // erigon
    (Has("max fee per gas less than block base fee"), Underpriced(Pricing::Pool)), // geth, anvil
    (Has("max_fee_per_gas less than block base fee"), Underpriced(Pricing::Pool)),
    (Has("gas price below"), Underpriced(Pricing::Pool)), // bsc, besu
    (Has("gas price too low"), Underpriced(Pricing::Pool)),
    (Has("gas price supplied is too low"), Underpriced(Pricing::Pool)), // openethereum
    (Has("gas price is less than"), Underpriced(Pricing::Pool)),
    (Has("gas tip cap"), Underpriced(Pricing::Pool)), // geth: "gas tip cap 0, minimum needed 1"
    // The sender cannot pay.
    (Has("insufficient funds"), InsufficientFunds), // geth, bsc, erigon, reth, anvil, openethereum
    (Has("insufficientfunds"), InsufficientFunds),  // nethermind
    (Has("upfront cost exceeds account balance"), InsufficientFunds), // besu
    (Has("upfront_cost_exceeds_balance"), InsufficientFunds),
    (Has("insufficient balance"), InsufficientFunds),
    (Has("doesn't have enough funds"), InsufficientFunds),
    (Has("does not have enough funds"), InsufficientFunds),
    (Has("overshot"), InsufficientFunds), // geth: "balance 1, queued cost 2, tx cost 3, overshot 4"
    // The gas limit does not fit.
    (Has("intrinsic gas too low"), GasLimit),
    (Has("intrinsic gas too high"), GasLimit),          // anvil
    (Has("intrinsic gas exceeds gas limit"), GasLimit), // besu
    (Has("insufficient gas for floor data"), GasLimit),
    (Has("exceeds block gas limit"), GasLimit),
    (Has("exceeds_block_gas_limit"), GasLimit),
    (Has("gaslimitexceeded"), GasLimit),          // nethermind
    (Has("exceeds current gas limit"), GasLimit), // openethereum
    (Has("gas limit too high"), GasLimit),
    (Has("gas limit is too high"), GasLimit),
    (Has("gas limit reached"), GasLimit),
    (Has("gas required exceeds allowance"), GasLimit),
    (Has("exceeds the configured cap"), GasLimit), // geth: "tx fee (1.20 ether) exceeds the configured cap"
    // The node will never accept it.
    (Has("nonce has max value"), Rejected),
    (Has("invalid sender"), Rejected),
    (Has("failedtoresolvesender"), Rejected), // nethermind
    (Has("invalid signature"), Rejected),
    (Has("invalid transaction v, r, s values"), Rejected),
    (Has("invalid chain id"), Rejected),
    (Has("invalid chainid"), Rejected),
    (Has("chain id mismatch"), Rejected),
    (Has("incompatible eip-155"), Rejected),
    (Has("only replay-protected"), Rejected),
    (Has("sender not an eoa"), Rejected),
    (Has("senderiscontract"), Rejected),
    (Has("black list"), Rejected), // bsc
    (Has("blacklist"), Rejected),
    (Has("negative value"), Rejected),
    (Has("oversized data"), Rejected),
    (Has("rlp too big"), Rejected),
    (Has("maxtxsizeexceeded"), Rejected),
    (Has("initcode"), Rejected),
    (Has("gas uint64 overflow"), Rejected),
    (Has("priority fee per gas higher than"), Rejected),
    (Has("max fee per gas higher than"), Rejected),
    (Has("transaction type not supported"), Rejected),
    (Has("notsupportedtxtype"), Rejected),
    (Has("typed transaction too short"), Rejected),
    (Has("failed to decode"), Rejected), // anvil, reth
    (Has("rlp:"), Rejected),             // geth
    // The node is busy or limits us. Last, because these words are the most general.
    (Has("rate limit"), Transient(TransientCause::RateLimited)),
    (Has("ratelimit"), Transient(TransientCause::RateLimited)),
    (Has("too many requests"), Transient(TransientCause::RateLimited)),
    (Has("request count exceeded"), Transient(TransientCause::RateLimited)),
    (Has("limit exceeded"), Transient(TransientCause::RateLimited)),
    (Has("exceeded the quota"), Transient(TransientCause::RateLimited)),
    (Has("compute units per second"), Transient(TransientCause::RateLimited)),
    (Has("still syncing"), Transient(TransientCause::Busy)),
    (Is("syncing"), Transient(TransientCause::Busy)), // nethermind
    (Has("node is not synced"), Transient(TransientCause::Busy)),
];

/// The meaning of a reply to `eth_sendRawTransaction`.
pub fn sent(reply: &Reply) -> BroadcastOutcome {
    match reply {
        // The hash in the reply is not used, because we compute it from the bytes ourselves.
        Ok(_) => BroadcastOutcome::Accepted,
        Err(fault) => send_fault(&fault.message),
    }
}

/// The meaning of an error text in the answer to a sent transaction.
pub fn send_fault(message: &str) -> BroadcastOutcome {
    let text = normal(message);
    let reason = || shorten(message);
    match SEND.iter().find(|(wording, _)| wording.fits(&text)).map(|(_, meaning)| *meaning) {
        Some(AlreadyKnown) => BroadcastOutcome::AlreadyKnown,
        Some(NonceTooLow) => BroadcastOutcome::NonceTooLow,
        Some(Underpriced(pricing)) => BroadcastOutcome::Underpriced(pricing),
        Some(InsufficientFunds) => BroadcastOutcome::InsufficientFunds,
        Some(GasLimit) => BroadcastOutcome::GasLimit { reason: reason() },
        Some(Rejected) => BroadcastOutcome::Rejected { reason: reason() },
        Some(Transient(cause)) => BroadcastOutcome::Transient(cause),
        None => BroadcastOutcome::Unknown { reason: reason() },
    }
}

/// What it means for a sent transaction that there was no JSON-RPC answer at all.
pub fn send_failed(error: &NodeError) -> BroadcastOutcome {
    match error {
        // Nothing left this machine.
        NodeError::Unreachable { .. } | NodeError::WrongChain { .. } | NodeError::Resting { .. } => {
            BroadcastOutcome::Transient(TransientCause::Unreachable)
        }
        // The only status that promises that the node did not process the request.
        NodeError::Http { status: 429 } => BroadcastOutcome::Transient(TransientCause::RateLimited),
        NodeError::Http { .. }
        | NodeError::Timeout { .. }
        | NodeError::Interrupted { .. }
        | NodeError::Declined { .. }
        | NodeError::Malformed { .. } => BroadcastOutcome::Unknown { reason: error.to_string() },
        NodeError::Rpc(fault) => send_fault(&fault.message),
    }
}

/// The meaning of an error in the answer to a question (not to a sent transaction).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// The node does not offer this method.
    NoSuchMethod,
    /// The node does not have the state or block any more, or not yet.
    StateUnavailable,
    RateLimited,
    /// The node gave up on the work, or is not ready.
    Busy,
    /// The simulated call fails.
    Reverted,
    /// The simulated sender cannot pay.
    InsufficientFunds,
    /// Too many blocks or results for one answer.
    RangeTooLarge,
    Other,
}

impl ReadFault {
    /// Whether the same question may be answered later, or by another node.
    pub fn is_transient(self) -> bool {
        match self {
            Self::StateUnavailable | Self::RateLimited | Self::Busy => true,
            Self::NoSuchMethod
            | Self::Reverted
            | Self::InsufficientFunds
            | Self::RangeTooLarge
            | Self::Other => false,
        }
    }

    /// Whether it is about the node and not about the question. Anything else may be about this one question, because contracts
    /// of strangers are called, and every node describes a failed call in its own words.
    pub fn is_of_the_node(self) -> bool {
        match self {
            Self::NoSuchMethod | Self::StateUnavailable | Self::RateLimited | Self::Busy => true,
            Self::Reverted | Self::InsufficientFunds | Self::RangeTooLarge | Self::Other => false,
        }
    }
}

const READ: &[(Wording, ReadFault)] = &[
    // First, because the words of the contract follow it, and they say nothing about the node or the wallet.
    (Has("execution reverted"), ReadFault::Reverted),
    (Has("execution aborted"), ReadFault::Reverted), // geth: "execution aborted (timeout = 5s)": the call takes too long
    (Has("insufficient funds"), ReadFault::InsufficientFunds),
    (Has("insufficient balance for transfer"), ReadFault::InsufficientFunds),
    // Calls are simulated without a price, so no balance limits them: this call needs more gas than a block has.
    (Has("gas required exceeds allowance"), ReadFault::Reverted),
    (Has("revert"), ReadFault::Reverted),
    (Has("out of gas"), ReadFault::Reverted),
    (Has("invalid opcode"), ReadFault::Reverted),
    (Has("always failing transaction"), ReadFault::Reverted),
    // Limits of eth_getLogs. Before the rate limits, because "limit exceeded" alone means those.
    (Has("query returned more than"), ReadFault::RangeTooLarge),
    (Has("block range"), ReadFault::RangeTooLarge),
    (Has("range too large"), ReadFault::RangeTooLarge),
    (Has("range is too large"), ReadFault::RangeTooLarge),
    (Has("range too wide"), ReadFault::RangeTooLarge),
    (Has("range limit"), ReadFault::RangeTooLarge),
    (Has("too many blocks"), ReadFault::RangeTooLarge),
    (Has("too many results"), ReadFault::RangeTooLarge),
    (Has("too many logs"), ReadFault::RangeTooLarge),
    (Has("logs matched by query exceeds limit"), ReadFault::RangeTooLarge),
    (Has("exceed max results"), ReadFault::RangeTooLarge),
    (Has("max results"), ReadFault::RangeTooLarge),
    (Has("response size"), ReadFault::RangeTooLarge),
    (Has("response too large"), ReadFault::RangeTooLarge),
    (Has("response is too big"), ReadFault::RangeTooLarge),
    (Has("query exceeds"), ReadFault::RangeTooLarge),
    (Has("exceed maximum block range"), ReadFault::RangeTooLarge),
    (Has("blocks per request"), ReadFault::RangeTooLarge),
    (Has("limited to"), ReadFault::RangeTooLarge),
    (Has("missing trie node"), ReadFault::StateUnavailable),
    (Has("state not available"), ReadFault::StateUnavailable),
    (Has("state is not available"), ReadFault::StateUnavailable),
    (Has("historical state"), ReadFault::StateUnavailable),
    (Has("state histories"), ReadFault::StateUnavailable),
    (Has("pruned"), ReadFault::StateUnavailable),
    (Has("archive"), ReadFault::StateUnavailable),
    (Has("header not found"), ReadFault::StateUnavailable),
    (Has("block not found"), ReadFault::StateUnavailable),
    (Has("unknown block"), ReadFault::StateUnavailable),
    (Has("blockoutofrange"), ReadFault::StateUnavailable),
    (Has("finalized block not found"), ReadFault::StateUnavailable),
    (Has("rate limit"), ReadFault::RateLimited),
    (Has("ratelimit"), ReadFault::RateLimited),
    (Has("too many requests"), ReadFault::RateLimited),
    (Has("request count exceeded"), ReadFault::RateLimited),
    (Has("limit exceeded"), ReadFault::RateLimited),
    (Has("compute units per second"), ReadFault::RateLimited),
    (Has("timeout"), ReadFault::Busy),
    (Has("timed out"), ReadFault::Busy),
    (Has("deadline exceeded"), ReadFault::Busy),
    (Has("syncing"), ReadFault::Busy),
    (Has("server busy"), ReadFault::Busy),
    (Has("temporarily unavailable"), ReadFault::Busy),
    (Has("method not found"), ReadFault::NoSuchMethod),
    (Has("method not supported"), ReadFault::NoSuchMethod),
    (Has("does not exist/is not available"), ReadFault::NoSuchMethod),
    (Has("not available on"), ReadFault::NoSuchMethod),
    (Has("unsupported method"), ReadFault::NoSuchMethod),
];

pub fn read_fault(fault: &RpcFault) -> ReadFault {
    // The one code that all nodes use in the same way.
    if fault.code == -32601 {
        return ReadFault::NoSuchMethod;
    }
    let text = normal(&fault.message);
    READ.iter().find(|(wording, _)| wording.fits(&text)).map_or(ReadFault::Other, |(_, meaning)| *meaning)
}

/// Converts to lower case and single spaces, because nodes differ in capitals, spaces and line breaks.
fn normal(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for word in message.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests;
