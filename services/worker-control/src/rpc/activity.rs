//! Activities and executors. Each method answers UNIMPLEMENTED until the feature exists.

use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::activity_service_server::ActivityService;
use proto::workercontrol::v1::executor_service_server::ExecutorService;
use tokio_stream::Empty;
use tonic::{Request, Response, Status, Streaming};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivityRpc;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutorRpc;

fn unimplemented<T>(method: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("{method} is not implemented in this version")))
}

#[tonic::async_trait]
impl ActivityService for ActivityRpc {
    async fn list_activities(
        &self,
        _: Request<pb::ListActivitiesRequest>,
    ) -> Result<Response<pb::ListActivitiesResponse>, Status> {
        unimplemented("ListActivities")
    }

    async fn get_activity(
        &self,
        _: Request<pb::GetActivityRequest>,
    ) -> Result<Response<pb::GetActivityResponse>, Status> {
        unimplemented("GetActivity")
    }
}

#[tonic::async_trait]
impl ExecutorService for ExecutorRpc {
    type TaskStreamStream = Empty<Result<pb::TaskStreamResponse, Status>>;

    async fn task_stream(
        &self,
        _: Request<Streaming<pb::TaskStreamRequest>>,
    ) -> Result<Response<Self::TaskStreamStream>, Status> {
        unimplemented("TaskStream")
    }
}
