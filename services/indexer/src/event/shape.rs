//! The shape of an event, parsed from its ABI signature. No I/O.

use alloy::dyn_abi::{DynSolEvent, Specifier as _};
use alloy::json_abi::{Event, EventParam};
use alloy_primitives::B256;

use super::FEES_COLLECTED;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ShapeError {
    #[error(
        "is not an event signature such as `Transfer(address indexed from, address indexed to, uint256 value)`: {0}"
    )]
    Syntax(String),
    #[error("has a type that does not exist: {0}")]
    Type(String),
    #[error("an anonymous event has no topic to filter by")]
    Anonymous,
    #[error("at most three parameters can be indexed")]
    TooManyIndexed,
    #[error("two parameters are named `{0}`")]
    SameName(String),
    #[error("parameter `{0}` cannot be stored under that name")]
    BadName(String),
}

#[derive(Debug, Clone)]
pub(crate) struct EventShape {
    pub(crate) name: String,
    pub(crate) topic0: B256,
    /// In the order of the signature; unnamed ones are called `arg0`, `arg1`, by their place.
    pub(crate) params: Vec<EventParam>,
    pub(crate) abi: DynSolEvent,
}

impl PartialEq for EventShape {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.params == other.params && self.abi == other.abi
    }
}

impl EventShape {
    pub(crate) fn parse(signature: &str) -> Result<Self, ShapeError> {
        let text = signature.trim();
        let text = text.strip_prefix("event ").unwrap_or(text).trim().trim_end_matches(';');
        let mut event = Event::parse(text).map_err(|error| ShapeError::Syntax(error.to_string()))?;
        if event.anonymous {
            return Err(ShapeError::Anonymous);
        }
        if event.inputs.iter().filter(|param| param.indexed).count() > 3 {
            return Err(ShapeError::TooManyIndexed);
        }
        for (place, param) in event.inputs.iter_mut().enumerate() {
            if param.name.is_empty() {
                param.name = format!("arg{place}");
            }
        }
        for (place, param) in event.inputs.iter().enumerate() {
            if event.inputs[..place].iter().any(|other| other.name == param.name) {
                return Err(ShapeError::SameName(param.name.clone()));
            }
            if param.name.starts_with('$') || param.name.contains('.') {
                return Err(ShapeError::BadName(param.name.clone()));
            }
        }
        let abi = event.resolve().map_err(|error| ShapeError::Type(error.to_string()))?;
        Ok(Self { name: event.name.clone(), topic0: event.selector(), params: event.inputs, abi })
    }

    /// Whether this is LiFi's fee event, which has its own collection.
    pub(crate) fn is_fees_collected(&self) -> bool {
        // Names are not part of an event's identity; types and what is indexed are.
        Self::parse(FEES_COLLECTED).is_ok_and(|fees| fees.topic0 == self.topic0 && fees.abi == self.abi)
    }

    /// The topic (1 to 3) of an indexed address parameter.
    pub(crate) fn indexed_address(&self, name: &str) -> Option<usize> {
        let mut indexed = self.params.iter().filter(|param| param.indexed);
        let place = indexed.position(|param| param.name == name)?;
        let param = self.params.iter().find(|param| param.name == name)?;
        (param.ty == "address").then_some(place + 1)
    }

    /// The indexed parameters: those that can be filtered by.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = &EventParam> {
        self.params.iter().filter(|param| param.indexed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_gives_topic_and_places() {
        let transfer =
            EventShape::parse("event Transfer(address indexed from, address indexed to, uint256 value);")
                .unwrap();
        assert_eq!(
            transfer.topic0.to_string(),
            "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
        );
        assert_eq!((transfer.indexed_address("from"), transfer.indexed_address("to")), (Some(1), Some(2)));
        assert_eq!(transfer.indexed_address("value"), None);
        assert!(!transfer.is_fees_collected());
    }

    #[test]
    fn the_fee_event_is_known_under_any_parameter_names() {
        assert!(EventShape::parse(FEES_COLLECTED).unwrap().is_fees_collected());
        let renamed = "FeesCollected(address indexed t, address indexed i, uint256 a, uint256 b)";
        assert!(EventShape::parse(renamed).unwrap().is_fees_collected());
        let unindexed = "FeesCollected(address t, address i, uint256 a, uint256 b)";
        assert!(!EventShape::parse(unindexed).unwrap().is_fees_collected());
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for bad in [
            "",
            "Transfer",
            "Transfer(",
            "Transfer(addres x)",
            "T(uint256 indexed a, uint256 indexed b, uint256 indexed c, uint256 indexed d)",
            "T(uint256 a, uint256 a)",
            "T(uint256 a) anonymous",
        ] {
            assert!(EventShape::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nameless_parameters_get_names_by_place() {
        let shape = EventShape::parse("Deposit(address indexed, uint256)").unwrap();
        let names: Vec<_> = shape.params.iter().map(|param| param.name.as_str()).collect();
        assert_eq!(names, ["arg0", "arg1"]);
    }
}
