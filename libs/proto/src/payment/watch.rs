//! What confirmation is asked to watch.

use payment::{AssetRef, Effect, Transfer, WatchedTransaction};
use types::{Address, AddressFormat, RawAmount};

use super::{FieldError, Mistakes, value};
use crate::confirmation::v1 as pb;

/// Reads an expected effect of a chain of this family. `field` is where it was found.
pub fn read_effect(
    effect: &pb::ExpectedEffect,
    format: AddressFormat,
    field: &str,
) -> Result<Effect, Vec<FieldError>> {
    let mut mistakes = Mistakes::default();
    let address = |name: &str, text: &str| {
        Address::parse(format, text).map_err(|error| FieldError::new(format!("{field}.{name}"), error))
    };
    let from = mistakes.take(address("from_address", &effect.from_address));
    let read = match pb::EffectKind::try_from(effect.kind) {
        Ok(pb::EffectKind::Unspecified) => {
            let to = mistakes.take(address("to_address", &effect.to_address));
            let asset = match effect.contract_address.as_str() {
                "" => Some(AssetRef::Native),
                text => mistakes.take(address("contract_address", text)).map(AssetRef::Token),
            };
            let amount = value::<RawAmount>(&format!("{field}.amount_raw"), &effect.amount_raw);
            let amount = mistakes.take(amount);
            (|| Some(Effect::Moves(Transfer { asset: asset?, from: from?, to: to?, amount: amount? })))()
        }
        Ok(pb::EffectKind::Cancellation) => from.map(|sender| Effect::Closes { sender }),
        Ok(pb::EffectKind::Call) => {
            let contract = mistakes.take(address("contract_address", &effect.contract_address));
            (|| Some(Effect::Succeeds { sender: from?, contract: contract? }))()
        }
        Err(_) => {
            let problem = format!("{} is not a kind of effect", effect.kind);
            mistakes.take(Err(FieldError::new(format!("{field}.kind"), problem)))
        }
    };
    mistakes.finish(read)
}

pub fn write_effect(effect: &Effect) -> pb::ExpectedEffect {
    let contract_text = |contract: Option<Address>| contract.map(|it| it.to_string()).unwrap_or_default();
    match effect {
        Effect::Moves(transfer) => pb::ExpectedEffect {
            from_address: transfer.from.to_string(),
            to_address: transfer.to.to_string(),
            amount_raw: transfer.amount.to_string(),
            contract_address: contract_text(transfer.asset.contract()),
            kind: pb::EffectKind::Unspecified.into(),
        },
        Effect::Closes { sender } => pb::ExpectedEffect {
            from_address: sender.to_string(),
            kind: pb::EffectKind::Cancellation.into(),
            ..pb::ExpectedEffect::default()
        },
        Effect::Succeeds { sender, contract } => pb::ExpectedEffect {
            from_address: sender.to_string(),
            contract_address: contract.to_string(),
            kind: pb::EffectKind::Call.into(),
            ..pb::ExpectedEffect::default()
        },
    }
}

/// Reads a watched transaction. Without an effect of its own it must show that of its watch; a cancellation must close the
/// nonce of the watch's sender.
pub fn read_watched(
    tx: &pb::WatchedTransaction,
    of_watch: &Effect,
    field: &str,
) -> Result<WatchedTransaction, Vec<FieldError>> {
    let mut mistakes = Mistakes::default();
    let name = |name: &str| format!("{field}.{name}");
    let hash = mistakes.take(value(&name("tx_hash"), &tx.tx_hash));
    let expires_at = tx.expires_at.as_ref().map(crate::time::datetime).transpose();
    let expires_at = mistakes.take(expires_at.map_err(|error| FieldError::new(name("expires_at"), error)));
    for (number, text) in [(tx.nonce.unwrap_or(0), "nonce"), (tx.reference_block, "reference_block")] {
        mistakes.take(i64::try_from(number).map_err(|error| FieldError::new(name(text), error)));
    }
    let sender = of_watch.sender();
    let effect = match &tx.effect {
        _ if tx.is_cancellation => Some(Effect::Closes { sender }),
        None => Some(*of_watch),
        Some(own) => match read_effect(own, sender.format(), &name("effect")) {
            Ok(own) if own.sender() == sender => Some(own),
            Ok(_) => {
                let problem = "differs from the sender of the watch";
                mistakes.take(Err(FieldError::new(name("effect.from_address"), problem)))
            }
            Err(errors) => {
                mistakes.0.extend(errors);
                None
            }
        },
    };
    let built = (|| {
        Some(WatchedTransaction {
            hash: hash?,
            effect: effect?,
            nonce: tx.nonce,
            expires_at: expires_at?,
            reference_block: tx.reference_block,
            raw: tx.raw_transaction.clone(),
        })
    })();
    mistakes.finish(built)
}

/// The effect is written only where it is not that of the watch.
pub fn write_watched(tx: &WatchedTransaction, of_watch: &Effect) -> pb::WatchedTransaction {
    let is_cancellation = tx.is_cancellation();
    pb::WatchedTransaction {
        tx_hash: tx.hash.to_string(),
        is_cancellation,
        nonce: tx.nonce,
        expires_at: tx.expires_at.map(crate::time::timestamp),
        reference_block: tx.reference_block,
        raw_transaction: tx.raw.clone(),
        effect: (!is_cancellation && tx.effect != *of_watch).then(|| write_effect(&tx.effect)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(byte: u8) -> Address {
        Address::from_body(AddressFormat::Evm, [byte; 20])
    }

    fn moves(amount: u64) -> Effect {
        let (from, to) = (address(1), address(2));
        Effect::Moves(Transfer { asset: AssetRef::Native, from, to, amount: RawAmount::from(amount) })
    }

    #[test]
    fn every_effect_survives_the_conversion() {
        let token = Transfer {
            asset: AssetRef::Token(address(3)),
            from: address(1),
            to: address(2),
            amount: RawAmount::MAX,
        };
        let (sender, contract) = (address(1), address(3));
        let effects = [
            moves(5),
            Effect::Moves(token),
            Effect::Closes { sender },
            Effect::Succeeds { sender, contract },
        ];
        for effect in effects {
            assert_eq!(read_effect(&write_effect(&effect), AddressFormat::Evm, "effect"), Ok(effect));
        }
    }

    #[test]
    fn a_transaction_has_the_effect_of_its_watch_or_its_own() {
        let of_watch = moves(5);
        for effect in [of_watch, moves(4), Effect::Closes { sender: address(1) }] {
            let tx = WatchedTransaction {
                hash: [7; 32].into(),
                effect,
                nonce: Some(3),
                expires_at: None,
                reference_block: 9,
                raw: vec![1],
            };
            let written = write_watched(&tx, &of_watch);
            assert_eq!(written.effect.is_some(), effect == moves(4), "said only where it differs");
            assert_eq!(read_watched(&written, &of_watch, "transactions[0]"), Ok(tx));
        }
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let fields = |errors: Vec<FieldError>| errors.into_iter().map(|it| it.field).collect::<Vec<_>>();
        let empty = pb::ExpectedEffect::default();
        let wrong = read_effect(&empty, AddressFormat::Evm, "effect").unwrap_err();
        assert_eq!(fields(wrong), ["effect.from_address", "effect.to_address", "effect.amount_raw"]);
        let stranger = pb::WatchedTransaction {
            tx_hash: "x".into(),
            nonce: Some(u64::MAX),
            effect: Some(write_effect(&Effect::Closes { sender: address(9) })),
            ..pb::WatchedTransaction::default()
        };
        let wrong = read_watched(&stranger, &moves(1), "transactions[0]").unwrap_err();
        let expected = ["tx_hash", "nonce", "effect.from_address"];
        assert_eq!(fields(wrong), expected.map(|name| format!("transactions[0].{name}")));
    }
}
