//! Requests to domain values: the only place where texts of callers are read. All mistakes of a request are reported at once.

use std::time::Duration;

use chain::{Bound, Commitment};
use payment::{Closing, Effect, WatchedTransaction};
use proto::confirmation::v1 as pb;
use proto::payment::{FieldError, read_effect, read_watched};
use rpc::fields::{self, Fields};
use tonic::Status;
use types::{Address, ChainName, TxHash};

use crate::chains::Settings;
use crate::watch::{NewTransaction, PutWatch, Status as WatchStatus};

/// More transactions than one job ever gets.
const MAX_TRANSACTIONS: usize = 256;
const MAX_NODES: usize = 16;

pub(super) fn put_watch(request: &pb::PutWatchRequest, settings: &Settings) -> Result<PutWatch, Status> {
    let mut fields = Fields::new();
    let job = fields.parse("job_id", &request.job_id);
    let withdrawal = fields.parse_optional("withdrawal_id", &request.withdrawal_id);
    let effect = fields.required("effect", request.effect.as_ref());
    let effect = effect.and_then(|effect| take(&mut fields, read_effect(effect, settings.kind, "effect")));
    fields.count("transactions", request.transactions.len(), 1..=MAX_TRANSACTIONS);
    // Each is read, also after a mistake, so that all mistakes are reported.
    let transactions: Vec<Option<NewTransaction>> = request
        .transactions
        .iter()
        .take(MAX_TRANSACTIONS)
        .enumerate()
        .map(|(index, tx)| {
            transaction(&mut fields, &format!("transactions[{index}]"), tx, (settings, effect))
        })
        .collect();
    let built = (|| {
        Some(PutWatch {
            job: job?,
            withdrawal,
            chain: settings.name.clone(),
            effect: effect?,
            transactions: transactions.into_iter().collect::<Option<Vec<_>>>()?,
        })
    })();
    fields.finish(built)
}

fn take<T>(fields: &mut Fields, read: Result<T, Vec<FieldError>>) -> Option<T> {
    read.map_err(|mistakes| mistakes.iter().for_each(|it| fields.wrong(&it.field, &it.problem))).ok()
}

fn transaction(
    fields: &mut Fields,
    field: &str,
    tx: &pb::WatchedTransaction,
    (settings, of_watch): (&Settings, Option<Effect>),
) -> Option<NewTransaction> {
    let Some(of_watch) = of_watch else {
        fields.parse::<TxHash>(format_args!("{field}.tx_hash"), &tx.tx_hash);
        return None;
    };
    let watched = take(fields, read_watched(tx, &of_watch, field))?;
    let proven = !watched.raw.is_empty();
    if proven {
        let read = chain::commitment(settings.kind, &watched.raw);
        let read = fields.take(format_args!("{field}.raw_transaction"), read)?;
        if let Some(name) = first_difference(&watched, &read, settings.network_id, of_watch.sender()) {
            fields.wrong(format_args!("{field}.{name}"), "differs from what the signed bytes say");
        }
    }
    Some(NewTransaction {
        hash: watched.hash,
        effect: watched.effect,
        closing: closing(&watched, of_watch.sender()),
        reference_block: watched.reference_block,
        proven,
    })
}

fn closing(watched: &WatchedTransaction, sender: Address) -> Option<Closing> {
    match (watched.nonce, watched.expires_at) {
        (Some(nonce), _) => Some(Closing::Nonce { sender, nonce }),
        (None, at) => {
            let expiration_ms = u64::try_from(at?.timestamp_millis()).ok()?;
            Some(Closing::Window { expiration_ms })
        }
    }
}

/// The field of a transaction that its own bytes contradict.
fn first_difference(
    new: &WatchedTransaction,
    read: &Commitment,
    network_id: u64,
    sender: Address,
) -> Option<&'static str> {
    if new.hash != read.hash {
        return Some("tx_hash");
    }
    if sender != read.sender {
        return Some("raw_transaction (sender)");
    }
    match read.bound {
        Bound::Nonce { network_id: theirs, .. } if theirs != network_id => Some("raw_transaction (network)"),
        Bound::Nonce { nonce, .. } if new.nonce != Some(nonce) => Some("nonce"),
        Bound::Nonce { .. } => new.expires_at.map(|_| "expires_at"),
        Bound::Window { .. } if new.nonce.is_some() => Some("nonce"),
        Bound::Window { expiration_ms, .. }
            if new.expires_at.map(|at| at.timestamp_millis()) != i64::try_from(expiration_ms).ok() =>
        {
            Some("expires_at")
        }
        // The bytes have only the end of the block's number.
        Bound::Window { reference, .. } => {
            (new.reference_block & 0xffff != u64::from(reference)).then_some("reference_block")
        }
    }
}

pub(super) fn settings(request: pb::PutChainRequest) -> Result<Settings, Status> {
    let chain = fields::required("chain", request.chain)?;
    let mut fields = Fields::new();
    let built = fields.nested("chain", |fields| {
        let name = fields.parse::<ChainName>("name", &chain.name);
        let kind = fields.parse("kind", &chain.kind);
        fields.check("network_id", chain.network_id > 0, "must be above zero");
        for (field, value) in [("network_id", chain.network_id), ("revision", chain.revision)] {
            fields.number::<_, i64>(field, value);
        }
        for (field, value) in [("depth", chain.depth), ("stuck_after_seconds", chain.stuck_after_seconds)] {
            fields.number::<_, i32>(field, value);
        }
        fields.count("nodes", chain.nodes.len(), 1..=MAX_NODES);
        for (index, node) in chain.nodes.iter().enumerate() {
            // The message does not show the address, because it may contain a key.
            let is_http = node.starts_with("http://") || node.starts_with("https://");
            fields.check(format_args!("nodes[{index}]"), is_http, "is not an http or https address");
        }
        let stuck_after = Duration::from_secs(chain.stuck_after_seconds.into());
        Some(Settings {
            name: name?,
            kind: kind?,
            network_id: chain.network_id,
            nodes: chain.nodes,
            depth: chain.depth,
            stuck_after: (!stuck_after.is_zero()).then_some(stuck_after),
            revision: chain.revision,
        })
    });
    fields.finish(built)
}

/// The statuses named in a filter; empty for all.
pub(super) fn statuses(wanted: &[i32]) -> Result<Vec<WatchStatus>, Status> {
    let mut statuses = Vec::new();
    for (index, value) in wanted.iter().enumerate() {
        let status = match pb::WatchStatus::try_from(*value) {
            Ok(pb::WatchStatus::Unspecified) => continue,
            Ok(pb::WatchStatus::Waiting) => WatchStatus::Waiting,
            Ok(pb::WatchStatus::Included) => WatchStatus::Included,
            Ok(pb::WatchStatus::Settled) => WatchStatus::Settled,
            Ok(pb::WatchStatus::Reverted) => WatchStatus::Reverted,
            Ok(pb::WatchStatus::Void) => WatchStatus::Void,
            Ok(pb::WatchStatus::Cancelled) => WatchStatus::Cancelled,
            Err(_) => {
                let problem = format!("{value} is not a status");
                return Err(rpc::error::invalid(format!("statuses[{index}]"), problem));
            }
        };
        statuses.push(status);
    }
    statuses.sort_unstable_by_key(|status| <&str>::from(*status));
    statuses.dedup();
    Ok(statuses)
}
