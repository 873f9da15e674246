//! `ProgressService`: what the other services report.

use std::collections::BTreeSet;

use proto::intent::v1 as pb;
use proto::intent::v1::progress_service_server::ProgressService;
use proto::intent::v1::record_progress_request::Progress;
use rpc::caller;
use rpc::fields::{self, Fields};
use tonic::{Request, Response, Status};
use types::{Address, AddressFormat, WithdrawalId};

use super::convert::to_micros;
use crate::catalogue::{Catalogue, CatalogueEntry};
use crate::withdrawal::Withdrawals;
use crate::withdrawal::app::MAX_REPORTED_REASON_CHARS;
use crate::withdrawal::domain::Event;

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
    let mut fields = Fields::new();
    let id = fields.parse("withdrawal_id", &request.withdrawal_id);
    let at = request.at.as_ref();
    let event = fields.required("progress", request.progress).and_then(|progress| match progress {
        Progress::Queued(queued) => {
            fields.parse("queued.job_id", &queued.job_id).map(|job| Event::Queue { job })
        }
        Progress::Blocked(blocked) => {
            let at = to_micros(fields.timestamp("at", at)?);
            Some(Event::Block { reason: reason(&blocked.reason), at })
        }
        Progress::Unblocked(pb::Unblocked {}) => {
            Some(Event::Unblock { at: to_micros(fields.timestamp("at", at)?) })
        }
        Progress::Completed(completed) => {
            let block = completed.block_number;
            fields.check("completed.block_number", i64::try_from(block).is_ok(), "is not a block number");
            let tx_hash = fields.parse("completed.tx_hash", &completed.tx_hash)?;
            Some(Event::Complete { tx_hash, block })
        }
        Progress::Failed(failed) => Some(Event::Fail { reason: reason(&failed.reason) }),
    });
    fields.finish(id.zip(event))
}

/// A reason is cut and never refused, because progress must be recorded whatever text comes with it. PostgreSQL's text cannot
/// contain a zero byte.
fn reason(text: &str) -> String {
    let text: String = text.chars().filter(|c| *c != '\0').take(MAX_REPORTED_REASON_CHARS).collect();
    if text.trim().is_empty() { "no reason was given".to_owned() } else { text }
}

fn entry(entry: Option<pb::CatalogueEntry>) -> Result<(CatalogueEntry, BTreeSet<Address>), Status> {
    let entry = fields::required("entry", entry)?;
    let mut fields = Fields::new();
    let read = fields.nested("entry", |fields| {
        let chain = fields.parse("chain", &entry.chain);
        let asset = fields.parse("asset", &entry.asset);
        let format: Option<AddressFormat> = fields.parse("address_format", &entry.address_format);
        let decimals = fields.number("decimals", entry.decimals);
        let minimum = fields.parse("min_withdrawal_raw", &entry.min_withdrawal_raw);
        let revision = fields.number("revision", entry.revision);
        let mut address = |field: &str, text: &str| {
            format.and_then(|format| fields.take(field, Address::parse(format, text)))
        };
        let contract = match entry.contract_address.as_str() {
            "" => None,
            text => address("contract_address", text),
        };
        let own_addresses: BTreeSet<Address> =
            entry.own_addresses.iter().filter_map(|text| address("own_addresses", text)).collect();
        let entry = CatalogueEntry {
            chain: chain?,
            asset: asset?,
            format: format?,
            decimals: decimals?,
            contract,
            enabled: entry.enabled,
            minimum: minimum?,
            revision: revision?,
        };
        Some((entry, own_addresses))
    });
    fields.finish(read)
}
