//! Typed ids: one type per noun over a UUID, so that a job's id cannot be passed where a wallet's id is wanted.
//!
//! New ids are UUIDv7: they sort by creation time, so that inserts touch few index pages. Ids made elsewhere may be of any version.
//! The only text form is the hyphenated one (no braces, no `urn:uuid:`, no bare hex), because two spellings of one id would be two
//! idempotency keys to code that compares text. Parsing accepts both cases; `Display` writes lower case.

use uuid::Uuid;

use crate::text::excerpt;

/// A text that is not the id it was given for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: expected a hyphenated uuid")]
pub struct IdError {
    /// The kind of id that was expected, for example `withdrawal id`.
    pub kind: &'static str,
    /// The beginning of what was refused.
    pub text: String,
}

#[doc(hidden)]
pub fn parse_hyphenated(kind: &'static str, text: &str) -> Result<Uuid, IdError> {
    text.parse::<uuid::fmt::Hyphenated>().map(Uuid::from).map_err(|_| IdError { kind, text: excerpt(text) })
}

/// Declares an id type: `typed_id!(/** doc */ WithdrawalId, "withdrawal id");`
#[macro_export]
macro_rules! typed_id {
    ($(#[$meta:meta])* $name:ident, $kind:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($crate::__private::uuid::Uuid);

        // There is no `Default`: leaving a field out must not create an id that names nothing.
        #[allow(clippy::new_without_default, reason = "each call gives another id, which is no default")]
        impl $name {
            /// A fresh UUIDv7.
            pub fn new() -> Self {
                Self($crate::__private::uuid::Uuid::now_v7())
            }

            pub const fn from_uuid(uuid: $crate::__private::uuid::Uuid) -> Self {
                Self(uuid)
            }

            pub const fn as_uuid(&self) -> $crate::__private::uuid::Uuid {
                self.0
            }
        }

        impl From<$crate::__private::uuid::Uuid> for $name {
            fn from(uuid: $crate::__private::uuid::Uuid) -> Self {
                Self(uuid)
            }
        }

        impl From<$name> for $crate::__private::uuid::Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0.as_hyphenated())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::id::IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::id::parse_hyphenated($kind, text).map(Self)
            }
        }

        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> $crate::__private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as $crate::__private::serde::Deserialize>::deserialize(
                    deserializer,
                )?;
                text.parse().map_err($crate::__private::serde::de::Error::custom)
            }
        }
    };
}

typed_id!(
    /// A withdrawal request; the same id names its payment to execution, confirmation and the signer.
    WithdrawalId,
    "withdrawal id"
);
typed_id!(
    /// A job in one of the execution queues.
    JobId,
    "job id"
);
typed_id!(
    /// One signed transaction of a job.
    AttemptId,
    "attempt id"
);
typed_id!(
    /// An operation wallet or a user wallet.
    WalletId,
    "wallet id"
);
typed_id!(
    /// The wallets derived from one sealed seed.
    WalletGroupId,
    "wallet group id"
);
typed_id!(
    /// An asset of the catalogue.
    AssetId,
    "asset id"
);
typed_id!(
    /// The owner of a user wallet.
    UserId,
    "user id"
);

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        assert_eq!(TEXT.parse::<JobId>().unwrap().to_string(), TEXT);
        assert_eq!(TEXT.to_uppercase().parse::<JobId>().unwrap().to_string(), TEXT);
        for refused in [
            "",
            "01890a5dac96774bbcceb302099a8057",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
            "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057",
            " 01890a5d-ac96-774b-bcce-b302099a8057",
            "01890a5d-ac96-774b-bcce-b302099a8057\n",
            "01890a5d-ac96-774b-bcce-b302099a805",
            "01890a5d-ac96-774b-bcceb-302099a8057",
            "01890a5d-ac96-774b-bcce-b302099a805g",
            "01890a5d-ac96-774b-bcce-b302099a80é",
        ] {
            assert!(refused.parse::<JobId>().is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_kind_and_a_bounded_excerpt() {
        let error = "nonsense".parse::<WalletGroupId>().unwrap_err();
        assert_eq!(error.to_string(), "\"nonsense\" is not a wallet group id: expected a hyphenated uuid");
        let error = "x".repeat(10_000).parse::<WithdrawalId>().unwrap_err();
        assert_eq!(error.kind, "withdrawal id");
        assert_eq!(error.text.chars().count(), crate::text::EXCERPT_CHARS + 1);
    }

    #[test]
    fn new_ids_are_version_7_and_differ() {
        let (first, second) = (AttemptId::new(), AttemptId::new());
        assert_eq!(first.as_uuid().get_version_num(), 7);
        assert_ne!(first, second);
        assert!(first < second);
    }

    #[test]
    fn an_id_is_a_string_in_json() {
        let id: UserId = TEXT.parse().unwrap();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{TEXT}\""));
        assert_eq!(serde_json::from_str::<UserId>(&json).unwrap(), id);
        assert_eq!(serde_json::from_value::<UserId>(TEXT.into()).unwrap(), id);
        assert!(serde_json::from_str::<UserId>("\"01890a5dac96774bbcceb302099a8057\"").is_err());
    }
}
