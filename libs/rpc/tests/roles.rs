//! Every method of every Bursar service names the roles that may call it.

use std::collections::BTreeSet;

#[test]
fn every_method_names_roles_that_exist() {
    let methods = rpc::method::all();
    assert!(
        methods.keys().any(|path| path.starts_with("/bursar.")),
        "the contracts are not in the descriptors"
    );
    // A role that does not parse leaves the list empty too, so a misspelt one is found here as well.
    let without: BTreeSet<_> = methods
        .iter()
        .filter(|(_, method)| !method.public && method.roles.is_empty())
        .map(|(path, _)| path)
        .collect();
    assert!(without.is_empty(), "methods without roles: {without:#?}");
}

#[test]
fn only_health_and_reflection_are_public() {
    let public: BTreeSet<_> = rpc::method::all()
        .values()
        .filter(|method| method.public)
        .map(|method| method.service.as_str())
        .collect();
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    assert_eq!(public, BTreeSet::from(expected));
}

#[test]
fn services_named_in_roles_are_services_of_bursar_or_its_executors() {
    let known =
        ["intent", "execution", "confirmation", "signer-gateway", "indexer", "worker-control", "executor"];
    for (path, method) in rpc::method::all() {
        for role in &method.roles {
            if let rpc::Role::Service(name) = role {
                assert!(known.contains(&name.as_str()), "{path} admits the unknown service {name}");
            }
        }
    }
}
