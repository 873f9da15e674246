//! Commands on the control channel.
//!
//! A message is a bare word (`SHUTDOWN`, for everybody) or JSON (`{"type":"SHUTDOWN","pairId":"USDC-USDT"}`, for one). Anything
//! else is logged and ignored, because everybody who reaches Redis can write to the channel, and a typo must not stop a worker.

use serde::Deserialize;

use crate::WorkerId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::Display, strum::EnumString)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum CommandKind {
    /// Finish and exit.
    Shutdown,
    /// Set the restart flag, finish and exit; the orchestrator starts the worker again at once.
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub kind: CommandKind,
    /// All workers when absent.
    pub target: Option<WorkerId>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: CommandKind,
    #[serde(rename = "pairId", default)]
    target: Option<String>,
}

impl Command {
    pub fn to_all(kind: CommandKind) -> Self {
        Self { kind, target: None }
    }

    pub fn to(kind: CommandKind, id: &WorkerId) -> Self {
        Self { kind, target: Some(id.clone()) }
    }

    /// Reads a message; nothing when it is no command.
    pub fn parse(message: &str) -> Option<Self> {
        let message = message.trim();
        if let Ok(kind) = message.parse() {
            return Some(Self::to_all(kind));
        }
        let parsed: Message = serde_json::from_str(message).ok()?;
        // A command whose target is not an id must be ignored; otherwise it would be for all workers.
        let target = parsed.target.map(|target| target.parse()).transpose().ok()?;
        Some(Self { kind: parsed.kind, target })
    }

    pub fn message(&self) -> String {
        match &self.target {
            None => self.kind.to_string(),
            Some(target) => format!(r#"{{"type":"{}","pairId":"{target}"}}"#, self.kind),
        }
    }

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
