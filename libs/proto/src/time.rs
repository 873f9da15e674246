//! Conversions between the wire's time types and ours.

use chrono::{DateTime, TimeDelta, Utc};
use prost_types::{Duration, Timestamp};

/// A time on the wire outside the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("time out of range")]
pub struct OutOfRange;

/// What `google.protobuf.Timestamp` allows, in seconds since 1970. No database of ours holds all that a calendar does.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// To the wire.
pub fn timestamp(at: DateTime<Utc>) -> Timestamp {
    // Leap seconds make the subsecond part reach two seconds; the wire allows one.
    let nanos = at.timestamp_subsec_nanos().min(999_999_999);
    Timestamp { seconds: at.timestamp(), nanos: i32::try_from(nanos).unwrap_or(999_999_999) }
}

/// From the wire.
pub fn datetime(at: &Timestamp) -> Result<DateTime<Utc>, OutOfRange> {
    let nanos = u32::try_from(at.nanos).map_err(|_| OutOfRange)?;
    if nanos > 999_999_999 || !SECONDS.contains(&at.seconds) {
        return Err(OutOfRange);
    }
    DateTime::from_timestamp(at.seconds, nanos).ok_or(OutOfRange)
}

/// To the wire.
pub fn duration(span: TimeDelta) -> Duration {
    Duration { seconds: span.num_seconds(), nanos: span.subsec_nanos() }
}

/// From the wire; negative spans are refused, since no field of ours means one.
pub fn span(span: &Duration) -> Result<std::time::Duration, OutOfRange> {
    // Not by `TryFrom` of prost-types: it negates a negative duration for its error, and panics on the smallest one.
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
