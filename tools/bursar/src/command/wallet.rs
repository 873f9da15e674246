//! `bursar wallet`: the operation wallets, what they hold, and what of it is spoken for.

use anyhow::Result;
use clap::{Args, Subcommand};
use proto::execution::v1 as pb;

use crate::client::Connection;
use crate::output::{self, Output};

#[derive(Debug, Args)]
pub struct Wallet {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List operation wallets with balances and reservations
    List {
        #[arg(long, default_value = "")]
        chain: String,
    },
}

impl Wallet {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let Action::List { chain } = self.action;
        let mut client = connection.wallets("operator")?;
        let request = pb::ListOperationWalletsRequest { chain, role: pb::WalletRole::Unspecified.into() };
        let wallets = client.list_operation_wallets(request).await?.into_inner().wallets;
        if out.json {
            return output::json_list("bursar.execution.v1.OperationWallet", &wallets);
        }
        let rows = wallets.iter().flat_map(|w| {
            let role = output::enum_name(w.role().as_str_name(), "WALLET_ROLE_");
            let status = output::enum_name(w.status().as_str_name(), "WALLET_STATUS_");
            w.holdings.iter().map(move |h| {
                [
                    w.chain.clone(),
                    w.address.clone(),
                    role.clone(),
                    status.clone(),
                    h.asset.clone(),
                    h.balance.clone(),
                    h.reserved.clone(),
                ]
            })
        });
        output::table(["CHAIN", "ADDRESS", "ROLE", "STATUS", "ASSET", "BALANCE", "RESERVED"], rows)
    }
}
