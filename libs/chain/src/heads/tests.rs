//! Claims about the ring of heads, over hand-made cases and over random reorgs.

use proptest::prelude::*;

use super::*;

/// A chain of blocks that can be cut and grown again; each block's hash is unique.
#[derive(Debug, Default)]
struct World {
    canonical: Vec<Head>,
    minted: u64,
}

impl World {
    fn grow(&mut self, count: usize) {
        for _ in 0..count {
            self.minted += 1;
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&self.minted.to_be_bytes());
            let parent = self.canonical.last().map_or(TxHash::from_array([0; 32]), |head| head.hash);
            let number = self.canonical.len() as u64;
            self.canonical.push(Head {
                number,
                hash: TxHash::from_array(hash),
                parent,
                timestamp_ms: self.minted,
            });
        }
    }

    fn reorg(&mut self, depth: usize) {
        let keep = self.canonical.len().saturating_sub(depth).max(1);
        let lost = self.canonical.len() - keep;
        self.canonical.truncate(keep);
        self.grow(lost + 1);
    }

    fn tip(&self) -> Head {
        *self.canonical.last().unwrap()
    }
}

/// Brings the ring to the world's tip the way a reader does; returns what was undone, in order.
#[allow(clippy::result_large_err, reason = "the head at which the test stops")]
fn follow(ring: &mut HeadRing, world: &World, appended: &mut Vec<Head>) -> Result<Vec<Head>, Head> {
    let mut undone = Vec::new();
    let mut next = world.tip();
    for _ in 0..10_000 {
        match ring.insert(next) {
            RingUpdate::Appended => appended.push(next),
            RingUpdate::Known => {}
            RingUpdate::Replaced(reorg) => {
                undone.extend(reorg.undone);
                appended.push(next);
            }
            RingUpdate::Ahead { read_from } => {
                next = world.canonical[usize::try_from(read_from).unwrap()];
                continue;
            }
            RingUpdate::Orphan { read } => {
                next = world.canonical[usize::try_from(read).unwrap()];
                continue;
            }
            RingUpdate::Lost { lowest } => return Err(lowest),
        }
        if next == world.tip() {
            return Ok(undone);
        }
        next = world.canonical[usize::try_from(next.number).unwrap() + 1];
    }
    panic!("the ring never reached the tip");
}

#[test]
fn a_replaced_branch_is_undone_newest_first() {
    let mut world = World::default();
    world.grow(6);
    let old = world.canonical.clone();
    let (mut ring, mut appended) = (HeadRing::new(10), Vec::new());
    for head in &old {
        assert_eq!(ring.insert(*head), RingUpdate::Appended);
    }
    world.reorg(2);
    let undone = follow(&mut ring, &world, &mut appended).unwrap();
    assert_eq!(undone, vec![old[5], old[4]]);
    assert_eq!(ring.tip(), Some(&world.tip()));
    assert_eq!(ring.is_canonical(5, &old[5].hash), Some(false));
    assert_eq!(ring.is_canonical(3, &old[3].hash), Some(true));
    assert_eq!(ring.is_canonical(99, &old[3].hash), None);
}

#[test]
fn a_reorg_deeper_than_memory_is_lost_and_changes_nothing() {
    let mut world = World::default();
    world.grow(30);
    let mut ring = HeadRing::restore(5, world.canonical.clone());
    let before = ring.clone();
    world.reorg(10);
    assert!(follow(&mut ring, &world, &mut Vec::new()).is_err());
    assert_eq!(ring, before);
}

#[test]
fn a_repeated_head_changes_nothing() {
    let mut world = World::default();
    world.grow(3);
    let mut ring = HeadRing::restore(5, world.canonical.clone());
    for head in &world.canonical {
        assert_eq!(ring.insert(*head), RingUpdate::Known);
    }
    assert_eq!(ring.len(), 3);
}

#[test]
fn a_store_with_a_hole_restores_only_what_links_to_the_newest() {
    let mut world = World::default();
    world.grow(8);
    let mut stored = world.canonical.clone();
    stored.remove(4);
    let ring = HeadRing::restore(10, stored);
    assert_eq!(ring.lowest().map(|head| head.number), Some(5));
    assert_eq!(ring.tip(), Some(&world.tip()));
}

#[derive(Debug, Clone)]
enum Event {
    Grow(usize),
    Reorg(usize),
    Follow,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1usize..12).prop_map(Event::Grow),
        (1usize..9).prop_map(Event::Reorg),
        Just(Event::Follow),
        Just(Event::Follow),
    ]
}

proptest! {
    /// Whatever the chain does within memory, appended minus undone is exactly the canonical chain.
    #[test]
    fn appended_minus_undone_is_the_canonical_chain(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::default();
        world.grow(1);
        // Never lost: reorgs pile up between two looks, at most 60 times 9 deep.
        let (mut ring, mut appended) = (HeadRing::new(2_000), Vec::new());
        // A ring starts at a block that cannot be undone, as a reader starts at a final one.
        let mut believed = world.canonical.clone();
        ring.insert(believed[0]);
        for event in events.into_iter().chain([Event::Follow]) {
            match event {
                Event::Grow(count) => world.grow(count),
                Event::Reorg(depth) => world.reorg(depth),
                Event::Follow => {
                    appended.clear();
                    let undone = follow(&mut ring, &world, &mut appended).unwrap();
                    for head in &undone {
                        prop_assert_eq!(believed.pop(), Some(*head));
                    }
                    believed.extend(appended.iter().copied());
                    prop_assert_eq!(&believed, &world.canonical);
                    prop_assert_eq!(ring.tip(), Some(&world.tip()));
                }
            }
        }
    }

    /// Any blocks at all, in any order: contiguous, linked, bounded, no panic.
    #[test]
    fn the_ring_stays_linked_whatever_it_is_fed(blocks in prop::collection::vec((0u64..12, 0u8..4, 0u8..4), 0..200)) {
        let mut ring = HeadRing::new(6);
        for (number, hash, parent) in blocks {
            let head = Head { number, hash: TxHash::from_array([hash; 32]), parent: TxHash::from_array([parent; 32]), timestamp_ms: 0 };
            ring.insert(head);
            prop_assert!(ring.len() <= 6);
            let heads: Vec<_> = ring.iter().collect();
            for pair in heads.windows(2) {
                prop_assert_eq!(pair[0].number + 1, pair[1].number);
                prop_assert_eq!(pair[0].hash, pair[1].parent);
            }
        }
    }
}
