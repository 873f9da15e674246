//! protobuf <-> app, nothing else.

use proto::confirmation::v1 as wire;
use proto::confirmation::v1::confirmation_service_server::ConfirmationService;
use proto::time::timestamp;
use rpc::page::{self, Filter};
use tonic::{Request, Response, Status};
use types::{AddressFormat, ChainName, JobId};

use crate::chains::ChainApp;
use crate::heads::{ChainStanding, NodeStanding};
use crate::parse;
use crate::watch::domain::{Ending, State};
use crate::watch::list::{Observed, Query, Tips};
use crate::watch::row::Stored;
use crate::watch::{WatchApp, WatchedTx};

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
        request: Request<wire::PutWatchRequest>,
    ) -> Result<Response<wire::PutWatchResponse>, Status> {
        let request = request.into_inner();
        let chain = parse::chain("chain", &request.chain)?;
        let settings = self.watches.settings(&chain).await?;
        let stored = self.watches.put(parse::put_watch(&request, &settings)?).await?;
        // What is in no block has no confirmations to count.
        let tips = match stored.watch.state {
            State::Waiting => Tips::default(),
            State::Included { .. } | State::Ended(_) => self.watches.tips().await?,
        };
        let watch = Some(watch(&stored, &tips));
        Ok(Response::new(wire::PutWatchResponse { watch }))
    }

    async fn put_chain(
        &self,
        request: Request<wire::PutChainRequest>,
    ) -> Result<Response<wire::PutChainResponse>, Status> {
        let settings = parse::settings(request.into_inner())?;
        self.chains.put(&settings).await?;
        Ok(Response::new(wire::PutChainResponse {}))
    }

    async fn get_watch(
        &self,
        request: Request<wire::GetWatchRequest>,
    ) -> Result<Response<wire::GetWatchResponse>, Status> {
        let job = parse::job(&request.into_inner().job_id)?;
        let stored = self.watches.get(job).await?;
        let observations = self.watches.observations(job).await?;
        let format = stored.watch.effect.to.format();
        let observations = observations.into_iter().map(|seen| observation(seen, format)).collect();
        let watch = Some(watch(&stored, &self.watches.tips().await?));
        Ok(Response::new(wire::GetWatchResponse { watch, observations }))
    }

    async fn list_watches(
        &self,
        request: Request<wire::ListWatchesRequest>,
    ) -> Result<Response<wire::ListWatchesResponse>, Status> {
        let request = request.into_inner();
        let (query, filter) = query(&request)?;
        let page = self.watches.list(&query).await?;
        let tips = self.watches.tips().await?;
        let last = page.watches.last().filter(|_| page.more);
        let next_page_token = last.map_or_else(String::new, |stored| {
            page::encode(filter, &[&stored.created_at.to_rfc3339(), &stored.watch.job.to_string()])
        });
        let watches = page.watches.iter().map(|stored| watch(stored, &tips)).collect();
        Ok(Response::new(wire::ListWatchesResponse { watches, next_page_token }))
    }

    async fn list_heads(
        &self,
        _request: Request<wire::ListHeadsRequest>,
    ) -> Result<Response<wire::ListHeadsResponse>, Status> {
        let heads = self.chains.standings().await?.into_iter().map(head).collect();
        Ok(Response::new(wire::ListHeadsResponse { heads }))
    }

    async fn resume_chain(
        &self,
        request: Request<wire::ResumeChainRequest>,
    ) -> Result<Response<wire::ResumeChainResponse>, Status> {
        let by = rpc::caller(&request)?.name.clone();
        let chain = parse::chain("chain", &request.into_inner().chain)?;
        self.chains.resume(&chain, &by).await?;
        Ok(Response::new(wire::ResumeChainResponse {}))
    }

    async fn get_attestation_key(
        &self,
        _request: Request<wire::GetAttestationKeyRequest>,
    ) -> Result<Response<wire::GetAttestationKeyResponse>, Status> {
        Ok(Response::new(wire::GetAttestationKeyResponse { public_key: self.public_key.to_vec() }))
    }
}

fn query(request: &wire::ListWatchesRequest) -> Result<(Query, Filter), Status> {
    let chain: Option<ChainName> = match request.chain.as_str() {
        "" => None,
        text => Some(parse::chain("chain", text)?),
    };
    let statuses = parse::statuses(&request.statuses)?;
    let size = page::size(request.page_size)?;
    let filter = Filter::of("watches", &[("chain", &request.chain), ("statuses", &statuses.join(","))]);
    let malformed = || rpc::error::invalid("page_token", "is not a token from an earlier page of this list");
    let after = match page::decode::<2>(filter, &request.page_token)? {
        None => None,
        Some([at, job]) => {
            let at = chrono::DateTime::parse_from_rfc3339(&at).map_err(|_| malformed())?;
            Some((at.to_utc(), job.parse::<JobId>().map_err(|_| malformed())?))
        }
    };
    Ok((Query { chain, statuses, after, size }, filter))
}

fn watch(stored: &Stored, tips: &Tips) -> wire::Watch {
    let watch = &stored.watch;
    let (status, tx, block) = match watch.state {
        State::Waiting => (wire::WatchStatus::Waiting, None, None),
        State::Included { tx, block } => (wire::WatchStatus::Included, Some(tx), Some(block)),
        State::Ended(ending) => match ending {
            Ending::Settled { tx, block } => (wire::WatchStatus::Settled, Some(tx), Some(block)),
            Ending::Reverted { tx, block, .. } => (wire::WatchStatus::Reverted, Some(tx), Some(block)),
            Ending::Void { block, .. } => (wire::WatchStatus::Void, None, Some(block)),
            Ending::Cancelled { tx, block } => (wire::WatchStatus::Cancelled, Some(tx), Some(block)),
        },
    };
    let confirmations = match (tips.get(&watch.chain), block) {
        (Some(tip), Some(block)) if *tip >= block.number => tip - block.number + 1,
        _ => 0,
    };
    let contract_address = match watch.effect.asset {
        payment::AssetRef::Native => String::new(),
        payment::AssetRef::Token(contract) => contract.to_string(),
    };
    let format = watch.effect.to.format();
    wire::Watch {
        job_id: watch.job.to_string(),
        withdrawal_id: watch.withdrawal.map_or_else(String::new, |id| id.to_string()),
        chain: watch.chain.to_string(),
        effect: Some(wire::ExpectedEffect {
            from_address: watch.effect.from.to_string(),
            to_address: watch.effect.to.to_string(),
            amount_raw: watch.effect.amount.to_string(),
            contract_address,
            ..wire::ExpectedEffect::default()
        }),
        transactions: watch.transactions.iter().map(|tx| transaction(tx, format)).collect(),
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

fn observation(seen: Observed, format: AddressFormat) -> wire::Observation {
    wire::Observation {
        kind: seen.kind,
        tx_hash: seen.tx.map_or_else(String::new, |hash| hash.in_format(format)),
        block_number: seen.block.map_or(0, |block| block.number),
        block_hash: seen.block.map_or_else(String::new, |block| block.hash.in_format(format)),
        detail: seen.detail,
        at: Some(timestamp(seen.at)),
    }
}

fn transaction(tx: &WatchedTx, format: AddressFormat) -> wire::WatchedTransaction {
    wire::WatchedTransaction {
        tx_hash: tx.hash.in_format(format),
        is_cancellation: tx.is_cancellation,
        nonce: tx.nonce,
        expires_at: tx.expires_at.map(timestamp),
        reference_block: tx.reference_block,
        ..wire::WatchedTransaction::default()
    }
}

fn head(standing: ChainStanding) -> wire::ChainHead {
    let (number, hash) = standing.tip.map_or((0, String::new()), |(number, hash)| (number, hash.to_string()));
    wire::ChainHead {
        chain: standing.chain.to_string(),
        number,
        hash,
        final_number: standing.final_number.unwrap_or(0),
        nodes: standing.nodes.into_iter().map(node).collect(),
        halted_reason: standing.halted_reason.unwrap_or_default(),
    }
}

fn node(standing: NodeStanding) -> wire::NodeHead {
    wire::NodeHead {
        node: standing.node,
        number: standing.number,
        hash: standing.hash.map_or_else(String::new, |hash| hash.to_string()),
        problem: standing.problem,
    }
}
