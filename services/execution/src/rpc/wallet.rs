//! WalletService.

use proto::execution::v1 as pb;
use proto::execution::v1::wallet_service_server::WalletService;
use rpc::fields::{Fields, parse, required};
use tonic::{Request, Response, Status};
use types::{WalletGroupId, format_amount};

use super::consolidation::not_served;
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
        request: Request<pb::PutOperationWalletRequest>,
    ) -> Result<Response<pb::PutOperationWalletResponse>, Status> {
        let wallet = parse_wallet(&required("wallet", request.into_inner().wallet)?)?;
        let wallet = self.wallets.put(wallet).await?;
        Ok(Response::new(pb::PutOperationWalletResponse { wallet: Some(show(&wallet)) }))
    }

    async fn list_operation_wallets(
        &self,
        request: Request<pb::ListOperationWalletsRequest>,
    ) -> Result<Response<pb::ListOperationWalletsResponse>, Status> {
        let request = request.into_inner();
        let mut fields = Fields::new();
        let chain = fields.parse_optional("chain", &request.chain);
        fields.done()?;
        let role = role_of(request.role());
        let wallets = self.wallets.list(chain.as_ref(), role).await?;
        Ok(Response::new(pb::ListOperationWalletsResponse { wallets: wallets.iter().map(show).collect() }))
    }

    async fn register_user_wallets(
        &self,
        _: Request<pb::RegisterUserWalletsRequest>,
    ) -> Result<Response<pb::RegisterUserWalletsResponse>, Status> {
        Err(not_served("deposit wallets"))
    }

    async fn list_user_wallets(
        &self,
        _: Request<pb::ListUserWalletsRequest>,
    ) -> Result<Response<pb::ListUserWalletsResponse>, Status> {
        Err(not_served("deposit wallets"))
    }

    async fn list_wallet_balances(
        &self,
        _: Request<pb::ListWalletBalancesRequest>,
    ) -> Result<Response<pb::ListWalletBalancesResponse>, Status> {
        Err(not_served("balances of deposit wallets"))
    }

    async fn refresh_balances(
        &self,
        request: Request<pb::RefreshBalancesRequest>,
    ) -> Result<Response<pb::RefreshBalancesResponse>, Status> {
        let request = request.into_inner();
        let chain = parse("chain", &request.chain)?;
        if request.addresses.len() > MAX_ADDRESSES {
            return Err(rpc::error::invalid("addresses", format!("at most {MAX_ADDRESSES}")));
        }
        let refreshed = self.wallets.refresh(&chain, &request.addresses).await?;
        Ok(Response::new(pb::RefreshBalancesResponse { refreshed }))
    }
}

fn role_of(role: pb::WalletRole) -> Option<WalletRole> {
    match role {
        pb::WalletRole::Unspecified => None,
        pb::WalletRole::HotWallet => Some(WalletRole::Hot),
        pb::WalletRole::GasWallet => Some(WalletRole::Gas),
        pb::WalletRole::ColdWallet => Some(WalletRole::Cold),
    }
}

fn parse_wallet(wallet: &pb::OperationWallet) -> Result<NewWallet, Status> {
    let mut fields = Fields::new();
    let chain = fields.parse("wallet.chain", &wallet.chain);
    let role = role_of(wallet.role());
    if role.is_none() {
        fields.wrong("wallet.role", "must be named");
    }
    let status = match wallet.status() {
        pb::WalletStatus::Unspecified | pb::WalletStatus::Active => WalletStatus::Active,
        pb::WalletStatus::Paused => WalletStatus::Paused,
        pb::WalletStatus::Retired => WalletStatus::Retired,
    };
    let group = fields.parse_optional::<WalletGroupId>("wallet.wallet_group_id", &wallet.wallet_group_id);
    if group.is_none() && wallet.wallet_group_id.is_empty() && role != Some(WalletRole::Cold) {
        fields.wrong("wallet.wallet_group_id", "only cold storage has none");
    }
    // BIP-44 indexes are 31 bits.
    if i32::try_from(wallet.derivation_index).is_err() {
        fields.wrong("wallet.derivation_index", "must be below 2^31");
    }
    if wallet.label.len() > MAX_LABEL {
        fields.wrong("wallet.label", format!("at most {MAX_LABEL} bytes"));
    }
    if wallet.label.chars().any(char::is_control) {
        fields.wrong("wallet.label", "must not have control characters");
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
    fields.finish(parsed)
}

fn show(wallet: &OperationWallet) -> pb::OperationWallet {
    let role = match wallet.role {
        WalletRole::Hot => pb::WalletRole::HotWallet,
        WalletRole::Gas => pb::WalletRole::GasWallet,
        WalletRole::Cold => pb::WalletRole::ColdWallet,
    };
    let status = match wallet.status {
        WalletStatus::Active => pb::WalletStatus::Active,
        WalletStatus::Paused => pb::WalletStatus::Paused,
        WalletStatus::Retired => pb::WalletStatus::Retired,
    };
    let (group, index) = wallet.key.unzip();
    pb::OperationWallet {
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

fn show_holding(holding: &Holding) -> pb::AssetHolding {
    pb::AssetHolding {
        asset: holding.asset.to_string(),
        balance: format_amount(holding.balance, holding.decimals),
        reserved: format_amount(holding.reserved, holding.decimals),
        block_number: holding.block_number,
    }
}
