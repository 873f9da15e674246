//! The meaning of nodes' answers to a broadcast. This is the only place that reads them.
//!
//! java-tron answers refusals with status 200 and a code. No code alone permits another signature: what one node refuses another may
//! have accepted, and an unknown code is `Unknown`, after which the same bytes are sent again.

use super::wire::{WireBroadcast, plain};
use crate::broadcast::{BroadcastOutcome, TransientCause};
use crate::node::text::shorten;

/// The meaning of an answer to `broadcasthex`.
pub fn sent(answer: &WireBroadcast) -> BroadcastOutcome {
    let message = plain(&answer.message);
    let reason = || shorten(&format!("{}: {message}", answer.code));
    if let Some(error) = &answer.error {
        return BroadcastOutcome::Unknown { reason: shorten(error) };
    }
    match answer.code.as_str() {
        // Nodes leave defaults out, so success may come without its code.
        "SUCCESS" | "" if answer.result => BroadcastOutcome::Accepted,
        "DUP_TRANSACTION_ERROR" => BroadcastOutcome::Duplicate,
        // Either refused for too few peers before it was checked, or in the pool and not passed on. The message tells which.
        "NOT_ENOUGH_EFFECTIVE_CONNECTION" if message.to_lowercase().contains("broadcast failed") => {
            BroadcastOutcome::Accepted
        }
        "SERVER_BUSY" | "NO_CONNECTION" | "BLOCK_UNSOLIDIFIED" | "NOT_ENOUGH_EFFECTIVE_CONNECTION" => {
            BroadcastOutcome::Transient(TransientCause::Busy)
        }
        "TAPOS_ERROR" => BroadcastOutcome::Transient(TransientCause::Behind),
        "TRANSACTION_EXPIRATION_ERROR" => BroadcastOutcome::Expired,
        "SIGERROR" | "TOO_BIG_TRANSACTION_ERROR" => BroadcastOutcome::Rejected { reason: reason() },
        "BANDWITH_ERROR" => BroadcastOutcome::InsufficientFunds,
        "CONTRACT_VALIDATE_ERROR" | "CONTRACT_EXE_ERROR" => {
            if message.to_lowercase().contains("balance is not sufficient") {
                BroadcastOutcome::InsufficientFunds
            } else {
                BroadcastOutcome::Transient(TransientCause::Behind)
            }
        }
        _ => BroadcastOutcome::Unknown { reason: reason() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::Advice;

    fn answer(code: &str, message: &str) -> BroadcastOutcome {
        sent(&WireBroadcast {
            result: code == "SUCCESS",
            code: code.to_owned(),
            message: message.to_owned(),
            error: None,
        })
    }

    #[test]
    fn every_code_means_what_the_network_means_by_it() {
        let unknown = |code: &str| matches!(answer(code, "x"), BroadcastOutcome::Unknown { .. });
        let busy = BroadcastOutcome::Transient(TransientCause::Busy);
        let behind = BroadcastOutcome::Transient(TransientCause::Behind);
        assert_eq!(answer("SUCCESS", ""), BroadcastOutcome::Accepted);
        assert_eq!(answer("DUP_TRANSACTION_ERROR", "Dup transaction."), BroadcastOutcome::Duplicate);
        for code in ["SERVER_BUSY", "NO_CONNECTION", "BLOCK_UNSOLIDIFIED"] {
            assert_eq!(answer(code, "x"), busy, "{code}");
        }
        assert_eq!(
            answer("NOT_ENOUGH_EFFECTIVE_CONNECTION", "P2P broadcast failed."),
            BroadcastOutcome::Accepted
        );
        assert_eq!(answer("NOT_ENOUGH_EFFECTIVE_CONNECTION", "2 effective connection"), busy);
        assert_eq!(answer("TAPOS_ERROR", "Tapos check error."), behind);
        assert_eq!(answer("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"), BroadcastOutcome::Expired);
        for code in ["SIGERROR", "TOO_BIG_TRANSACTION_ERROR"] {
            assert!(matches!(answer(code, "x"), BroadcastOutcome::Rejected { .. }), "{code}");
        }
        let poor = "Contract validate error : Validate TransferContract error, balance is not sufficient.";
        assert_eq!(answer("CONTRACT_VALIDATE_ERROR", poor), BroadcastOutcome::InsufficientFunds);
        assert_eq!(answer("CONTRACT_VALIDATE_ERROR", "Contract validate error : No contract!"), behind);
        assert_eq!(
            answer("BANDWITH_ERROR", "Account resource insufficient error."),
            BroadcastOutcome::InsufficientFunds
        );
        assert!(unknown("OTHER_ERROR") && unknown("A_CODE_OF_NEXT_YEAR") && unknown(""));
    }

    #[test]
    fn messages_in_hex_read_like_text() {
        let hex = alloy_primitives::hex::encode("P2P broadcast failed.");
        assert_eq!(answer("NOT_ENOUGH_EFFECTIVE_CONNECTION", &hex), BroadcastOutcome::Accepted);
    }

    #[test]
    fn no_control_character_of_a_node_gets_any_further() {
        assert_eq!(answer("NEW\0CODE", "a\0b").to_string(), "unknown: NEW CODE: a b");
        let hex = alloy_primitives::hex::encode("a\0b");
        assert!(!answer("SIGERROR", &hex).to_string().contains(char::is_control));
        let error = Some("class\0".to_owned());
        let outcome = sent(&WireBroadcast { error, ..WireBroadcast::default() });
        assert!(!outcome.to_string().contains(char::is_control));
    }

    #[test]
    fn an_error_object_says_nothing_certain() {
        let error = Some("class java.lang.IllegalAccessException : lack of computing resources".to_owned());
        let outcome = sent(&WireBroadcast { error, ..WireBroadcast::default() });
        assert!(matches!(outcome, BroadcastOutcome::Unknown { .. }));
    }

    #[test]
    fn no_answer_ever_advises_a_new_signature() {
        for code in [
            "SUCCESS",
            "DUP_TRANSACTION_ERROR",
            "SERVER_BUSY",
            "TAPOS_ERROR",
            "TRANSACTION_EXPIRATION_ERROR",
            "CONTRACT_VALIDATE_ERROR",
            "BANDWITH_ERROR",
            "OTHER_ERROR",
        ] {
            assert!(!matches!(answer(code, "x").advice(), Advice::Bump | Advice::Replace), "{code}");
        }
    }
}
