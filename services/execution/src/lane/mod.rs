//! Which nonce of an address belongs to which job: the only authority over it.
//!
//! Owns `lanes` and `lane_nonces`. The arithmetic (gaps first, never below what is used) is that of `chain::lane`; here a lane is
//! loaded under its lock and saved with the attempt that took the nonce. It never signs and never sends.
//!
//! - Two workers take nonces of one wallet: the lane's row is locked from reading to commit.
//! - A crash after taking a nonce: the nonce, its attempt and its job are one transaction; whoever resumes finds all three.
//! - A node that lags: its reply can lead to a nonce that is refused, never to one that is handed out twice, because the
//!   primary key and the lane's own counter decide.
//! - A node that counts too many, once: `next_nonce` and `mined_seen` never decrease, and everything below would have to be
//!   filled and paid for. So they are raised only by as many nodes as must agree; with fewer replies a lane goes on from its own
//!   counter, and a new lane is not made. Where there is only one node, its reply counts; when a person resumes the lane, it is
//!   read from the chain again.

pub(crate) mod repo;

pub use repo::{LaneRow, LaneState};
