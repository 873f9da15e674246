//! Conversions between the time types of protobuf and chrono.

use chrono::{DateTime, TimeDelta, Utc};
use prost_types::{Duration, Timestamp};

/// A time outside the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("time out of range")]
pub struct OutOfRange;

/// The range of `google.protobuf.Timestamp` in seconds since 1970.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub fn timestamp(at: DateTime<Utc>) -> Timestamp {
    // In a leap second the nanoseconds reach two seconds; protobuf allows one.
    let nanos = at.timestamp_subsec_nanos().min(999_999_999);
    Timestamp { seconds: at.timestamp(), nanos: i32::try_from(nanos).unwrap_or(999_999_999) }
}

pub fn datetime(at: &Timestamp) -> Result<DateTime<Utc>, OutOfRange> {
    let nanos = u32::try_from(at.nanos).map_err(|_| OutOfRange)?;
    if nanos > 999_999_999 || !SECONDS.contains(&at.seconds) {
        return Err(OutOfRange);
    }
    DateTime::from_timestamp(at.seconds, nanos).ok_or(OutOfRange)
}

pub fn duration(span: TimeDelta) -> Duration {
    Duration { seconds: span.num_seconds(), nanos: span.subsec_nanos() }
}

/// Negative spans are refused, because no field of ours is one.
pub fn span(span: &Duration) -> Result<std::time::Duration, OutOfRange> {
    // `TryFrom` of prost-types is not used, because it panics on the smallest negative duration.
    let span = span.normalized();
    let seconds = u64::try_from(span.seconds).map_err(|_| OutOfRange)?;
    let nanos = u32::try_from(span.nanos).map_err(|_| OutOfRange)?;
    Ok(std::time::Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_wire() {
        let at = DateTime::from_timestamp(1_790_000_000, 123_456_789).unwrap();
        assert_eq!(datetime(&timestamp(at)), Ok(at));
    }

    #[test]
    fn impossible_times_are_refused() {
        assert_eq!(datetime(&Timestamp { seconds: i64::MAX, nanos: 0 }), Err(OutOfRange));
        for edge in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"] {
            let at: DateTime<Utc> = edge.parse().unwrap();
            assert_eq!(datetime(&timestamp(at)), Ok(at));
        }
        for seconds in [SECONDS.start() - 1, SECONDS.end() + 1] {
            assert_eq!(datetime(&Timestamp { seconds, nanos: 0 }), Err(OutOfRange));
        }
        assert_eq!(datetime(&Timestamp { seconds: 0, nanos: -1 }), Err(OutOfRange));
        for (seconds, nanos) in [(-1, 0), (0, -1), (i64::MIN, 0), (i64::MIN, i32::MIN)] {
            assert_eq!(span(&Duration { seconds, nanos }), Err(OutOfRange));
        }
    }
}
