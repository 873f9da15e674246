//! What a node's refusal of `eth_getLogs` and similar requests means. The only place that reads error texts of nodes.
//!
//! JSON-RPC has no code for "too much": geth, erigon, nethermind, besu, reth and every hosted service use their own words, and
//! some report a timeout. A text is lower-cased and compared with the table; the first match decides. After "too much" the reader
//! requests less, so a text that is misread as that costs a few smaller requests. A text that is not known is `Other`; the range
//! is then retried and finally parked, where operators see it.

use chain::{NodeError, RpcFault};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many blocks, results or bytes for one response, or too much work: request less.
    TooMuch,
    /// Too many requests: retry later, or use another node.
    RateLimited,
    /// The node is not ready or overloaded: retry later, or use another node.
    Busy,
    /// The node does not have this block, not yet or no longer.
    NotThere,
    /// The node does not offer this method.
    NoSuchMethod,
    Other,
}

use Refusal::{Busy, NoSuchMethod, NotThere, RateLimited, TooMuch};

/// In order: more specific wordings come first.
const WORDINGS: &[(&str, Refusal)] = &[
    // Results.
    ("query returned more than", TooMuch), // geth forks, Infura: "query returned more than 10000 results"
    ("exceeds max results", TooMuch), // reth: "query exceeds max results 20000, retry with the range ..."
    ("exceed max results", TooMuch),
    ("too many results", TooMuch),
    ("too many logs", TooMuch),
    ("logs are too many", TooMuch),
    ("more than 10000 results", TooMuch),
    ("query result exceed", TooMuch),
    ("result set too large", TooMuch),
    ("result size exceeded", TooMuch),
    ("returned too many", TooMuch),
    ("max logs per response", TooMuch), // nethermind: "Too many logs requested. Max logs per response is ..."
    ("limit the query to at most", TooMuch),
    // Bytes.
    ("response size exceeded", TooMuch), // Alchemy: "Log response size exceeded."
    ("log response size", TooMuch),
    ("response size should not greater than", TooMuch), // OKX
    ("response size is larger than", TooMuch),
    ("response is too big", TooMuch), // reth, jsonrpsee
    ("response too large", TooMuch),
    ("response too big", TooMuch),
    ("exceeded max allowed response", TooMuch),
    ("body size", TooMuch),
    ("content length", TooMuch),
    ("message too big", TooMuch),
    // Blocks.
    ("block range", TooMuch), // "block range is too wide", "exceed maximum block range: 5000", "Block range limit exceeded"
    ("blocks range", TooMuch), // "eth_getLogs blocks range too large"
    ("blockrange", TooMuch),
    ("range too large", TooMuch),
    ("range is too large", TooMuch), // Blast: "requested range is too large"
    ("range too wide", TooMuch),
    ("range is too wide", TooMuch),
    ("range too big", TooMuch),
    ("range limit", TooMuch),
    ("exceeds the range", TooMuch), // LlamaRPC: "query exceeds the range"
    ("maximum range", TooMuch),
    ("max range", TooMuch),
    ("max is 1k blocks", TooMuch), // Cloudflare
    ("too many blocks", TooMuch),
    ("please narrow", TooMuch),
    ("please limit the query", TooMuch),
    ("please specify a smaller", TooMuch),
    ("please reduce", TooMuch),
    ("try a smaller range", TooMuch),
    ("try with this block", TooMuch),
    ("retry with the range", TooMuch),
    ("should work: [0x", TooMuch), // Alchemy: "this block range should work: [0x..., 0x...]"
    ("is limited to", TooMuch),    // "eth_getLogs is limited to a 10,000 range", QuickNode, Ankr
    ("are limited to", TooMuch),
    ("blocks per request", TooMuch),
    ("distance between", TooMuch), // "block distance between fromBlock and toBlock"
    ("difference between", TooMuch),
    ("between fromblock and toblock", TooMuch),
    ("up to a", TooMuch), // Alchemy: "You can make eth_getLogs requests with up to a 2K block range"
    ("eth_getlogs and eth_newfilter are limited", TooMuch), // Ankr, BSC public nodes
    ("exceeds block limit", TooMuch),
    ("exceeds the limit of", TooMuch),
    ("query exceeds", TooMuch), // QuickNode, Chainstack: "logs matched by query exceeds limit"
    // Work. A node that ran out of time over a range may manage half of it.
    ("query execution was interrupted", TooMuch),
    ("deadline exceeded", TooMuch), // geth: "context deadline exceeded"
    ("took too long", TooMuch),
    ("timed out", TooMuch),
    ("timeout", TooMuch), // Infura: "query timeout exceeded"
    // Requests.
    ("rate limit", RateLimited),
    ("ratelimit", RateLimited),
    ("too many requests", RateLimited),
    ("request count exceeded", RateLimited), // Infura: "daily request count exceeded, request rate limited"
    ("compute units per second", RateLimited), // Alchemy
    ("exceeded its throughput limit", RateLimited),
    ("requests per second", RateLimited),
    ("credits", RateLimited),
    ("quota", RateLimited),
    ("capacity exceeded", RateLimited),
    ("limit exceeded", RateLimited), // after every limit that names its kind
    // Missing blocks.
    ("beyond current head block", NotThere), // erigon, bor: "block range extends beyond current head block" is caught above
    ("header not found", NotThere),
    ("block not found", NotThere),
    ("unknown block", NotThere),
    ("header for hash not found", NotThere),
    ("could not find block", NotThere),
    ("block does not exist", NotThere),
    ("no block found", NotThere),
    ("resource not found", NotThere),
    ("blockoutofrange", NotThere),
    ("pruned", NotThere),
    ("missing trie node", NotThere),
    ("archive", NotThere),
    // Not now.
    ("syncing", Busy),
    ("still indexing", Busy),
    ("server busy", Busy),
    ("too busy", Busy),
    ("overloaded", Busy),
    ("temporarily unavailable", Busy),
    ("service unavailable", Busy),
    ("try again", Busy),
    ("backend", Busy), // "no backends available", "backend response"
    ("no available", Busy),
    ("internal error", Busy),
    // Methods.
    ("method not found", NoSuchMethod),
    ("method not supported", NoSuchMethod),
    ("unsupported method", NoSuchMethod),
    ("does not exist/is not available", NoSuchMethod),
    ("not available on", NoSuchMethod),
    ("method is not", NoSuchMethod),
];

/// Wordings that contain one of the table but mean something else.
const EXCEPTIONS: &[(&str, Refusal)] = &[
    ("block range extends beyond current head", NotThere),
    ("invalid block range params", NotThere), // geth: toBlock above its head; the node lags
    ("daily request count exceeded", RateLimited),
    ("too many requests, reason: call rate limit", RateLimited),
];

/// What an error object means.
pub(crate) fn refusal(fault: &RpcFault) -> Refusal {
    // The two codes that all nodes use alike.
    match fault.code {
        -32601 => return NoSuchMethod,
        -32005 if fault.message.is_empty() => return RateLimited,
        _ => {}
    }
    let mut text = fault.message.to_lowercase();
    if let Some(data) = &fault.data {
        text.push(' ');
        text.push_str(&data.to_lowercase());
    }
    let found = EXCEPTIONS.iter().chain(WORDINGS).find(|(wording, _)| text.contains(wording));
    found.map_or(Refusal::Other, |(_, meaning)| *meaning)
}

/// What any failure means, including those of the connection.
pub(crate) fn failure(error: &NodeError) -> Refusal {
    match error {
        NodeError::Rpc(fault) => refusal(fault),
        // A node or its proxy that gives up on a large response reports one of these.
        NodeError::Timeout { .. } => TooMuch,
        NodeError::Http { status: 413 | 504 | 524 | 408 } => TooMuch,
        NodeError::Http { status: 429 } => RateLimited,
        NodeError::Http { .. } | NodeError::Unreachable { .. } | NodeError::Interrupted { .. } => Busy,
        NodeError::Resting { .. } | NodeError::Declined { .. } => Busy,
        NodeError::Malformed { .. } | NodeError::WrongChain { .. } => Refusal::Other,
    }
}

/// Blocks in the range that the node itself proposes, as Alchemy and reth do: `[0x5a, 0x64]`, `range 90-100`.
pub(crate) fn proposed_span(error: &NodeError) -> Option<u64> {
    let NodeError::Rpc(fault) = error else { return None };
    let text = fault.message.to_lowercase();
    let hex = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    if let Some((_, rest)) = text.split_once("should work: [") {
        let (from, to) = rest.split_once(']')?.0.split_once(',')?;
        return hex(to)?.checked_sub(hex(from)?)?.checked_add(1);
    }
    let (_, rest) = text.split_once("retry with the range ")?;
    let (from, rest) = rest.split_once('-')?;
    let to: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
    to.parse::<u64>().ok()?.checked_sub(from.trim().parse().ok()?)?.checked_add(1)
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
