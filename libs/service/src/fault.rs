//! How a database fault looks to a caller. It is the same for every service and never shows the driver's words.

use std::error::Error;
use std::time::Duration;

use db::Fault;
use rpc::error::reason;
use tonic::Status;

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A fault that passes by itself is `UNAVAILABLE` with a time to come back; any other is an internal error. Every method is
/// safe to repeat, so a caller whose commit has an unknown result just calls again. `error` is the error to log: the whole
/// chain, down to the database's.
#[must_use]
pub fn database_status(error: &(dyn Error + 'static), fault: Fault) -> Status {
    match fault {
        Fault::ConnectionLost
        | Fault::Unavailable
        | Fault::Exhausted
        | Fault::Contention
        | Fault::TimedOut => {
            tracing::warn!(error = rpc::error::chain(error), "the database does not answer");
            rpc::error::unavailable(
                reason::DEPENDENCY_UNAVAILABLE,
                "the database does not answer; try again",
                RETRY_AFTER,
            )
        }
        Fault::Constraint | Fault::Denied | Fault::Permanent => rpc::error::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn what_passes_by_itself_asks_the_caller_back_and_all_else_is_internal() {
        let error = std::io::Error::other("password=hunter2");
        for fault in [
            Fault::ConnectionLost,
            Fault::Unavailable,
            Fault::Exhausted,
            Fault::Contention,
            Fault::TimedOut,
            Fault::Constraint,
            Fault::Denied,
            Fault::Permanent,
        ] {
            let status = database_status(&error, fault);
            let expected = if fault.is_transient() { Code::Unavailable } else { Code::Internal };
            assert_eq!(status.code(), expected, "{fault:?}");
            assert_eq!(rpc::error::retry_after(&status).is_some(), fault.is_transient());
            assert!(!status.message().contains("hunter2"));
        }
    }
}
