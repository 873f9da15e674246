//! The flags of the command line and their meaning.

use std::net::SocketAddr;
use std::path::PathBuf;

use alloy_primitives::U256;
use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::crypto::Address;
use crate::ledger::World;
use crate::ledger::token::Token;
use crate::network::Setup;
use crate::order::token_address;

#[derive(Clone, Debug, Parser)]
#[command(name = "tron-devnet", about = "A TRON network in one process, for tests")]
pub struct Config {
    /// Where the first node listens; the next nodes and then the balancer take the ports after it.
    /// Port 0 lets the system choose each.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub nodes: u8,
    /// No listener but the first; the other nodes are below `/nodes/<number>`.
    #[arg(long)]
    pub one_port: bool,
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(i64).range(1..))]
    pub slot_ms: i64,
    /// Blocks built upon a block before it is solid.
    #[arg(long, default_value_t = 19)]
    pub solid_lag: u64,
    /// Blocks and time come by admin calls only.
    #[arg(long)]
    pub manual: bool,
    /// The time of the first block; without it the head begins now.
    #[arg(long)]
    pub genesis_ms: Option<i64>,
    /// `<address>=<sun>`; may be repeated.
    #[arg(long)]
    pub fund: Vec<String>,
    /// `<symbol>:<decimals>[:<address>]`, a TRC-20 token; may be repeated.
    #[arg(long)]
    pub token: Vec<String>,
    /// `<symbol>:<address>=<amount>`, in the token's smallest unit; may be repeated.
    #[arg(long)]
    pub mint: Vec<String>,
    /// A journal of the chain: started again on the same file, the network goes on where it was.
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Written once all listeners are open: JSON with `nodes`, `balancer` and `tokens`.
    #[arg(long)]
    pub port_file: Option<PathBuf>,
}

impl Config {
    /// The tokens of the command line, by symbol.
    pub fn tokens(&self) -> Result<Vec<(String, u8, Address)>> {
        self.token.iter().map(|text| parse_token(text)).collect()
    }

    /// What the network begins with.
    pub fn setup(&self) -> Result<Setup> {
        let mut world = World::default();
        for text in &self.fund {
            let (to, sun) = text.split_once('=').with_context(|| format!("--fund {text}: no '='"))?;
            let sun = sun.parse().with_context(|| format!("--fund {text}: not an amount in sun"))?;
            world.credit(parse_address(to)?, sun, 0);
        }
        let tokens = self.tokens()?;
        for (symbol, decimals, address) in &tokens {
            world.tokens.insert(*address, Token::new(symbol, *decimals));
        }
        for text in &self.mint {
            let parts = text.split_once(':').and_then(|(symbol, rest)| Some((symbol, rest.split_once('=')?)));
            let (symbol, (to, amount)) =
                parts.with_context(|| format!("--mint {text}: not <symbol>:<address>=<amount>"))?;
            let amount =
                U256::from_str_radix(amount, 10).with_context(|| format!("--mint {text}: not an amount"))?;
            let to = parse_address(to)?;
            let token = tokens
                .iter()
                .find(|(known, _, _)| known == symbol)
                .and_then(|(_, _, address)| world.tokens.get_mut(address))
                .with_context(|| format!("--mint {text}: no --token names {symbol}"))?;
            token.mint(to, amount);
        }
        Ok(Setup {
            nodes: usize::from(self.nodes),
            slot_ms: self.slot_ms,
            solid_lag: self.solid_lag,
            manual: self.manual,
            genesis_ms: self.genesis_ms,
            world,
        })
    }
}

fn parse_address(text: &str) -> Result<Address> {
    Address::from_any(text).with_context(|| format!("{text:?} is no TRON address"))
}

fn parse_token(text: &str) -> Result<(String, u8, Address)> {
    let mut parts = text.split(':');
    let (Some(symbol), Some(decimals)) = (parts.next(), parts.next()) else {
        bail!("--token {text}: not <symbol>:<decimals>[:<address>]");
    };
    let decimals = decimals.parse().with_context(|| format!("--token {text}: decimals"))?;
    let address = match parts.next() {
        Some(address) => parse_address(address)?,
        None => token_address(symbol),
    };
    Ok((symbol.to_owned(), decimals, address))
}
