//! What goes wrong around the services (databases, disks, clocks, nodes, tokens, the signer), on whole stacks of separate
//! processes. The judge is the chain itself; `docs/faults.md` says which test stands for which fault.

mod bystanders;
mod clock;
mod database;
mod disk;
mod lanes;
mod nodes;
mod refused;
mod reorg;
mod replace;
mod signer;
mod support;
mod tokens;
mod trace;
