//! Tests that concern more than one crate: the rules of the house, and whole stacks of separate processes.
//!
//! Owns: a stack started by the real `bursar` binary and driven from its `stack.json` as any stranger would, processes killed and
//! started again, and a reader of the chain that shares no code with the services it judges.
//! Never: a helper that one crate alone could hold; those live with that crate or in `testkit`.

pub mod clock;
pub mod crash;
pub mod disk;
pub mod judge;
pub mod ledger;
pub mod load;
pub mod payments;
pub mod pool;
pub mod report;
pub mod stack;
pub mod tron;
