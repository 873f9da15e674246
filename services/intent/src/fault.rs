//! How trouble with the database looks to a caller: the same for every noun.
//!
//! Owns that one translation. It never shows the driver's words.

use std::error::Error;
use std::time::Duration;

use db::Fault;
use rpc::error::reason;
use tonic::Status;

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A fault that passes is `UNAVAILABLE` with a time to come back; any other is an internal error. Every method here is safe to
/// repeat, so a caller whose commit has an unknown result just calls again.
pub(crate) fn status(error: &(dyn Error + 'static), fault: Fault) -> Status {
    match fault {
        Fault::Contention => {
            rpc::error::aborted(reason::CONFLICT, "somebody else changed the same thing; try again")
        }
        Fault::ConnectionLost | Fault::Unavailable | Fault::Exhausted | Fault::TimedOut => {
            tracing::warn!(error = rpc::error::chain(error), "the database does not answer");
            rpc::error::unavailable(
                reason::DEPENDENCY_UNAVAILABLE,
                "the database does not answer",
                RETRY_AFTER,
            )
        }
        Fault::Constraint | Fault::Denied | Fault::Permanent => rpc::error::internal(error),
    }
}
