//! Tests that concern more than one crate: the rules of the house, and whole stacks of separate processes.
//!
//! Owns: nothing at run time. Never: a helper that one crate alone could hold; those live with that crate or in
//! `testkit`.
