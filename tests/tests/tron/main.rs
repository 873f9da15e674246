//! Withdrawals on TRON through whole stacks of separate processes. The judge is the oracle of the development network,
//! which counts what truly moved.
//!
//! There are no nonces here: a second signature is a second payment. So each fault is acted out, and each payment has a
//! destination of its own.

mod clients;
mod crash;
mod environment;
mod faults;
mod schedule;
mod support;
