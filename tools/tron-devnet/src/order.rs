//! Orders from outside the chain: money, tokens, resources, prices. Each makes the same change in every state.
//!
//! They are written to the journal and carried out again when the network is restored.

use alloy_primitives::U256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::crypto::{Address, sha256};
use crate::ledger::token::{Behaviour, Token};
use crate::network::Network;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Fund(Fund),
    Resources(Resources),
    Prices(NewPrices),
    Token(NewToken),
    Behaviour(NewBehaviour),
    Mint(Mint),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fund {
    address: String,
    sun: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    address: String,
    bandwidth_limit: Option<i64>,
    energy_limit: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPrices {
    energy_fee_sun: Option<i64>,
    bandwidth_fee_sun: Option<i64>,
    activation_fee_sun: Option<i64>,
    memo_fee_sun: Option<i64>,
    free_bandwidth: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Absent: derived from the symbol.
    address: Option<String>,
    symbol: String,
    decimals: u8,
    energy_to_holder: Option<i64>,
    energy_to_empty: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBehaviour {
    token: String,
    behaviour: Behaviour,
    /// Only towards this destination.
    to: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mint {
    token: String,
    to: String,
    amount: String,
}

/// The address of a token for which none is given; it is the same in every run.
pub fn token_address(symbol: &str) -> Address {
    let hash = sha256(format!("tron-devnet token {symbol}").as_bytes());
    let mut body = [0; 20];
    body.copy_from_slice(&hash[..20]);
    Address::from_body(body)
}

fn address(text: &str) -> Result<Address, String> {
    Address::from_any(text).ok_or_else(|| format!("{text:?} is no TRON address"))
}

fn known_token(network: &Network, text: &str) -> Result<Address, String> {
    let of = address(text)?;
    let known = network.chain.state(network.chain.head()).tokens.contains_key(&of);
    if known { Ok(of) } else { Err(format!("{of} is no token")) }
}

impl Order {
    pub(crate) fn apply(&self, network: &mut Network) -> Result<Value, String> {
        match self {
            Self::Fund(order) => {
                let to = address(&order.address)?;
                network.fund(to, order.sun);
            }
            Self::Resources(order) => {
                let of = address(&order.address)?;
                network.amend(|world| {
                    if let Some(account) = world.accounts.get_mut(&of) {
                        account.bandwidth_limit = order.bandwidth_limit.unwrap_or(account.bandwidth_limit);
                        account.energy_limit = order.energy_limit.unwrap_or(account.energy_limit);
                    }
                });
            }
            Self::Prices(order) => order.apply(network),
            Self::Token(order) => return order.apply(network),
            Self::Behaviour(order) => order.apply(network)?,
            Self::Mint(order) => {
                let (of, to) = (known_token(network, &order.token)?, address(&order.to)?);
                let value = U256::from_str_radix(&order.amount, 10)
                    .map_err(|error| format!("{:?} is no amount: {error}", order.amount))?;
                network.amend(|world| {
                    if let Some(token) = world.tokens.get_mut(&of) {
                        token.mint(to, value);
                    }
                });
            }
        }
        Ok(json!({}))
    }
}

impl NewPrices {
    fn apply(&self, network: &mut Network) {
        let prices = &mut network.prices;
        prices.energy_fee_sun = self.energy_fee_sun.unwrap_or(prices.energy_fee_sun).max(1);
        prices.bandwidth_fee_sun = self.bandwidth_fee_sun.unwrap_or(prices.bandwidth_fee_sun).max(0);
        prices.activation_fee_sun = self.activation_fee_sun.unwrap_or(prices.activation_fee_sun).max(0);
        prices.memo_fee_sun = self.memo_fee_sun.unwrap_or(prices.memo_fee_sun).max(0);
        prices.free_bandwidth = self.free_bandwidth.unwrap_or(prices.free_bandwidth).max(0);
    }
}

impl NewToken {
    fn apply(&self, network: &mut Network) -> Result<Value, String> {
        let at = match &self.address {
            Some(text) => address(text)?,
            None => token_address(&self.symbol),
        };
        network.amend(|world| {
            let token = world.tokens.entry(at).or_insert_with(|| Token::new(&self.symbol, self.decimals));
            token.energy_to_holder = self.energy_to_holder.unwrap_or(token.energy_to_holder);
            token.energy_to_empty = self.energy_to_empty.unwrap_or(token.energy_to_empty);
        });
        Ok(json!({ "address": at.base58(), "hex": at.hex() }))
    }
}

impl NewBehaviour {
    fn apply(&self, network: &mut Network) -> Result<(), String> {
        let of = known_token(network, &self.token)?;
        let to = self.to.as_deref().map(address).transpose()?;
        network.amend(|world| {
            if let Some(token) = world.tokens.get_mut(&of) {
                match to {
                    Some(to) => drop(token.towards.insert(to, self.behaviour)),
                    None => token.behaviour = self.behaviour,
                }
            }
        });
        Ok(())
    }
}
