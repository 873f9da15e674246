//! The wordings of real nodes, and that nothing else is taken for one of them.

use proptest::prelude::*;

use super::*;
use crate::broadcast::Advice;

fn label(message: &str) -> &'static str {
    send_fault(message).label()
}

#[test]
fn each_node_s_wording_is_understood() {
    let cases = [
        ("already known", "already_known"),
        ("ALREADY_EXISTS: already known", "already_known"),
        ("known transaction: 6b9f…", "already_known"),
        ("AlreadyKnown", "already_known"),
        ("transaction already imported", "already_known"),
        ("Transaction with the same hash was already imported.", "already_known"),
        ("existing tx with same hash", "already_known"),
        ("nonce too low", "nonce_too_low"),
        ("nonce too low: next nonce 5, tx nonce 3", "nonce_too_low"),
        ("nonce too low: address 0xabc, tx: 0 state: 1", "nonce_too_low"),
        ("OldNonce, Current nonce: 5, nonce of rejected tx: 3.", "nonce_too_low"),
        ("Transaction nonce is too low. Try incrementing the nonce.", "nonce_too_low"),
        ("mined", "nonce_too_low"),
        ("replacement transaction underpriced", "replacement_underpriced"),
        ("replacement transaction underpriced: new tx gas fee cap 5 <= 4 queued", "replacement_underpriced"),
        ("ReplacementNotAllowed", "replacement_underpriced"),
        ("could not replace existing tx", "replacement_underpriced"),
        (
            "Transaction gas price supplied is too low. There is another transaction with same nonce in the queue.",
            "replacement_underpriced",
        ),
        ("transaction underpriced", "underpriced"),
        ("transaction underpriced: gas tip cap 0, minimum needed 100000000", "underpriced"),
        ("transaction underpriced: tip needed 50000000, tip permitted 1", "underpriced"),
        ("max fee per gas less than block base fee: address 0x1, maxFeePerGas: 1, baseFee: 7", "underpriced"),
        ("transaction gas price below minimum: gas tip cap 0, minimum needed 1", "underpriced"),
        ("FeeTooLow, MaxFeePerGas too low.", "underpriced"),
        ("FeeTooLowToCompete", "underpriced"),
        ("fee too low", "underpriced"),
        ("Gas price below configured minimum gas price", "underpriced"),
        (
            "insufficient funds for gas * price + value: balance 0, tx cost 21, overshot 21",
            "insufficient_funds",
        ),
        ("insufficient funds for transfer", "insufficient_funds"),
        ("Insufficient funds for gas * price + value", "insufficient_funds"),
        ("InsufficientFunds, Account balance: 0, cumulative cost: 21000", "insufficient_funds"),
        ("Upfront cost exceeds account balance", "insufficient_funds"),
        ("intrinsic gas too low", "gas_limit"),
        ("intrinsic gas too low: gas 20000, minimum needed 21000", "gas_limit"),
        ("exceeds block gas limit", "gas_limit"),
        ("transaction gas limit too high (cap: 16777216, tx: 30000000)", "gas_limit"),
        ("tx fee (1.20 ether) exceeds the configured cap (1.00 ether)", "gas_limit"),
        ("invalid sender", "rejected"),
        ("invalid chain id for signer: have 1 want 56", "rejected"),
        ("only replay-protected (EIP-155) transactions allowed over RPC", "rejected"),
        ("sender or to in black list", "rejected"),
        ("transaction type not supported", "rejected"),
        ("unknown transaction type: 2", "rejected"),
        ("rlp: expected List", "rejected"),
        ("Failed to decode transaction", "rejected"),
        ("max priority fee per gas higher than max fee per gas", "rejected"),
        ("nonce has max value", "rejected"),
        ("txpool is full", "transient"),
        ("pending sub-pool is full", "transient"),
        ("nonce too high", "transient"),
        ("NonceGap, Future nonce. Expected nonce: 1", "transient"),
        ("future transaction tries to replace pending", "transient"),
        ("daily request count exceeded, request rate limited", "transient"),
        ("Too Many Requests", "transient"),
        ("limit exceeded", "transient"),
        ("Syncing", "transient"),
    ];
    for (message, expected) in cases {
        assert_eq!(label(message), expected, "{message}");
    }
}

#[test]
fn what_is_not_listed_is_unknown() {
    for message in ["", " ", "internal error", "header not found", "request timed out", "undetermined", "EOF"]
    {
        assert_eq!(label(message), "unknown", "{message:?}");
        assert_eq!(send_fault(message).advice(), Advice::ResendSame);
    }
}

#[test]
fn silence_is_unknown_and_only_a_failed_connection_is_not() {
    let unknown = [
        NodeError::Timeout { after_ms: 1 },
        NodeError::Interrupted { reason: "reset".into() },
        NodeError::Http { status: 500 },
        NodeError::Http { status: 502 },
        NodeError::Http { status: 404 },
        NodeError::Malformed { reason: "eof".into() },
    ];
    for error in unknown {
        assert_eq!(send_failed(&error).label(), "unknown", "{error}");
    }
    assert_eq!(send_failed(&NodeError::Unreachable { reason: "refused".into() }).label(), "transient");
    assert_eq!(send_failed(&NodeError::Http { status: 429 }).label(), "transient");
}

#[test]
fn read_faults_are_told_apart() {
    let of = |code, message: &str| read_fault(&RpcFault { code, message: message.into(), data: None });
    assert_eq!(of(-32601, "whatever"), ReadFault::NoSuchMethod);
    assert_eq!(of(3, "execution reverted: ERC20: transfer amount exceeds balance"), ReadFault::Reverted);
    assert_eq!(of(-32000, "insufficient funds for transfer"), ReadFault::InsufficientFunds);
    assert_eq!(of(-32000, "missing trie node 0x0 (path )"), ReadFault::StateUnavailable);
    assert_eq!(of(-32000, "historical state 0xab is not available"), ReadFault::StateUnavailable);
    assert_eq!(of(-32005, "query returned more than 10000 results"), ReadFault::RangeTooLarge);
    assert_eq!(of(-32005, "limit exceeded"), ReadFault::RateLimited);
    assert_eq!(of(-32000, "exceed maximum block range: 5000"), ReadFault::RangeTooLarge);
    assert_eq!(of(-32000, "execution timeout"), ReadFault::Busy);
    assert_eq!(of(-32000, "something new"), ReadFault::Other);
    // What a contract says is about its call, whatever it says.
    for words in ["insufficient funds", "rate limit", "timeout", "method not found", "pruned"] {
        assert_eq!(of(3, &format!("execution reverted: {words}")), ReadFault::Reverted, "{words}");
    }
    assert_eq!(of(-32000, "execution aborted (timeout = 5s)"), ReadFault::Reverted);
    assert_eq!(of(-32000, "gas required exceeds allowance (50000000)"), ReadFault::Reverted);
}

proptest! {
    #[test]
    fn any_text_at_all_is_classified_without_panic(text in ".*") {
        let outcome = send_fault(&text);
        prop_assert!(!outcome.in_pool() || SEND.iter().any(|(wording, _)| wording.fits(&normal(&text))));
        read_fault(&RpcFault { code: 0, message: text.clone(), data: None });
        prop_assert!(shorten(&text).chars().count() <= 302);
    }

    /// Letters that can form no listed wording: whatever they spell, nothing is concluded from it.
    #[test]
    fn unheard_of_text_is_unknown(text in "[qwzjv0-9 ]{0,80}") {
        prop_assert_eq!(send_fault(&text).label(), "unknown");
    }

    /// Case, blanks and what comes before or after do not hide a wording.
    #[test]
    fn a_wording_is_found_within_any_text(
        index in 0..SEND.len(),
        before in "[qwzjv0-9]{0,20}",
        after in "[qwzjv0-9]{0,20}",
        upper in any::<bool>(),
    ) {
        let (wording, _) = &SEND[index];
        let text = match wording {
            Wording::Has(text) => format!("{before}: {text}; {after}"),
            Wording::Is(text) => format!("  {text}\n"),
        };
        let text = if upper { text.to_uppercase() } else { text };
        prop_assert_ne!(send_fault(&text).label(), "unknown");
    }
}
