//! Delivers outbox messages to execution.
//!
//! Owns which call belongs to a topic. It never ends a withdrawal: the relay parks a message that execution refused for good,
//! where operators see it (`bursar_outbox_parked_lanes`, `intent outbox-list`), and the request shows the reason.
//!
//! The refusal is recorded on the request before the message is parked. After a crash in between, or while the database is
//! unreachable, the message is delivered again, and the same refusal changes nothing. When the message is requeued and accepted,
//! the request continues and no longer shows the refusal.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use service::delivery::{deliver, deliver_or_park, unknown_topic};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::withdrawal::{Withdrawals, message};

const EXECUTION: &str = "bursar.execution.v1.ExecutionService";

#[derive(Debug, Clone)]
pub struct ExecutionDelivery {
    client: ExecutionServiceClient<rpc::Client>,
    withdrawals: Withdrawals,
}

impl ExecutionDelivery {
    pub fn new(client: rpc::Client, withdrawals: Withdrawals) -> Self {
        Self { client: ExecutionServiceClient::new(client), withdrawals }
    }

    async fn call(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let mut client = self.client.clone();
        let job_id = match delivery.topic.as_str() {
            // Execution signs nothing before it accepts these two, and the request shows the refusal.
            message::ENQUEUE => {
                deliver_or_park(delivery, |request: execution_pb::EnqueueWithdrawalRequest| async move {
                    client.enqueue_withdrawal(request).await
                })
                .await?
                .job_id
            }
            message::IMPORT => {
                deliver_or_park(delivery, |request: execution_pb::ImportJobRequest| async move {
                    client.import_job(request).await
                })
                .await?
                .job_id
            }
            message::RENEW => {
                deliver(delivery, |request: execution_pb::RenewApprovalsRequest| async move {
                    client.renew_approvals(request).await
                })
                .await?
                .job_id
            }
            _ => return Err(unknown_topic(delivery)),
        };
        tracing::info!(withdrawal_id = %delivery.aggregate, job_id, topic = %delivery.topic, "handed to execution");
        Ok(())
    }

    /// Records on the request that execution refused it.
    async fn record_refusal(&self, delivery: &Delivery, refusal: &str) -> Result<(), DeliveryError> {
        // Renewed approvals are about a job that execution already has, and reports on itself.
        if ![message::ENQUEUE, message::IMPORT].contains(&delivery.topic.as_str()) {
            return Ok(());
        }
        let Ok(id) = delivery.aggregate.parse() else { return Ok(()) };
        match self.withdrawals.handover_refused(id, refusal).await {
            Err(error) if error.retry() => Err(DeliveryError::Transient(format!(
                "{refusal}; the refusal could not be recorded: {error}"
            ))),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error, withdrawal_id = %id, refusal,
                    "a refused handover could not be recorded on its withdrawal"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

impl Deliver for ExecutionDelivery {
    const RECEIVERS: &'static [&'static str] = &["execution"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let result = self.call(delivery).await;
        if let Err(DeliveryError::Permanent(refusal)) = &result {
            self.record_refusal(delivery, refusal).await?;
        }
        result
    }
}

/// The health check of execution.
pub async fn reachable(client: rpc::Client) -> Result<(), String> {
    let request = HealthCheckRequest { service: EXECUTION.to_owned() };
    let response =
        HealthClient::new(client).check(request).await.map_err(|status| status.message().to_owned())?;
    match response.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        other => Err(format!("execution says {}", other.as_str_name())),
    }
}
