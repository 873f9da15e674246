//! The service over real gRPC on a real PostgreSQL, one database for each test.

mod approval;
mod idempotency;
mod import;
mod limits;
mod lists;
mod policies;
mod progress;
mod relay;
mod support;
mod validation;
mod watch;
