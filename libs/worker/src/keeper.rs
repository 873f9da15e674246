//! Heartbeats: the lock longer, the sign of life, the state, at a steady rhythm from a task of its own.
//!
//! Invariant: a worker whose cycle hangs past its deadline sends no more heartbeats, so that its orchestrator ends it; one
//! that is only cut off from Redis keeps what it holds and comes back by itself.

use std::error::Error;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::claim::{Claim, LockOutcome};
use crate::keys::Timing;
use crate::redis::RedisError;
use crate::runtime::{Permission, Shared};

/// How soon Redis is tried again: a fraction of a heartbeat, so that an outage costs little more than itself.
pub(crate) fn retry_pause(timing: &Timing) -> Duration {
    (timing.heartbeat_interval / 4).clamp(Duration::from_millis(20), Duration::from_secs(2))
}

/// Beats until dropped.
pub(crate) async fn keep(shared: Arc<Shared>, claim: Claim) {
    let timing = shared.settings.timing;
    let mut silent = false;
    loop {
        let began = Instant::now();
        // The time that a beat takes is part of the rhythm; a failed one is followed by a pause of its own.
        let next = if hangs(&shared) {
            tracing::error!(worker = %shared.settings.id, "the cycle hangs past its deadline; no more heartbeats");
            began + timing.heartbeat_interval
        } else {
            match beat(&shared, &claim).await {
                Ok(()) => {
                    if silent {
                        tracing::info!(worker = %shared.settings.id, "Redis is back");
                    }
                    silent = false;
                    began + timing.heartbeat_interval
                }
                Err(error) => {
                    shared.away();
                    if !silent {
                        tracing::warn!(worker = %shared.settings.id, error = &error as &dyn Error, "no heartbeat sent");
                    }
                    silent = true;
                    Instant::now() + retry_pause(&timing)
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.publish_now.notified() => {}
        }
    }
}

async fn beat(shared: &Shared, claim: &Claim) -> Result<(), RedisError> {
    let permission = shared.permission.borrow().clone();
    let known = match permission {
        Permission::Held(held) | Permission::Away(Some(held)) => Some(held),
        Permission::Away(None) => None,
        Permission::Alone | Permission::Lost(_) => return Ok(()),
    };
    if let Some(held) = known
        && let Some(until) = claim.beat(&shared.snapshot()).await?
    {
        shared.permission.send_replace(Permission::Held(crate::claim::HeldLock { until, ..held }));
        return Ok(());
    }
    // Never held, expired during an outage, or gone with the data of a Redis that was restarted: take it, if it is free.
    match claim.take().await? {
        LockOutcome::Ours(held) => {
            tracing::warn!(worker = %shared.settings.id, token = held.token, "the lock was taken anew");
            shared.change(|state| state.fencing_token = Some(held.token));
            shared.permission.send_replace(Permission::Held(held));
            claim.beat(&shared.snapshot()).await?;
        }
        LockOutcome::Busy(by) | LockOutcome::Refused(by) => {
            tracing::error!(worker = %shared.settings.id, by, "the lock went to another; stopping");
            shared.permission.send_replace(Permission::Lost(by));
        }
    }
    Ok(())
}

fn hangs(shared: &Shared) -> bool {
    let overdue_at = *shared.overdue_at.lock().unwrap_or_else(PoisonError::into_inner);
    // A cycle that can be cancelled is, at its deadline; only one that blocks its thread is still there a while later.
    overdue_at.is_some_and(|at| Instant::now() > at + shared.settings.timing.heartbeat_interval)
}
