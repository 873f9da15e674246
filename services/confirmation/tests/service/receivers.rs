//! Execution and intent as confirmation sees them: they take messages, remember them, and can be away.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use proto::execution::v1::{RecordVerdictRequest, RecordVerdictResponse, Verdict};
use proto::intent::v1::{RecordProgressRequest, RecordProgressResponse};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// What arrived. Verdicts by id, with how often each came.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) verdicts: BTreeMap<String, (Verdict, u32)>,
    pub(crate) progress: Vec<RecordProgressRequest>,
    /// Take it, and let the answer get lost, so many times.
    pub(crate) forget_answers: u32,
}

pub(crate) type SharedInbox = Arc<Mutex<Inbox>>;

/// A server for both, on a port of its own.
#[derive(Debug)]
pub(crate) struct Receivers {
    pub(crate) url: String,
    _stop: DropGuard,
}

pub(crate) async fn serve(inbox: SharedInbox) -> Receivers {
    let stop = CancellationToken::new();
    let listener = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(ExecutionStub(inbox.clone()))
        .add_service(ProgressStub(inbox))
        .serve_with_incoming_shutdown(listener, stop.clone().cancelled_owned());
    tokio::spawn(server);
    Receivers { url: format!("http://{address}"), _stop: stop.drop_guard() }
}

#[derive(Debug, Clone)]
struct ExecutionStub(SharedInbox);

#[derive(Debug, Clone)]
struct ProgressStub(SharedInbox);

impl NamedService for ExecutionStub {
    const NAME: &'static str = "bursar.execution.v1.ExecutionService";
}

impl NamedService for ProgressStub {
    const NAME: &'static str = "bursar.intent.v1.ProgressService";
}

impl UnaryService<RecordVerdictRequest> for ExecutionStub {
    type Response = RecordVerdictResponse;
    type Future = BoxFuture<'static, Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<RecordVerdictRequest>) -> Self::Future {
        let inbox = self.0.clone();
        Box::pin(async move {
            let verdict = request.into_inner().verdict.unwrap();
            let mut inbox = inbox.lock().unwrap();
            inbox.verdicts.entry(verdict.id.clone()).or_insert((verdict, 0)).1 += 1;
            if inbox.forget_answers > 0 {
                inbox.forget_answers -= 1;
                return Err(Status::unavailable("the answer got lost"));
            }
            Ok(Response::new(RecordVerdictResponse {}))
        })
    }
}

impl UnaryService<RecordProgressRequest> for ProgressStub {
    type Response = RecordProgressResponse;
    type Future = BoxFuture<'static, Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<RecordProgressRequest>) -> Self::Future {
        let inbox = self.0.clone();
        Box::pin(async move {
            inbox.lock().unwrap().progress.push(request.into_inner());
            Ok(Response::new(RecordProgressResponse {}))
        })
    }
}

macro_rules! served {
    ($stub:ident, $method:literal) => {
        impl tower::Service<http::Request<Body>> for $stub {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                let stub = self.clone();
                Box::pin(async move {
                    assert!(request.uri().path().ends_with($method), "{}", request.uri());
                    Ok(Grpc::new(ProstCodec::default()).unary(stub, request).await)
                })
            }
        }
    };
}

served!(ExecutionStub, "/RecordVerdict");
served!(ProgressStub, "/RecordProgress");
