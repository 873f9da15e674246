//! The contract's surface. Each method says UNIMPLEMENTED until what stands behind it exists.

use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::activity_service_server::ActivityService;
use proto::workercontrol::v1::executor_service_server::ExecutorService;
use proto::workercontrol::v1::worker_service_server::WorkerService;
use tokio_stream::Empty;
use tonic::{Request, Response, Status, Streaming};

/// Answers the orchestrator's methods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerRpc;

/// Answers about activities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivityRpc;

/// Answers executors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutorRpc;

fn unimplemented<T>(method: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("{method} is not implemented in this version")))
}

#[tonic::async_trait]
impl WorkerService for WorkerRpc {
    type WatchWorkersStream = Empty<Result<pb::WatchWorkersResponse, Status>>;

    async fn list_workers(
        &self,
        _: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersResponse>, Status> {
        unimplemented("ListWorkers")
    }

    async fn get_worker(
        &self,
        _: Request<pb::GetWorkerRequest>,
    ) -> Result<Response<pb::GetWorkerResponse>, Status> {
        unimplemented("GetWorker")
    }

    async fn watch_workers(
        &self,
        _: Request<pb::WatchWorkersRequest>,
    ) -> Result<Response<Self::WatchWorkersStream>, Status> {
        unimplemented("WatchWorkers")
    }

    async fn start_worker(
        &self,
        _: Request<pb::StartWorkerRequest>,
    ) -> Result<Response<pb::StartWorkerResponse>, Status> {
        unimplemented("StartWorker")
    }

    async fn stop_worker(
        &self,
        _: Request<pb::StopWorkerRequest>,
    ) -> Result<Response<pb::StopWorkerResponse>, Status> {
        unimplemented("StopWorker")
    }

    async fn restart_worker(
        &self,
        _: Request<pb::RestartWorkerRequest>,
    ) -> Result<Response<pb::RestartWorkerResponse>, Status> {
        unimplemented("RestartWorker")
    }

    async fn reload_config(
        &self,
        _: Request<pb::ReloadConfigRequest>,
    ) -> Result<Response<pb::ReloadConfigResponse>, Status> {
        unimplemented("ReloadConfig")
    }

    async fn get_orchestrator(
        &self,
        _: Request<pb::GetOrchestratorRequest>,
    ) -> Result<Response<pb::GetOrchestratorResponse>, Status> {
        unimplemented("GetOrchestrator")
    }
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
