//! Refusals and faults around sources.

use tonic::Status;

use crate::node::CheckError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("the source cannot be used: {}", list(.0))]
    Invalid(Vec<(&'static str, String)>),
    #[error("source {name} exists with another {field}")]
    Fixed { name: String, field: &'static str },
    #[error("source {other} already reads the fee events of this contract")]
    Clash { other: String },
    #[error("no source {0}")]
    Unknown(String),
    #[error("source {0} keeps events of all addresses; it takes none")]
    TakesNoAddresses(String),
    #[error("the addresses took too long to store; send them again")]
    TooSlow,
    #[error(transparent)]
    Node(#[from] CheckError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(mistakes: &[(&'static str, String)]) -> String {
    mistakes.iter().map(|(field, problem)| format!("{field}: {problem}")).collect::<Vec<_>>().join("; ")
}

impl From<SourceError> for Status {
    fn from(error: SourceError) -> Self {
        let text = error.to_string();
        match error {
            SourceError::Invalid(mistakes) => rpc::error::invalid_all(
                mistakes.into_iter().map(|(field, problem)| (format!("source.{field}"), problem)),
            ),
            SourceError::Fixed { field, .. } => rpc::error::already_exists("SOURCE_IS_FIXED", field, text),
            SourceError::Clash { .. } => {
                rpc::error::already_exists("CONTRACT_IS_READ", "source.contract_address", text)
            }
            SourceError::Unknown(name) => rpc::error::not_found("source", name),
            SourceError::TakesNoAddresses(_) => rpc::error::failed_precondition("TAKES_NO_ADDRESSES", text),
            SourceError::TooSlow => rpc::error::aborted(rpc::error::reason::CONFLICT, text),
            SourceError::Node(error) => error.into(),
            SourceError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            tracing::warn!(error = rpc::error::chain(&error), "the store is away");
            let (reason, pause) =
                (rpc::error::reason::DEPENDENCY_UNAVAILABLE, std::time::Duration::from_secs(1));
            return rpc::error::unavailable(reason, "the event store does not answer", pause);
        }
        if error.is_too_slow() {
            let text = "the search took too long; ask for fewer blocks, or wait until the source has caught up and its filters have indexes";
            let reason = rpc::error::reason::DEADLINE_EXCEEDED;
            return rpc::error::refusal(tonic::Code::DeadlineExceeded, reason, text, &[]);
        }
        rpc::error::internal(&error)
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;
    use crate::store::testing::store;

    #[tokio::test]
    async fn a_search_that_takes_too_long_is_reported_as_that() {
        let store = store().await;
        store.sources().insert_one(doc! { "_id": "any", "number": 1 }).await.unwrap();
        let slow = doc! { "$where": "sleep(2000) || true" };
        let limit = std::time::Duration::from_millis(20);
        let expired = store.sources().find_one(slow).max_time(limit).await.unwrap_err();
        let status = Status::from(StoreError::from(expired));
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status}");
        assert!(status.message().contains("fewer blocks"), "{status}");
    }
}
