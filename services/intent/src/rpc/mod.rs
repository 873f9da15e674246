//! Converts protobuf to the use cases and back, nothing else. Every handler does four things: identify, parse, call, convert.

mod convert;
mod intent;
mod policy;
mod progress;

pub use intent::IntentRpc;
pub use policy::PolicyRpc;
pub use progress::ProgressRpc;
