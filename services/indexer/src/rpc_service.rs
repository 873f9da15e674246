//! The contract's surface. Each method says UNIMPLEMENTED until what stands behind it exists.

use proto::indexer::v1 as pb;
use proto::indexer::v1::indexer_service_server::IndexerService;
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

/// Answers the indexer's methods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexerRpc;

fn unimplemented<T>(method: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("{method} is not implemented in this version")))
}

#[tonic::async_trait]
impl IndexerService for IndexerRpc {
    type WatchEventsStream = Empty<Result<pb::WatchEventsResponse, Status>>;

    async fn add_source(
        &self,
        _: Request<pb::AddSourceRequest>,
    ) -> Result<Response<pb::AddSourceResponse>, Status> {
        unimplemented("AddSource")
    }

    async fn list_sources(
        &self,
        _: Request<pb::ListSourcesRequest>,
    ) -> Result<Response<pb::ListSourcesResponse>, Status> {
        unimplemented("ListSources")
    }

    async fn list_fee_events(
        &self,
        _: Request<pb::ListFeeEventsRequest>,
    ) -> Result<Response<pb::ListFeeEventsResponse>, Status> {
        unimplemented("ListFeeEvents")
    }

    async fn list_events(
        &self,
        _: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        unimplemented("ListEvents")
    }

    async fn watch_events(
        &self,
        _: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        unimplemented("WatchEvents")
    }

    async fn get_progress(
        &self,
        _: Request<pb::GetProgressRequest>,
    ) -> Result<Response<pb::GetProgressResponse>, Status> {
        unimplemented("GetProgress")
    }

    async fn requeue_range(
        &self,
        _: Request<pb::RequeueRangeRequest>,
    ) -> Result<Response<pb::RequeueRangeResponse>, Status> {
        unimplemented("RequeueRange")
    }
}
