//! `ProgressService`: what the other services tell.

use std::collections::BTreeSet;

use proto::intent::v1 as pb;
use proto::intent::v1::progress_service_server::ProgressService;
use proto::intent::v1::record_progress_request::Progress;
use rpc::caller;
use tonic::{Request, Response, Status};
use types::{Address, AddressFormat, Decimals, WithdrawalId};

use super::convert::Reading;
use crate::catalogue::{Catalogue, CatalogueEntry};
use crate::withdrawal::Withdrawals;
use crate::withdrawal::app::MAX_REPORTED_REASON_CHARS;
use crate::withdrawal::domain::Event;

/// The handlers.
#[derive(Debug, Clone)]
pub struct ProgressRpc {
    withdrawals: Withdrawals,
    catalogue: Catalogue,
}

impl ProgressRpc {
    pub fn new(withdrawals: Withdrawals, catalogue: Catalogue) -> Self {
        Self { withdrawals, catalogue }
    }
}

#[tonic::async_trait]
impl ProgressService for ProgressRpc {
    async fn record_progress(
        &self,
        request: Request<pb::RecordProgressRequest>,
    ) -> Result<Response<pb::RecordProgressResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let (id, event) = progress(request.into_inner())?;
        self.withdrawals.record_progress(id, event, &by).await?;
        Ok(Response::new(pb::RecordProgressResponse {}))
    }

    async fn put_catalogue_entry(
        &self,
        request: Request<pb::PutCatalogueEntryRequest>,
    ) -> Result<Response<pb::PutCatalogueEntryResponse>, Status> {
        let (entry, own_addresses) = entry(request.into_inner().entry)?;
        self.catalogue.put(&entry, &own_addresses).await?;
        Ok(Response::new(pb::PutCatalogueEntryResponse {}))
    }
}

fn progress(request: pb::RecordProgressRequest) -> Result<(WithdrawalId, Event), Status> {
    let mut reading = Reading::default();
    let id = reading.read("withdrawal_id", &request.withdrawal_id);
    let at = request.at.as_ref();
    let event = match request.progress {
        None => {
            reading.wrong("progress", "is missing");
            None
        }
        Some(Progress::Queued(queued)) => {
            reading.read("queued.job_id", &queued.job_id).map(|job| Event::Queue { job })
        }
        Some(Progress::Blocked(blocked)) => {
            reading.time("at", at).map(|at| Event::Block { reason: reason(&blocked.reason), at })
        }
        Some(Progress::Unblocked(pb::Unblocked {})) => reading.time("at", at).map(|at| Event::Unblock { at }),
        Some(Progress::Completed(completed)) => {
            let block = completed.block_number;
            if i64::try_from(block).is_err() {
                reading.wrong("completed.block_number", "is not a block number");
            }
            reading
                .read("completed.tx_hash", &completed.tx_hash)
                .map(|tx_hash| Event::Complete { tx_hash, block })
        }
        Some(Progress::Failed(failed)) => Some(Event::Fail { reason: reason(&failed.reason) }),
    };
    reading.finish(id.zip(event))
}

/// Cut, never refused: what happened must be recorded whatever the words for it are. PostgreSQL's text has no zero byte.
fn reason(text: &str) -> String {
    let text: String =
        text.chars().filter(|symbol| *symbol != '\0').take(MAX_REPORTED_REASON_CHARS).collect();
    if text.trim().is_empty() { "no reason was given".to_owned() } else { text }
}

fn entry(entry: Option<pb::CatalogueEntry>) -> Result<(CatalogueEntry, BTreeSet<Address>), Status> {
    let entry = entry.ok_or_else(|| rpc::error::invalid("entry", "is missing"))?;
    let mut reading = Reading::default();
    let chain = reading.read("entry.chain", &entry.chain);
    let asset = reading.read("entry.asset", &entry.asset);
    let format: Option<AddressFormat> = reading.read("entry.address_format", &entry.address_format);
    let decimals =
        Decimals::try_from(entry.decimals).map_err(|error| reading.wrong("entry.decimals", error)).ok();
    let minimum = reading.read("entry.min_withdrawal_raw", &entry.min_withdrawal_raw);
    let revision = i64::try_from(entry.revision).map_err(|error| reading.wrong("entry.revision", error)).ok();
    let mut address = |field: &str, text: &str| {
        let parsed = format.map(|format| Address::parse(format, text))?;
        parsed.map_err(|error| reading.wrong(field, error)).ok()
    };
    let contract = match entry.contract_address.as_str() {
        "" => None,
        text => address("entry.contract_address", text),
    };
    let own_addresses: BTreeSet<Address> =
        entry.own_addresses.iter().filter_map(|text| address("entry.own_addresses", text)).collect();
    let build = || {
        Some(CatalogueEntry {
            chain: chain?,
            asset: asset?,
            format: format?,
            decimals: decimals?,
            contract,
            enabled: entry.enabled,
            minimum: minimum?,
            revision: revision?,
        })
    };
    let built = build();
    reading.finish(built.map(|entry| (entry, own_addresses)))
}
