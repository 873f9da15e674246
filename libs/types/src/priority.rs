//! How urgent a job is. The tables store the rank, a number, because the names do not sort: as text, `normal` comes after
//! `high`. Ranks are stored data and never change their meaning.

use crate::text::{excerpt, serde_as_text};

/// Why a text or a rank is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriorityError {
    #[error("{0:?} is not a priority: expected low, normal, high or urgent")]
    UnknownName(String),
    #[error("{0} is not the rank of a priority")]
    UnknownRank(i16),
}

impl PriorityError {
    fn unknown_name(text: &str) -> Self {
        Self::UnknownName(excerpt(text))
    }
}

/// Ordered by rank: `Low < Normal < High < Urgent`.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::FromRepr,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case", parse_err_ty = PriorityError, parse_err_fn = PriorityError::unknown_name)]
#[repr(i16)]
pub enum Priority {
    Low = 0,
    #[default]
    Normal = 1,
    High = 2,
    Urgent = 3,
}

impl Priority {
    /// What the tables store; `ORDER BY rank DESC` serves the most urgent first.
    pub const fn rank(self) -> i16 {
        self as i16
    }

    pub fn from_rank(rank: i16) -> Result<Self, PriorityError> {
        Self::from_repr(rank).ok_or(PriorityError::UnknownRank(rank))
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

serde_as_text!(Priority, "low, normal, high or urgent");

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn rank_order_is_urgency_order() {
        for pair in Priority::VARIANTS.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].rank() < pair[1].rank());
        }
    }

    #[test]
    fn names_and_ranks_read_back() {
        for &priority in Priority::VARIANTS {
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
