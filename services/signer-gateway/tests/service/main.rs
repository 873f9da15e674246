//! The gateway as a whole: gRPC in front, real PostgreSQL behind.

mod audit;
mod batch;
mod control;
mod groups;
mod hostile;
mod idempotency;
mod limits;
mod outage;
mod statements;
mod support;
mod tron;
