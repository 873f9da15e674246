//! Why a source cannot be added or used.

use tonic::Status;

use crate::node::CheckError;
use crate::store::StoreError;

/// One refusal or fault.
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
    #[error("source {0} keeps all addresses; it takes none")]
    TakesNoAddresses(String),
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
            SourceError::Node(error) => error.into(),
            SourceError::Store(error) => store_status(&error),
        }
    }
}

/// A store that is away is a reason to come back; anything else is a fault.
pub(crate) fn store_status(error: &StoreError) -> Status {
    if error.is_transient() {
        let pause = std::time::Duration::from_secs(1);
        tracing::warn!(error = rpc::error::chain(error), "the store is away");
        return rpc::error::unavailable(
            rpc::error::reason::DEPENDENCY_UNAVAILABLE,
            "the event store does not answer",
            pause,
        );
    }
    rpc::error::internal(error)
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        store_status(&error)
    }
}
