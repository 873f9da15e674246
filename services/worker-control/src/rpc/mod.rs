//! Protobuf to the fleet and back, nothing else.

mod activity;
mod worker;

pub(crate) use activity::{ActivityRpc, ExecutorRpc};
pub(crate) use worker::WorkerRpc;
