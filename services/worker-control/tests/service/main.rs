//! Worker control against real Redis, real PostgreSQL and real processes.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod api;
mod clock;
mod data_loss;
mod kit;
mod leadership;
mod python;
mod remote;
mod startup;
mod supervision;
mod takeover;
mod thousand;
mod tls;
