//! Converts between protobuf and the fleet.

mod activity;
mod worker;

pub(crate) use activity::{ActivityRpc, ExecutorRpc};
pub(crate) use worker::WorkerRpc;
