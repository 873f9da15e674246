//! The real client: execution's gRPC API.
//!
//! Reads the catalogue, wallets and balances; the role `auditor` is enough for that. It carries out nothing: the API pays approved
//! withdrawals and sweeps deposits by rules, and has no call that moves funds between operation wallets. A worker that is not told to
//! run dry is therefore refused at start.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use proto::execution::v1 as wire;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use types::{Amount, AssetSymbol, Decimals, RawAmount};

use super::{Client, ClientError, Order};
use crate::book::{AssetOnChain, Book, Holding, Role, Wallet};
use crate::strategy::Kind;

/// Execution, as a client sees it.
#[derive(Debug, Clone)]
pub struct Execution {
    catalogue: CatalogueServiceClient<rpc::Client>,
    wallets: WalletServiceClient<rpc::Client>,
}

impl Execution {
    /// What the API can carry out: none of our moves.
    pub const OFFERS: &'static [Kind] = &[];

    #[must_use]
    pub fn new(client: rpc::Client) -> Self {
        Self {
            catalogue: CatalogueServiceClient::new(client.clone()),
            wallets: WalletServiceClient::new(client),
        }
    }
}

impl Client for Execution {
    fn offers(&self) -> &'static [Kind] {
        Self::OFFERS
    }

    async fn book(&self) -> Result<Book, ClientError> {
        let (mut catalogue, mut wallets) = (self.catalogue.clone(), self.wallets.clone());
        let failed = |what| move |status: tonic::Status| ClientError::Call { what, source: Box::new(status) };
        // Wallets first: whatever they hold is then in the catalogue, also when an asset is added between the two calls.
        let listed = wallets.list_operation_wallets(wire::ListOperationWalletsRequest::default()).await;
        let listed = listed.map_err(failed("listing wallets"))?.into_inner().wallets;
        let assets = catalogue.list_assets(wire::ListAssetsRequest::default()).await;
        let assets = assets.map_err(failed("listing assets"))?.into_inner().assets;
        let mut book = Book::default();
        for asset in &assets {
            let key = (parsed("asset.chain", &asset.chain)?, parsed("asset.symbol", &asset.symbol)?);
            let decimals = Decimals::try_from(asset.decimals).map_err(|e| wrong("asset.decimals", e))?;
            book.assets.insert(key, AssetOnChain { decimals, enabled: asset.enabled });
        }
        for wallet in &listed {
            let wallet = read_wallet(wallet, &book)?;
            book.wallets.insert(wallet.id, wallet);
        }
        Ok(book)
    }

    async fn execute(&self, order: Order<'_>) -> Result<String, ClientError> {
        let kind = order.a_move.kind;
        Err(ClientError::Refused(format!("execution's API has no call for a {kind}")))
    }
}

fn read_wallet(wallet: &wire::OperationWallet, book: &Book) -> Result<Wallet, ClientError> {
    let chain = parsed("wallet.chain", &wallet.chain)?;
    let role = match wallet.role() {
        wire::WalletRole::HotWallet => Role::Hot,
        wire::WalletRole::GasWallet => Role::Gas,
        wire::WalletRole::ColdWallet => Role::Cold,
        wire::WalletRole::Unspecified => return Err(wrong("wallet.role", "it is unknown here")),
    };
    let mut holdings = BTreeMap::new();
    for held in &wallet.holdings {
        let asset: AssetSymbol = parsed("holding.asset", &held.asset)?;
        let known = book.asset(&chain, &asset);
        let decimals =
            known.ok_or_else(|| wrong("holding.asset", "the catalogue does not list it"))?.decimals;
        let amount = |field, text: &str| Amount::parse(text, decimals).map_err(|e| wrong(field, e));
        let holding = Holding {
            balance: amount("holding.balance", &held.balance)?,
            reserved: amount("holding.reserved", &held.reserved)?,
            // The API says nothing of what is on its way.
            incoming: RawAmount::ZERO,
            block_number: held.block_number,
            stale: false,
        };
        // Block 0: registered, and never read from the chain.
        if held.block_number > 0 {
            holdings.insert(asset, holding);
        }
    }
    Ok(Wallet {
        id: parsed("wallet.id", &wallet.id)?,
        chain,
        address: wallet.address.clone(),
        role,
        active: wallet.status() == wire::WalletStatus::Active,
        holdings,
    })
}

fn parsed<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<T, ClientError> {
    text.parse().map_err(|error| wrong(field, error))
}

fn wrong(field: &'static str, reason: impl Display) -> ClientError {
    ClientError::Answer { field, reason: reason.to_string() }
}
