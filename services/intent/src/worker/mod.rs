//! Loops beside the server: the relay's deliveries to execution, and the gauges.

pub mod deliver;
pub mod gauges;
