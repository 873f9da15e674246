//! The signed bytes, fixed by example: a change here breaks every approver.

use super::*;

struct Facts {
    id: WithdrawalId,
    chain: ChainName,
    asset: AssetSymbol,
    destination: Address,
    amount: RawAmount,
}

impl Facts {
    fn new(chain: &str, destination: &str, amount: &str) -> Self {
        Self {
            id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            chain: chain.parse().unwrap(),
            asset: "USDT".parse().unwrap(),
            destination: destination.parse().unwrap(),
            amount: amount.parse().unwrap(),
        }
    }

    fn digest(&self) -> PaymentDigest {
        PaymentDigest::compute(&Payment {
            id: self.id,
            chain: &self.chain,
            asset: &self.asset,
            destination: &self.destination,
            amount: self.amount,
        })
    }
}

const EVM: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
const TRON: &str = "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC";

/// Computed apart from this code, from the layout in the module header.
#[test]
fn the_digest_is_the_documented_bytes() {
    assert_eq!(
        Facts::new("bsc", EVM, "12500000").digest().to_string(),
        "539021cf6f0140b10a580c3797a81e853afb322cfb81e3ef32464f72d9143a60"
    );
    assert_eq!(
        Facts::new("tron", TRON, "0").digest().to_string(),
        "f990719eee33e5cc1ad78776992852a98b5b836fccb6ea60cf28790e24eeca4a"
    );
}

#[test]
fn another_fact_is_another_digest() {
    let facts = || Facts::new("bsc", EVM, "12500000");
    let mut digests = vec![
        facts().digest(),
        Facts { id: WithdrawalId::new(), ..facts() }.digest(),
        Facts { chain: "bsc2".parse().unwrap(), ..facts() }.digest(),
        Facts { asset: "USDC".parse().unwrap(), ..facts() }.digest(),
        // The same 20 bytes on the other network.
        Facts { destination: TRON.parse().unwrap(), ..facts() }.digest(),
        Facts { amount: "12500001".parse().unwrap(), ..facts() }.digest(),
        // The same characters, divided otherwise between two fields.
        Facts { chain: "bs".parse().unwrap(), asset: "CUSDT".parse().unwrap(), ..facts() }.digest(),
    ];
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn the_spelling_of_the_destination_does_not_matter() {
    let checksummed = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf";
    assert_eq!(Facts::new("bsc", EVM, "1").digest(), Facts::new("bsc", checksummed, "1").digest());
}

#[test]
fn the_approval_message_is_the_documented_bytes() {
    let mut expected = b"bursar/approval/v1".to_vec();
    expected.extend([0, 0, 0, 32]);
    expected.extend([7; 32]);
    expected.extend([0, 0, 0, 5]);
    expected.extend(b"alice");
    expected.extend([0, 0, 0, 10]);
    expected.extend(b"1700000000");
    assert_eq!(approval_message(PaymentDigest([7; 32]), "alice", 1_700_000_000), expected);
}

#[test]
fn no_two_approvals_share_their_bytes() {
    let digest = PaymentDigest([7; 32]);
    assert_ne!(approval_message(digest, "alice1", 700), approval_message(digest, "alice", 1700));
    assert_ne!(approval_message(digest, "alice", 1), approval_message(digest, "alice", -1));
    assert_ne!(approval_message(digest, "", 1), approval_message(PaymentDigest([8; 32]), "", 1));
}

#[test]
fn a_digest_has_one_spelling() {
    let digest = Facts::new("bsc", EVM, "1").digest();
    let text = digest.to_string();
    assert_eq!(text.parse(), Ok(digest));
    assert_eq!(serde_json::from_str::<PaymentDigest>(&format!("\"{text}\"")).unwrap(), digest);
    for refused in ["", &text[1..], &text.to_uppercase(), &format!("0x{text}"), &format!("{text} ")] {
        assert_eq!(refused.parse::<PaymentDigest>(), Err(DigestError), "{refused:?}");
    }
}

#[test]
fn a_void_message_does_not_depend_on_the_order_of_the_hashes_but_on_each_of_them() {
    let job = JobId::new();
    let (a, b) = (TxHash::from_array([1; 32]), TxHash::from_array([2; 32]));
    assert_eq!(void_message(job, &[a, b], 7), void_message(job, &[b, a, b], 7));
    assert_ne!(void_message(job, &[a, b], 7), void_message(job, &[a], 7));
    assert_ne!(void_message(job, &[a], 7), void_message(JobId::new(), &[a], 7));
    assert_ne!(void_message(job, &[a], 7), void_message(job, &[a], 8));
}
