//! What the native asset of a family of chains can hold.

use crate::{AddressFormat, RawAmount};

impl AddressFormat {
    /// The largest amount of the native asset that one transaction can carry.
    pub fn max_native_amount(self) -> RawAmount {
        match self {
            Self::Evm => RawAmount::MAX,
            // TRON's native amounts are signed 64-bit integers.
            Self::Tron => RawAmount::from(i64::MAX.unsigned_abs()),
        }
    }
}
