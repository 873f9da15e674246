//! TLS and mutual TLS, with certificates made for the test.

use std::{fs, path::PathBuf};

use proto::workercontrol::v1::ListWorkersRequest;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rpc::{
    AuthConfig, ClientConfig,
    auth::CertificateConfig,
    tls::{ClientTls, TlsConfig},
};
use tempfile::TempDir;
use tonic::Code;

use crate::fake::{self, Running};

/// An authority with files for whoever it certifies.
struct Authority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { dir, issuer: Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn certify(&self, name: &str, sans: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = sans;
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files =
            (self.dir.path().join(format!("{name}.pem")), self.dir.path().join(format!("{name}.key")));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    fn client(&self, name: &str, san: SanType) -> ClientTls {
        let (cert, key) = self.certify(name, vec![san], ExtendedKeyUsagePurpose::ClientAuth);
        ClientTls { ca: Some(self.ca()), cert: Some(cert), key: Some(key), domain: None }
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// A server that knows the operator service by certificate and everybody else by key.
async fn start(authority: &Authority, client_required: bool) -> Running {
    let (cert, key) =
        authority.certify("server", vec![dns("localhost")], ExtendedKeyUsagePurpose::ServerAuth);
    let mut config = fake::config();
    config.tls = Some(TlsConfig { cert, key, client_ca: Some(authority.ca()), client_required });
    let certificates = vec![
        CertificateConfig { san: "execution.bursar".into(), service: "execution".into() },
        CertificateConfig { san: "spiffe://bursar/executor".into(), service: "executor".into() },
    ];
    fake::start_with(config, AuthConfig { keys: Vec::new(), certificates }, |server| server).await
}

fn over_tls(running: &Running, tls: ClientTls) -> ClientConfig {
    let mut config = ClientConfig::new(format!("https://localhost:{}", running.address.port()));
    config.tls = Some(tls);
    config.retry.max_attempts = 1;
    config
}

fn plain(authority: &Authority) -> ClientTls {
    ClientTls { ca: Some(authority.ca()), ..ClientTls::default() }
}

#[tokio::test]
async fn a_key_works_over_tls_and_the_servers_certificate_is_checked() {
    let authority = Authority::new();
    let running = start(&authority, false).await;
    let config = over_tls(&running, plain(&authority)).with_key(running.operator.clone());
    running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap();

    let stranger = Authority::new();
    let config = over_tls(&running, plain(&stranger)).with_key(running.operator.clone());
    let failed = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
}

#[tokio::test]
async fn a_client_certificate_is_a_caller_by_its_dns_name_or_uri() {
    let authority = Authority::new();
    let running = start(&authority, true).await;
    for (name, san, caller) in [
        ("execution", dns("execution.bursar"), "execution"),
        ("executor", SanType::URI("spiffe://bursar/executor".try_into().unwrap()), "executor"),
    ] {
        let config = over_tls(&running, authority.client(name, san));
        // Identified, then refused for its role: the refusal names the caller.
        let refused = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(&format!("caller {caller} ")), "{}", refused.message());
    }
}

#[tokio::test]
async fn a_certificate_with_an_unknown_name_or_authority_is_nobody() {
    let authority = Authority::new();
    let running = start(&authority, false).await;
    let config = over_tls(&running, authority.client("other", dns("other.bursar")));
    let refused = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");

    let stranger = Authority::new();
    let forged = ClientTls { ca: Some(authority.ca()), ..stranger.client("forged", dns("execution.bursar")) };
    let config = over_tls(&running, forged);
    let failed = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    assert_eq!(running.script.calls(), 0);
}

#[tokio::test]
async fn where_certificates_are_required_a_key_alone_does_not_connect() {
    let authority = Authority::new();
    let running = start(&authority, true).await;
    let config = over_tls(&running, plain(&authority)).with_key(running.operator.clone());
    let failed = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    let config = over_tls(&running, authority.client("execution", dns("execution.bursar")))
        .with_key(running.operator.clone());
    running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap();
}

#[tokio::test]
async fn unusable_files_are_named() {
    let mut config = fake::config();
    let missing = PathBuf::from("no-such-dir/server.pem");
    config.tls =
        Some(TlsConfig { cert: missing.clone(), key: missing, client_ca: None, client_required: false });
    let error = rpc::Server::new(config).bind().await.unwrap_err();
    let text = rpc::error::chain(&error);
    assert!(text.contains("server.tls") && text.contains("no-such-dir/server.pem"), "{text}");
}
