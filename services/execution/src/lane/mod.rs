//! The one authority over the nonces of an address, as rows: which nonce is whose.
//!
//! Owns `lanes` and `lane_nonces`. The arithmetic (gaps first, never below what is used) is `chain::lane`'s; here a lane is
//! loaded under its lock, asked, and saved with the attempt that took the nonce. It never signs and never sends.
//!
//! Where it could hurt, and what holds:
//! - Two workers number for one wallet: the lane's row is locked from reading to commit.
//! - A crash after taking a nonce: the nonce, its attempt and its job are one transaction; whoever resumes finds all three.
//! - A node that lags: its answer can lead to a nonce that is refused, never to one that is handed out twice, because the
//!   primary key and the lane's own counter decide.
//! - A node that counts too many, once: `next_nonce` and `mined_seen` never go back, and everything below would have to be
//!   filled and paid for. So they are raised only by what enough nodes say, by the chain's own rule; with fewer answers a lane
//!   goes on from its own counter, and one that does not exist yet is not made. Where there is but one node, its word counts;
//!   a person who resumes the lane has it learn from the chain anew.

pub(crate) mod repo;

pub use repo::{LaneRow, LaneState};
