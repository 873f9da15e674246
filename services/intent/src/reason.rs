//! Stable reasons of refused calls, for programs to match on. Their meaning never changes. Those of refused approvals are in
//! `withdrawal::approval`.

/// The asset is not in the copy of the catalogue (yet).
pub const ASSET_UNKNOWN: &str = "ASSET_UNKNOWN";
/// Neither a policy nor a configured default says how many approvals are needed.
pub const NO_APPROVAL_POLICY: &str = "NO_APPROVAL_POLICY";
/// The key was used for another payload.
pub const IDEMPOTENCY_KEY_REUSED: &str = "IDEMPOTENCY_KEY_REUSED";
/// The id was imported with another payload, or belongs to a request made here.
pub const IMPORT_DIFFERS: &str = "IMPORT_DIFFERS";
/// A limit over a window would be exceeded.
pub const LIMIT_EXCEEDED: &str = "LIMIT_EXCEEDED";
/// The withdrawal is in a state that does not allow this.
pub const ILLEGAL_TRANSITION: &str = "ILLEGAL_TRANSITION";
/// Only the requester or an operator may cancel a withdrawal.
pub const NOT_THE_REQUESTER: &str = "NOT_THE_REQUESTER";
