//! A running gateway with two wallet groups, three approvers and a confirmation key, and builders of requests.

use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::{Signer, SigningKey};
use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use rpc::{Client, ClientConfig, Secret};
use service::Running;
use signer_gateway::SignerGateway;
use testkit::Database;
use tonic::{Code, Status};
use types::{
    Address, AddressFormat, JobId, Payment, PaymentDigest, RawAmount, TxHash, WithdrawalId, approval_message,
    void_message,
};

/// Public test phrase; its first wallet is [`HOT`].
pub(crate) const PHRASE: &str = "test test test test test test test test test test test junk";
pub(crate) const HOT: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
pub(crate) const CUSTOMER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
pub(crate) const STRANGER: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
pub(crate) const TOKEN: &str = "0x5FbDB2315678afecb367f032d93F642f64180aa3";
pub(crate) const COLD: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
pub(crate) const UNSEAL_KEY: &str = "correct horse battery staple";
pub(crate) const ETHER: u128 = 1_000_000_000_000_000_000;

pub(crate) type SignerClient = SignerServiceClient<Client>;

pub(crate) struct Gateway {
    pub(crate) running: Running<SignerGateway>,
    pub(crate) database: Database,
    pub(crate) service: SignerClient,
    /// What worker-control calls with.
    pub(crate) worker: SignerClient,
    pub(crate) operator: SignerClient,
    pub(crate) operation_group: String,
    pub(crate) deposit_group: String,
    pub(crate) deposit_address: String,
    keys: Keys,
}

struct Keys {
    service: (Secret, String),
    worker: (Secret, String),
    operator: (Secret, String),
}

pub(crate) fn approver(name: &str) -> SigningKey {
    let seed: [u8; 32] = <[u8; 32]>::try_from(name.repeat(32).as_bytes()[..32].to_vec()).expect("32 bytes");
    SigningKey::from_bytes(&seed)
}

pub(crate) fn confirmation() -> SigningKey {
    SigningKey::from_bytes(&[77; 32])
}

fn public(key: &SigningKey) -> String {
    hex::encode(key.verifying_key().to_bytes())
}

fn config(url: &str, keys: &Keys, unseal: bool) -> String {
    let mut text = format!(
        r#"
        [server]
        listen = "127.0.0.1:0"
        [database]
        url = "{url}"
        acquire_timeout_ms = 20000
        [[auth.keys]]
        name = "execution"
        sha256 = "{}"
        roles = ["service:execution"]
        [[auth.keys]]
        name = "worker-control"
        sha256 = "{}"
        roles = ["service:worker-control"]
        [[auth.keys]]
        name = "olga"
        sha256 = "{}"
        roles = ["operator", "auditor"]
        [telemetry]
        filter = "off"
        [ledger]
        timeout_ms = 30000
        [seal]
        memory_kib = 8192
        iterations = 1
        "#,
        keys.service.1, keys.worker.1, keys.operator.1
    );
    if unseal {
        text.push_str(&format!("unseal_key = \"{UNSEAL_KEY}\"\n"));
    }
    text.push_str(&policy());
    text
}

fn policy() -> String {
    let approvers: String = ["alice", "bob", "carol"]
        .iter()
        .map(|name| {
            format!("[[policy.approvers]]\nname = \"{name}\"\npublic_key = \"{}\"\n", public(&approver(name)))
        })
        .collect();
    format!(
        r#"
        [policy]
        confirmation_keys = ["{}"]
        {approvers}
        # A second key of the same human.
        [[policy.approvers]]
        name = "alice-phone"
        person = "alice"
        public_key = "{}"
        [chains.bsc]
        address_format = "evm"
        chain_id = 31337
        native = "BNB"
        max_fee = "10000000000000000"
        fee_window = {{ window_s = 3600, amount = "1000000000000000000" }}
        max_top_up = "50000000000000000"
        top_up_window = {{ window_s = 3600, amount = "100000000000000000" }}
        max_bumps = 3
        cold_storage = ["{COLD}"]
        [chains.bsc.assets.BNB]
        max_transaction = "10000000000000000000"
        window = {{ window_s = 3600, amount = "15000000000000000000" }}
        tiers = [{{ up_to = "1000000000000000000", approvals = 1 }}, {{ approvals = 2 }}]
        [chains.bsc.assets.USDT]
        contract = "{TOKEN}"
        max_transaction = "1000000000"
        tiers = [{{ approvals = 2 }}]
        [[chains.bsc.duties]]
        contract = "{TOKEN}"
        methods = ["claim(uint256)"]
        [chains.tron]
        address_format = "tron"
        native = "TRX"
        max_fee = "100000000"
        [chains.tron.assets.TRX]
        max_transaction = "1000000000"
        tiers = [{{ approvals = 1 }}]
        "#,
        public(&confirmation()),
        public(&approver("alice-phone")),
    )
}

pub(crate) fn client(running: &Running<SignerGateway>, key: &Secret) -> SignerClient {
    client_at(&running.url(), key)
}

fn client_at(url: &str, key: &Secret) -> SignerClient {
    let mut config = ClientConfig::new(url).with_key(key.clone());
    // A test wants to see the first answer.
    config.retry.max_attempts = 1;
    SignerServiceClient::new(rpc::connect_lazy(&config).expect("client"))
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let database = testkit::postgres().await;
        let url = database.url().to_owned();
        Self::start_on(database, &url).await
    }

    /// With the database behind another address, such as a fault proxy's.
    pub(crate) async fn start_on(database: Database, url: &str) -> Self {
        let migrator = <SignerGateway as service::Service>::migrator().expect("migrations");
        db::migrate::run(&database.pool().await, migrator).await.expect("migrated");
        let [service, worker, operator] = [(); 3].map(|()| rpc::auth::new_key());
        let keys = Keys { service, worker, operator };
        let mut text = config(url, &keys, true);
        if url != database.url() {
            // Who takes the database away waits for these; nobody else shall meet them, however busy the machine is.
            text = text.replace("acquire_timeout_ms = 20000", "acquire_timeout_ms = 2000");
            text = text.replace("timeout_ms = 30000", "timeout_ms = 3000");
        }
        let running = service::launch::<SignerGateway>(&text).await.expect("started");
        let service = client(&running, &keys.service.0);
        let worker = client(&running, &keys.worker.0);
        let mut operator = client(&running, &keys.operator.0);
        let imported = operator
            .import_wallet_group(import("hot", "operation", PHRASE))
            .await
            .expect("imported")
            .into_inner();
        let created = operator
            .create_wallet_group(pb::CreateWalletGroupRequest {
                name: "deposits".to_owned(),
                purpose: "deposit".to_owned(),
                words: 12,
                reveal_phrase: false,
            })
            .await
            .expect("created")
            .into_inner();
        let deposit_group = created.group.expect("group").id;
        let mut gateway = Self {
            running,
            database,
            service,
            worker,
            operator,
            operation_group: imported.group.expect("group").id,
            deposit_group: deposit_group.clone(),
            deposit_address: String::new(),
            keys,
        };
        gateway.deposit_address = gateway.derive(&deposit_group, 7).await;
        gateway
    }

    /// A second process on the same database, and execution's client of it.
    pub(crate) async fn replica(&self) -> (Running<SignerGateway>, SignerClient) {
        let text = config(self.database.url(), &self.keys, true);
        let running = service::launch::<SignerGateway>(&text).await.expect("started");
        let client = client(&running, &self.keys.service.0);
        (running, client)
    }

    /// The settings it runs with.
    pub(crate) fn settings(&self) -> String {
        config(self.database.url(), &self.keys, true)
    }

    /// Execution's and the operator's clients of a process at this address, with this gateway's keys.
    pub(crate) fn clients_of(&self, url: &str) -> (SignerClient, SignerClient) {
        (client_at(url, &self.keys.service.0), client_at(url, &self.keys.operator.0))
    }

    /// Stops the process and starts another on the same database.
    pub(crate) async fn restart(mut self, unseal: bool) -> Self {
        self.running.stop().await.expect("stopped");
        let text = config(self.database.url(), &self.keys, unseal);
        self.running = service::launch::<SignerGateway>(&text).await.expect("started");
        self.service = client(&self.running, &self.keys.service.0);
        self.worker = client(&self.running, &self.keys.worker.0);
        self.operator = client(&self.running, &self.keys.operator.0);
        self
    }

    pub(crate) async fn derive(&self, group: &str, index: u32) -> String {
        let request = pb::DeriveAddressesRequest {
            wallet_group_id: group.to_owned(),
            address_format: "evm".to_owned(),
            from_index: index,
            count: 1,
        };
        let derived = self.operator.clone().derive_addresses(request).await.expect("derived").into_inner();
        derived.addresses[0].address.clone()
    }

    pub(crate) async fn register(&mut self, wallet: pb::OperationWallet) -> Result<(), Status> {
        let request = pb::RegisterOperationWalletRequest { wallet: Some(wallet) };
        self.operator.register_operation_wallet(request).await.map(|_| ())
    }

    pub(crate) async fn register_hot(&mut self) {
        let wallet = operation_wallet(HOT, &self.operation_group, 0);
        self.register(wallet).await.expect("registered");
    }

    pub(crate) async fn sign(
        &self,
        request: &pb::SignTransactionRequest,
    ) -> Result<pb::SignTransactionResponse, Status> {
        self.service.clone().sign_transaction(request.clone()).await.map(tonic::Response::into_inner)
    }

    /// The number that a query returns.
    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.database.pool().await).await.expect("counted")
    }

    pub(crate) async fn audit(&self) -> Vec<pb::AuditEntry> {
        let request = pb::ListAuditRequest { after_sequence: 0, page_size: 1000 };
        self.operator.clone().list_audit(request).await.expect("listed").into_inner().entries
    }

    pub(crate) async fn verify(&self, anchor: Option<(u64, String)>) -> pb::VerifyAuditResponse {
        let (expected_sequence, expected_hash) = anchor.unwrap_or_default();
        let request = pb::VerifyAuditRequest { expected_hash, expected_sequence, ..Default::default() };
        let at_once =
            self.operator.clone().verify_audit(request.clone()).await.expect("verified").into_inner();
        let in_parts = self.verify_in_parts(request).await;
        let found = |report: &pb::VerifyAuditResponse| (report.intact, report.problem.clone());
        assert_eq!(found(&at_once), found(&in_parts), "in parts as at once");
        assert!(!at_once.intact || at_once.entries == in_parts.entries);
        at_once
    }

    /// Two entries a call.
    async fn verify_in_parts(&self, mut request: pb::VerifyAuditRequest) -> pb::VerifyAuditResponse {
        let mut entries = 0;
        request.max_entries = 2;
        loop {
            let part =
                self.operator.clone().verify_audit(request.clone()).await.expect("verified").into_inner();
            entries += part.entries;
            if part.next_sequence == 0 {
                return pb::VerifyAuditResponse { entries, ..part };
            }
            assert!(!part.intact && part.entries == 2 && part.problem.is_empty(), "{part:?}");
            (request.after_sequence, request.after_hash) = (part.next_sequence, part.next_hash);
        }
    }

    /// The reason of the newest entry in the log.
    pub(crate) async fn last_reason(&self) -> String {
        self.audit().await.pop().expect("an entry").reason
    }

    /// Expects a refusal, and that the log records it.
    pub(crate) async fn refused(&self, request: &pb::SignTransactionRequest, code: Code, audit_reason: &str) {
        self.refused_to(&self.service, request, code, audit_reason).await;
    }

    /// The same for another caller than execution.
    pub(crate) async fn refused_to(
        &self,
        caller: &SignerClient,
        request: &pb::SignTransactionRequest,
        code: Code,
        audit_reason: &str,
    ) {
        let status = caller.clone().sign_transaction(request.clone()).await.expect_err(audit_reason);
        assert_eq!(status.code(), code, "{audit_reason}: {status:?}");
        let wanted = audit_reason.replace('.', "_").to_ascii_uppercase();
        assert_eq!(rpc::error::reason_of(&status).as_deref(), Some(wanted.as_str()), "{status:?}");
        let entries = self.audit().await;
        let last = entries.last().expect("an entry");
        assert_eq!((last.decision.as_str(), last.reason.as_str()), ("refused", audit_reason));
        assert!(last.detail.contains(&request.idempotency_key), "{}", last.detail);
    }
}

pub(crate) fn import(name: &str, purpose: &str, phrase: &str) -> pb::ImportWalletGroupRequest {
    pb::ImportWalletGroupRequest {
        name: name.to_owned(),
        purpose: purpose.to_owned(),
        recovery_phrase: phrase.to_owned(),
        passphrase: String::new(),
    }
}

pub(crate) fn operation_wallet(address: &str, group: &str, index: u32) -> pb::OperationWallet {
    pb::OperationWallet {
        chain: "bsc".to_owned(),
        address: address.to_owned(),
        wallet_group_id: group.to_owned(),
        derivation_index: index,
    }
}

/// The native transfer of a request.
pub(crate) fn native(request: &mut pb::SignTransactionRequest) -> &mut pb::NativeTransfer {
    match request.tx_intent.as_mut().and_then(|intent| intent.action.as_mut()) {
        Some(pb::tx_intent::Action::NativeTransfer(transfer)) => transfer,
        other => panic!("not a native transfer: {other:?}"),
    }
}

/// A withdrawal in the making; fields are changed before it is approved or requested.
#[derive(Clone)]
pub(crate) struct Withdrawal {
    pub(crate) group: String,
    pub(crate) id: WithdrawalId,
    pub(crate) job: JobId,
    pub(crate) attempt: u32,
    pub(crate) to: String,
    pub(crate) amount: u128,
    pub(crate) token: bool,
    pub(crate) nonce: u64,
    pub(crate) max_fee: u128,
    pub(crate) epoch: u64,
    pub(crate) requested_by: String,
    pub(crate) on_behalf_of: String,
    pub(crate) approvals: Vec<pb::ApprovalProof>,
    pub(crate) void: Option<pb::VoidAttestation>,
}

impl Withdrawal {
    pub(crate) fn new(gateway: &Gateway, nonce: u64) -> Self {
        Self {
            group: gateway.operation_group.clone(),
            id: WithdrawalId::new(),
            job: JobId::new(),
            attempt: 1,
            to: CUSTOMER.to_owned(),
            amount: 2 * ETHER,
            token: false,
            nonce,
            max_fee: 5_000_000_000,
            epoch: 1,
            requested_by: "rita".to_owned(),
            on_behalf_of: String::new(),
            approvals: Vec::new(),
            void: None,
        }
        .approved_by(&["alice", "bob"])
    }

    /// An approved payment of one unit, which no limit refuses.
    pub(crate) fn small(gateway: &Gateway, nonce: u64) -> Self {
        Self { amount: 1, ..Self::new(gateway, nonce) }.approved_by(&["alice", "bob"])
    }

    pub(crate) fn digest(&self) -> PaymentDigest {
        PaymentDigest::compute(&Payment {
            id: self.id,
            chain: &"bsc".parse().expect("chain"),
            asset: &self.asset().parse().expect("asset"),
            destination: &Address::parse(AddressFormat::Evm, &self.to).expect("address"),
            amount: RawAmount::from(self.amount),
        })
    }

    pub(crate) fn asset(&self) -> &'static str {
        if self.token { "USDT" } else { "BNB" }
    }

    pub(crate) fn approved_by(self, names: &[&str]) -> Self {
        let expires_at = Utc::now() + TimeDelta::hours(1);
        self.approved_until(names, expires_at)
    }

    pub(crate) fn approved_until(mut self, names: &[&str], expires_at: DateTime<Utc>) -> Self {
        let digest = self.digest();
        self.approvals = names.iter().map(|name| approval(digest, name, expires_at)).collect();
        self
    }

    pub(crate) fn request(&self) -> pb::SignTransactionRequest {
        let (from, to) = (HOT.to_owned(), self.to.clone());
        let action = if self.token {
            pb::tx_intent::Action::Erc20Transfer(pb::Erc20Transfer {
                from,
                to,
                amount: self.amount.to_string(),
                contract_address: TOKEN.to_owned(),
            })
        } else {
            let amount_wei = self.amount.to_string();
            pb::tx_intent::Action::NativeTransfer(pb::NativeTransfer { from, to, amount_wei })
        };
        self.request_for(action)
    }

    pub(crate) fn cancellation(&self) -> pb::SignTransactionRequest {
        let from = HOT.to_owned();
        self.request_for(pb::tx_intent::Action::Cancellation(pb::Cancellation { from }))
    }

    fn request_for(&self, action: pb::tx_intent::Action) -> pb::SignTransactionRequest {
        let authorization = pb::WithdrawalAuthorization {
            on_behalf_of: self.on_behalf_of.clone(),
            withdrawal_id: self.id.to_string(),
            asset: self.asset().to_owned(),
            requested_by: self.requested_by.clone(),
            approvals: self.approvals.clone(),
        };
        pb::SignTransactionRequest {
            idempotency_key: format!("{}/{}", self.job, self.attempt),
            chain: "bsc".to_owned(),
            wallet_group_id: self.group.clone(),
            derivation_index: 0,
            tx_intent: Some(pb::TxIntent { action: Some(action) }),
            parameters: Some(evm(self.nonce, self.max_fee)),
            authorization: Some(pb::Authorization {
                kind: Some(pb::authorization::Kind::Withdrawal(authorization)),
                void_attestation: self.void.clone(),
            }),
            job_id: self.job.to_string(),
            lease_epoch: self.epoch,
        }
    }
}

pub(crate) fn evm(nonce: u64, max_fee: u128) -> pb::sign_transaction_request::Parameters {
    pb::sign_transaction_request::Parameters::Evm(pb::EvmParameters {
        chain_id: 31337,
        nonce,
        gas_limit: 65_000,
        max_fee_per_gas: max_fee.to_string(),
        max_priority_fee_per_gas: (max_fee / 2).to_string(),
        gas_price: String::new(),
    })
}

pub(crate) fn approval(digest: PaymentDigest, name: &str, expires_at: DateTime<Utc>) -> pb::ApprovalProof {
    let message = approval_message(digest, name, expires_at.timestamp());
    pb::ApprovalProof {
        approver: name.to_owned(),
        signature: approver(name).sign(&message).to_bytes().to_vec(),
        expires_at: Some(proto::time::timestamp(expires_at)),
    }
}

pub(crate) fn attestation(job: JobId, hashes: &[&str], key: &SigningKey) -> pb::VoidAttestation {
    let at = Utc::now();
    let parsed: Vec<TxHash> = hashes.iter().map(|text| text.parse().expect("hash")).collect();
    pb::VoidAttestation {
        job_id: job.to_string(),
        tx_hashes: hashes.iter().map(|text| (*text).to_owned()).collect(),
        signature: key.sign(&void_message(job, &parsed, at.timestamp())).to_bytes().to_vec(),
        attested_at: Some(proto::time::timestamp(at)),
    }
}

/// A duty of a fresh job, at a nonce of the hot wallet.
pub(crate) fn duty(
    gateway: &Gateway,
    nonce: u64,
    method: &str,
    contract: &str,
) -> pb::SignTransactionRequest {
    let job = JobId::new();
    let mut request = Withdrawal::new(gateway, nonce).request();
    let mut data = alloy_primitives::keccak256(method.as_bytes())[..4].to_vec();
    data.extend_from_slice(&[0; 32]);
    request.idempotency_key = format!("{job}/1");
    request.job_id = job.to_string();
    request.tx_intent = Some(pb::TxIntent {
        action: Some(pb::tx_intent::Action::ContractCall(pb::ContractCall {
            from: HOT.to_owned(),
            contract_address: contract.to_owned(),
            data,
        })),
    });
    let duty_id = format!("activity-{job}");
    request.authorization = Some(pb::Authorization {
        kind: Some(pb::authorization::Kind::Duty(pb::DutyAuthorization { duty_id })),
        void_attestation: None,
    });
    request
}

/// A sweep or top-up of a fresh job.
fn own_transfer(
    group: &str,
    from: (&str, u32),
    to: (&str, u128),
    kind: impl FnOnce(String) -> pb::authorization::Kind,
) -> pb::SignTransactionRequest {
    let job = JobId::new();
    let transfer =
        pb::NativeTransfer { from: from.0.to_owned(), to: to.0.to_owned(), amount_wei: to.1.to_string() };
    pb::SignTransactionRequest {
        idempotency_key: format!("{job}/1"),
        chain: "bsc".to_owned(),
        wallet_group_id: group.to_owned(),
        derivation_index: from.1,
        tx_intent: Some(pb::TxIntent { action: Some(pb::tx_intent::Action::NativeTransfer(transfer)) }),
        parameters: Some(evm(0, 5_000_000_000)),
        authorization: Some(pb::Authorization { kind: Some(kind(job.to_string())), void_attestation: None }),
        job_id: job.to_string(),
        lease_epoch: 1,
    }
}

/// A sweep of the deposit wallet by a fresh job.
pub(crate) fn sweep(gateway: &Gateway, to: &str, amount: u128) -> pb::SignTransactionRequest {
    let from = (gateway.deposit_address.as_str(), 7);
    own_transfer(&gateway.deposit_group, from, (to, amount), |job_id| {
        pb::authorization::Kind::Sweep(pb::SweepAuthorization { job_id, asset: "BNB".to_owned() })
    })
}

/// A top-up of a wallet of the deposit group by a fresh job.
pub(crate) fn top_up(gateway: &Gateway, to: &str, index: u32, amount: u128) -> pb::SignTransactionRequest {
    own_transfer(&gateway.operation_group, (HOT, 0), (to, amount), |job_id| {
        pb::authorization::Kind::TopUp(pb::TopUpAuthorization {
            job_id,
            destination_group_id: gateway.deposit_group.clone(),
            destination_index: index,
        })
    })
}
