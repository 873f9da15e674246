//! Who may depend on whom. Each allowed edge is written down here, so that a new one is a decision and not an accident.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Libraries and the workspace crates each may stand on.
const LIBS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("payment", &["types"]),
    ("proto", &["payment", "types"]),
    ("telemetry", &[]),
    ("devstack", &[]),
    ("db", &["telemetry", "types"]),
    ("chain", &["payment", "types"]),
    ("rpc", &["proto", "telemetry", "types"]),
    ("worker", &["db", "telemetry", "types"]),
    ("service", &["db", "rpc", "telemetry"]),
    ("testkit", &["devstack"]),
];

/// What every service may stand on. Never each other: they talk through the contracts.
const SERVICE_LIBS: &[&str] = &["db", "payment", "proto", "rpc", "service", "telemetry", "types", "worker"];

/// Services that may reach a chain. The signer is absent on purpose: it has no route to any node.
const ON_CHAIN: &[&str] = &["confirmation", "execution", "indexer", "worker-control"];

const SERVICES: &[&str] =
    &["confirmation", "execution", "indexer", "intent", "signer-gateway", "worker-control"];

/// What tools may stand on: libraries, never a service.
const TOOL_LIBS: &[&str] = &["chain", "db", "devstack", "payment", "proto", "rpc", "telemetry", "types"];

const TOOLS: &[&str] = &["bench", "bursar", "tron-devnet"];

/// The benchmark measures the signer's own signing code, beside the whole gateway over its contract.
const MEASURED: (&str, &str) = ("bench", "signer-gateway");

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().expect("cargo metadata describes this workspace")
}

fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let libs = LIBS.iter().map(|(name, deps)| (*name, deps.iter().copied().collect()));
    let services = SERVICES.iter().map(|name| {
        let mut deps: BTreeSet<_> = SERVICE_LIBS.iter().copied().collect();
        if ON_CHAIN.contains(name) {
            deps.insert("chain");
        }
        (*name, deps)
    });
    let tools = TOOLS.iter().map(|name| {
        let measured = (*name == MEASURED.0).then_some(MEASURED.1);
        (*name, TOOL_LIBS.iter().copied().chain(measured).collect())
    });
    let tests = ("tests", ["proto", "rpc", "testkit", "types"].into());
    libs.chain(services).chain(tools).chain([tests]).collect()
}

fn edges(package: &Package, ours: &BTreeSet<String>, dev: bool) -> Vec<String> {
    package
        .dependencies
        .iter()
        .filter(|d| (d.kind == DependencyKind::Development) == dev)
        .map(|d| d.name.clone())
        .filter(|name| ours.contains(name))
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let metadata = metadata();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let allowed = allowed();
    let mut broken = Vec::new();
    for package in &metadata.packages {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            broken.push(format!("{} has no place in the architecture; name one in this test", package.name));
            continue;
        };
        for dependency in edges(package, &ours, false) {
            if !allowed.contains(dependency.as_str()) {
                broken.push(format!("{} may not depend on {dependency}", package.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn tests_of_a_library_or_service_reach_no_service() {
    let metadata = metadata();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let broken: Vec<String> = metadata
        .packages
        .iter()
        .filter(|p| p.name.as_str() != "tests")
        .flat_map(|p| edges(p, &ours, true).into_iter().map(move |d| (p.name.to_string(), d)))
        .filter(|(_, dependency)| SERVICES.contains(&dependency.as_str()))
        .map(|(name, dependency)| {
            format!("{name} may not test against {dependency}: call it through its contract")
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_crate_is_named_after_its_folder_and_follows_the_workspace_lints() {
    let metadata = metadata();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
        assert_eq!(folder.file_name(), Some(package.name.as_str()), "crate and folder differ");
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("manifests are readable");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} sets lints of its own", package.name);
    }
}

#[test]
fn every_crate_says_what_it_owns_and_what_it_never_does() {
    let metadata = metadata();
    for package in &metadata.packages {
        let sources = package.manifest_path.parent().expect("a manifest lies in a folder").join("src");
        let root = ["lib.rs", "main.rs"].iter().map(|f| sources.join(f)).find(|f| f.exists());
        let root = root.unwrap_or_else(|| panic!("{} has no root module", package.name));
        let text = std::fs::read_to_string(&root).expect("sources are readable");
        let header: Vec<&str> = text.lines().take_while(|l| l.starts_with("//!")).collect();
        assert!(header.len() >= 3, "{root} does not say what the crate owns and never does");
    }
}

#[test]
fn schemas_of_the_database_library_are_copied_unchanged() {
    let root = metadata().workspace_root;
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    for (original, copy) in [
        ("libs/db/sql/queue.sql", "migrations/execution/0001_queue.sql"),
        ("libs/db/sql/outbox.sql", "migrations/execution/0002_outbox.sql"),
        ("libs/db/sql/outbox.sql", "migrations/confirmation/0005_outbox.sql"),
        ("libs/db/sql/outbox.sql", "migrations/intent/0019_outbox.sql"),
        ("libs/db/sql/outbox_receivers.sql", "migrations/execution/0030_outbox_receivers.sql"),
        ("libs/db/sql/outbox_receivers.sql", "migrations/confirmation/0010_outbox_receivers.sql"),
        ("libs/db/sql/outbox_receivers.sql", "migrations/intent/0026_outbox_receivers.sql"),
    ] {
        assert_eq!(read(original), read(copy), "{copy} is no longer what {original} says");
    }
}
