//! Every gRPC method this build knows, read once from the descriptors.
//!
//! Owns the lookup by path. It never guesses: a path that no descriptor names is unknown, and its callers decide what
//! that means (refuse it, do not retry it).

use std::{collections::HashMap, sync::OnceLock};

use prost_reflect::DescriptorPool;

use crate::role::{Role, RoleError};

/// One method of a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// Its place among all methods, for tables with an entry for each.
    pub(crate) number: usize,
    /// Full service name, `bursar.intent.v1.IntentService`.
    pub service: String,
    pub name: String,
    /// Roles of which a caller needs one. Empty means nobody, unless the method is public.
    pub roles: Vec<Role>,
    /// Health and reflection: answered without a caller, and outside the limits.
    pub public: bool,
    /// Whether a call may be retried without harm.
    pub safe: bool,
    pub client_streaming: bool,
    pub server_streaming: bool,
}

impl Method {
    /// One message each way.
    #[must_use]
    pub fn unary(&self) -> bool {
        !self.client_streaming && !self.server_streaming
    }
}

/// The method at a gRPC path such as `/bursar.intent.v1.IntentService/CreateWithdrawal`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Method> {
    all().get(path)
}

/// All known methods by path.
pub fn all() -> &'static HashMap<String, Method> {
    static METHODS: OnceLock<HashMap<String, Method>> = OnceLock::new();
    METHODS.get_or_init(|| {
        let mut methods = HashMap::new();
        for public in [
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ] {
            // They ship inside the libraries; should one not decode, its methods are unknown and thereby refused.
            if let Ok(pool) = DescriptorPool::decode(public) {
                add(&mut methods, &pool, true);
            }
        }
        add(&mut methods, proto::access::pool(), false);
        methods
    })
}

fn add(methods: &mut HashMap<String, Method>, pool: &DescriptorPool, public: bool) {
    for service in pool.services() {
        for method in service.methods() {
            let path = format!("/{}/{}", service.full_name(), method.name());
            let number = methods.len();
            methods.entry(path.clone()).or_insert_with(|| Method {
                number,
                service: service.full_name().to_owned(),
                name: method.name().to_owned(),
                roles: roles(&path),
                public,
                // Asking for health or descriptors changes nothing.
                safe: public || proto::access::is_safe(&path),
                client_streaming: method.is_client_streaming(),
                server_streaming: method.is_server_streaming(),
            });
        }
    }
}

fn roles(path: &str) -> Vec<Role> {
    let named = proto::access::roles(path).unwrap_or_default();
    let parsed: Result<Vec<Role>, RoleError> = named.iter().map(|role| role.parse()).collect();
    // A misspelt role must not open a method to the others it names: nobody may call it, and the roles test fails.
    parsed.unwrap_or_default()
}
