//! Confirmation's own settings. The attestation key never shows in `Debug`.

use std::time::Duration;

use service::config::{Reader, client};

use crate::verdict::AttestationKey;

#[derive(Debug, Clone)]
pub struct Config {
    pub attestation: AttestationKey,
    pub execution: rpc::ClientConfig,
    pub intent: rpc::ClientConfig,
    pub follow: Follow,
    /// Whether chains are followed in this process. Otherwise `confirmation work` does it.
    pub workers: bool,
}

/// The pauses and limits of the loops over chains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// Pause between two ticks.
    pub poll: Duration,
    /// How long a replica keeps a chain without proving the lease. Must be longer than a few calls to nodes that time out.
    pub lease: Duration,
    /// Recent heads kept; must exceed every chain's depth.
    pub ring_blocks: usize,
    /// Blocks read in one tick.
    pub batch_blocks: usize,
    /// A larger gap is not read block by block; open watches are looked up instead.
    pub max_gap_blocks: u64,
    /// Pause between two checks for foreign transactions at open nonces.
    pub void_check: Duration,
    /// Pause before delayed verdicts are tried again without a new block.
    pub retry: Duration,
    pub node_timeout: Duration,
}

impl Default for Follow {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(250),
            lease: Duration::from_secs(12),
            ring_blocks: 512,
            batch_blocks: 64,
            max_gap_blocks: 20_000,
            void_check: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            node_timeout: Duration::from_secs(3),
        }
    }
}

impl Config {
    pub fn read(reader: &Reader) -> Option<Self> {
        let execution = client(reader, "execution");
        let intent = client(reader, "intent");
        let attestation = attestation(&reader.section("attestation"));
        let follow = follow(&reader.section("follow"));
        let workers = reader.section("workers").or("enabled", true);
        Some(Self { attestation: attestation?, execution: execution?, intent: intent?, follow, workers })
    }
}

fn attestation(section: &Reader) -> Option<AttestationKey> {
    let text = section.secret("key")?;
    let mut seed = [0_u8; 32];
    match hex::decode_to_slice(text.expose(), &mut seed) {
        Ok(()) => Some(AttestationKey::from_seed(&seed)),
        Err(_) => {
            // The message does not show the value, which is a secret even when it is wrong.
            section.wrong("key", "must be a seed of 32 bytes as 64 hex digits");
            None
        }
    }
}

fn follow(section: &Reader) -> Follow {
    let default = Follow::default();
    let span = |key: &str, default: Duration, longest_ms: u64| {
        let default = u64::try_from(default.as_millis()).unwrap_or(longest_ms);
        Duration::from_millis(section.within(key, default, 10..=longest_ms))
    };
    let follow = Follow {
        poll: span("poll_ms", default.poll, 60_000),
        lease: span("lease_ms", default.lease, 300_000),
        ring_blocks: section.within("ring_blocks", default.ring_blocks, 16..=100_000),
        batch_blocks: section.within("batch_blocks", default.batch_blocks, 1..=1_000),
        max_gap_blocks: section.within("max_gap_blocks", default.max_gap_blocks, 16..=10_000_000),
        void_check: span("void_check_ms", default.void_check, 3_600_000),
        retry: span("retry_ms", default.retry, 600_000),
        node_timeout: span("node_timeout_ms", default.node_timeout, 60_000),
    };
    if follow.lease < follow.poll * 3 {
        section.wrong(
            "lease_ms",
            "must be at least three times poll_ms, or the lease is lost between two ticks",
        );
    }
    follow
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [attestation]
        key = "0707070707070707070707070707070707070707070707070707070707070707"
        [clients.execution]
        url = "http://127.0.0.1:1"
        [clients.intent]
        url = "http://127.0.0.1:2"
    "#;

    fn read(text: &str) -> Result<Config, String> {
        let reader = Reader::parse("confirmation", None, text, []).map_err(|error| error.to_string())?;
        let config = Config::read(&reader);
        reader.finish(config).map_err(|error| error.to_string())
    }

    #[test]
    fn the_key_is_not_in_debug() {
        let config = read(GOOD).unwrap();
        assert_eq!(config.follow, Follow::default());
        assert!(!format!("{config:?}").contains("07070707"));
    }

    #[test]
    fn all_mistakes_are_reported_at_once_and_the_key_never() {
        let bad = GOOD
            .replace("0707070707", "SECRET0707")
            .replace("[clients.intent]", "[follow]\npoll_ms = 1\n[clients.x]");
        let error = read(&bad).unwrap_err();
        for part in ["attestation.key", "follow.poll_ms", "clients.intent"] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
        assert!(!error.contains("SECRET"), "{error}");
    }
}
