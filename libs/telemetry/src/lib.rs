//! Logs, traces, metrics, and the trace context that travels between processes; and the crash points at which tests kill a
//! process.
//!
//! Owns the global `tracing` subscriber, the OpenTelemetry tracer behind it and the global metrics recorder. It never decides
//! what is worth logging, and nothing here can fail a request: after [`init`] every fault of an exporter is a log line.
//!
//! Invariants: trace ids exist and travel whether or not anything is exported, and whatever the log filter hides; calling
//! [`init`] or [`metrics::install`] again is harmless, so tests in one process may all call them.

mod causes;
mod crash;
mod format;
pub mod metrics;
mod process;
pub mod propagation;
mod setup;

pub use causes::causes;
pub use crash::{crash_point, crash_point_of};
pub use propagation::TraceContext;
pub use setup::{LogFormat, Telemetry, TelemetryConfig, TelemetryError, init};
