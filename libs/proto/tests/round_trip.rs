//! Every conversion of `libs/payment`, written and read again, gives the same value: over random values of both families of chain.

#[path = "../../payment/tests/arbitrary/mod.rs"]
mod arbitrary;

use chrono::Utc;
use payment::{Verdict, WatchedTransaction};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proto::payment::{
    TransactionRequest, read_effect, read_transaction, read_verdict, read_void_attestation, read_watched,
    write_effect, write_transaction, write_verdict, write_void_attestation, write_watched,
};
use types::{AddressFormat, JobId};
use uuid::Uuid;

use arbitrary::{LARGEST_SIGNED, action, address, binding, effect, finding, format, hash, instant, price};

fn requests() -> impl Strategy<Value = TransactionRequest> {
    let of_family = |format| {
        action(format).prop_flat_map(move |action| {
            (Just(action.clone()), binding(action.sender()), price(format), any::<u64>()).prop_map(
                move |(action, binding, price, network)| {
                    let network_id = (format == AddressFormat::Evm).then_some(network);
                    TransactionRequest { action, binding, price, network_id }
                },
            )
        })
    };
    format().prop_flat_map(of_family)
}

fn watched() -> impl Strategy<Value = (payment::Effect, WatchedTransaction)> {
    format().prop_flat_map(address).prop_flat_map(|sender| {
        let of_watch = effect(sender);
        let own = prop_oneof![Just(None), effect(sender).prop_map(Some)];
        let rest = (option::of(0..=LARGEST_SIGNED), option::of(instant()), 0..=LARGEST_SIGNED);
        (of_watch, own, hash(), rest, vec(any::<u8>(), 0..40)).prop_map(|(of_watch, own, hash, rest, raw)| {
            let (nonce, expires_at, reference_block) = rest;
            let effect = own.unwrap_or(of_watch);
            (of_watch, WatchedTransaction { hash, effect, nonce, expires_at, reference_block, raw })
        })
    })
}

/// Through the bytes too: a value that protobuf cannot carry would be lost there.
fn through_bytes<M: prost::Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("just encoded")
}

proptest! {
    #[test]
    fn transactions(request in requests()) {
        let (intent, parameters) = write_transaction(&request).unwrap();
        let sent = proto::signer::v1::SignTransactionRequest {
            tx_intent: Some(intent),
            parameters: Some(parameters),
            ..Default::default()
        };
        let received = through_bytes(&sent);
        prop_assert_eq!(read_transaction(received.tx_intent, received.parameters), Ok(request));
    }

    #[test]
    fn effects(effect in format().prop_flat_map(address).prop_flat_map(effect)) {
        let received = through_bytes(&write_effect(&effect));
        prop_assert_eq!(read_effect(&received, effect.sender().format(), "effect"), Ok(effect));
    }

    #[test]
    fn watched_transactions((of_watch, tx) in watched()) {
        let received = through_bytes(&write_watched(&tx, &of_watch));
        prop_assert_eq!(read_watched(&received, &of_watch, "transactions[0]"), Ok(tx));
    }

    #[test]
    fn verdicts(finding in finding(), id: u128, job: u128, at in instant()) {
        let job = JobId::from_uuid(Uuid::from_u128(job));
        let verdict = Verdict { id: Uuid::from_u128(id), job, at, finding };
        let received = through_bytes(&write_verdict(&verdict));
        prop_assert_eq!(read_verdict(received, Utc::now()), Ok(verdict));
    }

    #[test]
    fn void_attestations(finding in finding(), job: u128) {
        let job = JobId::from_uuid(Uuid::from_u128(job));
        if let Some(proof) = finding.proof() {
            let received = through_bytes(&write_void_attestation(job, proof));
            prop_assert_eq!(read_void_attestation(received), Ok((job, proof.clone())));
        }
    }
}
