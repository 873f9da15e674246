//! What a contract says about each method: who may call it, and whether a call may be repeated.
//!
//! Both are options in the `.proto` files, so that the API reference, the server's check and the client's retry rule
//! cannot drift apart. A method without roles is called by nobody.

use std::collections::HashMap;
use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, ExtensionDescriptor, MethodDescriptor, Value};

/// The package prefix of our own services; health and reflection lie outside.
const OURS: &str = "bursar.";
const ACCESS: &str = "bursar.options.v1.access";

/// What the contract says about one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// Role names that may call it; empty when the contract forgot to say.
    pub roles: Vec<String>,
    /// Whether repeating a call does no harm (`NO_SIDE_EFFECTS` or `IDEMPOTENT`).
    pub safe: bool,
}

/// All descriptors, decoded once.
pub fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET)
            .expect("the descriptors were encoded by our own build script")
    })
}

/// Every method of ours by its gRPC path, e.g. `/bursar.intent.v1.IntentService/GetWithdrawal`.
pub fn methods() -> &'static HashMap<String, Method> {
    static METHODS: OnceLock<HashMap<String, Method>> = OnceLock::new();
    METHODS.get_or_init(|| {
        let access = pool().get_extension_by_name(ACCESS);
        let services = pool().services().filter(|s| s.full_name().starts_with(OURS));
        services
            .flat_map(|s| s.methods().collect::<Vec<_>>())
            .map(|m| (path(&m), describe(&m, access.as_ref())))
            .collect()
    })
}

/// The roles that may call a method; `None` when the contract names none or does not know the method.
pub fn roles(path: &str) -> Option<&'static [String]> {
    methods().get(path).map(|m| m.roles.as_slice()).filter(|roles| !roles.is_empty())
}

/// Whether a call of this method may be repeated after an unclear failure.
pub fn is_safe(path: &str) -> bool {
    methods().get(path).is_some_and(|m| m.safe)
}

fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

fn describe(method: &MethodDescriptor, access: Option<&ExtensionDescriptor>) -> Method {
    let options = method.options();
    let roles = access.filter(|a| options.has_extension(a)).map(|a| options.get_extension(a).into_owned());
    let roles = roles
        .as_ref()
        .and_then(Value::as_message)
        .and_then(|m| m.get_field_by_name("roles").map(std::borrow::Cow::into_owned))
        .and_then(|v| v.as_list().map(|l| l.iter().filter_map(|r| r.as_str().map(str::to_owned)).collect()))
        .unwrap_or_default();
    let level = options.get_field_by_name("idempotency_level").and_then(|v| v.as_enum_number());
    // google.protobuf.MethodOptions.IdempotencyLevel: 1 is NO_SIDE_EFFECTS, 2 is IDEMPOTENT.
    Method { roles, safe: matches!(level, Some(1 | 2)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_safety_are_read_off_the_contract() {
        let create = "/bursar.intent.v1.IntentService/CreateWithdrawal";
        assert_eq!(roles(create), Some(&["requester".to_owned()][..]));
        assert!(is_safe(create));
        assert!(!is_safe("/bursar.signer.v1.SignerService/CreateWalletGroup"));
    }

    #[test]
    fn a_method_nobody_declared_has_no_roles_and_is_not_safe() {
        assert_eq!(roles("/bursar.intent.v1.IntentService/Nope"), None);
        assert!(!is_safe("/grpc.health.v1.Health/Check"));
    }

    #[test]
    fn every_method_names_its_roles() {
        let mut nameless: Vec<_> =
            methods().iter().filter(|(_, m)| m.roles.is_empty()).map(|(path, _)| path).collect();
        nameless.sort();
        assert!(nameless.is_empty(), "methods without roles: {nameless:#?}");
    }

    #[test]
    fn every_role_is_one_that_keys_can_carry() {
        let known = ["requester", "approver", "operator", "auditor"];
        for (path, method) in methods() {
            for role in &method.roles {
                let service = role.strip_prefix("service:").is_some_and(|s| !s.is_empty());
                assert!(service || known.contains(&role.as_str()), "{path} names the unknown role {role}");
            }
        }
    }
}
