//! Execution's API over a real socket, with its roles, and wallets that a test fills.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use proto::execution::v1 as wire;
use proto::execution::v1::catalogue_service_server::{CatalogueService, CatalogueServiceServer};
use proto::execution::v1::wallet_service_server::{WalletService, WalletServiceServer};
use rpc::auth::{KeyConfig, new_key};
use rpc::{Auth, AuthConfig, Role, Secret, ServerConfig};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(crate) const HOT: [&str; 2] =
    ["01990000-0000-7000-8000-000000000001", "01990000-0000-7000-8000-000000000002"];
pub(crate) const COLD: &str = "01990000-0000-7000-8000-000000000003";

#[derive(Debug, Clone, Default)]
struct Api {
    wallets: Arc<Mutex<Vec<wire::OperationWallet>>>,
}

pub(crate) struct Server {
    address: SocketAddr,
    key: Secret,
    api: Api,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    /// Two hot wallets, one empty of BNB, the other with too much; USDT within bounds; cold storage.
    pub(crate) async fn start() -> Self {
        let (key, sha256) = new_key();
        let role: Role = "auditor".parse().unwrap();
        let keys = vec![KeyConfig { name: "float".to_owned(), sha256, roles: vec![role] }];
        let auth = Auth::new(&AuthConfig { keys, certificates: vec![] }).unwrap();
        let api = Api::default();
        let server = rpc::Server::new(ServerConfig::new("127.0.0.1:0".parse().unwrap()))
            .auth(auth)
            .service(WalletServiceServer::new(api.clone()))
            .service(CatalogueServiceServer::new(api.clone()));
        let bound = server.bind().await.unwrap();
        let (address, stop) = (bound.local_addr(), CancellationToken::new());
        tokio::spawn(bound.serve(stop.clone()));
        let server = Self { address, key, api, stop };
        server.hold(0, &[("BNB", "0.5", "0", 7), ("USDT", "2000", "500", 7)]);
        server.hold(1, &[("BNB", "45.123456789012345678", "0", 7), ("USDT", "2000", "0", 7)]);
        server.put(COLD, wire::WalletRole::ColdWallet, &[("BNB", "0", "0", 7), ("USDT", "0", "0", 7)]);
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn key(&self) -> &str {
        self.key.expose()
    }

    /// Sets what a hot wallet holds: asset, balance, reserved, block.
    pub(crate) fn hold(&self, wallet: usize, holdings: &[(&str, &str, &str, u64)]) {
        self.put(HOT[wallet], wire::WalletRole::HotWallet, holdings);
    }

    fn put(&self, id: &str, role: wire::WalletRole, holdings: &[(&str, &str, &str, u64)]) {
        let holdings = holdings.iter().map(|(asset, balance, reserved, block_number)| wire::AssetHolding {
            asset: (*asset).to_owned(),
            balance: (*balance).to_owned(),
            reserved: (*reserved).to_owned(),
            block_number: *block_number,
        });
        let wallet = wire::OperationWallet {
            id: id.to_owned(),
            chain: "bsc".to_owned(),
            address: format!("0x{id}"),
            role: role.into(),
            status: wire::WalletStatus::Active.into(),
            holdings: holdings.collect(),
            ..wire::OperationWallet::default()
        };
        let mut wallets = self.api.wallets.lock().unwrap();
        wallets.retain(|other| other.id != id);
        wallets.push(wallet);
    }
}

fn asset(symbol: &str, decimals: u32) -> wire::Asset {
    wire::Asset {
        symbol: symbol.to_owned(),
        chain: "bsc".to_owned(),
        decimals,
        enabled: true,
        ..wire::Asset::default()
    }
}

fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not part of this test"))
}

#[tonic::async_trait]
impl CatalogueService for Api {
    async fn put_chain(
        &self,
        _: Request<wire::PutChainRequest>,
    ) -> Result<Response<wire::PutChainResponse>, Status> {
        not_here()
    }

    async fn list_chains(
        &self,
        _: Request<wire::ListChainsRequest>,
    ) -> Result<Response<wire::ListChainsResponse>, Status> {
        not_here()
    }

    async fn put_asset(
        &self,
        _: Request<wire::PutAssetRequest>,
    ) -> Result<Response<wire::PutAssetResponse>, Status> {
        not_here()
    }

    async fn list_assets(
        &self,
        _: Request<wire::ListAssetsRequest>,
    ) -> Result<Response<wire::ListAssetsResponse>, Status> {
        Ok(Response::new(wire::ListAssetsResponse { assets: vec![asset("BNB", 18), asset("USDT", 6)] }))
    }
}

#[tonic::async_trait]
impl WalletService for Api {
    async fn list_operation_wallets(
        &self,
        _: Request<wire::ListOperationWalletsRequest>,
    ) -> Result<Response<wire::ListOperationWalletsResponse>, Status> {
        let wallets = self.wallets.lock().unwrap().clone();
        Ok(Response::new(wire::ListOperationWalletsResponse { wallets }))
    }

    async fn put_operation_wallet(
        &self,
        _: Request<wire::PutOperationWalletRequest>,
    ) -> Result<Response<wire::PutOperationWalletResponse>, Status> {
        not_here()
    }

    async fn register_user_wallets(
        &self,
        _: Request<wire::RegisterUserWalletsRequest>,
    ) -> Result<Response<wire::RegisterUserWalletsResponse>, Status> {
        not_here()
    }

    async fn list_user_wallets(
        &self,
        _: Request<wire::ListUserWalletsRequest>,
    ) -> Result<Response<wire::ListUserWalletsResponse>, Status> {
        not_here()
    }

    async fn list_wallet_balances(
        &self,
        _: Request<wire::ListWalletBalancesRequest>,
    ) -> Result<Response<wire::ListWalletBalancesResponse>, Status> {
        not_here()
    }

    async fn refresh_balances(
        &self,
        _: Request<wire::RefreshBalancesRequest>,
    ) -> Result<Response<wire::RefreshBalancesResponse>, Status> {
        not_here()
    }
}
