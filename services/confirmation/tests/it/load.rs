//! Hundreds of payments in a block among thousands of watches.

use std::time::Instant;

use confirmation::watch::NewTx;
use types::TxHash;

use crate::desk::{DEPTH, Desk, native, stranger, tick};

#[tokio::test]
async fn the_cost_of_a_block_does_not_grow_with_the_number_of_watches() {
    const PAID: u64 = 300;
    const WAITING: u64 = 2_000;
    let desk = Desk::new().await;
    let mut replica = desk.replica("one");
    let mut jobs = Vec::new();
    for nonce in 0..PAID {
        let to = stranger();
        let paid = desk.sign(nonce, to, 5, &[]).await;
        jobs.push(desk.put(native(to, 5), vec![paid.watched()]).await);
        desk.send(&paid).await;
    }
    for number in 0..WAITING {
        let mut hash = [0xee; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        let waiting = NewTx {
            hash: TxHash(hash),
            is_cancellation: false,
            nonce: Some(PAID + number),
            expires_at: None,
            reference_block: 0,
        };
        desk.put(native(stranger(), 5), vec![waiting]).await;
    }
    // Everything new is looked up once.
    tick(&mut replica).await;
    desk.mine(1).await;
    let seen = Instant::now();
    tick(&mut replica).await;
    let seen = seen.elapsed();
    desk.mine(u64::from(DEPTH)).await;
    let settled = Instant::now();
    tick(&mut replica).await;
    let settled = settled.elapsed();
    for job in &jobs {
        assert_eq!(desk.status(*job).await, "settled");
    }
    assert_eq!(desk.outbox("execution.RecordVerdict").await, i64::try_from(PAID).unwrap());
    println!("{PAID} payments among {WAITING} watches: seen in {seen:?}, settled in {settled:?}");
    // Generous for a busy machine; a poll of every watch would take minutes.
    assert!(seen.as_secs() < 10 && settled.as_secs() < 20, "seen in {seen:?}, settled in {settled:?}");
}
