//! Certificates for servers and clients.
//!
//! Owns reading PEM files and building the TLS settings. It never weakens them: no certificate check can be switched off.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tonic::transport::{Certificate, ClientTlsConfig as TonicTls, Identity};

use crate::auth::PeerCertificate;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file with the server's certificate chain.
    pub cert: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
    /// PEM file with the authorities that client certificates may come from. Without it none is asked for.
    pub client_ca: Option<PathBuf>,
    /// Refuse connections without a client certificate. Off, people with API keys and services with certificates may
    /// share the port.
    pub client_required: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// PEM file with the authorities that the server's certificate may come from.
    pub ca: Option<PathBuf>,
    /// PEM file with our own certificate chain, for mutual TLS.
    pub cert: Option<PathBuf>,
    /// PEM file with its private key.
    pub key: Option<PathBuf>,
    /// Name expected in the server's certificate, when it differs from the host in the address.
    pub domain: Option<String>,
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} from {}", path.display())]
    Pem { what: &'static str, path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("cannot read {}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("no certificate in {}", .0.display())]
    Empty(PathBuf),
    #[error("certificate and key cannot be used together")]
    Identity(#[source] rustls::Error),
    #[error("the certificate authority in {} cannot be used", path.display())]
    Authority { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("a client certificate needs both `cert` and `key`")]
    HalfIdentity,
    #[error("an https address needs `tls.ca`, the authority of the server's certificate")]
    NoAuthority,
}

/// Settings that name unusable files: the key of each within its section, and why.
pub type Unusable = Vec<(&'static str, TlsError)>;

impl TlsConfig {
    /// Opens every file, as a server that binds does.
    #[must_use]
    pub fn unusable(&self) -> Unusable {
        let (cert, key) = (certificates(&self.cert), private_key(&self.key));
        let authorities = self.client_ca.as_deref().map_or(Ok(()), |path| roots(path).map(drop));
        unusable(("client_ca", authorities), cert, key)
    }
}

impl ClientTls {
    /// Opens every file, as a client that connects does.
    #[must_use]
    pub fn unusable(&self) -> Unusable {
        let authorities = self.ca.as_deref().map_or(Ok(()), |path| roots(path).map(drop));
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => unusable(("ca", authorities), certificates(cert), private_key(key)),
            // One without the other is refused for that.
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                authorities.err().map(|error| ("ca", error)).into_iter().collect()
            }
        }
    }
}

type Chain = Vec<CertificateDer<'static>>;

fn unusable(
    (name, authorities): (&'static str, Result<(), TlsError>),
    cert: Result<Chain, TlsError>,
    key: Result<PrivateKeyDer<'static>, TlsError>,
) -> Unusable {
    let mut found: Unusable = authorities.err().map(|error| (name, error)).into_iter().collect();
    match (cert, key) {
        (Ok(cert), Ok(key)) => {
            let provider = rustls::crypto::ring::default_provider();
            let pair = rustls::sign::CertifiedKey::from_der(cert, key, &provider);
            found.extend(pair.err().map(|error| ("key", TlsError::Identity(error))));
        }
        (cert, key) => {
            found.extend(cert.err().map(|error| ("cert", error)));
            found.extend(key.err().map(|error| ("key", error)));
        }
    }
    found
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = |source| TlsError::Pem { what: "a private key", path: path.to_owned(), source };
    PrivateKeyDer::from_pem_file(path).map_err(pem)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unusable = |error| TlsError::Authority { path: path.to_owned(), source: Box::new(error) };
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem { what: "certificates", path: path.to_owned(), source };
    let list: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)?;
    if list.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(list) }
}

/// The settings of a TLS listener: HTTP/2 preferred, HTTP/1 for `/metrics` and the like.
pub(crate) fn server(config: &TlsConfig) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let (chain, key) = (certificates(&config.cert)?, private_key(&config.key)?);
    // The provider is named, never taken from the process: two libraries with two defaults would make that panic.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Identity)?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let verifier = if config.client_required { verifier } else { verifier.allow_unauthenticated() };
            let unusable = |error| TlsError::Authority { path: path.clone(), source: Box::new(error) };
            builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
        }
    };
    let mut settings = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
    settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(settings))
}

/// The names of a certificate that the handshake has verified.
pub(crate) fn peer(chain: Option<&[CertificateDer<'_>]>) -> Option<PeerCertificate> {
    let leaf = chain?.first()?;
    let parsed = webpki::EndEntityCert::try_from(leaf).ok()?;
    let names = parsed.valid_dns_names().chain(parsed.valid_uri_names()).map(str::to_owned).collect();
    Some(PeerCertificate { names })
}

/// The settings of a client channel; `None` for a plain-text address.
pub(crate) fn client(config: Option<&ClientTls>, https: bool) -> Result<Option<TonicTls>, TlsError> {
    if !https {
        return Ok(None);
    }
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|source| TlsError::File { path: path.clone(), source });
    let config = config.ok_or(TlsError::NoAuthority)?;
    let ca = config.ca.as_ref().ok_or(TlsError::NoAuthority)?;
    let mut tls = TonicTls::new().ca_certificate(Certificate::from_pem(read(ca)?));
    match (&config.cert, &config.key) {
        (None, None) => {}
        (Some(cert), Some(key)) => tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        _ => return Err(TlsError::HalfIdentity),
    }
    if let Some(domain) = &config.domain {
        tls = tls.domain_name(domain.clone());
    }
    Ok(Some(tls))
}
