//! What the wallets hold, as the client reads it; and how old that is.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use types::{AssetSymbol, ChainName, Decimals, RawAmount, WalletId};

/// What a wallet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Pays; its float is kept.
    Hot,
    /// Tops up deposit wallets.
    Gas,
    /// Receives what exceeds the float. Never pays.
    Cold,
}

/// One asset in one wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Last read from the chain.
    pub balance: RawAmount,
    /// Spoken for by payments that are not finished, moves out of the wallet included.
    pub reserved: RawAmount,
    /// On its way by moves that were carried out and that the balance does not show yet.
    pub incoming: RawAmount,
    /// Block at which the balance was read.
    pub block_number: u64,
    /// The balance has not been read for too long to act on it.
    pub stale: bool,
}

impl Holding {
    /// What may leave the wallet now.
    #[must_use]
    pub fn movable(&self) -> RawAmount {
        self.balance.saturating_sub(self.reserved)
    }
}

/// A wallet of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wallet {
    pub id: WalletId,
    pub chain: ChainName,
    pub address: String,
    pub role: Role,
    /// Whether it takes new work.
    pub active: bool,
    /// An asset that is not here has never been read, which is not the same as zero.
    pub holdings: BTreeMap<AssetSymbol, Holding>,
}

/// An asset on a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssetOnChain {
    pub decimals: Decimals,
    pub enabled: bool,
}

/// All wallets and assets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Book {
    pub assets: BTreeMap<(ChainName, AssetSymbol), AssetOnChain>,
    /// By id.
    pub wallets: BTreeMap<WalletId, Wallet>,
}

impl Book {
    #[must_use]
    pub fn asset(&self, chain: &ChainName, asset: &AssetSymbol) -> Option<AssetOnChain> {
        self.assets.get(&(chain.clone(), asset.clone())).copied()
    }

    /// Active wallets of a role on a chain, by id.
    pub fn active(&self, chain: &ChainName, role: Role) -> impl Iterator<Item = &Wallet> {
        self.wallets.values().filter(move |w| w.active && w.role == role && w.chain == *chain)
    }
}

/// Notices balances that nobody reads any more: execution reads them all the time, and each reading names a later block.
#[derive(Debug)]
pub struct Ages {
    max_age: Duration,
    seen: HashMap<(WalletId, AssetSymbol), (u64, Instant)>,
}

impl Ages {
    #[must_use]
    pub fn new(max_age: Duration) -> Self {
        Self { max_age, seen: HashMap::new() }
    }

    /// Marks what was read at the same block for longer than allowed. What is seen for the first time counts as fresh.
    pub fn mark(&mut self, book: &mut Book, now: Instant) {
        let mut seen = HashMap::new();
        for wallet in book.wallets.values_mut() {
            for (asset, holding) in &mut wallet.holdings {
                let key = (wallet.id, asset.clone());
                let since = match self.seen.get(&key) {
                    Some((block, since)) if *block == holding.block_number => *since,
                    Some(_) | None => now,
                };
                holding.stale = now.saturating_duration_since(since) > self.max_age;
                seen.insert(key, (holding.block_number, since));
            }
        }
        // Replaced as a whole, so that wallets that are gone are forgotten.
        self.seen = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_read_at_the_same_block_for_too_long_is_stale_until_it_is_read_again() {
        let (id, asset): (_, AssetSymbol) = (WalletId::new(), "BNB".parse().unwrap());
        let book = |block_number| {
            let holding = Holding {
                balance: RawAmount::ZERO,
                reserved: RawAmount::ZERO,
                incoming: RawAmount::ZERO,
                block_number,
                stale: false,
            };
            let chain = "bsc".parse().unwrap();
            let holdings = [(asset.clone(), holding)].into();
            let wallet =
                Wallet { id, chain, address: String::new(), role: Role::Hot, active: true, holdings };
            Book { assets: BTreeMap::new(), wallets: [(id, wallet)].into() }
        };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut ages = Ages::new(second * 10);
        let mut stale_at = |block, after| {
            let mut book = book(block);
            ages.mark(&mut book, start + after);
            book.wallets[&id].holdings[&asset].stale
        };
        assert!(!stale_at(7, Duration::ZERO));
        assert!(!stale_at(7, second * 10));
        assert!(stale_at(7, second * 11));
        assert!(!stale_at(8, second * 12));
        assert!(!stale_at(8, second * 22));
        assert!(stale_at(8, second * 23));
    }
}
