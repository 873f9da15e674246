//! Claims about lanes: by example, and over random lives of a sender, a pool and a chain, with nodes that lie and lag.

use proptest::prelude::*;

use super::*;

fn lane(floor: u64, next: u64) -> Lane {
    Lane { floor, next, open: BTreeSet::new(), halted: false }
}

#[test]
fn nonces_follow_each_other() {
    let mut lane = lane(5, 5);
    for expected in 5..13 {
        assert_eq!(lane.take(), Ok(expected));
    }
    assert_eq!(lane.next, 13);
}

#[test]
fn a_halted_lane_hands_out_nothing_but_still_repairs() {
    let mut lane = Lane { open: [1].into(), halted: true, ..lane(0, 2) };
    assert_eq!(lane.take(), Err(LaneBlocked::Halted));
    assert_eq!(lane.fill(0), Ok(0));
    assert_eq!(lane.fill(1), Err(LaneBlocked::Taken { nonce: 1 }));
}

#[test]
fn a_gap_is_handed_out_before_a_fresh_nonce() {
    let mut lane = Lane { open: [0, 2].into(), ..lane(0, 3) };
    assert_eq!(lane.take(), Ok(1));
    assert_eq!(lane.take(), Ok(3));
}

#[test]
fn what_is_used_up_is_never_handed_out() {
    let mut lane = lane(5, 5);
    assert_eq!(lane.fill(4), Err(LaneBlocked::UsedUp { nonce: 4 }));
    assert_eq!(lane.take(), Ok(5));
}

#[test]
fn the_last_nonce_is_never_used() {
    let mut lane = lane(u64::MAX - 2, u64::MAX - 2);
    assert_eq!(lane.take(), Ok(u64::MAX - 2));
    assert_eq!(lane.take(), Err(LaneBlocked::Exhausted));
}

#[test]
fn one_node_s_word_reaches_no_further_than_what_was_handed_out() {
    let sight = NonceCounts { mined: 3, pending: 1_000_000, agreed: Some(4) };
    assert_eq!(sight.floor(6, 3), 6);
    assert_eq!(NonceCounts { pending: 4, ..sight }.floor(6, 3), 4);
    assert_eq!(NonceCounts { pending: 2, ..sight }.floor(6, 3), 3, "a node that lags");
}

#[derive(Debug, Clone)]
enum Event {
    /// Takes and sends.
    Take,
    /// Takes and gives back, without a signature.
    GiveBack,
    Mine(usize),
    Foreign,
    /// A node loses what its pool holds.
    Lose,
    /// From here on one node counts so many too many, or lags by so much.
    Lie(u64),
    Lag(u64),
    /// Only that node answers for a while.
    Alone(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Take),
        2 => Just(Event::GiveBack),
        3 => (1usize..4).prop_map(Event::Mine),
        1 => Just(Event::Foreign),
        1 => Just(Event::Lose),
        1 => prop_oneof![Just(0u64), 1..5u64, Just(1_000_000)].prop_map(Event::Lie),
        1 => (0..4u64).prop_map(Event::Lag),
        1 => any::<bool>().prop_map(Event::Alone),
    ]
}

/// Execution in miniature: the rows of a lane, two nodes of which one tells the truth, and a chain.
#[derive(Debug, Default)]
struct Sender {
    next: u64,
    mined_seen: u64,
    open: BTreeSet<u64>,
    mined: u64,
    pool: BTreeSet<u64>,
    lie: u64,
    lag: u64,
    alone: bool,
    /// Foreign transactions, the only ones that may move the lane besides our own.
    foreign: u64,
}

impl Sender {
    fn sight(&self) -> NonceCounts {
        let counted = |mined: u64| (mined..).find(|nonce| !self.pool.contains(nonce)).unwrap_or(mined);
        let honest = (self.mined, counted(self.mined));
        let other = self.mined.saturating_sub(self.lag) + self.lie;
        let other = (other, counted(other));
        if self.alone {
            return NonceCounts { mined: other.0, pending: other.1, agreed: None };
        }
        let mined = honest.0.min(other.0);
        NonceCounts { mined, pending: honest.1.max(other.1), agreed: Some(honest.1.min(other.1).max(mined)) }
    }

    fn lane(&mut self) -> Lane {
        let sight = self.sight();
        if let Some(agreed) = sight.agreed {
            self.next = self.next.max(agreed);
            self.mined_seen = self.mined_seen.max(sight.mined);
        }
        let floor = sight.floor(self.next, self.mined_seen);
        Lane { floor, next: self.next, open: self.open.range(floor..).copied().collect(), halted: false }
    }

    fn take(&mut self) -> u64 {
        let mut lane = self.lane();
        let nonce = lane.take().unwrap();
        assert!(self.open.insert(nonce), "nonce {nonce} has two holders");
        assert!(lane.next >= self.next);
        self.next = lane.next;
        nonce
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Take => {
                let nonce = self.take();
                self.pool.insert(nonce);
            }
            Event::GiveBack => {
                let nonce = self.take();
                self.open.remove(&nonce);
            }
            Event::Mine(count) => {
                for _ in 0..count {
                    self.mined += u64::from(self.pool.remove(&self.mined));
                }
            }
            Event::Foreign => {
                self.pool.remove(&self.mined);
                self.mined += 1;
                self.foreign += 1;
            }
            Event::Lose => self.pool.clear(),
            Event::Lie(lie) => self.lie = lie,
            Event::Lag(lag) => self.lag = lag,
            Event::Alone(alone) => self.alone = alone,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// No nonce has two holders (checked at every step); one node's lies never move the lane beyond what was handed out and
    /// what others really used; and once the lies end, everything that is open is mined, with nothing but the gaps filled.
    #[test]
    fn no_nonce_twice_and_no_jam(events in prop::collection::vec(event(), 1..120)) {
        let mut sender = Sender::default();
        let mut taken = 0;
        for event in events {
            taken += u64::from(matches!(event, Event::Take | Event::GiveBack));
            sender.apply(event);
            prop_assert!(sender.next <= taken + sender.foreign, "moved by a lie: {:?}", sender);
            prop_assert!(sender.mined_seen <= sender.mined);
        }
        (sender.lie, sender.lag, sender.alone) = (0, 0, false);
        let jammed = sender.open.range(sender.mined..).next_back().copied();
        for _ in 0..=taken + sender.foreign {
            // The stored bytes go out again, and gaps below the highest open nonce are closed.
            sender.pool.extend(sender.open.range(sender.mined..));
            if jammed.is_some_and(|highest| (sender.mined..highest).any(|nonce| !sender.open.contains(&nonce))) {
                let nonce = sender.take();
                sender.pool.insert(nonce);
            }
            sender.apply(Event::Mine(1));
        }
        prop_assert!(jammed.is_none_or(|highest| sender.mined > highest), "jammed: {:?}", sender);
    }
}
