//! Reaching the services: from a local stack's `stack.json`, or by addresses and keys given on the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use proto::indexer::v1::indexer_service_client::IndexerServiceClient;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use proto::intent::v1::policy_service_client::PolicyServiceClient;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rpc::tls::ClientTls;
use rpc::{Client, ClientConfig, Secret, connect_lazy};
use serde::Deserialize;

use crate::approver::ApproverKey;

pub type Intent = IntentServiceClient<Client>;
pub type Policy = PolicyServiceClient<Client>;
pub type Execution = ExecutionServiceClient<Client>;
pub type Catalogue = CatalogueServiceClient<Client>;
pub type Wallets = WalletServiceClient<Client>;
pub type Confirmation = ConfirmationServiceClient<Client>;
pub type Signer = SignerServiceClient<Client>;
pub type Indexer = IndexerServiceClient<Client>;
pub type Workers = WorkerServiceClient<Client>;

/// Where the services are. Without addresses, the local stack's are taken.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// Directory of the local stack
    #[arg(long, global = true, default_value = ".bursar", value_name = "DIR")]
    pub data: PathBuf,
    /// Address of the intent service
    #[arg(long, global = true, env = "BURSAR_INTENT_URL", value_name = "URL")]
    intent: Option<String>,
    /// Address of the execution service
    #[arg(long, global = true, env = "BURSAR_EXECUTION_URL", value_name = "URL")]
    execution: Option<String>,
    /// Address of the confirmation service
    #[arg(long, global = true, env = "BURSAR_CONFIRMATION_URL", value_name = "URL")]
    confirmation: Option<String>,
    /// Address of the signer gateway
    #[arg(long, global = true, env = "BURSAR_SIGNER_URL", value_name = "URL")]
    signer: Option<String>,
    /// Address of the indexer
    #[arg(long, global = true, env = "BURSAR_INDEXER_URL", value_name = "URL")]
    indexer: Option<String>,
    /// Address of worker control
    #[arg(long, global = true, env = "BURSAR_WORKER_CONTROL_URL", value_name = "URL")]
    worker_control: Option<String>,
    /// API key for those addresses
    #[arg(long, global = true, env = "BURSAR_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<Secret>,
    /// Certificate authority for https addresses
    #[arg(long, global = true, env = "BURSAR_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Target {
    /// The local stack and nothing else, whatever addresses and keys the environment holds: who starts a stack or shows it off
    /// must not reach another installation by them.
    pub fn local(&self) -> Target {
        Target {
            data: self.data.clone(),
            intent: None,
            execution: None,
            confirmation: None,
            signer: None,
            indexer: None,
            worker_control: None,
            api_key: None,
            ca: None,
        }
    }
}

/// The part of `stack.json` that a client needs.
#[derive(Deserialize)]
struct Stack {
    parts: BTreeMap<String, Part>,
    api_keys: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Part {
    url: String,
}

/// Addresses and keys, resolved.
pub struct Connection {
    target: Target,
    stack: Option<Stack>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the stack, which holds everybody's keys.
        f.debug_struct("Connection").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Connection {
    /// Reads the local stack if there is one; whether it is needed shows when an address is asked for.
    pub fn open(target: Target) -> Result<Self> {
        let file = target.data.join("stack.json");
        Self::open_file(target, &file)
    }

    /// As [`Connection::open`], from a stack file of another name: that of a stack which is not ready yet.
    pub fn open_file(target: Target, file: &Path) -> Result<Self> {
        let stack = match std::fs::read_to_string(file) {
            Ok(text) => Some(
                serde_json::from_str(&text)
                    .with_context(|| format!("{} is not a stack file", file.display()))?,
            ),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
        };
        Ok(Self { target, stack })
    }

    pub fn intent(&self, who: &str) -> Result<Intent> {
        Ok(Intent::new(self.client("intent", self.target.intent.as_ref(), who)?))
    }

    pub fn policy(&self, who: &str) -> Result<Policy> {
        Ok(Policy::new(self.client("intent", self.target.intent.as_ref(), who)?))
    }

    pub fn execution(&self, who: &str) -> Result<Execution> {
        Ok(Execution::new(self.client("execution", self.target.execution.as_ref(), who)?))
    }

    pub fn catalogue(&self, who: &str) -> Result<Catalogue> {
        Ok(Catalogue::new(self.client("execution", self.target.execution.as_ref(), who)?))
    }

    pub fn wallets(&self, who: &str) -> Result<Wallets> {
        Ok(Wallets::new(self.client("execution", self.target.execution.as_ref(), who)?))
    }

    pub fn confirmation(&self, who: &str) -> Result<Confirmation> {
        Ok(Confirmation::new(self.client("confirmation", self.target.confirmation.as_ref(), who)?))
    }

    pub fn workers(&self, who: &str) -> Result<Workers> {
        Ok(Workers::new(self.client("worker-control", self.target.worker_control.as_ref(), who)?))
    }

    pub fn indexer(&self, who: &str) -> Result<Indexer> {
        Ok(Indexer::new(self.client("indexer", self.target.indexer.as_ref(), who)?))
    }

    /// Where a part of the local stack listens.
    pub fn part(&self, name: &str) -> Option<String> {
        self.stack.as_ref().and_then(|stack| stack.parts.get(name)).map(|part| part.url.clone())
    }

    /// Where the local stack keeps its signer's unseal key; nothing when another signer is meant, which must not be sent it.
    pub fn unseal_key_file(&self) -> Option<PathBuf> {
        let own = self.stack.is_some() && self.target.signer.is_none();
        own.then(|| self.target.data.join("secrets").join("unseal.key"))
    }

    pub fn signer(&self, who: &str) -> Result<Signer> {
        Ok(Signer::new(self.client("signer-gateway", self.target.signer.as_ref(), who)?))
    }

    /// The signing key of a development approver; anyone else's lies in a file of their own.
    pub fn approver(&self, name: &str) -> Result<ApproverKey> {
        let file = self.target.data.join("approvers").join(format!("{name}.key"));
        ApproverKey::read(name, &file).with_context(|| {
            format!("no signing key for {name} on this stack; name a file with --signing-key")
        })
    }

    fn client(&self, service: &str, given: Option<&String>, who: &str) -> Result<Client> {
        let own = self.part(service);
        let url = match (given, &self.stack) {
            (Some(url), _) => url.clone(),
            (None, Some(_)) => own.clone().with_context(|| format!("the stack has no {service}"))?,
            (None, None) => anyhow::bail!(
                "no stack in {} and no address of {service}: start one with `bursar up`, or name an address",
                self.target.data.display()
            ),
        };
        // Keys of the local stack are nobody else's business.
        let is_own = own.is_some_and(|own| own == url.trim_end_matches('/'));
        let own_key = is_own.then(|| self.own_key(who)).flatten();
        let mut config = ClientConfig::new(url);
        // `--api-key` is used for all calls.
        if let Some(key) = self.target.api_key.clone().or(own_key) {
            config = config.with_key(key);
        }
        if let Some(ca) = &self.target.ca {
            config.tls = Some(ClientTls { ca: Some(ca.clone()), ..ClientTls::default() });
        }
        Ok(connect_lazy(&config)?)
    }

    /// The key of a named caller on the local stack.
    fn own_key(&self, name: &str) -> Option<Secret> {
        self.stack.as_ref()?.api_keys.get(name).map(Secret::new)
    }
}
