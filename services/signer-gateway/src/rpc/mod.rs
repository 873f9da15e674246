//! protobuf <-> use cases, nothing else. Each handler identifies, parses, calls, converts.

mod batch;
mod parse;
mod show;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_server::SignerService;
use sqlx::PgPool;
use tonic::{Request, Response, Status};
use zeroize::Zeroizing;

use crate::audit::Audit;
use crate::freeze::Freezes;
use crate::group::{FreshGroup, Groups};
use crate::policy::SigningCaller;
use crate::signing::{PolicySource, Signing};
use crate::wallet::Wallets;

pub use show::read_audit_entry;

#[derive(Debug, Clone)]
pub struct Gateway {
    groups: Arc<Groups>,
    signing: Signing,
    wallets: Wallets,
    freezes: Freezes,
    audit: Audit,
}

impl Gateway {
    /// The service, and the ledger's worker, which must run for it to sign.
    pub(crate) fn new(
        pool: PgPool,
        groups: Arc<Groups>,
        policy: PolicySource,
        timeout: Duration,
    ) -> (Self, crate::signing::LedgerWorker) {
        let wallets = Wallets::new(pool.clone(), Arc::clone(&groups), policy.clone());
        let (signing, worker) =
            Signing::new(pool.clone(), Arc::clone(&groups), wallets.clone(), policy.clone(), timeout);
        let freezes = Freezes::new(pool.clone(), policy);
        let audit = Audit::new(pool);
        (Self { groups, signing, wallets, freezes, audit }, worker)
    }

    pub(crate) fn freezes(&self) -> Freezes {
        self.freezes.clone()
    }
}

type Reply<T> = Result<Response<T>, Status>;

fn name<T>(request: &Request<T>) -> Result<String, Status> {
    Ok(::rpc::caller(request)?.name.clone())
}

#[tonic::async_trait]
impl SignerService for Gateway {
    async fn sign_transaction(
        &self,
        request: Request<pb::SignTransactionRequest>,
    ) -> Reply<pb::SignTransactionResponse> {
        let caller = SigningCaller::new(::rpc::caller(&request)?);
        let parsed = parse::signing_request(request.into_inner())?;
        let signed = self.signing.sign(&caller, parsed).await.map_err(status::signing)?;
        Ok(Response::new(show::signed(signed)))
    }

    async fn sign_transactions(
        &self,
        request: Request<pb::SignTransactionsRequest>,
    ) -> Reply<pb::SignTransactionsResponse> {
        let caller = SigningCaller::new(::rpc::caller(&request)?);
        let parsed = parse::signing_requests(request.into_inner())?;
        let outcomes = batch::sign(&self.signing, &caller, parsed).await;
        Ok(Response::new(pb::SignTransactionsResponse { outcomes }))
    }

    async fn simulate_policy(
        &self,
        request: Request<pb::SimulatePolicyRequest>,
    ) -> Reply<pb::SimulatePolicyResponse> {
        let caller = SigningCaller::simulating(::rpc::caller(&request)?);
        let parsed = parse::simulation(request.into_inner())?;
        let simulation = self.signing.simulate(&caller, parsed).await.map_err(status::signing)?;
        Ok(Response::new(show::simulation(simulation)))
    }

    async fn create_wallet_group(
        &self,
        request: Request<pb::CreateWalletGroupRequest>,
    ) -> Reply<pb::CreateWalletGroupResponse> {
        let caller = name(&request)?;
        let request = request.into_inner();
        let (group_name, purpose) = parse::new_group(&request.name, &request.purpose)?;
        let words = if request.words == 0 { 24 } else { request.words };
        let new = FreshGroup { name: &group_name, purpose, words, reveal: request.reveal_phrase };
        let (group, phrase) = self.groups.create(&caller, &new).await.map_err(status::group)?;
        let recovery_phrase = phrase.map(|phrase| phrase.to_string()).unwrap_or_default();
        let group = Some(show::group(group));
        Ok(Response::new(pb::CreateWalletGroupResponse { group, recovery_phrase }))
    }

    async fn import_wallet_group(
        &self,
        request: Request<pb::ImportWalletGroupRequest>,
    ) -> Reply<pb::ImportWalletGroupResponse> {
        let caller = name(&request)?;
        let request = request.into_inner();
        let (group_name, purpose) = parse::new_group(&request.name, &request.purpose)?;
        let phrase = crate::group::Phrase::new(request.recovery_phrase, request.passphrase);
        let group =
            self.groups.import(&caller, &group_name, purpose, &phrase).await.map_err(status::group)?;
        Ok(Response::new(pb::ImportWalletGroupResponse { group: Some(show::group(group)) }))
    }

    async fn list_wallet_groups(
        &self,
        request: Request<pb::ListWalletGroupsRequest>,
    ) -> Reply<pb::ListWalletGroupsResponse> {
        name(&request)?;
        let groups = self.groups.list().await.map_err(status::group)?;
        Ok(Response::new(pb::ListWalletGroupsResponse {
            groups: groups.into_iter().map(show::group).collect(),
        }))
    }

    async fn derive_addresses(
        &self,
        request: Request<pb::DeriveAddressesRequest>,
    ) -> Reply<pb::DeriveAddressesResponse> {
        name(&request)?;
        let asked = parse::derivation(&request.into_inner())?;
        let addresses =
            self.groups.derive(asked.group, asked.format, asked.indices).await.map_err(status::group)?;
        Ok(Response::new(show::addresses(addresses)))
    }

    async fn register_operation_wallet(
        &self,
        request: Request<pb::RegisterOperationWalletRequest>,
    ) -> Reply<pb::RegisterOperationWalletResponse> {
        let caller = name(&request)?;
        let wallet = parse::operation_wallet(request.into_inner())?;
        self.wallets.register(&caller, &wallet).await.map_err(status::wallet)?;
        Ok(Response::new(pb::RegisterOperationWalletResponse { wallet: Some(show::wallet(&wallet)) }))
    }

    async fn list_operation_wallets(
        &self,
        request: Request<pb::ListOperationWalletsRequest>,
    ) -> Reply<pb::ListOperationWalletsResponse> {
        name(&request)?;
        let wallets = self.wallets.list().await.map_err(status::wallet)?;
        Ok(Response::new(pb::ListOperationWalletsResponse {
            wallets: wallets.iter().map(show::wallet).collect(),
        }))
    }

    async fn get_status(&self, request: Request<pb::GetStatusRequest>) -> Reply<pb::GetStatusResponse> {
        name(&request)?;
        let frozen_chains = self.freezes.list().await.map_err(status::freeze)?;
        let head = self.audit.head().await.map_err(status::audit)?;
        Ok(Response::new(pb::GetStatusResponse {
            sealed: self.groups.is_sealed(),
            frozen_chains,
            audit_length: head.sequence,
            audit_head: head.hash.to_string(),
        }))
    }

    async fn unseal(&self, request: Request<pb::UnsealRequest>) -> Reply<pb::UnsealResponse> {
        let caller = name(&request)?;
        let key = Zeroizing::new(request.into_inner().unseal_key);
        let groups = self.groups.unseal(&caller, key).await.map_err(status::group)?;
        Ok(Response::new(pb::UnsealResponse { groups: u32::try_from(groups).unwrap_or(u32::MAX) }))
    }

    async fn seal(&self, request: Request<pb::SealRequest>) -> Reply<pb::SealResponse> {
        let caller = name(&request)?;
        self.groups.seal(&caller).await.map_err(status::group)?;
        Ok(Response::new(pb::SealResponse {}))
    }

    async fn freeze(&self, request: Request<pb::FreezeRequest>) -> Reply<pb::FreezeResponse> {
        let caller = name(&request)?;
        let request = request.into_inner();
        let chain = parse::optional_chain(&request.chain)?;
        self.freezes.freeze(&caller, chain.as_ref(), &request.reason).await.map_err(status::freeze)?;
        Ok(Response::new(pb::FreezeResponse {}))
    }

    async fn unfreeze(&self, request: Request<pb::UnfreezeRequest>) -> Reply<pb::UnfreezeResponse> {
        let caller = name(&request)?;
        let chain = parse::optional_chain(&request.into_inner().chain)?;
        self.freezes.unfreeze(&caller, chain.as_ref()).await.map_err(status::freeze)?;
        Ok(Response::new(pb::UnfreezeResponse {}))
    }

    async fn list_audit(&self, request: Request<pb::ListAuditRequest>) -> Reply<pb::ListAuditResponse> {
        name(&request)?;
        let (after, limit) = parse::audit_page(request.get_ref())?;
        let entries = self.audit.list(after, limit).await.map_err(status::audit)?;
        Ok(Response::new(pb::ListAuditResponse {
            entries: entries.into_iter().map(show::audit_entry).collect(),
        }))
    }

    async fn verify_audit(&self, request: Request<pb::VerifyAuditRequest>) -> Reply<pb::VerifyAuditResponse> {
        name(&request)?;
        let check = parse::check(request.get_ref())?;
        let report = self.audit.verify(check).await.map_err(status::audit)?;
        Ok(Response::new(show::report(report)))
    }
}
