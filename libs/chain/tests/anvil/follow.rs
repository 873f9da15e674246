//! Following heads through a real node's reorgs.

use chain::follow::{Step, follow};
use chain::{ChainEdge as _, Detail, EvmChain, HeadRing, Seen, TxStatus};
use payment::EffectCheck;
use serde_json::json;
use types::TxHash;

use crate::kit::{FEE, Wallet, balance, edge, node, receiver, seen, standing};

/// Appended block numbers and undone ones, in order.
async fn walk(edge: &EvmChain, ring: &mut HeadRing, limit: usize) -> (Vec<u64>, Vec<u64>) {
    let followed = follow(edge, ring, 0, Detail::Senders, limit).await.unwrap();
    assert_eq!(followed.lost, None);
    let (mut appended, mut undone) = (Vec::new(), Vec::new());
    for step in followed.steps {
        match step {
            Step::Appended(block) => appended.push(block.head.number),
            Step::Undone(reorg) => undone.extend(reorg.undone.iter().map(|head| head.number)),
        }
    }
    (appended, undone)
}

#[tokio::test]
async fn new_blocks_are_read_in_bounded_steps_with_their_transactions() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 80).await;
    node.mine(70).await;
    let mut ring = HeadRing::new(100);
    let (appended, undone) = walk(&edge, &mut ring, 50).await;
    assert_eq!((appended, undone), ((0..50).collect(), vec![]));
    while walk(&edge, &mut ring, 50).await.0.len() > 1 {}
    assert_eq!(ring.tip().unwrap().number, 70);

    let (raw, claim) = wallet.native(&edge, 0, 0x91, FEE);
    edge.broadcast(&[raw]).await;
    node.mine(1).await;
    let followed = follow(&edge, &mut ring, 0, Detail::Senders, 50).await.unwrap();
    let [Step::Appended(block)] = &followed.steps[..] else { panic!("{followed:?}") };
    assert!(followed.caught_up);
    assert_eq!(block.transactions.len(), 1);
    assert_eq!(block.transactions[0].hash, claim.hash);
    assert_eq!(block.transactions[0].origin, Some((wallet.address(), 0)));
    assert_eq!(walk(&edge, &mut ring, 50).await, (vec![], vec![]), "nothing new");
}

#[tokio::test]
async fn a_reorg_undoes_the_payment_and_the_same_bytes_settle_it_once() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 81).await;
    let mut ring = HeadRing::new(50);
    node.mine(5).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x92, FEE);
    edge.broadcast(std::slice::from_ref(&raw)).await;
    node.mine(2).await;
    walk(&edge, &mut ring, 100).await;
    let Seen::Included(block) = seen(&edge, claim.hash).await else { panic!("mined") };
    assert_eq!(ring.is_canonical(block.number, &block.hash), Some(true));

    // Anvil replaces the last three blocks by empty ones and forgets their transactions.
    node.call("anvil_reorg", json!([3, []])).await;
    let (appended, undone) = walk(&edge, &mut ring, 2).await;
    assert_eq!(undone, [7, 6, 5], "newest first");
    assert_eq!(appended, [5, 6, 7]);
    assert_eq!(ring.is_canonical(block.number, &block.hash), Some(false));
    assert_ne!(seen(&edge, claim.hash).await, Seen::Included(block));

    edge.broadcast(&[raw]).await;
    node.mine(3).await;
    let TxStatus::Settled(settlement) = standing(&edge, &claim).await else { panic!("must be final") };
    assert_eq!(settlement.effect, EffectCheck::Happened);
    assert_ne!(settlement.block, block);
    assert_eq!(balance(&node, &receiver(0x92)).await, 1);
}

#[tokio::test]
async fn a_reorg_below_everything_remembered_is_lost_not_guessed() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    node.mine(20).await;
    let mut ring = HeadRing::new(4);
    walk(&edge, &mut ring, 100).await;
    let before: Vec<TxHash> = ring.iter().map(|head| head.hash).collect();
    node.call("anvil_reorg", json!([10, []])).await;
    let followed = follow(&edge, &mut ring, 0, Detail::Hashes, 100).await.unwrap();
    assert!(followed.lost.is_some() && followed.steps.is_empty());
    assert_eq!(ring.iter().map(|head| head.hash).collect::<Vec<_>>(), before);
    assert_eq!(edge.head().await.unwrap().number, 20);
}
