//! Every state against every event, and random sequences against a model of the chain.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::{Address, AddressFormat, JobId, RawAmount, TxHash};

use super::*;

const MAX_BUMPS: u32 = 3;

fn parties(job: JobId) -> Parties {
    Parties {
        chain: "bsc".parse().expect("chain"),
        wallet: Address::from_body(AddressFormat::Evm, [1; 20]),
        job,
    }
}

fn terms() -> Terms {
    Terms {
        asset: Some("USDT".parse().expect("asset")),
        destination: Address::from_body(AddressFormat::Evm, [2; 20]),
        amount: RawAmount::from(100u64),
        call_hash: None,
        may_shrink: false,
    }
}

fn bid(ceiling: u128) -> Bid {
    Bid { ceiling, tip: ceiling / 2, gas_limit: 21_000 }
}

fn pay(job: JobId, nonce: u64, ceiling: u128) -> Proposal {
    Proposal {
        parties: parties(job),
        slot: Slot::Nonce(nonce),
        bid: bid(ceiling),
        action: ProposedAction::Pay(terms()),
    }
}

fn cancel(job: JobId, nonce: u64, ceiling: u128) -> Proposal {
    Proposal { action: ProposedAction::Cancel, ..pay(job, nonce, ceiling) }
}

fn hash(n: u8) -> TxHash {
    TxHash::from([n; 32])
}

fn owner() -> SlotOwner {
    SlotOwner { payment: PaymentKey::duty("other"), generation: 0 }
}

fn evidence<'a>(
    signed: &'a [TxHash],
    void: Option<&'a VerifiedVoid>,
    owner: Option<&'a SlotOwner>,
) -> Evidence<'a> {
    Evidence { signed, void, owner, max_bumps: MAX_BUMPS }
}

fn proof(job: JobId, hashes: &[TxHash]) -> VerifiedVoid {
    VerifiedVoid::believed(job, hashes.iter().copied().collect())
}

/// The states: paying, closing after a payment, closing without one.
fn states(job: JobId) -> [GuardedPayment; 3] {
    let paying = GuardedPayment::open(pay(job, 7, 100), None).expect("first").next;
    let closing_live =
        paying.apply(cancel(job, 7, 200), &evidence(&[hash(1)], None, None)).expect("cancel").next;
    let closing_idle = GuardedPayment::open(cancel(job, 7, 100), None).expect("cancel").next;
    [paying, closing_live, closing_idle]
}

fn apply(entry: &GuardedPayment, proposal: Proposal) -> Result<StepKind, &'static str> {
    entry
        .apply(proposal, &evidence(&[hash(1)], None, None))
        .map(|step| step.kind)
        .map_err(|refusal| refusal.into_str())
}

#[test]
fn every_state_answers_every_event_without_an_attestation() {
    let job = JobId::new();
    let [paying, live, idle] = states(job);
    let second = Err("payment_guard.second_nonce");
    let cancelled = Err("payment_guard.cancelled");
    // event: (proposal at the bid of the state's own last transaction, paying, closing live, closing idle)
    assert_eq!(apply(&paying, pay(job, 7, 100)), Ok(StepKind::Same));
    assert_eq!(apply(&live, pay(job, 7, 200)), cancelled);
    assert_eq!(apply(&idle, pay(job, 7, 100)), cancelled);

    assert_eq!(apply(&paying, pay(job, 7, 300)), Ok(StepKind::FeeBump));
    assert_eq!(apply(&live, pay(job, 7, 300)), cancelled);
    assert_eq!(apply(&idle, pay(job, 7, 300)), cancelled);

    assert_eq!(apply(&paying, pay(job, 7, 50)), Err("payment_guard.fee_not_higher"));
    assert_eq!(apply(&live, pay(job, 7, 50)), cancelled);
    assert_eq!(apply(&idle, pay(job, 7, 50)), cancelled);

    assert_eq!(apply(&paying, cancel(job, 7, 300)), Ok(StepKind::Cancellation));
    assert_eq!(apply(&live, cancel(job, 7, 300)), Ok(StepKind::Cancellation));
    assert_eq!(apply(&idle, cancel(job, 7, 300)), Ok(StepKind::Cancellation));
    assert_eq!(apply(&live, cancel(job, 7, 200)), Ok(StepKind::Same));
    assert_eq!(apply(&idle, cancel(job, 7, 100)), Ok(StepKind::Same));

    assert_eq!(apply(&paying, pay(job, 8, 300)), second);
    assert_eq!(apply(&live, pay(job, 8, 300)), second);
    assert_eq!(apply(&idle, pay(job, 8, 300)), Ok(StepKind::NewSlot));

    assert_eq!(apply(&paying, cancel(job, 8, 300)), second);
    assert_eq!(apply(&live, cancel(job, 8, 300)), second);
    assert_eq!(apply(&idle, cancel(job, 8, 300)), Ok(StepKind::NewSlot));
}

#[test]
fn chain_wallet_and_job_never_change_in_any_state_even_with_an_attestation() {
    let job = JobId::new();
    let proof = proof(job, &[hash(1)]);
    for entry in states(job) {
        for nonce in [7, 8] {
            for action in [ProposedAction::Pay(terms()), ProposedAction::Cancel] {
                let base = Proposal { action, ..pay(job, nonce, 300) };
                let other_wallet = Address::from_body(AddressFormat::Evm, [9; 20]);
                let changed = [
                    Parties { chain: "eth".parse().expect("chain"), ..parties(job) },
                    Parties { wallet: other_wallet, ..parties(job) },
                    Parties { job: JobId::new(), ..parties(job) },
                ];
                for parties in changed {
                    let proposal = Proposal { parties, ..base.clone() };
                    let refusal =
                        entry.apply(proposal, &evidence(&[hash(1)], Some(&proof), None)).unwrap_err();
                    assert_eq!(refusal.into_str(), "payment_guard.bound");
                }
            }
        }
    }
}

#[test]
fn destination_amount_and_asset_never_change_even_with_an_attestation() {
    let job = JobId::new();
    let paying = &states(job)[0];
    let proof = proof(job, &[hash(1)]);
    let changed = [
        Terms { destination: Address::from_body(AddressFormat::Evm, [3; 20]), ..terms() },
        Terms { amount: RawAmount::from(101u64), ..terms() },
        Terms { amount: RawAmount::from(99u64), ..terms() },
        Terms { asset: Some("BNB".parse().expect("asset")), ..terms() },
        Terms { call_hash: Some([1; 32]), ..terms() },
    ];
    for terms in changed {
        for nonce in [7, 8] {
            let proposal = Proposal { action: ProposedAction::Pay(terms.clone()), ..pay(job, nonce, 300) };
            let refusal = paying.apply(proposal, &evidence(&[hash(1)], Some(&proof), None)).unwrap_err();
            assert_eq!(refusal.into_str(), "payment_guard.terms_changed");
        }
    }
}

#[test]
fn only_a_native_sweep_may_shrink_and_never_grows() {
    let job = JobId::new();
    let sweep = |amount: u64, ceiling| Proposal {
        action: ProposedAction::Pay(Terms { amount: amount.into(), may_shrink: true, ..terms() }),
        ..pay(job, 7, ceiling)
    };
    let entry = GuardedPayment::open(sweep(100, 100), None).expect("first").next;
    assert_eq!(apply(&entry, sweep(90, 200)), Ok(StepKind::FeeBump));
    assert_eq!(apply(&entry, sweep(101, 200)), Err("payment_guard.terms_changed"));
    assert_eq!(apply(&entry, sweep(90, 100)), Err("payment_guard.fee_not_higher"));
}

#[test]
fn an_attestation_opens_a_new_nonce_only_if_it_covers_every_payment_of_the_old_one() {
    let job = JobId::new();
    let signed = [hash(1), hash(2)];
    for entry in &states(job)[..2] {
        let step = |void: &VerifiedVoid| {
            entry.apply(pay(job, 8, 10), &evidence(&signed, Some(void), None)).map(|step| step.next)
        };
        let next = step(&proof(job, &signed)).expect("new slot");
        assert_eq!((next.generation, next.slot), (1, Slot::Nonce(8)));
        assert_eq!(step(&proof(job, &[hash(1)])), Err(GuardRefusal::VoidIncomplete(hash(2))));
        assert_eq!(step(&proof(JobId::new(), &signed)), Err(GuardRefusal::VoidOtherJob));
        // The attestation of the old slot does not serve the new one.
        let again = next.apply(pay(job, 9, 20), &evidence(&[hash(3)], Some(&proof(job, &signed)), None));
        assert_eq!(again, Err(GuardRefusal::VoidIncomplete(hash(3))));
    }
}

#[test]
fn a_nonce_serves_one_payment_ever() {
    let job = JobId::new();
    let taken = Some(owner());
    let first = GuardedPayment::open(pay(job, 7, 100), taken.as_ref());
    assert_eq!(first, Err(GuardRefusal::NonceSpent(7)));
    assert_eq!(GuardedPayment::open(cancel(job, 7, 100), taken.as_ref()), Err(GuardRefusal::NonceSpent(7)));
    let proof = proof(job, &[hash(1)]);
    for entry in states(job) {
        let moved = entry.apply(pay(job, 8, 300), &evidence(&[hash(1)], Some(&proof), taken.as_ref()));
        assert_eq!(moved, Err(GuardRefusal::NonceSpent(8)));
    }
}

#[test]
fn replacements_are_capped() {
    let job = JobId::new();
    let mut entry = states(job)[0].clone();
    for i in 0..MAX_BUMPS {
        entry = entry.apply(pay(job, 7, 200 + u128::from(i)), &evidence(&[], None, None)).expect("bump").next;
    }
    assert_eq!(apply(&entry, pay(job, 7, 900)), Err("payment_guard.too_many_bumps"));
    assert_eq!(apply(&entry, cancel(job, 7, 900)), Ok(StepKind::Cancellation), "giving up stays possible");
}

#[test]
fn a_tron_payment_is_signed_once_until_proven_void() {
    let job = JobId::new();
    let at = |n: u8| Proposal {
        slot: Slot::Transaction { id: hash(n), expires_ms: 1_000 + i64::from(n) },
        bid: Bid::NONE,
        ..pay(job, 0, 0)
    };
    let entry = GuardedPayment::open(at(1), None).expect("first").next;
    assert_eq!(apply(&entry, at(1)), Ok(StepKind::Same));
    assert_eq!(apply(&entry, at(2)), Err("payment_guard.second_transaction"));
    let proof = proof(job, &[hash(1)]);
    let step = entry.apply(at(2), &evidence(&[hash(1)], Some(&proof), None)).expect("void");
    assert_eq!(step.kind, StepKind::NewSlot);
}

/// What the chain and confirmation know: which nonces hold payment transactions that can still land.
#[derive(Default)]
struct Model {
    entry: Option<GuardedPayment>,
    signed: BTreeMap<u64, BTreeSet<TxHash>>,
    dead: BTreeSet<u64>,
    used: BTreeSet<u64>,
    serial: u8,
}

#[derive(Debug, Clone)]
enum Event {
    Pay {
        nonce: u64,
        ceiling: u128,
        attest: bool,
    },
    Cancel {
        nonce: u64,
        ceiling: u128,
        attest: bool,
    },
    /// A foreign transaction becomes final at the nonce.
    Die {
        nonce: u64,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let nonce = 0u64..4;
    let event = prop_oneof![
        4 => (nonce.clone(), 1u128..8, any::<bool>())
            .prop_map(|(nonce, ceiling, attest)| Event::Pay { nonce, ceiling, attest }),
        2 => (nonce.clone(), 1u128..8, any::<bool>())
            .prop_map(|(nonce, ceiling, attest)| Event::Cancel { nonce, ceiling, attest }),
        1 => nonce.prop_map(|nonce| Event::Die { nonce }),
    ];
    proptest::collection::vec(event, 1..40)
}

impl Model {
    /// Confirmation attests only what is dead on chain.
    fn attestation(&self, job: JobId) -> VerifiedVoid {
        let dead = self.signed.iter().filter(|(nonce, _)| self.dead.contains(nonce));
        VerifiedVoid::believed(job, dead.flat_map(|(_, hashes)| hashes.iter().copied()).collect())
    }

    fn propose(&mut self, job: JobId, proposal: Proposal, attest: bool) {
        let Slot::Nonce(nonce) = proposal.slot else { unreachable!("the model has nonces only") };
        let pays = matches!(proposal.action, ProposedAction::Pay(_));
        let void = attest.then(|| self.attestation(job));
        let owner = self.used.contains(&nonce).then(owner);
        let step = match &self.entry {
            None => GuardedPayment::open(proposal, owner.as_ref()),
            Some(entry) => {
                let Slot::Nonce(current) = entry.slot else { unreachable!("the model has nonces only") };
                let signed: Vec<TxHash> = self.signed.get(&current).into_iter().flatten().copied().collect();
                entry.apply(proposal, &evidence(&signed, void.as_ref(), owner.as_ref()))
            }
        };
        if let Ok(step) = step {
            self.entry = Some(step.next);
            self.used.insert(nonce);
            if pays && step.kind != StepKind::Same {
                self.serial += 1;
                self.signed.entry(nonce).or_default().insert(hash(self.serial));
            }
        }
    }

    fn landing_capable(&self) -> usize {
        self.signed.keys().filter(|nonce| !self.dead.contains(nonce)).count()
    }
}

proptest! {
    #[test]
    fn at_most_one_nonce_of_a_payment_can_ever_land(events in events()) {
        let job = JobId::new();
        let mut model = Model::default();
        for event in events {
            match event {
                Event::Pay { nonce, ceiling, attest } => model.propose(job, pay(job, nonce, ceiling), attest),
                Event::Cancel { nonce, ceiling, attest } => {
                    model.propose(job, cancel(job, nonce, ceiling), attest);
                }
                Event::Die { nonce } => { model.dead.insert(nonce); }
            }
            prop_assert!(model.landing_capable() <= 1);
        }
    }

    #[test]
    fn without_attestations_a_payment_has_one_paying_nonce_for_ever(events in events()) {
        let job = JobId::new();
        let mut model = Model::default();
        for event in events {
            match event {
                Event::Pay { nonce, ceiling, .. } => model.propose(job, pay(job, nonce, ceiling), false),
                Event::Cancel { nonce, ceiling, .. } => model.propose(job, cancel(job, nonce, ceiling), false),
                Event::Die { nonce } => { model.dead.insert(nonce); }
            }
            prop_assert!(model.signed.len() <= 1);
        }
    }
}
