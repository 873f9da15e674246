//! Finding out who calls: API keys and client certificates.
//!
//! Owns the table of known callers, which can be replaced while the server runs. It never stores a key, only its SHA-256, and it
//! never decides about a method.
//!
//! Why a fast hash: a key is 256 random bits, not a password. Nobody can enumerate 2^256 keys however fast the hash is, while
//! a slow hash would let a stranger burn our processor with garbage keys.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tonic::Status;

use crate::{
    error::{self, reason},
    role::{Caller, Role},
    secret::Secret,
};

/// One API key that is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyConfig {
    /// Name of the caller in logs and audit trails.
    pub name: String,
    /// SHA-256 of the key, 64 hexadecimal digits.
    pub sha256: String,
    pub roles: Vec<Role>,
}

/// One client certificate that stands for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateConfig {
    /// A DNS name or URI among the certificate's subject alternative names.
    pub san: String,
    /// The service it stands for: the caller gets the role `service:<service>`.
    pub service: String,
}

/// All callers known here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthConfig {
    pub keys: Vec<KeyConfig>,
    /// Client certificates; they count only when they chain to the server's `tls.client_ca`.
    pub certificates: Vec<CertificateConfig>,
}

/// Why a table of callers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("key `{0}`: sha256 must be 64 hexadecimal digits")]
    Hash(String),
    /// A key that may do nothing is a mistake.
    #[error("key `{0}` has no roles")]
    NoRoles(String),
    /// Two entries share a hash: one of the names would never be seen.
    #[error("keys `{0}` and `{1}` have the same sha256")]
    SameKey(String, String),
    /// Two entries share a name: the audit trail could not tell them apart.
    #[error("two keys are named `{0}`")]
    SameName(String),
    #[error("two certificates have the san `{0}`")]
    SameSan(String),
    #[error("certificate `{0}`: the service must be a name of lower-case letters, digits and hyphens")]
    ServiceName(String),
}

#[derive(Debug, Default)]
struct Table {
    keys: Vec<([u8; 32], Arc<Caller>)>,
    certificates: HashMap<String, Arc<Caller>>,
}

/// The callers a server knows. Clones share one table, so that a reload reaches every connection at once.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    table: Arc<RwLock<Table>>,
}

impl Auth {
    /// Checks and takes a table of callers. [`Auth::default`] knows nobody.
    ///
    /// # Errors
    /// The first entry that cannot be used.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthError> {
        let table = Table::build(config)?;
        Ok(Self { table: Arc::new(RwLock::new(table)) })
    }

    /// Replaces the table for all requests from now on. A wrong table changes nothing.
    ///
    /// # Errors
    /// The first entry that cannot be used.
    pub fn replace(&self, config: &AuthConfig) -> Result<(), AuthError> {
        let table = Table::build(config)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(())
    }

    /// The caller behind a request's headers and, if the connection has one, its verified certificate.
    ///
    /// A key decides when there is one, even beside a certificate: whoever sends a wrong key is refused, instead of
    /// acting under a name they did not mean.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, saying whether nothing was presented or something unknown.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificate>,
    ) -> Result<Arc<Caller>, Status> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = presented_key(headers)? {
            return table.by_key(key).ok_or_else(|| {
                error::unauthenticated(reason::BAD_CREDENTIALS, "this API key is not known here")
            });
        }
        if let Some(peer) = peer {
            return peer.names.iter().find_map(|name| table.certificates.get(name).cloned()).ok_or_else(
                || {
                    error::unauthenticated(
                        reason::BAD_CREDENTIALS,
                        "this client certificate names no known caller",
                    )
                },
            );
        }
        Err(error::unauthenticated(
            reason::NO_CREDENTIALS,
            "send an API key in the header `authorization: Bearer <key>`, or a client certificate",
        ))
    }
}

impl Table {
    fn build(config: &AuthConfig) -> Result<Self, AuthError> {
        let mut table = Self::default();
        for key in &config.keys {
            let mut hash = [0; 32];
            hex::decode_to_slice(&key.sha256, &mut hash).map_err(|_| AuthError::Hash(key.name.clone()))?;
            if key.roles.is_empty() {
                return Err(AuthError::NoRoles(key.name.clone()));
            }
            if let Some((_, other)) = table.keys.iter().find(|(known, _)| *known == hash) {
                return Err(AuthError::SameKey(other.name.clone(), key.name.clone()));
            }
            if table.keys.iter().any(|(_, other)| other.name == key.name) {
                return Err(AuthError::SameName(key.name.clone()));
            }
            let roles: BTreeSet<Role> = key.roles.iter().cloned().collect();
            table.keys.push((hash, Arc::new(Caller { name: key.name.clone(), roles })));
        }
        for certificate in &config.certificates {
            let role: Role = format!("service:{}", certificate.service)
                .parse()
                .map_err(|_| AuthError::ServiceName(certificate.san.clone()))?;
            let caller =
                Arc::new(Caller { name: certificate.service.clone(), roles: BTreeSet::from([role]) });
            if table.certificates.insert(certificate.san.clone(), caller).is_some() {
                return Err(AuthError::SameSan(certificate.san.clone()));
            }
        }
        Ok(table)
    }

    fn by_key(&self, key: &str) -> Option<Arc<Caller>> {
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut found = None;
        // Every entry is compared, in constant time: how long a refusal takes must not reveal how close a guess was.
        for (known, caller) in &self.keys {
            if bool::from(known.ct_eq(&hash)) {
                found = Some(Arc::clone(caller));
            }
        }
        found
    }
}

fn presented_key(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let unreadable = || {
        error::unauthenticated(
            reason::BAD_CREDENTIALS,
            "the header must be `authorization: Bearer <key>` or `x-api-key: <key>`",
        )
    };
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| unreadable())?;
        let (scheme, key) = text.split_once(' ').ok_or_else(unreadable)?;
        if !scheme.eq_ignore_ascii_case("bearer") || key.trim().is_empty() {
            return Err(unreadable());
        }
        return Ok(Some(key.trim()));
    }
    match headers.get("x-api-key") {
        Some(value) => Ok(Some(value.to_str().map_err(|_| unreadable())?.trim())),
        None => Ok(None),
    }
}

/// What a verified client certificate calls itself. Present on a request only after TLS checked the chain.
#[derive(Debug, Clone)]
pub struct PeerCertificate {
    /// DNS names and URIs of the certificate.
    pub names: Arc<[String]>,
}

/// A new random API key, and the hash to configure on servers.
#[must_use]
pub fn new_key() -> (Secret, String) {
    let secret = Secret::new(format!("bursar_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())));
    let hash = hash_key(secret.expose());
    (secret, hash)
}

/// The hash under which a key is configured: SHA-256 in hexadecimal.
#[must_use]
pub fn hash_key(key: &str) -> String {
    hex::encode(Sha256::digest(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> (Secret, AuthConfig) {
        let (key, sha256) = new_key();
        let keys = vec![KeyConfig { name: "ops".into(), sha256, roles: vec![Role::Operator] }];
        let certificates =
            vec![CertificateConfig { san: "execution.bursar".into(), service: "execution".into() }];
        (key, AuthConfig { keys, certificates })
    }

    fn bearer(key: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())])
    }

    #[test]
    fn a_key_identifies_its_caller_in_either_header() {
        let (key, config) = config();
        let auth = Auth::new(&config).unwrap();
        assert_eq!(auth.identify(&bearer(key.expose()), None).unwrap().name, "ops");
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", key.expose().parse().unwrap());
        assert_eq!(auth.identify(&headers, None).unwrap().name, "ops");
    }

    #[test]
    fn a_wrong_key_is_refused_even_beside_a_good_certificate() {
        let (_, config) = config();
        let auth = Auth::new(&config).unwrap();
        let peer = PeerCertificate { names: Arc::from(["execution.bursar".to_owned()]) };
        assert_eq!(auth.identify(&HeaderMap::new(), Some(&peer)).unwrap().name, "execution");
        let refused = auth.identify(&bearer("nonsense"), Some(&peer)).unwrap_err();
        assert_eq!(error::reason_of(&refused).as_deref(), Some(reason::BAD_CREDENTIALS));
    }

    #[test]
    fn a_reload_reaches_clones_and_a_bad_one_changes_nothing() {
        let (key, config) = config();
        let auth = Auth::new(&config).unwrap();
        let clone = auth.clone();
        let mut bad = config.clone();
        bad.keys[0].sha256 = "xyz".into();
        assert_eq!(auth.replace(&bad), Err(AuthError::Hash("ops".into())));
        assert!(clone.identify(&bearer(key.expose()), None).is_ok());
        auth.replace(&AuthConfig::default()).unwrap();
        assert!(clone.identify(&bearer(key.expose()), None).is_err());
    }

    #[test]
    fn ambiguous_tables_are_refused() {
        let (_, mut config) = config();
        let mut twin = config.keys[0].clone();
        twin.name = "other".into();
        config.keys.push(twin);
        assert_eq!(Auth::new(&config).unwrap_err(), AuthError::SameKey("ops".into(), "other".into()));
    }
}
