//! The settings of this service; `server`, `auth`, `database` and `telemetry` are the same in every service.

use std::collections::BTreeMap;

use service::config::Reader;

use crate::approvers::{Approver, parse_key};

/// `[clients.execution]`, `[approvers.<name>]` and `[policy]`.
#[derive(Debug, Clone)]
pub struct Config {
    pub execution: rpc::ClientConfig,
    /// By the name of their API key.
    pub approvers: BTreeMap<String, Approver>,
    /// How many approvals an asset without a policy needs; without this, its withdrawals are refused.
    pub default_required_approvals: Option<u32>,
}

const MOST_APPROVALS: u32 = types::MOST_APPROVALS as u32;

impl Config {
    /// Mistakes are recorded on the reader.
    pub fn read(reader: &Reader) -> Option<Self> {
        let execution = service::config::client(reader, "execution");
        let approvers = reader.map("approvers", |name, entry| {
            let person = entry.opt::<String>("person").unwrap_or_else(|| name.to_owned());
            let text = entry.req::<String>("public_key")?;
            let key = parse_key(&text).map_err(|why| entry.wrong("public_key", why)).ok()?;
            Some(Approver { key, person })
        });
        let policy = reader.section("policy");
        let required = policy.opt::<u32>("default_required_approvals");
        if required.is_some_and(|required| !(1..=MOST_APPROVALS).contains(&required)) {
            policy.wrong("default_required_approvals", format!("must be 1 to {MOST_APPROVALS}"));
        }
        if let Some((one, other)) = same_key(&approvers) {
            // One person with one key under two names would give two approvals.
            reader.wrong("approvers", format!("{one} and {other} have the same public key"));
        }
        Some(Self { execution: execution?, approvers, default_required_approvals: required })
    }
}

fn same_key(approvers: &BTreeMap<String, Approver>) -> Option<(&str, &str)> {
    approvers.iter().enumerate().find_map(|(index, (name, approver))| {
        let twin = approvers.iter().take(index).find(|(_, other)| other.key == approver.key)?;
        Some((twin.0.as_str(), name.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const BOB: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    fn read(text: &str) -> Result<Config, service::config::ConfigErrors> {
        let reader = Reader::parse("intent", None, text, [])?;
        let config = Config::read(&reader);
        reader.finish(config)
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let config = read(&format!(
            "[clients.execution]\nurl = 'http://127.0.0.1:1'\n\
             [approvers.ann]\npublic_key = '{ANN}'\n[approvers.bob]\npublic_key = '{BOB}'\n\
             [policy]\ndefault_required_approvals = 2\n"
        ))
        .unwrap();
        assert_eq!(config.approvers.keys().collect::<Vec<_>>(), ["ann", "bob"]);
        assert_eq!(config.default_required_approvals, Some(2));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let error = read(&format!(
            "[approvers.ann]\npublic_key = '{ANN}'\n[approvers.eve]\npublic_key = '{ANN}'\n\
             [approvers.zoe]\npublic_key = 'xyz'\n[policy]\ndefault_required_approvals = 0\nquorum = 3\n"
        ))
        .unwrap_err()
        .to_string();
        for part in [
            "clients.execution",
            "ann and eve",
            "approvers.zoe.public_key",
            "must be 1 to 100",
            "policy.quorum",
        ] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
