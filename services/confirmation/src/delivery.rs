//! Bringing verdicts to execution and settled withdrawals to intent.
//!
//! Owns what is sent where. Which refusals are tried again is decided in `service::delivery`.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1 as intent_pb;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use service::delivery::{deliver, unknown_topic};

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
        match delivery.topic.as_str() {
            topic::RECORD_VERDICT => {
                let mut client = self.execution.clone();
                deliver(delivery, |request: execution_pb::RecordVerdictRequest| async move {
                    client.record_verdict(request).await
                })
                .await
                .map(drop)
            }
            topic::RECORD_PROGRESS => {
                let mut client = self.intent.clone();
                deliver(delivery, |request: intent_pb::RecordProgressRequest| async move {
                    client.record_progress(request).await
                })
                .await
                .map(drop)
            }
            _ => Err(unknown_topic(delivery)),
        }
    }
}
