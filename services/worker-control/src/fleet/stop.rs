//! The orchestrator's end: its workers are told, waited for, and killed if need be, before the lock is given back.
//!
//! Never touches workers that another orchestrator has taken over.

use std::time::{Duration, Instant};

use worker::{Command, CommandKind as Told};

use super::member::{Phase, Why};
use super::orchestrator::{Orchestrator, OrchestratorError};

/// How often the end of processes is looked for while stopping.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to vanish after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);

impl Orchestrator {
    /// SHUTDOWN, the grace, SIGKILL, and the lock given back.
    ///
    /// # Errors
    /// When the lock went to another: its workers are the other's now, and nothing of them is touched.
    pub(super) async fn shut_down(&mut self) -> Result<(), OrchestratorError> {
        if let Some(by) = self.overtaken().await {
            tracing::error!(by, "the orchestrator lock went to another; its workers are left alone");
            return Err(OrchestratorError::Lost(by));
        }
        tracing::info!(
            workers = self.members.values().filter(|m| m.process().is_some()).count(),
            "stopping workers"
        );
        // Without the lock the channel is another's to speak on.
        if self.lead.leads()
            && let Err(error) = self.registry.publish(&Command::to_all(Told::Shutdown)).await
        {
            tracing::warn!(error = %error, "SHUTDOWN is not published; workers are told by signal alone");
        }
        let grace = Instant::now() + self.config.shutdown_grace;
        for member in self.members.values_mut() {
            member.wanted = Some(false);
            if let Some(identity) = member.end(Why::Stop, grace) {
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
        self.outputs.pass_on();
        if self.acts() {
            self.sweep().await;
            self.free_dead(true).await;
        }
        if let Err(error) = self.lead.resign().await {
            tracing::warn!(error = %error, "the lock is not given back; it will end by itself");
        }
        self.show();
        Ok(())
    }

    /// Who has the lock, when it is not ours and somebody has it: one who was paused does not know before it asks. When nobody
    /// has it, or Redis does not answer, nobody else looks after our workers either.
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
                // A successor must not begin while we are still ending what it would start.
                let _ = self.lead.renew().await;
                renew_at = Instant::now() + self.config.health_interval;
            }
            tokio::time::sleep(STOP_LOOK).await;
        }
    }
}
