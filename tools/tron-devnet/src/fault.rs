//! Faults that a test injects into a node: what goes wrong next, and for which calls.
//!
//! The HTTP layer carries them out.

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The call is carried out; no answer within the delay, then 504.
    AcceptTimeout,
    /// The call is carried out and answered with 502.
    #[serde(rename = "accept_502")]
    Accept502,
    /// Nothing is carried out; no answer within the delay, then 504.
    Timeout,
    /// Nothing is carried out; 502.
    BadGateway,
    /// The call is carried out; half of the JSON arrives.
    Truncated,
    /// The call is carried out and answered after the delay.
    Slow,
    /// Nothing is carried out; `lack of computing resources`.
    RateLimit,
    /// Nothing is carried out; the plain text of a lite node.
    Lite,
    /// Answers `{}` to everything.
    Empty,
    /// The call is carried out; blocks come without their transactions.
    Hollow,
    /// Broadcast: pooled and relayed, yet "P2P broadcast failed.".
    P2pFailed,
    /// Broadcast: SUCCESS; pooled on this node alone, relayed to nobody, so never mined.
    Lost,
    /// Broadcast: SUCCESS; kept nowhere.
    Forgotten,
    /// Broadcast: pooled and relayed, yet OTHER_ERROR.
    OtherError,
    /// Broadcast: SERVER_BUSY, not accepted.
    Busy,
    /// Broadcast: NO_CONNECTION, not accepted.
    NoConnection,
    /// Broadcast: BLOCK_UNSOLIDIFIED, not accepted.
    Unsolidified,
}

impl FaultKind {
    /// Whether it applies to broadcasts only.
    fn is_of_broadcast(self) -> bool {
        match self {
            Self::P2pFailed
            | Self::Lost
            | Self::Forgotten
            | Self::OtherError
            | Self::Busy
            | Self::NoConnection
            | Self::Unsolidified => true,
            Self::AcceptTimeout
            | Self::Accept502
            | Self::Timeout
            | Self::BadGateway
            | Self::Truncated
            | Self::Slow
            | Self::RateLimit
            | Self::Lite
            | Self::Empty
            | Self::Hollow => false,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Absent: every node.
    pub node: Option<usize>,
    pub kind: FaultKind,
    /// How often; 0 means until cleared.
    #[serde(default = "once")]
    pub times: u32,
    /// Only calls whose name begins with this, such as `broadcast` or `gettransactioninfobyid`.
    #[serde(default)]
    pub path: String,
    #[serde(default = "half_a_minute")]
    pub delay_ms: u64,
}

fn once() -> u32 {
    1
}

fn half_a_minute() -> u64 {
    30_000
}

/// The pending faults of one node, oldest first.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fault for this call, if there is one; its count goes down by one.
    pub fn take(&mut self, call: &str) -> Option<Fault> {
        let position = self.0.iter().position(|fault| {
            call.starts_with(&fault.path) && (!fault.kind.is_of_broadcast() || call.starts_with("broadcast"))
        })?;
        let found = self.0[position].clone();
        if found.times == 1 {
            self.0.remove(position);
        } else if found.times > 1 {
            self.0[position].times -= 1;
        }
        Some(found)
    }
}
