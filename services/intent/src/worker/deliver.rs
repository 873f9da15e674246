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
use prost::Message;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::execution::v1::{EnqueueWithdrawalRequest, ImportJobRequest, RenewApprovalsRequest};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::withdrawal::{Withdrawals, message};

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
            message::ENQUEUE => {
                let message: EnqueueWithdrawalRequest = decode(delivery)?;
                client.enqueue_withdrawal(message).await.map_err(judge)?.into_inner().job_id
            }
            message::RENEW => {
                let message: RenewApprovalsRequest = decode(delivery)?;
                client.renew_approvals(message).await.map_err(judge)?.into_inner().job_id
            }
            message::IMPORT => {
                let message: ImportJobRequest = decode(delivery)?;
                client.import_job(message).await.map_err(judge)?.into_inner().job_id
            }
            other => return Err(DeliveryError::Permanent(format!("no receiver for the topic {other}"))),
        };
        tracing::info!(withdrawal_id = %delivery.aggregate, job_id, topic = %delivery.topic, "handed to execution");
        Ok(())
    }

    /// Shows on the request that execution refused to take it.
    async fn show(&self, delivery: &Delivery, refusal: &str) -> Result<(), DeliveryError> {
        // Renewed approvals are about a job that execution holds, and says itself what it waits for.
        if ![message::ENQUEUE, message::IMPORT].contains(&delivery.topic.as_str()) {
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

fn decode<M: Message + Default>(delivery: &Delivery) -> Result<M, DeliveryError> {
    M::decode(delivery.payload.as_slice())
        .map_err(|error| DeliveryError::Permanent(format!("the message cannot be read: {error}")))
}

/// Whether asking again can help. A refusal of *us* (wrong key, missing role, an older server) is for the operator to mend and
/// no fault of the message, so it is tried again; a refusal of the *message* is final.
fn judge(status: Status) -> DeliveryError {
    let text = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::DataLoss => DeliveryError::Permanent(text),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::Unauthenticated => DeliveryError::Transient(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_message_are_final_and_all_else_is_tried_again() {
        assert!(matches!(judge(Status::invalid_argument("x")), DeliveryError::Permanent(_)));
        assert!(matches!(judge(Status::failed_precondition("x")), DeliveryError::Permanent(_)));
        assert!(matches!(judge(Status::already_exists("x")), DeliveryError::Permanent(_)));
        for transient in [Status::unavailable("x"), Status::deadline_exceeded("x"), Status::internal("x")] {
            assert!(matches!(judge(transient), DeliveryError::Transient(_)));
        }
        assert!(matches!(judge(Status::unauthenticated("x")), DeliveryError::Transient(_)));
    }
}
