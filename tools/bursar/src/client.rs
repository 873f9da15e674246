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

/// A client of each gRPC service: its type, and the method that connects it in somebody's name.
macro_rules! clients {
    ($($name:ident: $alias:ident = $client:ident at $service:literal $address:ident;)*) => {
        $(pub type $alias = $client<Client>;)*

        impl Connection {
            $(pub fn $name(&self, who: &str) -> Result<$alias> {
                Ok($alias::new(self.client($service, self.target.$address.as_ref(), who)?))
            })*
        }
    };
}

clients! {
    intent: Intent = IntentServiceClient at "intent" intent;
    policy: Policy = PolicyServiceClient at "intent" intent;
    execution: Execution = ExecutionServiceClient at "execution" execution;
    catalogue: Catalogue = CatalogueServiceClient at "execution" execution;
    wallets: Wallets = WalletServiceClient at "execution" execution;
    confirmation: Confirmation = ConfirmationServiceClient at "confirmation" confirmation;
    signer: Signer = SignerServiceClient at "signer-gateway" signer;
    indexer: Indexer = IndexerServiceClient at "indexer" indexer;
    workers: Workers = WorkerServiceClient at "worker-control" worker_control;
}

/// Where the services are. Without addresses, the local stack's are taken.
#[derive(Debug, Clone, Default, Args)]
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
        Target { data: self.data.clone(), ..Target::default() }
    }
}

/// Most items that a service gives in one page.
const PAGE: usize = 500;

/// Reads pages until there are `limit` items or no more. `page` takes a page size and the token of the page.
pub async fn pages<T>(
    limit: usize,
    mut page: impl AsyncFnMut(u32, String) -> Result<(Vec<T>, String)>,
) -> Result<Vec<T>> {
    let (mut found, mut token) = (Vec::new(), String::new());
    while found.len() < limit {
        let (items, next) = page(u32::try_from((limit - found.len()).min(PAGE))?, token).await?;
        found.extend(items);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
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

    pub fn part(&self, name: &str) -> Option<String> {
        self.stack.as_ref().and_then(|stack| stack.parts.get(name)).map(|part| part.url.clone())
    }

    /// Where the local stack keeps its signer's unseal key; nothing when another signer is meant, which must not be sent it.
    pub fn unseal_key_file(&self) -> Option<PathBuf> {
        let own = self.stack.is_some() && self.target.signer.is_none();
        own.then(|| self.target.data.join("secrets").join("unseal.key"))
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
        // A key of the local stack is never sent to another address.
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

    fn own_key(&self, name: &str) -> Option<Secret> {
        self.stack.as_ref()?.api_keys.get(name).map(Secret::new)
    }
}
