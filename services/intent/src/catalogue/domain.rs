//! One asset on one chain.
//!
//! Owns the checks of amounts and destinations against the catalogue. No I/O; it knows no users, limits or approvals.

use std::collections::BTreeSet;

use rpc::fields::Violation;
use types::{Address, AddressFormat, Amount, AssetSymbol, ChainName, Decimals, RawAmount, format_amount};

pub type AssetOnChain = (ChainName, AssetSymbol);

/// The chains and the assets, as two parameters of a statement.
pub(crate) fn columns(assets: &BTreeSet<AssetOnChain>) -> (Vec<&str>, Vec<&str>) {
    assets.iter().map(|(chain, asset)| (chain.as_str(), asset.as_str())).unzip()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueEntry {
    pub chain: ChainName,
    pub asset: AssetSymbol,
    pub format: AddressFormat,
    pub decimals: Decimals,
    /// `None` for the chain's native asset.
    pub contract: Option<Address>,
    pub enabled: bool,
    pub minimum: RawAmount,
    /// Increases with each change.
    pub revision: i64,
}

/// Whose address it is, as far as the catalogue knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    Unknown,
    /// What is sent to a token's contract is lost.
    TokenContract,
    /// A payment to one of our own wallets is not a withdrawal.
    OwnWallet,
}

impl AddressKind {
    /// Whether it may be a destination; the error says why not.
    pub fn check_destination(self) -> Result<(), String> {
        match self {
            Self::Unknown => Ok(()),
            Self::TokenContract => Err("is a token's contract, not a wallet".to_owned()),
            Self::OwnWallet => Err("is one of our own wallets".to_owned()),
        }
    }
}

pub fn unknown_asset(chain: &ChainName, asset: &AssetSymbol) -> Violation {
    Violation::new("asset", format_args!("{asset} is not known on {chain}"))
}

impl CatalogueEntry {
    /// The error says what is wrong with the amount.
    pub fn parse_amount(&self, text: &str) -> Result<RawAmount, String> {
        let amount = Amount::parse(text, self.decimals).map_err(|error| error.to_string())?;
        if amount.is_zero() {
            return Err("must be positive".to_owned());
        }
        // A larger amount could never be sent.
        if self.contract.is_none() && amount > self.format.max_native_amount() {
            return Err("is more than the chain's native amounts can hold".to_owned());
        }
        Ok(amount)
    }

    pub fn check_minimum(&self, amount: RawAmount) -> Result<(), String> {
        if amount < self.minimum {
            let minimum = format_amount(self.minimum, self.decimals);
            return Err(format!("is less than the smallest withdrawal, {minimum} {}", self.asset));
        }
        Ok(())
    }

    /// An address of this chain that somebody can have the key of. Whose it is has to be looked up, see [`AddressKind`].
    pub fn parse_destination(&self, text: &str) -> Result<Address, String> {
        let address = Address::parse(self.format, text).map_err(|error| error.to_string())?;
        if address.is_zero() {
            return Err("is the zero address, which nobody has a key for".to_owned());
        }
        if self.contract == Some(address) {
            AddressKind::TokenContract.check_destination()?;
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLET: &str = "0x52908400098527886E0F7030069857D2E4169EE7";
    const TOKEN: &str = "0x8617E340B3D01FA5F11F306F4090FD50E238070D";

    fn entry(format: AddressFormat, decimals: u8, contract: Option<&str>) -> CatalogueEntry {
        CatalogueEntry {
            chain: "bsc".parse().unwrap(),
            asset: "USDT".parse().unwrap(),
            format,
            decimals: Decimals::new(decimals).unwrap(),
            contract: contract.map(|text| text.parse().unwrap()),
            enabled: true,
            minimum: RawAmount::ZERO,
            revision: 1,
        }
    }

    #[test]
    fn amounts_are_exact_or_refused() {
        let max = RawAmount::MAX;
        for decimals in [0_u8, 6, 18, 27] {
            let entry = entry(AddressFormat::Evm, decimals, Some(TOKEN));
            let largest = format_amount(max, entry.decimals);
            assert_eq!(entry.parse_amount(&largest), Ok(max), "{decimals} decimals");
            assert_eq!(
                entry.parse_amount("1").unwrap().to_string(),
                format!("1{}", "0".repeat(decimals.into()))
            );
            let too_precise = format!("0.{}1", "0".repeat(decimals.into()));
            for bad in
                ["0", "-1", "1e3", "1,5", "", " 1", "0x1", "NaN", "1_000", &too_precise, &format!("{max}0")]
            {
                assert!(entry.parse_amount(bad).is_err(), "{bad:?} with {decimals} decimals");
            }
        }
    }

    #[test]
    fn native_amounts_of_tron_fit_its_integers() {
        let native = entry(AddressFormat::Tron, 6, None);
        assert!(native.parse_amount("9223372036854.775807").is_ok());
        assert!(native.parse_amount("9223372036854.775808").is_err());
        let token = entry(AddressFormat::Tron, 6, Some("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"));
        assert!(token.parse_amount("9223372036854.775808").is_ok());
    }

    #[test]
    fn money_cannot_go_where_it_would_be_lost() {
        let entry = entry(AddressFormat::Evm, 18, Some(TOKEN));
        assert_eq!(entry.parse_destination(&WALLET.to_lowercase()).unwrap().to_string(), WALLET);
        assert!(entry.parse_destination(TOKEN).is_err());
        assert!(entry.parse_destination(&format!("0x{}", "0".repeat(40))).is_err());
        assert!(entry.parse_destination("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t").is_err());
        // One letter of the checksum changed its case.
        assert!(entry.parse_destination("0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed").is_err());
        assert!(AddressKind::Unknown.check_destination().is_ok());
        assert!(AddressKind::TokenContract.check_destination().is_err());
        assert!(AddressKind::OwnWallet.check_destination().is_err());
    }
}
