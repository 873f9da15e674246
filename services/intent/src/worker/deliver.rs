//! Brings outbox messages to execution.
//!
//! Owns which call a topic means, and which answers are final. It never ends a withdrawal: what was refused for good is parked
//! by the relay, where people see it (`bursar_outbox_parked_lanes`, `intent outbox-list`), and the request says why it does not
//! go on.
//!
//! Where it could hurt: the refusal is written on the request before the message is parked. A crash in between, or a database
//! that is away, delivers it again, and the same refusal changes nothing. Set going again and taken, the request moves on and
//! the refusal is gone from it.

use db::outbox::{Deliver, Delivery, DeliveryError};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use service::delivery::{deliver, deliver_or_park, unknown_topic};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::withdrawal::{Withdrawals, handover};

/// The service whose health is asked for.
const EXECUTION: &str = "bursar.execution.v1.ExecutionService";

/// The way to execution.
#[derive(Debug, Clone)]
pub struct ToExecution {
    client: ExecutionServiceClient<rpc::Client>,
    withdrawals: Withdrawals,
}

impl ToExecution {
    pub fn new(client: rpc::Client, withdrawals: Withdrawals) -> Self {
        Self { client: ExecutionServiceClient::new(client), withdrawals }
    }

    async fn call(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let mut client = self.client.clone();
        let job_id = match delivery.topic.as_str() {
            // Execution signs nothing before it accepts these two, and the request shows the refusal.
            handover::ENQUEUE => {
                deliver_or_park(delivery, |request: execution_pb::EnqueueWithdrawalRequest| async move {
                    client.enqueue_withdrawal(request).await
                })
                .await?
                .job_id
            }
            handover::IMPORT => {
                deliver_or_park(delivery, |request: execution_pb::ImportJobRequest| async move {
                    client.import_job(request).await
                })
                .await?
                .job_id
            }
            handover::RENEW => {
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

    /// Shows on the request that execution refused to take it.
    async fn show(&self, delivery: &Delivery, refusal: &str) -> Result<(), DeliveryError> {
        // Renewed approvals are about a job that execution holds, and says itself what it waits for.
        if ![handover::ENQUEUE, handover::IMPORT].contains(&delivery.topic.as_str()) {
            return Ok(());
        }
        let Ok(id) = delivery.aggregate.parse() else { return Ok(()) };
        match self.withdrawals.handover_refused(id, refusal).await {
            Err(error) if error.retry() => {
                Err(DeliveryError::Transient(format!("{refusal}; it could not be noted: {error}")))
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error, withdrawal_id = %id, refusal,
                    "a refused handover could not be noted on its withdrawal"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

impl Deliver for ToExecution {
    const RECEIVERS: &'static [&'static str] = &["execution"];

    async fn deliver(&self, delivery: &Delivery) -> Result<(), DeliveryError> {
        let answer = self.call(delivery).await;
        if let Err(DeliveryError::Permanent(refusal)) = &answer {
            self.show(delivery, refusal).await?;
        }
        answer
    }
}

/// Whether execution answers and says that it serves.
pub async fn reachable(client: rpc::Client) -> Result<(), String> {
    let request = HealthCheckRequest { service: EXECUTION.to_owned() };
    let answer =
        HealthClient::new(client).check(request).await.map_err(|status| status.message().to_owned())?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        other => Err(format!("execution says {}", other.as_str_name())),
    }
}
