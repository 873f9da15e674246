//! What every background worker runs on.
//!
//! Two layers. [`Loop`] is the loop around a `tick()`: woken, due, or after the longest pause. [`runtime`] is the life of a worker
//! *process*: its lock with incarnation and fencing token, heartbeat, state, control channel, scheduler loop and history, as
//! the orchestrator expects them. A program calls [`runtime::run`] with [`Settings::from_env`] and either [`Worker::cycles`] (work
//! at an interval, see [`Cycle`]) or [`Worker::while_permitted`] (loops of its own). Without `WORKER_REDIS_URL` it runs alone, without
//! lock, heartbeat and control, and otherwise the same.
//!
//! Owns when work runs and how it is stopped; never what it does.
//!
//! Invariants: one tick of a loop and one cycle of a worker at a time; no pause without an end; a failed tick or cycle never
//! ends the loop; a shutdown lets the one under way finish; time is monotonic, never the wall clock's.

mod checkpoint;
pub mod claim;
mod control;
mod cycle;
pub mod history;
mod id;
mod keeper;
pub mod keys;
pub mod redis;
mod run;
pub mod runtime;
pub mod settings;
mod state;
pub mod supervisor;

pub use checkpoint::Checkpoints;
pub use control::{Command, CommandKind};
pub use cycle::{Cycle, CycleContext, Overdue};
pub use history::History;
pub use id::{WorkerId, WorkerIdError};
pub use keys::{Keys, Timing};
pub use run::{Loop, Tick, TickOutcome};
pub use runtime::{Ended, Permission, RuntimeError, Worker};
pub use settings::{Settings, WithoutRedis};
pub use state::{WorkerState, WorkerStatus};
pub use supervisor::{KeyedLoops, LoopEnded, Loops, Supervisor};
pub use telemetry::crash_point;
