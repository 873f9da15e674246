//! The steps of a worker, as places where it can be stopped.
//!
//! A worker passes a checkpoint after each step from which another worker must be able to take over. In production that costs
//! nothing. A test build can be killed there (`crash_point`), and a test in the same process can pause the worker there, drop
//! it or let another one overtake it.

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
    released: watch::Sender<bool>,
}

impl Checkpoints {
    /// A worker that passes `name` pauses until released.
    #[must_use]
    pub fn halting_at(name: &'static str) -> Self {
        let (reached, released) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { halt: Some(Arc::new(Halt { name, reached, released })) }
    }

    /// Lets a paused worker continue, like a process that was suspended for too long.
    pub fn release(&self) {
        if let Some(halt) = &self.halt {
            halt.released.send_replace(true);
        }
    }

    /// Waits until a worker has paused at the checkpoint.
    pub async fn reached(&self) {
        let Some(halt) = &self.halt else { return std::future::pending().await };
        // The sender lives as long as we do.
        let _ = halt.reached.subscribe().wait_for(|reached| *reached).await;
    }

    /// Call it after the step of this name.
    pub async fn pass(&self, name: &'static str) {
        crash_point(name);
        if let Some(halt) = self.halt.as_ref().filter(|halt| halt.name == name) {
            halt.reached.send_replace(true);
            // The sender lives as long as we do.
            let _ = halt.released.subscribe().wait_for(|released| *released).await;
        }
    }
}
