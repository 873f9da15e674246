//! The id of a worker.

use std::fmt;
use std::str::FromStr;

/// A worker's id, `pairId` in the key table and `WORKER_PAIR_ID` in its environment.
///
/// It becomes part of a key, of a file name and of log lines, so it holds only characters that are plain in all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(String);

/// Why a text is no worker's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a worker's id has 1 to 64 letters, digits, `-`, `_` or `.` and begins with a letter or digit")]
pub struct WorkerIdError;

impl WorkerId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkerId {
    type Err = WorkerIdError;

    fn from_str(text: &str) -> Result<Self, WorkerIdError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins_well && text.len() <= 64 && text.chars().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(WorkerIdError)
        }
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_be_a_key_and_a_file_name() {
        for good in ["USDC-USDT", "execution-withdrawal-bsc", "a", "0.9_x"] {
            assert_eq!(good.parse::<WorkerId>().map(|id| id.to_string()).as_deref(), Ok(good));
        }
        let long = "x".repeat(65);
        for bad in ["", "..", ".hidden", "a/b", "a:b", "a b", "ä", &long] {
            assert_eq!(bad.parse::<WorkerId>(), Err(WorkerIdError), "{bad}");
        }
    }
}
