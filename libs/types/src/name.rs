//! The natural keys of the catalogue: chain names (`bsc`, `tron`) and asset symbols (`BNB`, `USDT`).
//!
//! Each has one spelling. Chain names are lower case, asset symbols upper case, and both are plain ASCII, because two names that
//! look alike must not be two assets. Nothing here knows which chains or assets exist.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::text::serde_as_text;

/// In bytes; the tables repeat it.
pub const MAX_NAME_LEN: usize = 32;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{kind} is empty")]
    Empty { kind: &'static str },
    #[error("{kind} is longer than {MAX_NAME_LEN} bytes")]
    TooLong { kind: &'static str },
    #[error("{kind} has {character:?} at position {at}; it takes {allowed}")]
    BadCharacter { kind: &'static str, character: char, at: usize, allowed: &'static str },
    #[error("{kind} begins or ends with {character:?}, or repeats a separator")]
    MisplacedSeparator { kind: &'static str, character: char },
}

/// What one kind of name may contain.
struct Rule {
    kind: &'static str,
    letter: fn(char) -> bool,
    separators: &'static [char],
    allowed: &'static str,
}

const CHAIN: Rule = Rule {
    kind: "chain name",
    letter: |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    separators: &['-'],
    allowed: "lower-case letters, digits and single hyphens between them",
};

const SYMBOL: Rule = Rule {
    kind: "asset symbol",
    letter: |c| c.is_ascii_uppercase() || c.is_ascii_digit(),
    separators: &['-', '.', '_'],
    allowed: "upper-case letters, digits and single '-', '.' or '_' between them",
};

fn check(rule: &Rule, text: &str) -> Result<(), NameError> {
    let kind = rule.kind;
    if text.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if text.len() > MAX_NAME_LEN {
        return Err(NameError::TooLong { kind });
    }
    // True at the start, so that a leading separator counts as a repeated one.
    let mut after_separator = true;
    for (at, character) in text.char_indices() {
        if (rule.letter)(character) {
            after_separator = false;
        } else if !rule.separators.contains(&character) {
            return Err(NameError::BadCharacter { kind, character, at, allowed: rule.allowed });
        } else if after_separator || at + 1 == text.len() {
            return Err(NameError::MisplacedSeparator { kind, character });
        } else {
            after_separator = true;
        }
    }
    Ok(())
}

macro_rules! name {
    ($(#[$meta:meta])* $name:ident, $rule:expr, $expecting:literal) => {
        $(#[$meta])*
        // Reference-counted, because jobs, watches and metric labels clone it all the time.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                check(&$rule, text).map(|()| Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        serde_as_text!($name, $expecting);
    };
}

name!(
    /// A chain, by slug: `bsc`, `tron`.
    ChainName,
    CHAIN,
    "a chain name"
);
name!(
    /// An asset, by symbol: `BNB`, `USDT`, `USDC.E`.
    AssetSymbol,
    SYMBOL,
    "an asset symbol"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        for good in ["bsc", "tron", "bsc-testnet", "1", "a2-b3-c4"] {
            assert_eq!(good.parse::<ChainName>().unwrap().as_str(), good);
        }
        for bad in ["", "BSC", "bsc ", "bsc_1", "-bsc", "bsc-", "a--b", "é", "bѕc", "a/b"] {
            assert!(bad.parse::<ChainName>().is_err(), "{bad:?}");
        }
        for good in ["BNB", "USDT", "1INCH", "USDC.E", "LP-1"] {
            assert_eq!(good.parse::<AssetSymbol>().unwrap().to_string(), good);
        }
        for bad in ["", "usdt", "USD₮", "USDT ", ".USDT", "USDT.", "A._B", "ÜSD"] {
            assert!(bad.parse::<AssetSymbol>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn each_refusal_says_why() {
        let error = |text: &str| text.parse::<ChainName>().unwrap_err();
        assert_eq!(error(""), NameError::Empty { kind: "chain name" });
        assert_eq!(error(&"a".repeat(33)), NameError::TooLong { kind: "chain name" });
        assert!("a".repeat(32).parse::<ChainName>().is_ok());
        assert!(matches!(error("bSc"), NameError::BadCharacter { character: 'S', at: 1, .. }));
        assert!(matches!(error("bsc-"), NameError::MisplacedSeparator { character: '-', .. }));
        assert_eq!(
            "usdt".parse::<AssetSymbol>().unwrap_err().to_string(),
            "asset symbol has 'u' at position 0; it takes upper-case letters, digits and single '-', '.' or '_' \
             between them"
        );
    }

    #[test]
    fn names_are_strings_in_json_and_checked_on_the_way_in() {
        let chain: ChainName = "bsc".parse().unwrap();
        assert_eq!(serde_json::to_string(&chain).unwrap(), "\"bsc\"");
        assert_eq!(serde_json::from_str::<ChainName>("\"bsc\"").unwrap(), chain);
        assert!(serde_json::from_str::<ChainName>("\"BSC\"").is_err());
    }
}
