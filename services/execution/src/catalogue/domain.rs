//! What a chain and an asset are, and which of their facts may change. No I/O.
//!
//! Invariant: whatever a stored job or a signed transaction depends on (kind, network, decimals, contract) never changes.

use types::{Address, AddressFormat, AssetId, AssetSymbol, ChainName, Decimals, RawAmount};

use super::CatalogueError;

/// When a block counts as final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finality {
    /// After this many blocks on top.
    Depth(u32),
    /// When the chain itself says so.
    Chain,
}

/// A chain and how to deal with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub name: ChainName,
    /// Its family: the protocol its nodes speak and the form of its addresses.
    pub kind: AddressFormat,
    pub network_id: u64,
    /// Addresses of nodes. They may hold credentials: never logged.
    pub nodes: Vec<String>,
    pub finality: Finality,
    pub dynamic_fees: bool,
    pub max_gas_price: RawAmount,
    pub max_fee: RawAmount,
    pub bump_after_seconds: u32,
    pub enabled: bool,
    pub native_asset: AssetSymbol,
    /// Grows with each change; 0 before it is stored.
    pub revision: u64,
}

impl Chain {
    /// Whether `new` may take the place of this one.
    pub fn may_become(&self, new: &Self) -> Result<(), CatalogueError> {
        let fixed = |field| Err(CatalogueError::Fixed { what: "chain", field });
        if self.kind != new.kind {
            return fixed("kind");
        }
        if self.network_id != new.network_id {
            return fixed("network_id");
        }
        if self.native_asset != new.native_asset {
            return fixed("native_asset");
        }
        Ok(())
    }

    /// The same but for the revision.
    pub fn same_as(&self, other: &Self) -> bool {
        Self { revision: other.revision, ..self.clone() } == *other
    }
}

/// An asset as it exists on one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    pub id: AssetId,
    pub chain: ChainName,
    pub symbol: AssetSymbol,
    /// None for the chain's native asset.
    pub contract: Option<Address>,
    pub decimals: Decimals,
    pub enabled: bool,
    pub min_withdrawal: RawAmount,
}

/// An asset to be stored; its contract is read once the chain's kind is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAsset {
    pub chain: ChainName,
    pub symbol: AssetSymbol,
    pub is_native: bool,
    pub contract_address: String,
    pub decimals: Decimals,
    pub enabled: bool,
    pub min_withdrawal: RawAmount,
}

impl NewAsset {
    /// The asset this would be on `chain`.
    pub fn on(self, chain: &Chain) -> Result<Asset, CatalogueError> {
        let wrong = |field, problem: String| CatalogueError::Invalid { field, problem };
        let contract = match (self.is_native, self.contract_address.as_str()) {
            (true, "") if self.symbol == chain.native_asset => None,
            (true, "") => {
                let problem = format!("the native asset of {} is {}", chain.name, chain.native_asset);
                return Err(wrong("asset.symbol", problem));
            }
            (true, _) => return Err(wrong("asset.contract_address", "a native asset has none".to_owned())),
            (false, _) if self.symbol == chain.native_asset => {
                return Err(wrong("asset.is_native", format!("{} is native on {}", self.symbol, chain.name)));
            }
            (false, text) => {
                let address = Address::parse(chain.kind, text)
                    .map_err(|error| wrong("asset.contract_address", error.to_string()))?;
                if address.is_zero() {
                    return Err(wrong("asset.contract_address", "is the zero address".to_owned()));
                }
                Some(address)
            }
        };
        Ok(Asset {
            id: AssetId::new(),
            chain: self.chain,
            symbol: self.symbol,
            contract,
            decimals: self.decimals,
            enabled: self.enabled,
            min_withdrawal: self.min_withdrawal,
        })
    }
}

impl Asset {
    pub fn is_native(&self) -> bool {
        self.contract.is_none()
    }

    /// Whether `new` may take the place of this one.
    pub fn may_become(&self, new: &Self) -> Result<(), CatalogueError> {
        let fixed = |field| Err(CatalogueError::Fixed { what: "asset", field });
        if self.decimals != new.decimals {
            return fixed("decimals");
        }
        if self.contract != new.contract {
            return fixed("contract_address");
        }
        Ok(())
    }
}
