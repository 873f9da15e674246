//! How urgent a job is. The tables keep the rank, a number, because the words do not sort: as text, `normal` comes
//! after `high`. The ranks are stored data and never change meaning.

use std::fmt;
use std::str::FromStr;

use crate::text::{excerpt, serde_as_text};

/// Why a text or a rank is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriorityError {
    #[error("{0:?} is not a priority: expected low, normal, high or urgent")]
    UnknownName(String),
    #[error("{0} is not the rank of a priority")]
    UnknownRank(i16),
}

/// Ordered: `Low < Normal < High < Urgent`, as their ranks are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
    Urgent,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Urgent];

    /// What the tables keep; `ORDER BY rank DESC` serves the most urgent first.
    pub const fn rank(self) -> i16 {
        match self {
            Self::Low => 0,
            Self::Normal => 1,
            Self::High => 2,
            Self::Urgent => 3,
        }
    }

    pub const fn from_rank(rank: i16) -> Result<Self, PriorityError> {
        match rank {
            0 => Ok(Self::Low),
            1 => Ok(Self::Normal),
            2 => Ok(Self::High),
            3 => Ok(Self::Urgent),
            other => Err(PriorityError::UnknownRank(other)),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Urgent => "urgent",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = PriorityError;

    fn from_str(text: &str) -> Result<Self, PriorityError> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text)
            .ok_or_else(|| PriorityError::UnknownName(excerpt(text)))
    }
}

serde_as_text!(Priority, "low, normal, high or urgent");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_order_is_urgency_order() {
        for pair in Priority::ALL.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].rank() < pair[1].rank());
        }
    }

    #[test]
    fn names_and_ranks_read_back() {
        for priority in Priority::ALL {
            assert_eq!(Priority::from_rank(priority.rank()), Ok(priority));
            assert_eq!(priority.to_string().parse(), Ok(priority));
            let json = serde_json::to_string(&priority).unwrap();
            assert_eq!(serde_json::from_str::<Priority>(&json).unwrap(), priority);
        }
        assert_eq!(Priority::from_rank(4), Err(PriorityError::UnknownRank(4)));
        assert_eq!(Priority::from_rank(-1), Err(PriorityError::UnknownRank(-1)));
        for unknown in ["", "High", "URGENT", " low"] {
            assert!(unknown.parse::<Priority>().is_err(), "{unknown:?}");
        }
    }
}
