//! The oracle: how often, and how much, was really paid.
//!
//! It reads the movements of value in the blocks of the winning branch, so that a payment counts by what happened and not by what any
//! node said.

use alloy_primitives::U256;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::crypto::Address;
use crate::network::Network;
use crate::wire::TxId;

/// Absent fields match all payments.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaymentFilter {
    pub to: Option<String>,
    pub from: Option<String>,
    /// A token's address, or `TRX`.
    pub token: Option<String>,
    pub amount: Option<String>,
    /// Only blocks from this number on.
    pub since: Option<u64>,
}

fn party(text: Option<&String>) -> Result<Option<Address>, String> {
    text.map(|text| Address::from_any(text).ok_or_else(|| format!("{text:?} is no TRON address"))).transpose()
}

/// The number, the sum and the list of matching payments.
pub fn payments(chain: &Chain, question: &PaymentFilter) -> Result<Value, String> {
    let (to, from) = (party(question.to.as_ref())?, party(question.from.as_ref())?);
    let token = match question.token.as_deref() {
        None => None,
        Some("TRX") => Some(None),
        Some(text) => Some(Some(Address::from_any(text).ok_or_else(|| format!("{text:?} is no token"))?)),
    };
    let amount = question.amount.as_deref().map(|text| U256::from_str_radix(text, 10)).transpose();
    let amount = amount.map_err(|error| format!("amount: {error}"))?;
    let (mut total, mut solid_count, mut list) = (U256::ZERO, 0_u64, Vec::new());
    let since = usize::try_from(question.since.unwrap_or(0)).unwrap_or(usize::MAX);
    for block in chain.blocks().iter().skip(since) {
        for included in &block.transactions {
            for movement in &included.outcome.movements {
                let asked = to.is_none_or(|to| to == movement.to)
                    && from.is_none_or(|from| from == movement.from)
                    && token.is_none_or(|token| token == movement.token)
                    && amount.is_none_or(|amount| amount == movement.amount);
                if !asked {
                    continue;
                }
                let solid = block.number <= chain.solid();
                solid_count += u64::from(solid);
                total = total.saturating_add(movement.amount);
                list.push(json!({
                    "txid": hex::encode(included.tx.id),
                    "block": block.number,
                    "solid": solid,
                    "token": movement.token.map_or_else(|| "TRX".to_owned(), |token| token.base58()),
                    "from": movement.from.base58(),
                    "to": movement.to.base58(),
                    "amount": movement.amount.to_string(),
                }));
            }
        }
    }
    Ok(json!({
        "count": list.len(),
        "solid_count": solid_count,
        "total": total.to_string(),
        "payments": list,
    }))
}

/// Where a transaction is, across the network.
pub fn transaction(network: &Network, id: &TxId) -> Value {
    let block = network.chain.height_of(id);
    let pools: Vec<usize> = network
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.pooled(id).is_some())
        .map(|(number, _)| number)
        .collect();
    json!({
        "block": block,
        "solid": block.is_some_and(|number| number <= network.chain.solid()),
        "pools": pools,
        "producers": network.pool.iter().any(|tx| tx.id == *id),
    })
}
