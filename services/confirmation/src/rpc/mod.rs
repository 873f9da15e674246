//! protobuf <-> app, nothing else.

mod parse;

use payment::{Effect, WatchedTransaction};
use proto::confirmation::v1 as pb;
use proto::confirmation::v1::confirmation_service_server::ConfirmationService;
use proto::payment::{write_effect, write_watched};
use proto::time::timestamp;
use rpc::fields;
use rpc::page::{self, Filter};
use tonic::{Request, Response, Status};
use types::{AddressFormat, ChainName, JobId};

use crate::chains::ChainApp;
use crate::heads::{ChainStatus, NodeStatus, Tips};
use crate::verdict::StoredObservation;
use crate::watch::{Ending, State, StoredWatch, WatchApp, WatchQuery, WatchedTx};

#[derive(Debug)]
pub struct ConfirmationRpc {
    watches: WatchApp,
    chains: ChainApp,
    public_key: [u8; 32],
}

impl ConfirmationRpc {
    pub fn new(watches: WatchApp, chains: ChainApp, public_key: [u8; 32]) -> Self {
        Self { watches, chains, public_key }
    }
}

#[tonic::async_trait]
impl ConfirmationService for ConfirmationRpc {
    async fn put_watch(
        &self,
        request: Request<pb::PutWatchRequest>,
    ) -> Result<Response<pb::PutWatchResponse>, Status> {
        let request = request.into_inner();
        let chain = fields::parse("chain", &request.chain)?;
        let settings = self.watches.settings(&chain).await?;
        let stored = self.watches.put(parse::put_watch(&request, &settings)?).await?;
        // A transaction that is in no block has no confirmations to count.
        let tips = match stored.watch.state {
            State::Waiting => Tips::default(),
            State::Included { .. } | State::Ended(_) => self.watches.tips().await?,
        };
        let watch = Some(watch(&stored, &tips));
        Ok(Response::new(pb::PutWatchResponse { watch }))
    }

    async fn put_chain(
        &self,
        request: Request<pb::PutChainRequest>,
    ) -> Result<Response<pb::PutChainResponse>, Status> {
        let settings = parse::settings(request.into_inner())?;
        self.chains.put(&settings).await?;
        Ok(Response::new(pb::PutChainResponse {}))
    }

    async fn get_watch(
        &self,
        request: Request<pb::GetWatchRequest>,
    ) -> Result<Response<pb::GetWatchResponse>, Status> {
        let job = fields::parse("job_id", &request.into_inner().job_id)?;
        let stored = self.watches.get(job).await?;
        let observations = self.watches.observations(job).await?;
        let format = stored.watch.effect.sender().format();
        let observations = observations.into_iter().map(|seen| observation(seen, format)).collect();
        let watch = Some(watch(&stored, &self.watches.tips().await?));
        Ok(Response::new(pb::GetWatchResponse { watch, observations }))
    }

    async fn list_watches(
        &self,
        request: Request<pb::ListWatchesRequest>,
    ) -> Result<Response<pb::ListWatchesResponse>, Status> {
        let request = request.into_inner();
        let (query, filter) = query(&request)?;
        let page = self.watches.list(&query).await?;
        let tips = self.watches.tips().await?;
        let last = page.watches.last().filter(|_| page.has_more);
        let next_page_token = last.map_or_else(String::new, |stored| {
            page::encode(filter, &[&stored.created_at.to_rfc3339(), &stored.watch.job.to_string()])
        });
        let watches = page.watches.iter().map(|stored| watch(stored, &tips)).collect();
        Ok(Response::new(pb::ListWatchesResponse { watches, next_page_token }))
    }

    async fn list_heads(
        &self,
        _request: Request<pb::ListHeadsRequest>,
    ) -> Result<Response<pb::ListHeadsResponse>, Status> {
        let heads = self.chains.statuses().await?.into_iter().map(head).collect();
        Ok(Response::new(pb::ListHeadsResponse { heads }))
    }

    async fn resume_chain(
        &self,
        request: Request<pb::ResumeChainRequest>,
    ) -> Result<Response<pb::ResumeChainResponse>, Status> {
        let by = rpc::caller(&request)?.name.clone();
        let chain = fields::parse("chain", &request.into_inner().chain)?;
        self.chains.resume(&chain, &by).await?;
        Ok(Response::new(pb::ResumeChainResponse {}))
    }

    async fn get_attestation_key(
        &self,
        _request: Request<pb::GetAttestationKeyRequest>,
    ) -> Result<Response<pb::GetAttestationKeyResponse>, Status> {
        Ok(Response::new(pb::GetAttestationKeyResponse { public_key: self.public_key.to_vec() }))
    }
}

fn query(request: &pb::ListWatchesRequest) -> Result<(WatchQuery, Filter), Status> {
    let chain: Option<ChainName> = match request.chain.as_str() {
        "" => None,
        text => Some(fields::parse("chain", text)?),
    };
    let statuses = parse::statuses(&request.statuses)?;
    let size = page::size(request.page_size)?;
    let names: Vec<&str> = statuses.iter().map(Into::into).collect();
    let filter = Filter::of("watches", &[("chain", &request.chain), ("statuses", &names.join(","))]);
    let malformed = || rpc::error::invalid("page_token", "is not a token from an earlier page of this list");
    let after = match page::decode::<2>(filter, &request.page_token)? {
        None => None,
        Some([at, job]) => {
            let at = chrono::DateTime::parse_from_rfc3339(&at).map_err(|_| malformed())?;
            Some((at.to_utc(), job.parse::<JobId>().map_err(|_| malformed())?))
        }
    };
    Ok((WatchQuery { chain, statuses, after, size }, filter))
}

fn watch(stored: &StoredWatch, tips: &Tips) -> pb::Watch {
    let watch = &stored.watch;
    let (status, tx, block) = match watch.state {
        State::Waiting => (pb::WatchStatus::Waiting, None, None),
        State::Included { tx, block } => (pb::WatchStatus::Included, Some(tx), Some(block)),
        State::Ended(ending) => match ending {
            Ending::Settled { tx, block } => (pb::WatchStatus::Settled, Some(tx), Some(block)),
            Ending::Reverted { tx, block, .. } => (pb::WatchStatus::Reverted, Some(tx), Some(block)),
            Ending::Void { block, .. } => (pb::WatchStatus::Void, None, Some(block)),
            Ending::Cancelled { tx, block } => (pb::WatchStatus::Cancelled, Some(tx), Some(block)),
        },
    };
    let confirmations = match (tips.get(&watch.chain), block) {
        (Some(tip), Some(block)) if *tip >= block.number => tip - block.number + 1,
        _ => 0,
    };
    let format = watch.effect.sender().format();
    pb::Watch {
        job_id: watch.job.to_string(),
        withdrawal_id: watch.withdrawal.map_or_else(String::new, |id| id.to_string()),
        chain: watch.chain.to_string(),
        effect: Some(write_effect(&watch.effect)),
        transactions: watch.transactions.iter().map(|tx| transaction(tx, &watch.effect)).collect(),
        status: status.into(),
        tx_hash: tx.map_or_else(String::new, |hash| hash.in_format(format)),
        block_number: block.map_or(0, |block| block.number),
        block_hash: block.map_or_else(String::new, |block| block.hash.in_format(format)),
        confirmations,
        created_at: Some(timestamp(stored.created_at)),
        finished_at: stored.finished_at.map(timestamp),
        delayed_reason: match (watch.contradicted, stored.delayed_reason.as_str()) {
            (true, _) => "contradicted by a later reorganisation: a person must look".to_owned(),
            (false, reason) => reason.to_owned(),
        },
    }
}

fn observation(seen: StoredObservation, format: AddressFormat) -> pb::Observation {
    pb::Observation {
        kind: seen.kind,
        tx_hash: seen.tx.map_or_else(String::new, |hash| hash.in_format(format)),
        block_number: seen.block.map_or(0, |block| block.number),
        block_hash: seen.block.map_or_else(String::new, |block| block.hash.in_format(format)),
        detail: seen.detail,
        at: Some(timestamp(seen.at)),
    }
}

fn transaction(tx: &WatchedTx, of_watch: &Effect) -> pb::WatchedTransaction {
    let watched = WatchedTransaction {
        hash: tx.hash,
        effect: tx.effect,
        nonce: tx.nonce(),
        expires_at: tx.expires_at(),
        reference_block: tx.reference_block,
        raw: Vec::new(),
    };
    let tx_hash = tx.hash.in_format(of_watch.sender().format());
    pb::WatchedTransaction { tx_hash, ..write_watched(&watched, of_watch) }
}

fn head(status: ChainStatus) -> pb::ChainHead {
    let (number, hash) = status.tip.map_or((0, String::new()), |(number, hash)| (number, hash.to_string()));
    pb::ChainHead {
        chain: status.chain.to_string(),
        number,
        hash,
        final_number: status.final_number.unwrap_or(0),
        nodes: status.nodes.into_iter().map(node).collect(),
        halted_reason: status.halted_reason.unwrap_or_default(),
    }
}

fn node(status: NodeStatus) -> pb::NodeHead {
    pb::NodeHead {
        node: status.node,
        number: status.number,
        hash: status.hash.map_or_else(String::new, |hash| hash.to_string()),
        problem: status.problem,
    }
}
