//! Commands on the control channel.
//!
//! A message is a bare word (`SHUTDOWN`, for everybody) or JSON (`{"type":"SHUTDOWN","pairId":"USDC-USDT"}`, for one). What is
//! neither is said and ignored: the channel is open to whoever reaches Redis, and a typo must stop nobody.

use serde::{Deserialize, Serialize};

use crate::WorkerId;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CommandKind {
    /// Finish and exit.
    Shutdown,
    /// Set the restart flag, finish and exit; the orchestrator starts the worker again at once.
    Restart,
}

/// What is to be done, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub kind: CommandKind,
    /// Everybody when absent.
    pub target: Option<WorkerId>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(rename = "type")]
    kind: CommandKind,
    #[serde(rename = "pairId", default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Command {
    #[must_use]
    pub fn to_all(kind: CommandKind) -> Self {
        Self { kind, target: None }
    }

    #[must_use]
    pub fn to(kind: CommandKind, id: &WorkerId) -> Self {
        Self { kind, target: Some(id.clone()) }
    }

    /// Reads a message; nothing when it is no command.
    #[must_use]
    pub fn parse(message: &str) -> Option<Self> {
        let message = message.trim();
        match message {
            "SHUTDOWN" => return Some(Self::to_all(CommandKind::Shutdown)),
            "RESTART" => return Some(Self::to_all(CommandKind::Restart)),
            _ => {}
        }
        let wire: Wire = serde_json::from_str(message).ok()?;
        // A target that is no id is for nobody: without this it would be for everybody.
        let target = wire.target.map(|target| target.parse()).transpose().ok()?;
        Some(Self { kind: wire.kind, target })
    }

    /// As it is published.
    #[must_use]
    pub fn message(&self) -> String {
        match (&self.target, self.kind) {
            (None, CommandKind::Shutdown) => "SHUTDOWN".to_owned(),
            (None, CommandKind::Restart) => "RESTART".to_owned(),
            (Some(target), CommandKind::Shutdown) => format!(r#"{{"type":"SHUTDOWN","pairId":"{target}"}}"#),
            (Some(target), CommandKind::Restart) => format!(r#"{{"type":"RESTART","pairId":"{target}"}}"#),
        }
    }

    /// Whether this worker is meant.
    #[must_use]
    pub fn concerns(&self, id: &WorkerId) -> bool {
        self.target.as_ref().is_none_or(|target| target == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_the_channel() {
        let id: WorkerId = "a-b".parse().unwrap();
        for kind in [CommandKind::Shutdown, CommandKind::Restart] {
            for command in [Command::to_all(kind), Command::to(kind, &id)] {
                assert_eq!(Command::parse(&command.message()), Some(command));
            }
        }
        assert_eq!(Command::parse("SHUTDOWN").unwrap().target, None);
    }

    #[test]
    fn only_the_target_is_concerned() {
        let (id, other): (WorkerId, WorkerId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(Command::to(CommandKind::Shutdown, &id).concerns(&id));
        assert!(!Command::to(CommandKind::Shutdown, &id).concerns(&other));
        assert!(Command::to_all(CommandKind::Shutdown).concerns(&other));
    }

    #[test]
    fn nonsense_is_for_nobody() {
        for text in
            ["", "shutdown", "STOP", "{}", r#"{"type":"SHUTDOWN","pairId":"a b"}"#, r#"{"pairId":"a"}"#]
        {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }
}
