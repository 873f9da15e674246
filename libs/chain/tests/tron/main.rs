//! The TRON adapter against the devnet: real bytes, real signatures, real blocks, and faults on demand. The oracle of
//! the devnet says what was truly paid.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod broadcast;
mod kit;
mod quote;
mod reads;
mod settle;
mod vectors;
mod window;
