//! Heads, blocks, balances, identity: what any reader of the network needs.

use chain::follow::{Step, follow};
use chain::{BalanceOf, ChainEdge as _, Detail, HeadRing, Seen};
use payment::AssetRef;
use serde_json::json;

use super::kit::{Net, SOLID_LAG, TRX, payer, receiver};

#[tokio::test]
async fn a_node_of_another_network_is_refused() {
    let (ours, other) = (Net::start(1).await, Net::start(1).await);
    let url = other.devnet.url(0);
    // The same slot of the clock could give both the same first block; a block's id holds its time.
    let same = ours.edge.config().network_id == other.edge.config().network_id;
    let edge = ours.edge_with(|config| {
        config.nodes[0].url = url;
        config.network_id ^= u64::from(same);
    });
    let edge = edge.await;
    assert!(edge.head().await.is_err());
    assert!(edge.nodes()[0].wrong_chain.is_some(), "{:?}", edge.nodes());
}

#[tokio::test]
async fn final_is_what_enough_nodes_have_as_solid() {
    let net = Net::start(3).await;
    net.produce(5).await;
    let (head, solid) = (net.edge.head().await.unwrap(), net.solid().await);
    assert_eq!(head.number, solid.number + SOLID_LAG);
    net.node(json!({ "node": 2, "lag": 4 })).await;
    net.produce(4).await;
    assert_eq!(net.solid().await.number, solid.number + 4, "one that lags abstains");
    net.node(json!({ "node": 1, "lag": 4 })).await;
    net.produce(4).await;
    assert_eq!(net.solid().await.number, solid.number + 4, "two of three are behind");
    net.fault(0, "timeout", "getblock", 1).await;
    assert_eq!(net.solid().await.number, solid.number + 4);
}

#[tokio::test]
async fn followers_see_blocks_and_what_forks_undo() {
    let net = Net::start(1).await;
    let start = net.solid().await.number;
    let mut ring = HeadRing::new(64);
    follow(&net.edge, &mut ring, start, Detail::Hashes, 64).await.unwrap();
    let signed = net.signed(net.pays_trx(1, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(1).await;
    let followed = follow(&net.edge, &mut ring, start, Detail::Hashes, 64).await.unwrap();
    let [Step::Appended(block)] = followed.steps.as_slice() else { panic!("{:?}", followed.steps) };
    assert_eq!(block.transactions[0].hash, signed.claim.hash);
    let undone = block.head;
    net.post("admin/fork", json!({ "depth": 1, "include": false })).await;
    let followed = follow(&net.edge, &mut ring, start, Detail::Hashes, 64).await.unwrap();
    let Some(Step::Undone(reorg)) = followed.steps.first() else { panic!("{:?}", followed.steps) };
    assert_eq!(reorg.undone, [undone]);
}

#[tokio::test]
async fn a_preferred_node_that_has_forgotten_does_not_keep_followers_waiting() {
    let net = Net::start(2).await;
    net.produce(20).await;
    let followed = async || {
        let mut ring = HeadRing::new(64);
        follow(&net.edge, &mut ring, 1, Detail::Hashes, 64).await.unwrap().caught_up
    };
    net.node(json!({ "node": 0, "history_blocks": 3 })).await;
    assert!(followed().await, "the other node still has them");
    net.node(json!({ "node": 1, "history_blocks": 3 })).await;
    assert!(!followed().await, "nobody has them, and nobody says otherwise");
}

#[tokio::test]
async fn balances_of_trx_and_tokens_are_read_in_order() {
    let net = Net::start(1).await;
    let of = |holder, asset| BalanceOf { holder, asset };
    let stranger = receiver(9);
    let asked = [
        of(payer(), AssetRef::Token(net.token)),
        of(stranger, AssetRef::Native),
        of(payer(), AssetRef::Native),
        of(payer(), AssetRef::Token(stranger)),
    ];
    let read = net.edge.balances(&asked).await.unwrap();
    assert_eq!(read[0], Some((1_000_000 * TRX).into()));
    assert_eq!(read[1], Some(0u64.into()), "an account that does not exist has nothing");
    assert_eq!(read[2], Some((10_000 * TRX).into()));
    assert_eq!(read[3], None, "what is no token has no balance of zero");
}

#[tokio::test]
async fn sightings_tell_pools_from_blocks_and_never_take_empty_for_absent() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(2, TRX)).await;
    let look = async || net.edge.lookup(&[signed.claim.hash]).await.unwrap()[0];
    assert_eq!(look().await.seen, Seen::Nowhere);
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    assert_eq!(look().await.seen, Seen::Pending);
    net.produce(1).await;
    assert!(matches!(look().await.seen, Seen::Included(_)));
    net.fault(0, "lite", "gettransactioninfobyid", 1).await;
    let sighting = look().await;
    assert!(matches!(sighting.seen, Seen::Included(_)), "the other node has it");
    assert_eq!((sighting.answered, sighting.asked), (1, 2), "and it is known that one did not answer");
}
