use super::*;

fn fault(code: i64, message: &str) -> RpcFault {
    RpcFault { code, message: message.to_owned(), data: None }
}

/// Whole texts as nodes and hosted services send them.
const SEEN: &[(i64, &str, Refusal)] = &[
    (-32005, "query returned more than 10000 results", TooMuch),
    (-32005, "query returned more than 10000 results. Try with this block range [0x5A, 0x64].", TooMuch),
    (-32602, "query exceeds max results 20000, retry with the range 18000000-18000123", TooMuch),
    (-32602, "query exceeds max block range 100000", TooMuch),
    (
        -32602,
        "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit on the response \
         size, or you can request any block range with a cap of 10K logs in the response. Based on your parameters and the \
         response size limit, this block range should work: [0x112a880, 0x112a8e3]",
        TooMuch,
    ),
    (-32602, "eth_getLogs is limited to a 10,000 range", TooMuch),
    (-32614, "eth_getLogs is limited to a 5 range", TooMuch),
    (-32600, "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range", TooMuch),
    (-32000, "exceed maximum block range: 50000", TooMuch),
    (-32000, "exceed maximum block range: 5000", TooMuch),
    (-32701, "exceed maximum block range", TooMuch),
    (-32000, "block range is too wide", TooMuch),
    (-32600, "block range too large, max is 1000", TooMuch),
    (-32602, "Block range limit exceeded. See more details at https://example.invalid/docs", TooMuch),
    (-32047, "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800", TooMuch),
    (-32000, "requested too many blocks from 1 to 20000, maximum is set to 2048", TooMuch),
    (-32000, "Please limit the query to at most 1000 blocks", TooMuch),
    (-32000, "Max range: 10000 blocks, please reduce the range", TooMuch),
    (-32000, "query exceeds the range", TooMuch),
    (-32602, "Too many logs requested. Max logs per response is 20000.", TooMuch),
    (-32000, "logs matched by query exceeds limit of 10000", TooMuch),
    (-32008, "Response is too big", TooMuch),
    (-32008, "Exceeded max limit of 167772160: response too large", TooMuch),
    (-32003, "batch response too large", TooMuch),
    (-32000, "Query timeout exceeded. Consider reducing your block range.", TooMuch),
    (-32000, "context deadline exceeded", TooMuch),
    (-32002, "request timed out", TooMuch),
    (-32603, "query timed out after 10s", TooMuch),
    (-32016, "your query took too long to run", TooMuch),
    (-32600, "Please specify a smaller range", TooMuch),
    (-32602, "the distance between fromBlock and toBlock must not exceed 3000", TooMuch),
    (-32005, "daily request count exceeded, request rate limited", RateLimited),
    (-32005, "Too Many Requests, reason: call rate limit exhausted, retry in 10s", RateLimited),
    (-32005, "limit exceeded", RateLimited),
    (-32005, "", RateLimited),
    (429, "Your app has exceeded its compute units per second capacity.", RateLimited),
    (
        -32007,
        "50/second request limit reached - reduce calls per second or upgrade your plan: rate limit",
        RateLimited,
    ),
    (-32090, "monthly quota reached", RateLimited),
    (-32000, "header not found", NotThere),
    (-32000, "unknown block", NotThere),
    (-32000, "block range extends beyond current head block", NotThere),
    (-32000, "invalid block range params", NotThere),
    (-32001, "resource not found", NotThere),
    (-32000, "required historical state unavailable: pruned", NotThere),
    (4444, "pruned history unavailable", NotThere),
    (-32000, "node is syncing", Busy),
    (-32011, "no backends available for method", Busy),
    (-32603, "Internal error", Busy),
    (-32000, "service temporarily unavailable", Busy),
    (-32601, "the method eth_getBlockReceipts does not exist/is not available", NoSuchMethod),
    (-32601, "anything", NoSuchMethod),
    (-32000, "Method not supported", NoSuchMethod),
    (-32602, "invalid argument 0: hex string has length 3", Refusal::Other),
];

#[test]
fn every_wording_that_was_seen_is_understood() {
    for (code, message, expected) in SEEN {
        assert_eq!(refusal(&fault(*code, message)), *expected, "{code} {message}");
    }
}

#[test]
fn every_entry_of_the_table_can_be_reached() {
    // An entry that an earlier one swallows with another meaning is dead, or worse, contradicts it.
    for (wording, meaning) in WORDINGS {
        let overruled = EXCEPTIONS.iter().any(|(exception, _)| wording.contains(exception));
        assert!(overruled || refusal(&fault(0, wording)) == *meaning, "{wording}");
    }
    for (wording, meaning) in EXCEPTIONS {
        assert_eq!(refusal(&fault(0, wording)), *meaning, "{wording}");
    }
}

#[test]
fn case_and_the_data_member_are_read_too() {
    assert_eq!(refusal(&fault(0, "BLOCK RANGE TOO LARGE")), TooMuch);
    let data = RpcFault {
        code: -32000,
        message: "server error".to_owned(),
        data: Some("\"Too many results\"".to_owned()),
    };
    assert_eq!(refusal(&data), TooMuch);
}

#[test]
fn the_lines_own_failures_are_placed() {
    let cases = [
        (NodeError::Timeout { after_ms: 1 }, TooMuch),
        (NodeError::Http { status: 413 }, TooMuch),
        (NodeError::Http { status: 504 }, TooMuch),
        (NodeError::Http { status: 429 }, RateLimited),
        (NodeError::Http { status: 502 }, Busy),
        (NodeError::Unreachable { reason: String::new() }, Busy),
        (NodeError::Interrupted { reason: String::new() }, Busy),
        (NodeError::Resting { failures: 3 }, Busy),
        (NodeError::Malformed { reason: String::new() }, Refusal::Other),
        (NodeError::WrongChain { expected: String::new(), found: String::new() }, Refusal::Other),
        (NodeError::Rpc(fault(-32000, "too many results")), TooMuch),
    ];
    for (error, expected) in cases {
        assert_eq!(failure(&error), expected, "{error}");
    }
}

#[test]
fn a_range_that_the_node_proposes_is_taken() {
    let alchemy = "this block range should work: [0x112a880, 0x112a8e3]";
    assert_eq!(proposed_span(&NodeError::Rpc(fault(0, alchemy))), Some(0x64));
    let reth = "query exceeds max results 20000, retry with the range 100-149";
    assert_eq!(proposed_span(&NodeError::Rpc(fault(0, reth))), Some(50));
    for other in ["too many results", "should work: [0x5, 0x1]", "should work: [", "retry with the range x-y"]
    {
        assert_eq!(proposed_span(&NodeError::Rpc(fault(0, other))), None, "{other}");
    }
}
