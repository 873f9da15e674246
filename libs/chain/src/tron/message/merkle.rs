//! The root of the transactions in a block, computed from what a node shows of them, to be compared with the header.
//!
//! A leaf is the hash of a whole transaction: raw data, signatures and results. A node shows the raw data as bytes and the results as
//! names. A result that is not known here, or bytes that no node shows, cannot be hashed. There is no proof then, which does not mean
//! that the list was cut.

use prost::Message;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::CONTRACT_RESULTS;
use crate::tron::wire::WireTransaction;

/// `Transaction`, as it is in a block.
#[derive(Clone, PartialEq, Message)]
struct Included {
    #[prost(bytes = "vec", tag = "1")]
    raw_data: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    signature: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    ret: Vec<Outcome>,
}

/// `Transaction.Result`, as far as it is written into blocks.
#[derive(Clone, PartialEq, Message)]
struct Outcome {
    #[prost(int64, tag = "1")]
    fee: i64,
    #[prost(int32, tag = "2")]
    ret: i32,
    #[prost(int32, tag = "3")]
    contract_ret: i32,
}

const CODES: [&str; 2] = ["SUCESS", "FAILED"];

impl Outcome {
    /// `None` for anything that is not known here, because leaving it out would give another hash.
    fn of(shown: &Value) -> Option<Self> {
        let mut outcome = Self::default();
        for (key, value) in shown.as_object()? {
            match key.as_str() {
                "fee" => outcome.fee = value.as_i64()?,
                "ret" => outcome.ret = number(&CODES, value)?,
                "contractRet" => outcome.contract_ret = number(&CONTRACT_RESULTS, value)?,
                _ => return None,
            }
        }
        Some(outcome)
    }
}

fn number(names: &[&str], value: &Value) -> Option<i32> {
    let name = value.as_str()?;
    i32::try_from(names.iter().position(|known| *known == name)?).ok()
}

/// The hash of a transaction as it is in a block. `None` if its bytes cannot be derived from what the node shows.
fn leaf(transaction: &WireTransaction) -> Option<[u8; 32]> {
    let bytes = |text: &String| alloy_primitives::hex::decode(text).ok();
    let included = Included {
        raw_data: bytes(&transaction.raw_data_hex)?,
        signature: transaction.signature.iter().map(bytes).collect::<Option<_>>()?,
        ret: transaction.ret.iter().map(Outcome::of).collect::<Option<_>>()?,
    };
    Some(Sha256::digest(included.encode_to_vec()).into())
}

/// Pairs are hashed together from left to right, and an odd one moves up unchanged. The root of no transactions is zeros.
pub(in crate::tron) fn root(transactions: &[WireTransaction]) -> Option<[u8; 32]> {
    let mut level = transactions.iter().map(leaf).collect::<Option<Vec<_>>>()?;
    while level.len() > 1 {
        let pairs = level.chunks(2).map(|pair| match pair {
            [left, right] => Sha256::digest([left.as_slice(), right].concat()).into(),
            odd => odd[0],
        });
        level = pairs.collect();
    }
    Some(level.first().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transaction(raw: &str, ret: Value) -> WireTransaction {
        let shown = json!({ "txID": "", "raw_data_hex": raw, "signature": ["aabb", "cc"], "ret": [ret] });
        serde_json::from_value(shown).unwrap()
    }

    fn sha(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    #[test]
    fn a_leaf_is_the_whole_transaction_byte_by_byte() {
        let signed = b"\x0a\x02\x01\x02\x12\x02\xaa\xbb\x12\x01\xcc".to_vec();
        let with = |ret: &[u8]| sha(&[signed.as_slice(), ret].concat());
        let leaf = |ret: Value| leaf(&transaction("0102", ret));
        assert_eq!(leaf(json!({})), Some(with(b"\x2a\x00")));
        assert_eq!(leaf(json!({ "contractRet": "SUCCESS" })), Some(with(b"\x2a\x02\x18\x01")));
        assert_eq!(leaf(json!({ "contractRet": "INVALID_CODE" })), Some(with(b"\x2a\x02\x18\x0f")));
        let whole = json!({ "contractRet": "OUT_OF_ENERGY", "ret": "FAILED", "fee": 300 });
        assert_eq!(leaf(whole), Some(with(b"\x2a\x07\x08\xac\x02\x10\x01\x18\x0a")));
    }

    #[test]
    fn what_is_not_known_gives_no_root() {
        for ret in [
            json!({ "contractRet": "A_RESULT_OF_NEXT_YEAR" }),
            json!({ "contractRet": 1 }),
            json!({ "contractRet": "SUCCESS", "withdraw_amount": 5 }),
            json!("SUCCESS"),
        ] {
            assert_eq!(root(&[transaction("0102", ret.clone())]), None, "{ret}");
        }
        assert_eq!(root(&[transaction("01zz", json!({}))]), None);
    }

    #[test]
    fn pairs_are_joined_and_an_odd_one_moves_up() {
        let all: Vec<_> = (1..=5).map(|n| transaction(&format!("0{n}"), json!({}))).collect();
        let leaves: Vec<_> = all.iter().map(|one| leaf(one).unwrap()).collect();
        let join = |a: [u8; 32], b: [u8; 32]| sha(&[a, b].concat());
        assert_eq!(root(&[]), Some([0; 32]));
        assert_eq!(root(&all[..1]), Some(leaves[0]));
        assert_eq!(root(&all[..3]), Some(join(join(leaves[0], leaves[1]), leaves[2])));
        let four = join(join(leaves[0], leaves[1]), join(leaves[2], leaves[3]));
        assert_eq!(root(&all), Some(join(four, leaves[4])));
    }
}
