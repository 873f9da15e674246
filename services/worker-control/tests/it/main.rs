//! Worker control against real Redis, real PostgreSQL and real processes.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod api;
mod care;
mod clock;
mod elsewhere;
mod frame;
mod lead;
mod lost;
mod many;
mod place;
mod python;
mod takeover;
mod tls;
