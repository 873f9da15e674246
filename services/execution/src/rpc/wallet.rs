//! WalletService.

use proto::execution::v1 as wire;
use proto::execution::v1::wallet_service_server::WalletService;
use tonic::{Request, Response, Status};
use types::{WalletGroupId, format_amount};

use super::consolidation::not_served;
use super::parse::{Mistakes, one, required};
use crate::wallet::{Holding, NewWallet, OperationWallet, WalletRole, WalletStatus, Wallets};

const MAX_LABEL: usize = 200;
const MAX_ADDRESSES: usize = 1000;

#[derive(Debug)]
pub(super) struct WalletRpc {
    wallets: Wallets,
}

impl WalletRpc {
    pub(super) fn new(wallets: Wallets) -> Self {
        Self { wallets }
    }
}

#[tonic::async_trait]
impl WalletService for WalletRpc {
    async fn put_operation_wallet(
        &self,
        request: Request<wire::PutOperationWalletRequest>,
    ) -> Result<Response<wire::PutOperationWalletResponse>, Status> {
        let wallet = parse_wallet(&required("wallet", request.into_inner().wallet)?)?;
        let wallet = self.wallets.put(wallet).await?;
        Ok(Response::new(wire::PutOperationWalletResponse { wallet: Some(show(&wallet)) }))
    }

    async fn list_operation_wallets(
        &self,
        request: Request<wire::ListOperationWalletsRequest>,
    ) -> Result<Response<wire::ListOperationWalletsResponse>, Status> {
        let request = request.into_inner();
        let mut mistakes = Mistakes::default();
        let chain = mistakes.parse_opt("chain", &request.chain);
        mistakes.none()?;
        let role = role_of(request.role());
        let wallets = self.wallets.list(chain.as_ref(), role).await?;
        Ok(Response::new(wire::ListOperationWalletsResponse { wallets: wallets.iter().map(show).collect() }))
    }

    async fn register_user_wallets(
        &self,
        _: Request<wire::RegisterUserWalletsRequest>,
    ) -> Result<Response<wire::RegisterUserWalletsResponse>, Status> {
        Err(not_served("deposit wallets"))
    }

    async fn list_user_wallets(
        &self,
        _: Request<wire::ListUserWalletsRequest>,
    ) -> Result<Response<wire::ListUserWalletsResponse>, Status> {
        Err(not_served("deposit wallets"))
    }

    async fn list_wallet_balances(
        &self,
        _: Request<wire::ListWalletBalancesRequest>,
    ) -> Result<Response<wire::ListWalletBalancesResponse>, Status> {
        Err(not_served("balances of deposit wallets"))
    }

    async fn refresh_balances(
        &self,
        request: Request<wire::RefreshBalancesRequest>,
    ) -> Result<Response<wire::RefreshBalancesResponse>, Status> {
        let request = request.into_inner();
        let chain = one("chain", &request.chain)?;
        if request.addresses.len() > MAX_ADDRESSES {
            return Err(rpc::error::invalid("addresses", format!("at most {MAX_ADDRESSES}")));
        }
        let refreshed = self.wallets.refresh(&chain, &request.addresses).await?;
        Ok(Response::new(wire::RefreshBalancesResponse { refreshed }))
    }
}

fn role_of(role: wire::WalletRole) -> Option<WalletRole> {
    match role {
        wire::WalletRole::Unspecified => None,
        wire::WalletRole::HotWallet => Some(WalletRole::Hot),
        wire::WalletRole::GasWallet => Some(WalletRole::Gas),
        wire::WalletRole::ColdWallet => Some(WalletRole::Cold),
    }
}

fn parse_wallet(wallet: &wire::OperationWallet) -> Result<NewWallet, Status> {
    let mut mistakes = Mistakes::default();
    let chain = mistakes.parse("wallet.chain", &wallet.chain);
    let role = role_of(wallet.role());
    if role.is_none() {
        mistakes.note("wallet.role", "must be named");
    }
    let status = match wallet.status() {
        wire::WalletStatus::Unspecified | wire::WalletStatus::Active => WalletStatus::Active,
        wire::WalletStatus::Paused => WalletStatus::Paused,
        wire::WalletStatus::Retired => WalletStatus::Retired,
    };
    let group = mistakes.parse_opt::<WalletGroupId>("wallet.wallet_group_id", &wallet.wallet_group_id);
    if group.is_none() && wallet.wallet_group_id.is_empty() && role != Some(WalletRole::Cold) {
        mistakes.note("wallet.wallet_group_id", "only cold storage has none");
    }
    // BIP-44 indexes are 31 bits.
    if i32::try_from(wallet.derivation_index).is_err() {
        mistakes.note("wallet.derivation_index", "must be below 2^31");
    }
    if wallet.label.len() > MAX_LABEL {
        mistakes.note("wallet.label", format!("at most {MAX_LABEL} bytes"));
    }
    if wallet.label.chars().any(char::is_control) {
        mistakes.note("wallet.label", "must not have control characters");
    }
    let parsed = (|| {
        Some(NewWallet {
            chain: chain?,
            address: wallet.address.clone(),
            role: role?,
            status,
            key: group.map(|group| (group, wallet.derivation_index)),
            label: wallet.label.clone(),
        })
    })();
    mistakes.done(parsed)
}

fn show(wallet: &OperationWallet) -> wire::OperationWallet {
    let role = match wallet.role {
        WalletRole::Hot => wire::WalletRole::HotWallet,
        WalletRole::Gas => wire::WalletRole::GasWallet,
        WalletRole::Cold => wire::WalletRole::ColdWallet,
    };
    let status = match wallet.status {
        WalletStatus::Active => wire::WalletStatus::Active,
        WalletStatus::Paused => wire::WalletStatus::Paused,
        WalletStatus::Retired => wire::WalletStatus::Retired,
    };
    let (group, index) = wallet.key.unzip();
    wire::OperationWallet {
        id: wallet.id.to_string(),
        chain: wallet.chain.to_string(),
        address: wallet.address.to_string(),
        role: role.into(),
        status: status.into(),
        wallet_group_id: group.map(|group| group.to_string()).unwrap_or_default(),
        derivation_index: index.unwrap_or_default(),
        last_used_at: wallet.last_used_at.map(proto::time::timestamp),
        holdings: wallet.holdings.iter().map(show_holding).collect(),
        label: wallet.label.clone(),
    }
}

fn show_holding(holding: &Holding) -> wire::AssetHolding {
    wire::AssetHolding {
        asset: holding.asset.to_string(),
        balance: format_amount(holding.balance, holding.decimals),
        reserved: format_amount(holding.reserved, holding.decimals),
        block_number: holding.block_number,
    }
}
