//! The JSON API under `server.tls`: operators' keys travel there too.

use std::sync::Arc;

use testkit::wait_for_value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::kit::{PATIENCE, Process, TestFleet};

/// One request on a stream; everything that was answered.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, key: &str) -> Option<String> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A server that does not say goodbye properly has answered all the same.
    let _ = stream.read_to_end(&mut answer).await;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn the_json_api_speaks_tls_where_the_service_does_and_nothing_else() {
    let mut fleet = TestFleet::new().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    for (variable, name, text) in [
        ("BURSAR_WORKER_CONTROL__SERVER__TLS__CERT", "server.pem", certificate.pem()),
        ("BURSAR_WORKER_CONTROL__SERVER__TLS__KEY", "server.key", key.serialize_pem()),
    ] {
        let path = fleet.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        fleet.environment.push((variable, path.display().to_string()));
    }
    let first = fleet.begin("first");

    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.der().clone()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let over_tls = async |path: &str, key: &str| {
        let tcp = TcpStream::connect(("127.0.0.1", first.http)).await.ok()?;
        ask(connector.connect("localhost".try_into().unwrap(), tcp).await.ok()?, path, key).await
    };
    let answer = wait_for_value("the JSON API", PATIENCE, || over_tls("/workers", Process::key())).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"workers":[]}"#), "{answer}");
    let answer = over_tls("/workers", "wrong").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let answer = over_tls("/health", "").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let tcp = TcpStream::connect(("127.0.0.1", first.http)).await.unwrap();
    let answer = ask(tcp, "/health", Process::key()).await.unwrap_or_default();
    assert!(!answer.contains("HTTP"), "plain text was answered: {answer}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_by_its_setting_before_any_worker_runs() {
    let mut fleet = TestFleet::new().await;
    fleet.workers(&fleet.shell(&[("a", "steady")]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fleet.environment.push(("BURSAR_WORKER_CONTROL__HTTP__LISTEN", address.clone()));
    let mut first = fleet.begin("first");
    assert_eq!(first.ends().await.code(), Some(1));
    let said = first.said();
    assert!(
        said.contains(&format!("cannot listen on {address}: address already in use (http.listen)")),
        "{said}"
    );
    assert_eq!(fleet.starts("a"), []);
}
