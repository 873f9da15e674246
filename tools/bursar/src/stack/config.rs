//! The configuration files of a development stack: one function for each service.
//!
//! Invariant: a file holds only keys that its service knows, since services refuse unknown ones. It holds secrets, so it
//! is readable by its owner only.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::keys::{Keys, PEOPLE};
use super::layout::write_private;
use super::workers::{self, Workers};
use super::{BSC, BSC_CHAIN_ID, Layout, TRON};
use crate::approver::ApproverKey;
use crate::{secrets, seed};

const ATTESTATION: &str = "attestation";
const UNSEAL: &str = "unseal";

/// What the signer lets pass on a development chain: 0.05 BNB for fees, 0.1 BNB for a top-up, a million of any asset.
const MAX_FEE: &str = "50000000000000000";
const MAX_TOP_UP: &str = "100000000000000000";
const MAX_TRANSACTION: &str = "1000000000000000000000000";
/// First address of the development phrase: sweeps end in that group and in no other.
const DEVELOPMENT_GROUP: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

/// Everything a configuration may need to know of the stack.
#[derive(Debug)]
pub struct Facts<'a> {
    pub layout: &'a Layout,
    pub keys: &'a Keys,
    /// PostgreSQL URLs by database.
    pub databases: &'a BTreeMap<String, String>,
    pub mongodb: &'a str,
    pub redis: &'a str,
    /// Ports of the services by name.
    pub ports: &'a BTreeMap<String, u16>,
    pub workers: &'a Workers,
}

impl Facts<'_> {
    pub fn port(&self, service: &str) -> Result<u16> {
        self.ports.get(service).copied().with_context(|| format!("no port was chosen for {service}"))
    }

    pub fn url(&self, service: &str) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.port(service)?))
    }

    fn database(&self, name: &str) -> Result<&str> {
        self.databases.get(name).map(String::as_str).with_context(|| format!("no database {name} was made"))
    }

    /// A secret of this stack, made on first use.
    fn secret(&self, name: &str) -> Result<String> {
        secrets::keep(&self.layout.secret(name))
    }

    /// The development approvers and the hex of their public keys; their keys are made on first use.
    pub fn approvers(&self) -> Result<Vec<(String, String)>> {
        let names = PEOPLE.iter().filter(|(_, role)| *role == "approver").map(|(name, _)| *name);
        let public = |name: &str| -> Result<(String, String)> {
            let seed = secrets::keep(&self.layout.approver_key(name))?;
            Ok((name.to_owned(), ApproverKey::from_hex(name, &seed)?.public_hex()))
        };
        names.map(public).collect()
    }
}

pub fn write_all(facts: &Facts<'_>) -> Result<()> {
    let files = [
        ("intent", intent(facts)?),
        ("execution", execution(facts)?),
        ("confirmation", confirmation(facts)?),
        ("signer-gateway", signer_gateway(facts)?),
        ("indexer", indexer(facts)?),
        ("worker-control", worker_control(facts)?),
    ];
    workers::write(facts)?;
    for (service, mut table) in files {
        workers::configure(facts, service, &mut table);
        let text = format!(
            "# Written by `bursar up`; changes are overwritten.\n\n{}",
            toml::to_string_pretty(&table)?
        );
        write_private(&facts.layout.config(service), &text)?;
    }
    Ok(())
}

fn intent(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "intent")?;
    database(&mut table, facts.database("intent")?);
    client(&mut table, facts, "intent", "execution")?;
    for (name, public_key) in facts.approvers()? {
        set(&mut table, &["approvers", &name], "public_key", public_key);
    }
    Ok(table)
}

fn execution(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "execution")?;
    database(&mut table, facts.database("execution")?);
    for other in ["intent", "confirmation", "signer-gateway"] {
        client(&mut table, facts, "execution", other)?;
    }
    // Long enough for a machine that is busy, short enough that somebody waits for the end of a window.
    set(&mut table, &[], "window_ms", 20_000);
    Ok(table)
}

fn confirmation(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "confirmation")?;
    database(&mut table, facts.database("confirmation")?);
    for other in ["intent", "execution"] {
        client(&mut table, facts, "confirmation", other)?;
    }
    set(&mut table, &["attestation"], "key", facts.secret(ATTESTATION)?);
    Ok(table)
}

fn signer_gateway(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "signer-gateway")?;
    database(&mut table, facts.database("signer")?);
    set(&mut table, &["seal"], "unseal_key", facts.secret(UNSEAL)?);
    let attestation = ApproverKey::from_hex(ATTESTATION, &facts.secret(ATTESTATION)?)?.public_hex();
    set(&mut table, &["policy"], "confirmation_keys", vec![Value::from(attestation)]);
    set(&mut table, &["policy"], "operation_groups", vec![Value::from(DEVELOPMENT_GROUP)]);
    let approver = |(name, public_key): (String, String)| {
        let mut approver = Table::new();
        approver.insert("name".to_owned(), name.into());
        approver.insert("public_key".to_owned(), public_key.into());
        Value::Table(approver)
    };
    let approvers: Vec<Value> = facts.approvers()?.into_iter().map(approver).collect();
    set(&mut table, &["policy"], "approvers", approvers);
    let chain = &["chains", BSC];
    set(&mut table, chain, "address_format", "evm");
    set(&mut table, chain, "chain_id", i64::try_from(BSC_CHAIN_ID)?);
    set(&mut table, chain, "native", "BNB");
    set(&mut table, chain, "max_fee", MAX_FEE);
    set(&mut table, chain, "max_top_up", MAX_TOP_UP);
    let chain = &["chains", TRON];
    set(&mut table, chain, "address_format", TRON);
    set(&mut table, chain, "native", "TRX");
    set(&mut table, chain, "max_fee", seed::tron::MAX_FEE);
    let tokens =
        [(BSC, "USDT", seed::token_address()?), (TRON, seed::tron::TOKEN, seed::tron::token_address())];
    for (chain, symbol, contract) in tokens {
        set(&mut table, &["chains", chain, "assets", symbol], "contract", contract);
    }
    for (chain, symbol) in [(BSC, "BNB"), (BSC, "USDT"), (TRON, "TRX"), (TRON, seed::tron::TOKEN)] {
        let asset = &["chains", chain, "assets", symbol];
        set(&mut table, asset, "max_transaction", MAX_TRANSACTION);
        let mut tier = Table::new();
        tier.insert("approvals".to_owned(), Value::Integer(2));
        set(&mut table, asset, "tiers", vec![Value::Table(tier)]);
    }
    Ok(table)
}

fn indexer(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "indexer")?;
    set(&mut table, &["mongo"], "url", facts.mongodb);
    set(&mut table, &["mongo"], "database", "indexer");
    // Blocks come every second here, and are to be seen at once.
    set(&mut table, &["collect"], "realtime_poll_ms", 400);
    set(&mut table, &["collect"], "historical_poll_ms", 400);
    Ok(table)
}

fn worker_control(facts: &Facts<'_>) -> Result<Table> {
    let mut table = common(facts, "worker-control")?;
    database(&mut table, facts.database("worker_control")?);
    set(&mut table, &["redis"], "url", facts.redis);
    Ok(table)
}

/// What every service has alike.
fn common(facts: &Facts<'_>, service: &str) -> Result<Table> {
    let mut table = Table::new();
    set(&mut table, &["server"], "listen", format!("127.0.0.1:{}", facts.port(service)?));
    // Nobody balances load to a development stack, so nobody needs notice of a stop.
    set(&mut table, &["server", "limits"], "notice_ms", 0);
    set(&mut table, &["server", "limits"], "drain_ms", 5_000);
    set(&mut table, &["telemetry"], "log_format", "json");
    let caller = |(name, sha256, role): (String, String, String)| {
        let mut key = Table::new();
        key.insert("name".to_owned(), name.into());
        key.insert("sha256".to_owned(), sha256.into());
        key.insert("roles".to_owned(), vec![Value::from(role)].into());
        Value::Table(key)
    };
    let callers: Vec<Value> = facts.keys.callers().into_iter().map(caller).collect();
    set(&mut table, &["auth"], "keys", callers);
    Ok(table)
}

fn database(table: &mut Table, url: &str) {
    set(table, &["database"], "url", url);
}

/// How `service` reaches `other`, with its own key.
fn client(table: &mut Table, facts: &Facts<'_>, service: &str, other: &str) -> Result<()> {
    set(table, &["clients", other], "url", facts.url(other)?);
    set(table, &["clients", other], "api_key", facts.keys.of_service(service));
    Ok(())
}

/// Sets a key in a nested table, making the tables on the way.
pub(super) fn set(table: &mut Table, path: &[&str], key: &str, value: impl Into<Value>) {
    match path.split_first() {
        None => {
            table.insert(key.to_owned(), value.into());
        }
        Some((first, rest)) => {
            let inner = table.entry(*first).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::SERVICES;

    #[test]
    fn every_service_gets_a_private_file_without_anybody_elses_secret() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(dir.path()).unwrap();
        let keys = Keys::keep(&layout.keys_file()).unwrap();
        let databases: BTreeMap<String, String> = crate::stack::databases::DATABASES
            .iter()
            .map(|name| ((*name).to_owned(), format!("postgres://{name}:pw-{name}@127.0.0.1:1/{name}")))
            .collect();
        let workers = Workers {
            place: workers::Place::Orchestrated,
            programs: SERVICES.into_iter().map(|service| (service, service.into())).collect(),
            die_with_orchestrator: false,
        };
        let names = SERVICES.into_iter().map(str::to_owned).chain(workers.port_names());
        let ports: BTreeMap<String, u16> = names.zip(1000..).collect();
        let facts = Facts {
            layout: &layout,
            keys: &keys,
            databases: &databases,
            mongodb: "mongodb://127.0.0.1:2",
            redis: "redis://127.0.0.1:3",
            ports: &ports,
            workers: &workers,
        };
        write_all(&facts).unwrap();
        for service in SERVICES {
            let path = layout.config(service);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let text = std::fs::read_to_string(&path).unwrap();
            let table: Table = text.parse().unwrap();
            assert_eq!(table["server"]["listen"].as_str().unwrap(), format!("127.0.0.1:{}", ports[service]));
            assert_eq!(table["auth"]["keys"].as_array().unwrap().len(), 11);
            assert!(
                text.matches(":pw-").count() <= 1,
                "{service} knows the password of one database at most"
            );
            let own = keys.of_service(service);
            let others = keys.people.values().chain(keys.services.values()).filter(|key| **key != own);
            assert!(others.into_iter().all(|key| !text.contains(key)), "{service} holds no key but its own");
        }
        let signer: Table =
            std::fs::read_to_string(layout.config("signer-gateway")).unwrap().parse().unwrap();
        assert_eq!(signer["policy"]["operation_groups"], Value::from(vec![DEVELOPMENT_GROUP]));
        let written = std::fs::read_to_string(layout.config("workers")).unwrap();
        let parts = workers.parts(&ports);
        assert_eq!(parts.len(), 5, "{parts:?}");
        for (id, part) in parts {
            let listen = part.url.trim_start_matches("http://");
            assert!(
                written.contains(&format!("\"{listen}\"")),
                "{id} does not listen on {listen}: {written}"
            );
        }
    }
}
