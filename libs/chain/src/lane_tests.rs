//! Claims about lanes: by example, and over random lives of a sender, a pool and a chain with reorgs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const RULES: LaneRules = LaneRules {
    max_open: 8,
    resume_after: Duration::from_secs(30),
    resend_after: Duration::from_secs(15),
    bump_after: Duration::from_secs(60),
    max_decisions: 256,
};

fn view(mined: u64, pending: u64) -> ChainView {
    ChainView { mined, pending }
}

fn long_sent() -> Slot {
    Slot::Sent { waiting: Duration::from_secs(3600), at_cap: false }
}

#[test]
fn nonces_follow_each_other_and_the_lane_is_bounded() {
    let mut lane = Lane::new(5);
    for expected in 5..13 {
        assert_eq!(lane.take(&view(5, 5), &RULES), Ok(expected));
    }
    assert_eq!(lane.take(&view(5, 5), &RULES), Err(LaneBlocked::Full { open: 8, max: 8 }));
}

#[test]
fn a_halted_lane_hands_out_nothing_but_still_repairs() {
    let mut lane = Lane::new(0);
    lane.halted = true;
    assert_eq!(lane.take(&view(0, 0), &RULES), Err(LaneBlocked::Halted));
    lane.open.insert(1, long_sent());
    lane.next = 2;
    assert!(lane.decide(&view(0, 0), &RULES).contains(&Decision::Fill { nonce: 0 }));
    assert_eq!(lane.fill(0), Ok(0));
}

#[test]
fn a_gap_is_handed_out_before_a_fresh_nonce() {
    let mut lane = Lane::new(0);
    for _ in 0..3 {
        lane.take(&view(0, 0), &RULES).unwrap();
    }
    assert!(lane.release(1));
    assert_eq!(lane.decide(&view(0, 0), &RULES), vec![Decision::Fill { nonce: 1 }]);
    assert_eq!(lane.take(&view(0, 0), &RULES), Ok(1));
    assert_eq!(lane.take(&view(0, 0), &RULES), Ok(3));
}

#[test]
fn what_was_signed_is_never_given_back() {
    let mut lane = Lane::new(0);
    let nonce = lane.take(&view(0, 0), &RULES).unwrap();
    lane.sent(nonce, false);
    assert!(!lane.release(nonce));
    assert!(!lane.release(99));
}

#[test]
fn foreign_transactions_above_are_noticed_and_skipped() {
    let mut lane = Lane::new(3);
    assert_eq!(lane.decide(&view(7, 7), &RULES), vec![Decision::Foreign { from: 3, to: 7 }]);
    lane.skip(7);
    assert_eq!(lane.decide(&view(7, 7), &RULES), vec![]);
    assert_eq!(lane.take(&view(7, 7), &RULES), Ok(7));
}

#[test]
fn an_open_nonce_that_the_chain_used_must_be_resolved() {
    let mut lane = Lane::new(0);
    lane.take(&view(0, 0), &RULES).unwrap();
    lane.sent(0, false);
    assert_eq!(lane.decide(&view(1, 1), &RULES), vec![Decision::Resolve { nonce: 0 }]);
    lane.mined(0);
    assert_eq!(lane.decide(&view(1, 1), &RULES), vec![]);
    // A reorg takes it back and the pool does not have it: the same bytes again.
    assert_eq!(lane.decide(&view(0, 0), &RULES), vec![Decision::Resend { nonce: 0 }]);
    lane.close(0);
    assert_eq!((lane.floor, lane.open.len()), (1, 0));
}

#[test]
fn only_the_head_of_the_line_is_bumped() {
    let mut lane = Lane::new(0);
    for nonce in 0..3 {
        lane.open.insert(nonce, long_sent());
    }
    lane.next = 3;
    assert_eq!(lane.decide(&view(0, 3), &RULES), vec![Decision::Bump { nonce: 0 }]);
    lane.open.insert(0, Slot::Sent { waiting: Duration::from_secs(3600), at_cap: true });
    assert_eq!(lane.decide(&view(0, 3), &RULES), vec![Decision::Capped { nonce: 0 }]);
}

#[test]
fn what_the_pool_lost_is_sent_again_and_what_was_left_behind_is_finished() {
    let mut lane = Lane::new(0);
    lane.open.insert(0, Slot::Sent { waiting: Duration::from_secs(20), at_cap: false });
    lane.open.insert(1, Slot::Sent { waiting: Duration::from_secs(1), at_cap: false });
    lane.open.insert(2, Slot::Reserved { held: Duration::from_secs(31) });
    lane.next = 3;
    assert_eq!(
        lane.decide(&view(0, 0), &RULES),
        vec![Decision::Resend { nonce: 0 }, Decision::Resume { nonce: 2 }]
    );
}

#[test]
fn a_lagging_view_never_brings_back_a_used_nonce() {
    let mut lane = Lane::new(0);
    for nonce in 0..5 {
        lane.take(&view(0, 0), &RULES).unwrap();
        lane.close(nonce);
    }
    assert_eq!(lane.take(&view(2, 2), &RULES), Ok(5));
    assert_eq!(lane.fill(4), Err(LaneBlocked::UsedUp { nonce: 4 }));
}

#[test]
fn the_last_nonce_is_never_used() {
    let mut lane = Lane::new(u64::MAX - 2);
    let chain = view(u64::MAX - 2, u64::MAX - 2);
    assert_eq!(lane.take(&chain, &RULES), Ok(u64::MAX - 2));
    assert_eq!(lane.take(&chain, &RULES), Err(LaneBlocked::Exhausted));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Foreign,
}

/// A sender's nonces on a chain, with a pool and reorgs above what is final.
#[derive(Debug, Default)]
struct World {
    mined: Vec<Owner>,
    finalized: usize,
    pool: BTreeSet<u64>,
}

impl World {
    fn view(&self, lag: usize) -> ChainView {
        let mined = self.mined.len().saturating_sub(lag) as u64;
        let pending = (mined..).find(|nonce| !self.pool.contains(nonce)).unwrap_or(mined);
        ChainView { mined, pending }
    }

    fn mine(&mut self) {
        while self.pool.remove(&(self.mined.len() as u64)) {
            self.mined.push(Owner::Ours);
        }
    }

    fn foreign(&mut self) {
        self.pool.remove(&(self.mined.len() as u64));
        self.mined.push(Owner::Foreign);
    }

    fn reorg(&mut self, depth: usize, back_into_pool: bool) {
        for _ in 0..depth {
            if self.mined.len() <= self.finalized {
                return;
            }
            if self.mined.pop() == Some(Owner::Ours) && back_into_pool {
                self.pool.insert(self.mined.len() as u64);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Take,
    Send(usize),
    Release(usize),
    Mine,
    Foreign,
    Drop(usize),
    Finalize(usize),
    Reorg(usize, bool),
    Tick,
    Lag(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Take),
        4 => any::<usize>().prop_map(Event::Send),
        1 => any::<usize>().prop_map(Event::Release),
        3 => Just(Event::Mine),
        1 => Just(Event::Foreign),
        1 => any::<usize>().prop_map(Event::Drop),
        2 => (0usize..4).prop_map(Event::Finalize),
        1 => (1usize..4, any::<bool>()).prop_map(|(depth, back)| Event::Reorg(depth, back)),
        3 => Just(Event::Tick),
        1 => (0usize..4).prop_map(Event::Lag),
    ]
}

/// Execution in miniature: does what the lane decides.
#[derive(Debug)]
struct Sender {
    lane: Lane,
    world: World,
    lag: usize,
    /// Who holds each nonce; a second holder is the bug looked for.
    holders: BTreeSet<u64>,
    /// Nonces of ours that are final.
    done: BTreeSet<u64>,
}

impl Sender {
    fn hold(&mut self, taken: Result<u64, LaneBlocked>) {
        if let Ok(nonce) = taken {
            assert!(self.holders.insert(nonce), "nonce {nonce} has two holders");
            assert!(!self.done.contains(&nonce), "nonce {nonce} was used before");
        }
    }

    fn send(&mut self, nonce: u64) {
        self.lane.sent(nonce, false);
        if nonce >= self.world.mined.len() as u64 {
            self.world.pool.insert(nonce);
        }
    }

    fn pick(&self, index: usize, reserved: bool) -> Option<u64> {
        let wanted = |slot: &Slot| matches!(slot, Slot::Reserved { .. }) == reserved;
        let nonces: Vec<u64> =
            self.lane.open.iter().filter(|(_, slot)| wanted(slot)).map(|(n, _)| *n).collect();
        (!nonces.is_empty()).then(|| nonces[index % nonces.len()])
    }

    /// Long enough passes that every rule about waiting applies, then the lane is looked after once.
    fn tick(&mut self) {
        for slot in self.lane.open.values_mut() {
            match slot {
                Slot::Reserved { held } => *held = Duration::from_secs(3600),
                Slot::Sent { waiting, .. } => *waiting = Duration::from_secs(3600),
                Slot::Mined => {}
            }
        }
        for decision in self.lane.decide(&self.world.view(self.lag), &RULES) {
            match decision {
                Decision::Foreign { to, .. } => self.lane.skip(to),
                Decision::Resolve { nonce } => self.resolve(nonce),
                Decision::Fill { nonce } => {
                    let taken = self.lane.fill(nonce);
                    self.hold(taken);
                    self.send(nonce);
                }
                Decision::Resume { nonce } | Decision::Resend { nonce } | Decision::Bump { nonce } => {
                    self.send(nonce)
                }
                Decision::Capped { .. } => unreachable!("nothing is at the cap here"),
            }
        }
        // Confirmation's verdicts on what is final.
        let settled: Vec<u64> =
            self.lane.open.keys().copied().filter(|nonce| *nonce < self.world.finalized as u64).collect();
        for nonce in settled {
            self.resolve(nonce);
        }
    }

    fn resolve(&mut self, nonce: u64) {
        let index = usize::try_from(nonce).unwrap();
        match self.world.mined.get(index) {
            Some(_) if index < self.world.finalized => {
                self.lane.close(nonce);
                self.holders.remove(&nonce);
                self.done.insert(nonce);
            }
            Some(Owner::Ours) => self.lane.mined(nonce),
            Some(Owner::Foreign) | None => {}
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Take => {
                let taken = self.lane.take(&self.world.view(self.lag), &RULES);
                self.hold(taken);
            }
            Event::Send(index) => {
                if let Some(nonce) = self.pick(index, true) {
                    self.send(nonce);
                }
            }
            Event::Release(index) => {
                if let Some(nonce) = self.pick(index, true)
                    && self.lane.release(nonce)
                {
                    self.holders.remove(&nonce);
                }
            }
            Event::Mine => self.world.mine(),
            Event::Foreign => self.world.foreign(),
            Event::Drop(index) => {
                if let Some(nonce) = self.pick(index, false) {
                    self.world.pool.remove(&nonce);
                }
            }
            Event::Finalize(count) => {
                self.world.finalized = (self.world.finalized + count).min(self.world.mined.len());
            }
            Event::Reorg(depth, back) => self.world.reorg(depth, back),
            Event::Tick => self.tick(),
            Event::Lag(lag) => self.lag = lag,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// No nonce has two holders (checked at every step), and once the disturbances end everything open is mined:
    /// no gap is left, nothing is jammed.
    #[test]
    fn no_nonce_twice_and_no_jam(start in 0u64..3, events in prop::collection::vec(event(), 1..120)) {
        let mut sender = Sender {
            lane: Lane::new(start),
            world: World { mined: vec![Owner::Foreign; usize::try_from(start).unwrap()], ..World::default() },
            lag: 0,
            holders: BTreeSet::new(),
            done: BTreeSet::new(),
        };
        for event in events {
            let (floor, next) = (sender.lane.floor, sender.lane.next);
            sender.apply(event);
            prop_assert!(sender.lane.floor >= floor && sender.lane.next >= next);
        }
        sender.lag = 0;
        for _ in 0..200 {
            sender.tick();
            sender.world.mine();
            sender.world.finalized = sender.world.mined.len();
        }
        sender.tick();
        prop_assert!(sender.lane.open.is_empty(), "jammed: {:?}", sender);
        prop_assert!(sender.holders.is_empty());
    }

    /// Whatever is stored and whatever the chain says: bounded, no panic, and nothing that is open is handed out.
    #[test]
    fn any_lane_decides_within_bounds(
        floor in 0u64..20,
        ahead in 0u64..30,
        open in prop::collection::btree_map(0u64..50, 0u8..3, 0..12),
        mined: u64,
        pending: u64,
    ) {
        let slot = |kind: u8| match kind {
            0 => Slot::Reserved { held: Duration::from_secs(3600) },
            1 => long_sent(),
            _ => Slot::Mined,
        };
        let open: BTreeMap<u64, Slot> = open.into_iter().map(|(nonce, kind)| (nonce, slot(kind))).collect();
        let next = open.last_key_value().map_or(0, |(nonce, _)| nonce + 1).max(floor) + ahead;
        let mut lane = Lane { floor, next, open, halted: false };
        let chain = view(mined % 100, pending);
        prop_assert!(lane.decide(&chain, &RULES).len() <= RULES.max_decisions);
        let before = lane.open.clone();
        if let Ok(nonce) = lane.take(&chain, &RULES) {
            prop_assert!(!before.contains_key(&nonce) && nonce >= floor);
        }
    }
}
