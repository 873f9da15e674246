//! Loops beside the server: delivery of messages to execution, and the gauges.

pub mod deliver;
pub mod gauges;
