//! The real signer gateway as a process of its own, configured as `bursar up` does it, on the measured server.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use devstack::{Lifetime, Service, ServiceOptions};
use ed25519_dalek::SigningKey;
use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use rpc::{Client, ClientConfig, Secret};

use crate::programs;
use crate::server::Server;

pub(crate) const CHAIN_ID: u64 = 56;
const NAME: &str = "signer-gateway";
const READY_LIMIT: Duration = Duration::from_secs(30);
pub(crate) const APPROVERS: [&str; 2] = ["approver-1", "approver-2"];

/// An approver's key. Worthless anywhere but here, so it need not be secret.
pub(crate) fn approver(name: &str) -> SigningKey {
    let mut seed = [7; 32];
    seed.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    SigningKey::from_bytes(&seed)
}

pub(crate) struct Gateway {
    process: Service,
    url: String,
    execution: Secret,
    operator: Secret,
}

impl Gateway {
    pub(crate) async fn start(server: &Server, dir: &Path) -> Result<Gateway> {
        let program = programs::find(NAME)?;
        let dir = dir.join(NAME);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let (execution, operator) = (rpc::auth::new_key(), rpc::auth::new_key());
        let port = devstack::free_port()?;
        let callers = [("service:execution", &execution.1), ("operator", &operator.1)];
        let config = config(&server.database("signer").await?, port, callers);
        let file = dir.join("config.toml");
        write_private(&file, &config)?;
        migrate(&program, &file).await?;
        let url = format!("http://127.0.0.1:{port}");
        let options = ServiceOptions {
            name: NAME.to_owned(),
            command: [&program.display().to_string(), "serve", "--config", &file.display().to_string()]
                .map(str::to_owned)
                .to_vec(),
            env: [].into(),
            log: dir.join("log"),
            dir,
            url: url.clone(),
            lifetime: Lifetime::Owned,
            ready_limit: READY_LIMIT,
        };
        let process = Service::start(&options).await?;
        Ok(Gateway { process, url, execution: execution.0, operator: operator.0 })
    }

    pub(crate) fn as_execution(&self) -> Result<SignerServiceClient<Client>> {
        self.client(&self.execution)
    }

    pub(crate) fn as_operator(&self) -> Result<SignerServiceClient<Client>> {
        self.client(&self.operator)
    }

    fn client(&self, key: &Secret) -> Result<SignerServiceClient<Client>> {
        let config = ClientConfig::new(self.url.clone()).with_key(key.clone());
        // A slow machine shall get a low figure, not none.
        let config = ClientConfig { timeout_ms: 60_000, ..config };
        Ok(SignerServiceClient::new(rpc::connect_lazy(&config)?))
    }

    /// Imports the development phrase and returns the group with its first wallets.
    pub(crate) async fn wallets(&self, count: u32) -> Result<(String, Vec<String>)> {
        let mut operator = self.as_operator()?;
        let request = pb::ImportWalletGroupRequest {
            name: "bench".to_owned(),
            purpose: "operation".to_owned(),
            recovery_phrase: devstack::DEV_MNEMONIC.to_owned(),
            passphrase: String::new(),
        };
        let group = operator.import_wallet_group(request).await?.into_inner().group;
        let group = group.context("the answer holds no group")?.id;
        let request = pb::DeriveAddressesRequest {
            wallet_group_id: group.clone(),
            address_format: "evm".to_owned(),
            from_index: 0,
            count,
        };
        let derived = operator.derive_addresses(request).await?.into_inner().addresses;
        Ok((group, derived.into_iter().map(|wallet| wallet.address).collect()))
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        Ok(self.process.stop().await?)
    }
}

fn config(database: &str, port: u16, callers: [(&str, &String); 2]) -> String {
    let keys = callers.map(|(role, sha256)| {
        format!("[[auth.keys]]\nname = '{role}'\nsha256 = '{sha256}'\nroles = ['{role}']\n")
    });
    let approvers = APPROVERS.map(|name| {
        let public_key = hex::encode(approver(name).verifying_key().to_bytes());
        format!("[[policy.approvers]]\nname = '{name}'\npublic_key = '{public_key}'\n")
    });
    format!(
        r#"
[server]
listen = "127.0.0.1:{port}"
limits.notice_ms = 0
[database]
url = "{database}"
[telemetry]
log_format = "json"
[seal]
unseal_key = "a key that opens nothing but this measurement"
[chains.bsc]
address_format = "evm"
chain_id = {CHAIN_ID}
native = "BNB"
max_fee = "50000000000000000"
[chains.bsc.assets.BNB]
max_transaction = "1000000000000000000000000"
tiers = [{{ approvals = 2 }}]
{}{}"#,
        keys.concat(),
        approvers.concat()
    )
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    let file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

async fn migrate(program: &PathBuf, config: &Path) -> Result<()> {
    let mut command = tokio::process::Command::new(program);
    command.args(["migrate", "--config"]).arg(config).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("cannot run {}", program.display()))?;
    let printed = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "migrating the gateway failed: {}", String::from_utf8_lossy(&printed));
    Ok(())
}
