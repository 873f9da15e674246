//! Delivering an outbox message to another service: decode the payload, call the client, judge the status.
//!
//! Owns the one table of what a status means for a message. Receivers are idempotent, so a message whose reply was lost is
//! simply sent again.
//!
//! ```
//! # use db::outbox::{Delivery, DeliveryError};
//! # async fn put_watch(request: u64) -> Result<tonic::Response<()>, tonic::Status> { Ok(tonic::Response::new(())) }
//! # async fn example(delivery: &Delivery) -> Result<(), DeliveryError> {
//! match delivery.topic.as_str() {
//!     "confirmation.PutWatch" => service::delivery::deliver(delivery, |request| put_watch(request)).await,
//!     _ => Err(service::delivery::unknown_topic(delivery)),
//! }
//! # }
//! ```

use db::outbox::{Delivery, DeliveryError};
use prost::Message;
use tonic::{Code, Response, Status};

/// What a status says about sending the same message again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMeaning {
    /// The receiver refuses the message itself, and will refuse the same bytes again.
    MessageRefused,
    /// The receiver's present state does not allow it. That state may change without anybody touching the message.
    StateRefused,
    /// The receiver is away, overloaded, out of date or does not know us, or nobody knows what it did.
    NotNow,
}

impl StatusMeaning {
    /// The table. A message is given up ([`DeliveryError::Permanent`]) only when the receiver will refuse the same bytes
    /// again. Everything in doubt is tried again, because a message that was given up is a payment that nobody watches.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        match status.code() {
            // The fields are wrong, the same id was used with other content, or the message is larger than the receiver takes.
            Code::InvalidArgument | Code::AlreadyExists | Code::OutOfRange => Self::MessageRefused,
            // What is missing may arrive by another message or from an operator; a state may move on. A receiver whose
            // database was restored from a backup also answers like this until it has caught up.
            Code::NotFound | Code::FailedPrecondition => Self::StateRefused,
            // People repair keys, roles, versions and damaged data without touching the message.
            Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented | Code::DataLoss => {
                Self::NotNow
            }
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable => Self::NotNow,
        }
    }
}

/// Delivers a message. Only a refusal of the message itself is permanent.
pub async fn deliver<M, R, F, Fut>(delivery: &Delivery, call: F) -> Result<R, DeliveryError>
where
    M: Message + Default,
    F: FnOnce(M) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    let response = call(decode(delivery)?).await.map_err(|status| delivery_error(&status))?;
    Ok(response.into_inner())
}

/// Delivers a message and also gives it up when the receiver's state does not allow it. Only for topics where the
/// receiver signs nothing before it accepts the message, and where somebody sees the refusal: the request that is handed
/// over shows it, and an operator sends the message again after correcting the cause.
pub async fn deliver_or_park<M, R, F, Fut>(delivery: &Delivery, call: F) -> Result<R, DeliveryError>
where
    M: Message + Default,
    F: FnOnce(M) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    let response = call(decode(delivery)?).await.map_err(|status| match StatusMeaning::of(&status) {
        StatusMeaning::MessageRefused | StatusMeaning::StateRefused => {
            DeliveryError::Permanent(text(&status))
        }
        StatusMeaning::NotNow => DeliveryError::Transient(text(&status)),
    })?;
    Ok(response.into_inner())
}

/// What a failed call means for the message.
#[must_use]
pub fn delivery_error(status: &Status) -> DeliveryError {
    match StatusMeaning::of(status) {
        StatusMeaning::MessageRefused => DeliveryError::Permanent(text(status)),
        StatusMeaning::StateRefused | StatusMeaning::NotNow => DeliveryError::Transient(text(status)),
    }
}

/// A message that this service has no receiver for.
#[must_use]
pub fn unknown_topic(delivery: &Delivery) -> DeliveryError {
    DeliveryError::Permanent(format!("no receiver for the topic {}", delivery.topic))
}

fn decode<M: Message + Default>(delivery: &Delivery) -> Result<M, DeliveryError> {
    M::decode(delivery.payload.as_slice())
        .map_err(|error| DeliveryError::Permanent(format!("the message cannot be read: {error}")))
}

fn text(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn delivery(payload: &[u8]) -> Delivery {
        Delivery {
            id: 1,
            message_id: sqlx::types::Uuid::nil(),
            aggregate: "a".to_owned(),
            topic: "execution.RecordVerdict".to_owned(),
            payload: payload.to_vec(),
            trace: telemetry::TraceContext::default(),
            created_at: sqlx::types::chrono::DateTime::UNIX_EPOCH,
            tries: 0,
        }
    }

    const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    fn permanent(judge: impl Fn(Code) -> DeliveryError) -> Vec<Code> {
        ALL.into_iter().filter(|code| matches!(judge(*code), DeliveryError::Permanent(_))).collect()
    }

    #[test]
    fn only_a_refusal_of_the_message_itself_is_permanent() {
        assert_eq!(
            permanent(|code| delivery_error(&Status::new(code, "x"))),
            [Code::InvalidArgument, Code::AlreadyExists, Code::OutOfRange]
        );
    }

    #[tokio::test]
    async fn a_topic_may_also_park_what_the_receivers_state_forbids() {
        for code in ALL {
            let call = |_: u64| async move { Err::<Response<()>, _>(Status::new(code, "x")) };
            let error = deliver_or_park(&delivery(&[]), call).await.unwrap_err();
            let parks = [
                Code::InvalidArgument,
                Code::NotFound,
                Code::AlreadyExists,
                Code::FailedPrecondition,
                Code::OutOfRange,
            ];
            assert_eq!(matches!(error, DeliveryError::Permanent(_)), parks.contains(&code), "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_payload_that_cannot_be_read_is_permanent_and_nobody_is_called() {
        let called = Cell::new(false);
        let call = |_: u64| {
            called.set(true);
            async { Ok(Response::new(())) }
        };
        let refused = deliver(&delivery(&[0xff]), call).await;
        assert!(matches!(refused, Err(DeliveryError::Permanent(_))), "{refused:?}");
        assert!(!called.get());
        let good = delivery(&7_u64.encode_to_vec());
        let accepted = deliver(&good, |request: u64| async move { Ok(Response::new(request)) }).await;
        assert_eq!(accepted, Ok(7));
    }
}
