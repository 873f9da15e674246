//! Stopping: the orchestrator asks its workers to end, waits, kills those that remain, and then gives the lock back.
//!
//! Never touches workers that another orchestrator has taken over.

use std::time::{Duration, Instant};

use worker::{Command, CommandKind};

use super::{Orchestrator, OrchestratorError};
use crate::member::{EndReason, Phase};

/// How often ended processes are looked for while stopping.
const STOP_POLL: Duration = Duration::from_millis(50);
/// How long a process may take to vanish after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);

impl Orchestrator {
    /// SHUTDOWN, the grace period, SIGKILL, and the lock given back. The error says that another orchestrator has the lock.
    pub(super) async fn shut_down(&mut self) -> Result<(), OrchestratorError> {
        if let Some(by) = self.overtaken().await {
            tracing::error!(by, "another orchestrator took the lock; the workers are left to it");
            return Err(OrchestratorError::Lost(by));
        }
        tracing::info!(
            workers = self.members.values().filter(|m| m.process().is_some()).count(),
            "stopping workers"
        );
        // Without the lock the workers on the channel may belong to another orchestrator.
        if self.lead.leads()
            && let Err(error) = self.registry.publish(&Command::to_all(CommandKind::Shutdown)).await
        {
            tracing::warn!(error = %error, "SHUTDOWN is not published; workers get the signal alone");
        }
        let grace = Instant::now() + self.config.shutdown_grace;
        for member in self.members.values_mut() {
            member.wanted = Some(false);
            if let Some(identity) = member.end(EndReason::Stop, grace) {
                identity.terminate();
            } else if let Phase::Ending { kill_at, .. } = &mut member.phase {
                *kill_at = grace.min(*kill_at);
            }
        }
        self.wait_for_ends(grace).await;
        for member in self.members.values() {
            if let Some(process) = member.process() {
                tracing::warn!(worker = %member.spec.id, pid = process.identity.pid, "did not stop in time, killing its group");
                process.identity.kill_group();
            }
        }
        self.wait_for_ends(Instant::now() + KILL_LIMIT).await;
        self.outputs.forward_new();
        if self.acts() {
            self.sweep().await;
            self.free_dead(true).await;
        }
        if let Err(error) = self.lead.resign().await {
            tracing::warn!(error = %error, "the lock is not given back; it will expire by itself");
        }
        self.show();
        Ok(())
    }

    /// Who has the lock, if another orchestrator does. One that was paused learns this only by asking. When nobody has the
    /// lock, or Redis does not answer, no other orchestrator looks after our workers, so they are ours to stop.
    async fn overtaken(&mut self) -> Option<String> {
        if self.lead.leads() || self.lead.epoch() == 0 {
            return None;
        }
        self.lead.renew().await.ok().flatten().filter(|holder| !holder.is_empty())
    }

    async fn wait_for_ends(&mut self, until: Instant) {
        let mut renew_at = Instant::now();
        loop {
            self.reap();
            if Instant::now() >= until || self.members.values().all(|member| member.process().is_none()) {
                return;
            }
            if Instant::now() >= renew_at {
                // A successor must not begin while we are still ending the workers that it would start.
                let _ = self.lead.renew().await;
                renew_at = Instant::now() + self.config.health_interval;
            }
            tokio::time::sleep(STOP_POLL).await;
        }
    }
}
