//! Page tokens: where a list goes on.
//!
//! Owns the encoding. A token is opaque to callers, versioned, and bound to the filter it was made under, so that a token
//! pasted under another filter is refused instead of silently skipping rows. It is no secret and no credential: whoever
//! may read the list may start anywhere in it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use tonic::Status;

use crate::error;

const VERSION: u8 = 1;
const FILTER_BYTES: usize = 8;

/// Rows per page when the caller names no number.
pub const DEFAULT_SIZE: u32 = 50;
/// Rows per page at most, as the contracts say.
pub const MAX_SIZE: u32 = 500;

/// A fingerprint of everything but the position that decides what a list contains: filters and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter([u8; FILTER_BYTES]);

impl Filter {
    /// From named values; the order in which they are given matters.
    #[must_use]
    pub fn of(list: &str, values: &[(&str, &str)]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(list).chain(values.iter().flat_map(|(name, value)| [*name, *value])) {
            // Length first: ("ab", "c") and ("a", "bc") are different filters.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        let mut short = [0; FILTER_BYTES];
        short.copy_from_slice(&digest[..FILTER_BYTES]);
        Self(short)
    }
}

/// A token for the page after the row with these sort values, for example its time and id.
#[must_use]
pub fn encode(filter: Filter, position: &[&str]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&filter.0);
    for part in position {
        bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Why a token cannot be used; as a status it is `INVALID_ARGUMENT` on `page_token`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("is not a token from an earlier page of this list")]
    Malformed,
    #[error("belongs to a list with another filter")]
    OtherFilter,
}

impl From<TokenError> for Status {
    fn from(error: TokenError) -> Self {
        error::invalid("page_token", error.to_string())
    }
}

/// The position inside a token; `None` for the empty token, which is the first page.
///
/// # Errors
/// When the token was not made by [`encode`] under the same filter with as many parts.
pub fn decode<const N: usize>(filter: Filter, token: &str) -> Result<Option<[String; N]>, TokenError> {
    if token.is_empty() {
        return Ok(None);
    }
    let malformed = || TokenError::Malformed;
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| malformed())?;
    let (version, rest) = bytes.split_first().ok_or_else(malformed)?;
    if *version != VERSION {
        return Err(malformed());
    }
    let (made_under, mut rest) = rest.split_at_checked(FILTER_BYTES).ok_or_else(malformed)?;
    if made_under != filter.0 {
        return Err(TokenError::OtherFilter);
    }
    let mut parts = Vec::with_capacity(N);
    while !rest.is_empty() {
        let (length, tail) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| malformed())?;
        let (part, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
        parts.push(String::from_utf8(part.to_vec()).map_err(|_| malformed())?);
        rest = tail;
    }
    parts.try_into().map(Some).map_err(|_| malformed())
}

/// The page size to use: the default for 0, at most [`MAX_SIZE`].
///
/// # Errors
/// `INVALID_ARGUMENT` on `page_size` when it is negative.
pub fn size(requested: impl Into<i64>) -> Result<u32, Status> {
    clamp(requested.into()).ok_or_else(|| error::invalid("page_size", "must not be negative"))
}

/// `None` for a negative number.
pub(crate) fn clamp(requested: i64) -> Option<u32> {
    match requested {
        0 => Some(DEFAULT_SIZE),
        n if n < 0 => None,
        n => Some(u32::try_from(n).unwrap_or(MAX_SIZE).min(MAX_SIZE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(status: &str) -> Filter {
        Filter::of("withdrawals", &[("status", status)])
    }

    #[test]
    fn a_token_leads_back_to_its_position() {
        let token = encode(filter("pending"), &["2026-01-02T03:04:05Z", "id-1"]);
        let position: Option<[String; 2]> = decode(filter("pending"), &token).unwrap();
        assert_eq!(position, Some(["2026-01-02T03:04:05Z".to_owned(), "id-1".to_owned()]));
    }

    #[test]
    fn a_token_under_another_filter_is_refused() {
        let token = encode(filter("pending"), &["x"]);
        assert_eq!(decode::<1>(filter("failed"), &token), Err(TokenError::OtherFilter));
    }

    #[test]
    fn nonsense_is_refused_and_nothing_is_the_first_page() {
        assert_eq!(decode::<1>(filter("x"), "").unwrap(), None);
        let good = encode(filter("x"), &["abc"]);
        for bad in ["!", "AA", &good[..good.len() - 2], &encode(filter("x"), &["a", "b"])] {
            assert!(decode::<1>(filter("x"), bad).is_err(), "{bad} decoded");
        }
    }

    #[test]
    fn page_size_is_clamped() {
        assert_eq!(size(0).unwrap(), DEFAULT_SIZE);
        assert_eq!(size(7).unwrap(), 7);
        assert_eq!(size(1_000_000).unwrap(), MAX_SIZE);
        assert!(size(-1).is_err());
    }
}
