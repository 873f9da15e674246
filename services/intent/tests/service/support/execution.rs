//! A fake of execution that records what it receives and refuses calls or loses replies as the test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proto::execution::v1::execution_service_server::{ExecutionService, ExecutionServiceServer};
use proto::execution::v1::*;
use rpc::auth::{AuthConfig, KeyConfig, hash_key};
use rpc::{Auth, Role, Server, ServerConfig};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// What happens to the next call.
#[derive(Debug, Clone)]
pub(crate) enum NextCall {
    /// Refused, nothing is recorded.
    Refuse(Status),
    /// Recorded, but the reply is lost.
    LoseReply,
}

#[derive(Debug, Default)]
struct State {
    planned: VecDeque<NextCall>,
    enqueued: Vec<EnqueueWithdrawalRequest>,
    imported: Vec<ImportJobRequest>,
    renewed: Vec<RenewApprovalsRequest>,
}

#[derive(Debug, Clone)]
pub(crate) struct Execution {
    state: Arc<Mutex<State>>,
    url: String,
    stop: CancellationToken,
}

impl Execution {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let key = KeyConfig {
            name: "intent".to_owned(),
            sha256: hash_key("intent"),
            roles: vec![Role::Service("intent".to_owned())],
        };
        let auth = Auth::new(&AuthConfig { keys: vec![key], certificates: vec![] }).unwrap();
        let server = Server::new(ServerConfig::new("127.0.0.1:0".parse().unwrap()))
            .auth(auth)
            .service(ExecutionServiceServer::new(Handlers(Arc::clone(&state))));
        let bound = server.bind().await.unwrap();
        let url = format!("http://{}", bound.local_addr());
        let stop = CancellationToken::new();
        tokio::spawn(bound.serve(stop.clone()));
        Self { state, url, stop }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn next(&self, planned: NextCall) {
        self.state.lock().unwrap().planned.push_back(planned);
    }

    pub(crate) fn enqueued(&self) -> Vec<EnqueueWithdrawalRequest> {
        self.state.lock().unwrap().enqueued.clone()
    }

    pub(crate) fn renewed(&self) -> Vec<RenewApprovalsRequest> {
        self.state.lock().unwrap().renewed.clone()
    }

    pub(crate) fn imported(&self) -> Vec<ImportJobRequest> {
        self.state.lock().unwrap().imported.clone()
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Handlers(Arc<Mutex<State>>);

impl Handlers {
    fn take(&self, keep: impl FnOnce(&mut State)) -> Result<String, Status> {
        let mut state = self.0.lock().unwrap();
        match state.planned.pop_front() {
            Some(NextCall::Refuse(status)) => return Err(status),
            Some(NextCall::LoseReply) => {
                keep(&mut state);
                return Err(Status::deadline_exceeded("the reply was lost"));
            }
            None => keep(&mut state),
        }
        Ok(types::JobId::new().to_string())
    }
}

type Outcome<T> = Result<Response<T>, Status>;

fn unused<T>() -> Outcome<T> {
    Err(Status::unimplemented("intent never calls this"))
}

#[tonic::async_trait]
impl ExecutionService for Handlers {
    async fn enqueue_withdrawal(
        &self,
        request: Request<EnqueueWithdrawalRequest>,
    ) -> Outcome<EnqueueWithdrawalResponse> {
        let job_id = self.take(|state| state.enqueued.push(request.into_inner()))?;
        Ok(Response::new(EnqueueWithdrawalResponse { job_id }))
    }

    async fn renew_approvals(
        &self,
        request: Request<RenewApprovalsRequest>,
    ) -> Outcome<RenewApprovalsResponse> {
        let job_id = self.take(|state| state.renewed.push(request.into_inner()))?;
        Ok(Response::new(RenewApprovalsResponse { job_id }))
    }

    async fn import_job(&self, request: Request<ImportJobRequest>) -> Outcome<ImportJobResponse> {
        let job_id = self.take(|state| state.imported.push(request.into_inner()))?;
        Ok(Response::new(ImportJobResponse { job_id }))
    }

    async fn record_verdict(&self, _: Request<RecordVerdictRequest>) -> Outcome<RecordVerdictResponse> {
        unused()
    }

    async fn get_job(&self, _: Request<GetJobRequest>) -> Outcome<GetJobResponse> {
        unused()
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Outcome<ListJobsResponse> {
        unused()
    }

    async fn retry_job(&self, _: Request<RetryJobRequest>) -> Outcome<RetryJobResponse> {
        unused()
    }

    async fn cancel_job(&self, _: Request<CancelJobRequest>) -> Outcome<CancelJobResponse> {
        unused()
    }

    async fn list_lanes(&self, _: Request<ListLanesRequest>) -> Outcome<ListLanesResponse> {
        unused()
    }

    async fn resume_lane(&self, _: Request<ResumeLaneRequest>) -> Outcome<ResumeLaneResponse> {
        unused()
    }

    async fn get_statistics(&self, _: Request<GetStatisticsRequest>) -> Outcome<GetStatisticsResponse> {
        unused()
    }
}
