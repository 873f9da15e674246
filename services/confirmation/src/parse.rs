//! Requests to domain values: the only place where texts of callers are read. All mistakes of a request are told at once.

use std::time::Duration;

use chain::{Bound, Commitment};
use payment::{AssetRef, Transfer};
use proto::confirmation::v1 as wire;
use rpc::error as refuse;
use tonic::Status;
use types::{Address, AddressFormat, ChainName, JobId, RawAmount, TxHash, WithdrawalId};

use crate::chains::Settings;
use crate::watch::NewTx;
use crate::watch::app::PutWatch;

/// More transactions than one job ever gets.
const MAX_TRANSACTIONS: usize = 256;
const MAX_NODES: usize = 16;

/// Mistakes of one request.
#[derive(Default)]
struct Mistakes(Vec<(String, String)>);

impl Mistakes {
    fn note(&mut self, field: impl Into<String>, text: impl std::fmt::Display) {
        self.0.push((field.into(), text.to_string()));
    }

    fn take<T, E: std::fmt::Display>(&mut self, field: impl Into<String>, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.note(field, error)).ok()
    }

    fn finish<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(refuse::invalid_all(self.0)),
        }
    }
}

pub(crate) fn job(text: &str) -> Result<JobId, Status> {
    text.parse().map_err(|error: types::IdError| refuse::invalid("job_id", error.to_string()))
}

pub(crate) fn chain(field: &str, text: &str) -> Result<ChainName, Status> {
    text.parse().map_err(|error: types::NameError| refuse::invalid(field, error.to_string()))
}

pub(crate) fn put_watch(request: &wire::PutWatchRequest, settings: &Settings) -> Result<PutWatch, Status> {
    let mut wrong = Mistakes::default();
    let job = wrong.take("job_id", request.job_id.parse::<JobId>());
    let withdrawal = match request.withdrawal_id.as_str() {
        "" => Some(None),
        text => wrong.take("withdrawal_id", text.parse::<WithdrawalId>()).map(Some),
    };
    let effect = match &request.effect {
        Some(effect) => read_effect(effect, settings.kind, &mut wrong),
        None => {
            wrong.note("effect", "is missing");
            None
        }
    };
    let count = request.transactions.len();
    if count == 0 || count > MAX_TRANSACTIONS {
        wrong.note("transactions", format!("must be 1 to {MAX_TRANSACTIONS}, not {count}"));
    }
    let from = effect.as_ref().map(|effect| &effect.from);
    let transactions = request
        .transactions
        .iter()
        .take(MAX_TRANSACTIONS)
        .enumerate()
        .map(|(index, tx)| read_transaction(index, tx, (settings, from), &mut wrong))
        .collect::<Vec<_>>();
    let built = (|| {
        let transactions = transactions.into_iter().collect::<Option<Vec<_>>>()?;
        Some(PutWatch {
            job: job?,
            withdrawal: withdrawal?,
            chain: settings.name.clone(),
            effect: effect?,
            transactions,
        })
    })();
    wrong.finish(built)
}

fn read_effect(
    effect: &wire::ExpectedEffect,
    format: AddressFormat,
    wrong: &mut Mistakes,
) -> Option<Transfer> {
    let mut address =
        |field: &str, text: &str| wrong.take(format!("effect.{field}"), Address::parse(format, text));
    let from = address("from_address", &effect.from_address);
    let to = address("to_address", &effect.to_address);
    let asset = match effect.contract_address.as_str() {
        "" => Some(AssetRef::Native),
        text => address("contract_address", text).map(AssetRef::Token),
    };
    let amount = wrong.take("effect.amount_raw", effect.amount_raw.parse::<RawAmount>());
    Some(Transfer { asset: asset?, from: from?, to: to?, amount: amount? })
}

fn read_transaction(
    index: usize,
    tx: &wire::WatchedTransaction,
    (settings, from): (&Settings, Option<&Address>),
    wrong: &mut Mistakes,
) -> Option<NewTx> {
    let field = |name: &str| format!("transactions[{index}].{name}");
    let hash = wrong.take(field("tx_hash"), tx.tx_hash.parse::<TxHash>());
    let expires_at = match &tx.expires_at {
        None => Some(None),
        Some(at) => wrong.take(field("expires_at"), proto::time::datetime(at)).map(Some),
    };
    for (name, value) in [("nonce", tx.nonce.unwrap_or(0)), ("reference_block", tx.reference_block)] {
        wrong.take(field(name), i64::try_from(value));
    }
    let new = NewTx {
        hash: hash?,
        is_cancellation: tx.is_cancellation,
        nonce: tx.nonce,
        expires_at: expires_at?,
        reference_block: tx.reference_block,
        proven: !tx.raw_transaction.is_empty(),
    };
    if new.proven {
        let read = chain::commitment(settings.kind, &tx.raw_transaction);
        let read = wrong.take(field("raw_transaction"), read)?;
        if let Some(name) = first_difference(&new, &read, settings.network_id, from) {
            wrong.note(field(name), "differs from what the signed bytes say");
        }
    }
    Some(new)
}

/// The field of a transaction that its own bytes contradict.
fn first_difference(
    new: &NewTx,
    read: &Commitment,
    network_id: u64,
    from: Option<&Address>,
) -> Option<&'static str> {
    if new.hash != read.hash {
        return Some("tx_hash");
    }
    if from.is_some_and(|from| *from != read.sender) {
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

pub(crate) fn settings(request: wire::PutChainRequest) -> Result<Settings, Status> {
    let Some(chain) = request.chain else { return Err(refuse::invalid("chain", "is missing")) };
    let mut wrong = Mistakes::default();
    let name = wrong.take("chain.name", chain.name.parse::<ChainName>());
    let kind = wrong.take("chain.kind", chain.kind.parse::<AddressFormat>());
    if chain.network_id == 0 {
        wrong.note("chain.network_id", "must be above zero");
    }
    for (field, value) in [("network_id", chain.network_id), ("revision", chain.revision)] {
        wrong.take(format!("chain.{field}"), i64::try_from(value));
    }
    for (field, value) in [("depth", chain.depth), ("stuck_after_seconds", chain.stuck_after_seconds)] {
        wrong.take(format!("chain.{field}"), i32::try_from(value));
    }
    if chain.nodes.is_empty() || chain.nodes.len() > MAX_NODES {
        wrong.note("chain.nodes", format!("must be 1 to {MAX_NODES}"));
    }
    for (index, node) in chain.nodes.iter().enumerate() {
        // Said without the address: it may carry a key.
        if !(node.starts_with("http://") || node.starts_with("https://")) {
            wrong.note(format!("chain.nodes[{index}]"), "is not an http or https address");
        }
    }
    let stuck_after =
        (chain.stuck_after_seconds > 0).then(|| Duration::from_secs(chain.stuck_after_seconds.into()));
    let built = (|| {
        Some(Settings {
            name: name?,
            kind: kind?,
            network_id: chain.network_id,
            nodes: chain.nodes,
            depth: chain.depth,
            stuck_after,
            revision: chain.revision,
        })
    })();
    wrong.finish(built)
}

/// The statuses named in a filter; empty for all.
pub(crate) fn statuses(wanted: &[i32]) -> Result<Vec<&'static str>, Status> {
    let mut names = Vec::new();
    for (index, value) in wanted.iter().enumerate() {
        let name = match wire::WatchStatus::try_from(*value) {
            Ok(wire::WatchStatus::Unspecified) => continue,
            Ok(wire::WatchStatus::Waiting) => "waiting",
            Ok(wire::WatchStatus::Included) => "included",
            Ok(wire::WatchStatus::Settled) => "settled",
            Ok(wire::WatchStatus::Reverted) => "reverted",
            Ok(wire::WatchStatus::Void) => "void",
            Ok(wire::WatchStatus::Cancelled) => "cancelled",
            Err(_) => {
                return Err(refuse::invalid(
                    format!("statuses[{index}]"),
                    format!("{value} is not a status"),
                ));
            }
        };
        names.push(name);
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
