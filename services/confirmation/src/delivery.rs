//! Bringing verdicts to execution and settled withdrawals to intent.
//!
//! Owns what is sent where, and which refusals are worth another try. Receivers are idempotent, so a message whose
//! answer was lost is simply sent again.

use db::outbox::{Deliver, Delivery, DeliveryError};
use prost::Message as _;
use proto::execution::v1::RecordVerdictRequest;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1::RecordProgressRequest;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use tonic::{Code, Status};

/// What a message is and where it goes.
pub mod topic {
    pub const RECORD_VERDICT: &str = "execution.RecordVerdict";
    pub const RECORD_PROGRESS: &str = "intent.RecordProgress";
}

#[derive(Debug, Clone)]
pub struct Courier {
    execution: ExecutionServiceClient<rpc::Client>,
    intent: ProgressServiceClient<rpc::Client>,
}

impl Courier {
    pub fn new(execution: rpc::Client, intent: rpc::Client) -> Self {
        Self { execution: ExecutionServiceClient::new(execution), intent: ProgressServiceClient::new(intent) }
    }
}

impl Deliver for Courier {
    const RECEIVERS: &'static [&'static str] = &["execution", "intent"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let payload = delivery.payload.as_slice();
        match delivery.topic.as_str() {
            topic::RECORD_VERDICT => {
                let request = RecordVerdictRequest::decode(payload).map_err(unreadable)?;
                self.execution
                    .clone()
                    .record_verdict(request)
                    .await
                    .map(|_| ())
                    .map_err(|status| refused(&status))
            }
            topic::RECORD_PROGRESS => {
                let request = RecordProgressRequest::decode(payload).map_err(unreadable)?;
                self.intent
                    .clone()
                    .record_progress(request)
                    .await
                    .map(|_| ())
                    .map_err(|status| refused(&status))
            }
            other => Err(DeliveryError::Permanent(format!("nobody takes {other}"))),
        }
    }
}

fn unreadable(error: prost::DecodeError) -> DeliveryError {
    DeliveryError::Permanent(format!("the message cannot be read: {error}"))
}

fn refused(status: &Status) -> DeliveryError {
    let text = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::DataLoss => DeliveryError::Permanent(text),
        // Credentials and versions are mended by people without touching the message.
        Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => {
            DeliveryError::Transient(text)
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => DeliveryError::Transient(text),
    }
}
