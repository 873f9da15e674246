//! Converts between protobuf and the application.

pub(crate) mod convert;
mod progress;
mod query;
mod watch;

use proto::indexer::v1 as pb;
use proto::indexer::v1::indexer_service_server::IndexerService;
use rpc::Draining;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::event::EventRepo;
use crate::source::SourceApp;
use crate::store::Store;
use progress::ProgressReader;
pub(crate) use watch::Watchers;

#[derive(Debug)]
pub(crate) struct IndexerRpc {
    sources: SourceApp,
    events: EventRepo,
    progress: ProgressReader,
    watchers: Watchers,
}

impl IndexerRpc {
    pub(crate) fn new(store: &Store, watchers: Watchers) -> Self {
        Self {
            sources: SourceApp::new(store.clone()),
            events: EventRepo::new(store.clone()),
            progress: ProgressReader::new(store.clone()),
            watchers,
        }
    }
}

#[tonic::async_trait]
impl IndexerService for IndexerRpc {
    type WatchEventsStream = ReceiverStream<Result<pb::WatchEventsResponse, Status>>;

    async fn add_source(
        &self,
        request: Request<pb::AddSourceRequest>,
    ) -> Result<Response<pb::AddSourceResponse>, Status> {
        let source = rpc::fields::required("source", request.into_inner().source)?;
        let stored = self.sources.add(convert::spec(source)).await?;
        Ok(Response::new(pb::AddSourceResponse { source: Some(convert::source(&stored)) }))
    }

    async fn list_sources(
        &self,
        _: Request<pb::ListSourcesRequest>,
    ) -> Result<Response<pb::ListSourcesResponse>, Status> {
        let sources = self.sources.list().await?.iter().map(convert::source).collect();
        Ok(Response::new(pb::ListSourcesResponse { sources }))
    }

    async fn list_fee_events(
        &self,
        request: Request<pb::ListFeeEventsRequest>,
    ) -> Result<Response<pb::ListFeeEventsResponse>, Status> {
        let (query, mut page) = query::fees(request.get_ref())?;
        let found = self.events.list_fees(&query, page.after.take(), page.size).await?;
        let next_page_token = page.next_token(found.next);
        let events = found.items.into_iter().map(convert::fee).collect();
        Ok(Response::new(pb::ListFeeEventsResponse { events, next_page_token }))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let request = request.into_inner();
        if request.source.is_empty() {
            return Err(rpc::error::invalid("source", "is missing"));
        }
        let source = self.sources.get(&request.source).await?;
        let (query, mut page) = query::events(&source, &request)?;
        let found = self.events.list(&source, &query, page.after.take(), page.size).await?;
        let next_page_token = page.next_token(found.next);
        let events = found.items.into_iter().map(|stored| convert::event(&source, stored)).collect();
        Ok(Response::new(pb::ListEventsResponse { events, next_page_token }))
    }

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let draining = Draining::of(&request);
        let request = request.into_inner();
        let source = self.sources.get(&request.source).await?;
        let stream = self.watchers.watch(source, &request, draining).await?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_progress(
        &self,
        request: Request<pb::GetProgressRequest>,
    ) -> Result<Response<pb::GetProgressResponse>, Status> {
        let name = request.into_inner().source;
        let sources =
            if name.is_empty() { self.sources.list().await? } else { vec![self.sources.get(&name).await?] };
        Ok(Response::new(pb::GetProgressResponse { sources: self.progress.of(&sources).await? }))
    }

    async fn add_source_addresses(
        &self,
        request: Request<pb::AddSourceAddressesRequest>,
    ) -> Result<Response<pb::AddSourceAddressesResponse>, Status> {
        let request = request.into_inner();
        let (added, addresses, from_block) =
            self.sources.add_addresses(&request.source, &request.addresses).await?;
        let added = u32::try_from(added).unwrap_or(u32::MAX);
        Ok(Response::new(pb::AddSourceAddressesResponse { added, addresses, from_block }))
    }

    async fn requeue_range(
        &self,
        request: Request<pb::RequeueRangeRequest>,
    ) -> Result<Response<pb::RequeueRangeResponse>, Status> {
        let request = request.into_inner();
        let source = self.sources.get(&request.source).await?;
        let requeued = self.progress.requeue(&source, request.from_block).await?;
        Ok(Response::new(pb::RequeueRangeResponse { requeued }))
    }
}
