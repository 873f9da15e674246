//! What every background worker runs on: the loop around its `tick()`, and the named places where a test may kill it.
//!
//! Owns when a tick runs (woken, due, or after the longest pause), how long a failing one waits, and that a shutdown lets
//! the tick under way finish. It never knows what a tick does.
//!
//! Invariants: one tick of a loop at a time; no pause without an end; a failed tick never ends the loop.

mod checkpoint;
mod crash;
mod run;

pub use checkpoint::Checkpoints;
pub use crash::crash_point;
pub use run::{Loop, Tick, Ticked};
