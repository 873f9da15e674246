//! The steps of a worker, as places where it can be stopped.
//!
//! A worker passes a checkpoint after each step that another one must be able to take over from. In production that costs
//! nothing. A test build may be killed there (`crash_point`), and a test in the same process may have the worker stand still
//! there for ever, drop it, and let another one go on.

use std::sync::Arc;

use tokio::sync::watch;

use crate::crash_point;

/// Where a worker reports its steps. The default lets it pass everywhere.
#[derive(Debug, Clone, Default)]
pub struct Checkpoints {
    halt: Option<Arc<Halt>>,
}

#[derive(Debug)]
struct Halt {
    name: &'static str,
    reached: watch::Sender<bool>,
}

impl Checkpoints {
    /// Whoever passes `name` never comes back.
    #[must_use]
    pub fn halting_at(name: &'static str) -> Self {
        Self { halt: Some(Arc::new(Halt { name, reached: watch::Sender::new(false) })) }
    }

    /// Waits until somebody stands still at the checkpoint.
    pub async fn reached(&self) {
        let Some(halt) = &self.halt else { return std::future::pending().await };
        // The sender lives as long as we do.
        let _ = halt.reached.subscribe().wait_for(|reached| *reached).await;
    }

    /// To be called after the step of this name.
    pub async fn pass(&self, name: &'static str) {
        crash_point(name);
        if let Some(halt) = self.halt.as_ref().filter(|halt| halt.name == name) {
            halt.reached.send_replace(true);
            std::future::pending::<()>().await;
        }
    }
}
