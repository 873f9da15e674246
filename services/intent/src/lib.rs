//! Intent: withdrawal requests, their approval, and their history.
//!
//! Owns what customers requested, who approved it, the limits, and what became of it. This file is wiring only; each noun has a
//! folder of its own.
//!
//! Invariants: nothing here knows wallets, nonces, gas or retries; no hash is known before it is final; a withdrawal becomes
//! failed or completed only when execution or confirmation reports it.

pub mod approvers;
pub mod catalogue;
pub mod config;
pub mod error;
pub mod limit;
pub mod policy;
pub mod reason;
pub mod rpc;
pub mod withdrawal;
pub mod worker;

use std::convert::Infallible;

use ::rpc::connect_lazy;
use db::outbox::{Relay, RelayConfig};
use db::wake::Waker;
use proto::intent::v1::intent_service_server::IntentServiceServer;
use proto::intent::v1::policy_service_server::PolicyServiceServer;
use proto::intent::v1::progress_service_server::ProgressServiceServer;
use service::{BoxError, Context, Service};
use sqlx::migrate::Migrator;

use crate::approvers::Approvers;
use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::limit::Limits;
use crate::policy::Policies;
use crate::rpc::{IntentRpc, PolicyRpc, ProgressRpc};
use crate::withdrawal::watch::Hub;
use crate::withdrawal::{Withdrawals, measure};
use crate::worker::deliver::ExecutionDelivery;
use crate::worker::gauges::Gauges;

pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/intent");

#[derive(Debug)]
pub struct Intent;

impl Service for Intent {
    const NAME: &'static str = "intent";
    const HAS_OUTBOX: bool = true;
    const LIVE: &'static [&'static str] = &["approvers"];
    type Config = Config;

    fn read(reader: &service::config::Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        let (config, pool) = (ctx.config(), ctx.pool());
        let approvers = Approvers::new(config.approvers.clone());
        let withdrawals =
            Withdrawals::new(pool.clone(), approvers.clone(), config.default_required_approvals);
        let hub = Hub::new(pool.clone());
        let execution = connect_lazy(&config.execution)?;
        measure::describe();
        start_loops(&ctx, &approvers, &withdrawals, &hub, execution.clone());

        let intent = IntentRpc::new(withdrawals.clone(), hub);
        let policy = PolicyRpc::new(Policies::new(pool.clone(), approvers), Limits::new(pool.clone()));
        let progress = ProgressRpc::new(withdrawals, Catalogue::new(pool));
        let server = ctx
            .server()
            .service(IntentServiceServer::new(intent))
            .service(PolicyServiceServer::new(policy))
            .service(ProgressServiceServer::new(progress))
            // Not critical: requests are accepted and approved while execution is unreachable, and handed over afterwards.
            .check("execution", false, move || worker::deliver::reachable(execution.clone()));
        ctx.serve(server).await
    }
}

fn start_loops(
    ctx: &Context<Config>,
    approvers: &Approvers,
    withdrawals: &Withdrawals,
    hub: &Hub,
    execution: ::rpc::Client,
) {
    let waker = Waker::start(&ctx.pool());
    let deliver = ExecutionDelivery::new(execution, withdrawals.clone());
    let relay = Relay::new(db::dedicated_pool(&ctx.pool(), 3), deliver, RelayConfig::default());
    let listener = waker.clone();
    ctx.spawn("outbox relay", move |stop| async move {
        relay.run(&listener, stop).await;
        Ok::<(), Infallible>(())
    });
    let hub = hub.clone();
    ctx.spawn("watch hub", move |stop| async move {
        hub.run(&waker, stop).await;
        Ok::<(), Infallible>(())
    });
    let gauges = Gauges::new(withdrawals.clone());
    ctx.spawn("gauges", move |stop| async move {
        gauges.run(stop).await;
        Ok::<(), Infallible>(())
    });
    let (mut changes, approvers) = (ctx.config_changes(), approvers.clone());
    ctx.spawn("approver keys", move |stop| async move {
        let follow = async {
            while changes.changed().await.is_ok() {
                approvers.replace(changes.borrow_and_update().approvers.clone());
                tracing::info!(approvers = approvers.count(), "approver keys reloaded");
            }
        };
        stop.run_until_cancelled(follow).await;
        Ok::<(), Infallible>(())
    });
}
