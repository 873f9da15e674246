//! Reading configuration: every mistake at once, each with its key and origin.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included, an error is a failed test")]

use service::{
    BoxError, Context, Service,
    config::{ConfigErrors, Reader, Secret},
    load,
};
use types::ChainName;

#[derive(Debug)]
struct Config {
    chains: Vec<Chain>,
    quorum: u32,
    key: Option<Secret>,
    signer: rpc::ClientConfig,
}

#[derive(Debug)]
struct Chain {
    name: ChainName,
    nodes: Vec<String>,
}

struct Sample;

impl Service for Sample {
    const NAME: &'static str = "signer-gateway";
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        let chains = reader.list("chains", |chain| {
            let name = chain.req::<ChainName>("name");
            let nodes = chain.values("nodes");
            Some(Chain { name: name?, nodes })
        });
        let policy = reader.section("policy");
        let quorum = policy.within("quorum", 2, 1..=10);
        let key = policy.secret_opt("key");
        let signer = service::config::client(reader, "signer-gateway");
        Some(Config { chains, quorum, key, signer: signer? })
    }

    async fn serve(_: Context<Config>) -> Result<(), BoxError> {
        Ok(())
    }
}

const GOOD: &str = r#"
[server]
listen = "127.0.0.1:3000"

[clients.signer-gateway]
url = "http://127.0.0.1:4000"

[[chains]]
name = "bsc"
nodes = ["http://a", "http://b"]
"#;

fn read(text: &str, env: &[(&str, &str)]) -> Result<service::Loaded<Config>, ConfigErrors> {
    let env = env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    load::<Sample>(Reader::parse("signer-gateway", Some("sample.toml"), text, env)?)
}

fn mistakes(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    read(text, env).unwrap_err().mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_file_is_read_with_its_defaults() {
    let loaded = read(GOOD, &[]).unwrap();
    assert_eq!(loaded.common.server.listen.port(), 3000);
    assert_eq!(loaded.common.server.limits.drain_ms, 10_000);
    assert_eq!(loaded.own.quorum, 2);
    assert_eq!(loaded.own.chains[0].name.to_string(), "bsc");
    assert_eq!(loaded.own.chains[0].nodes, ["http://a", "http://b"]);
}

#[test]
fn variables_override_the_file_and_are_typed_by_what_is_asked_for() {
    let env = [
        ("BURSAR_SIGNER_GATEWAY__SERVER__LISTEN", "0.0.0.0:9"),
        ("BURSAR_SIGNER_GATEWAY__POLICY__QUORUM", "7"),
        ("BURSAR_SIGNER_GATEWAY__POLICY__KEY", "123"),
        ("BURSAR_SIGNER_GATEWAY__CLIENTS__SIGNER_GATEWAY__TIMEOUT_MS", "50"),
        ("BURSAR_SIGNER_GATEWAY__CHAINS__0__NODES", "http://c, http://d"),
        ("BURSAR_OTHER__POLICY__QUORUM", "nonsense"),
    ];
    let loaded = read(GOOD, &env).unwrap();
    assert_eq!(loaded.common.server.listen.to_string(), "0.0.0.0:9");
    assert_eq!(loaded.own.quorum, 7);
    assert_eq!(loaded.own.key.as_ref().map(Secret::expose), Some("123"));
    assert_eq!(loaded.own.signer.timeout_ms, 50);
    assert_eq!(loaded.own.chains[0].nodes, ["http://c", "http://d"]);
    assert!(format!("{:?}", loaded.own).contains("key: Some([redacted])"));
}

#[test]
fn lists_of_tables_come_inline_as_toml_or_json_without_any_file() {
    for chains in [r#"[{ name = "bsc" }, { name = "tron" }]"#, r#"[{"name": "bsc"}, {"name": "tron"}]"#] {
        let env = [
            ("BURSAR_SIGNER_GATEWAY__SERVER__LISTEN", "127.0.0.1:1"),
            ("BURSAR_SIGNER_GATEWAY__CLIENTS__SIGNER_GATEWAY__URL", "http://x:1"),
            ("BURSAR_SIGNER_GATEWAY__CHAINS", chains),
        ];
        let loaded = read("", &env).unwrap();
        assert_eq!(loaded.own.chains.len(), 2, "{chains}");
        assert_eq!(loaded.own.chains[1].name.to_string(), "tron");
    }
}

#[test]
fn every_mistake_is_reported_at_once_with_its_key_and_origin() {
    let text = r#"
        [server]
        lisen = "127.0.0.1:3000"
        [server.limits]
        concurrency = "many"
        drain_ms = -1
        [telemetry]
        log_format = "xml"
        filter = "a=b=c"
        otlp_endpoint = "collector"
        [[auth.keys]]
        name = "ops"
        sha256 = "abc"
        roles = ["boss"]
        [[auth.keys]]
        name = "shop"
        sha256 = "def"
        roles = ["requester"]
        [[chains]]
        name = "Not A Slug"
        [policy]
        key_file = "no-such-file"
        [clients.signer-gateway]
        url = "ftp://x"
    "#;
    let found = mistakes(text, &[("BURSAR_SIGNER_GATEWAY__POLICY__QUORUM", "11")]);
    let expected = [
        "auth.keys[0].roles[0]: `boss` cannot be used",
        "auth.keys[0].sha256: must be 64 hexadecimal digits",
        "auth.keys[1].sha256: must be 64 hexadecimal digits",
        "chains[0].name: `Not A Slug` cannot be used",
        "clients.signer-gateway.url: `ftp://x` must start with http:// or https:// (sample.toml)",
        "policy.key_file: cannot read no-such-file",
        "policy.quorum: 11 is not between 1 and 10 (BURSAR_SIGNER_GATEWAY__POLICY__QUORUM)",
        "server.limits.concurrency: must be a whole number, not the string \"many\" (sample.toml)",
        "server.limits.drain_ms: `-1` cannot be used",
        "server.lisen: is not a known setting; did you mean `listen`? (sample.toml)",
        "server.listen: is missing; set it in sample.toml or as BURSAR_SIGNER_GATEWAY__SERVER__LISTEN",
        "telemetry.filter: `a=b=c` is not a log filter",
        "telemetry.log_format: `xml` cannot be used",
        "telemetry.otlp_endpoint: `collector` is not an OTLP collector address",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "found    {found}\nexpected {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn unknown_sections_and_variables_are_refused() {
    let text = format!("{GOOD}\n[polcy]\nquorum = 1\n");
    let found = mistakes(&text, &[("BURSAR_SIGNER_GATEWAY__SERVER__LISTENER__X", "1")]);
    assert_eq!(
        found,
        [
            "polcy: is not a known setting; did you mean `policy`? (sample.toml)",
            "server.listener: is not a known setting; did you mean `listen`? \
             (BURSAR_SIGNER_GATEWAY__SERVER__LISTENER__X)",
        ]
    );
}

#[test]
fn a_secret_comes_from_a_file_without_its_last_newline_and_never_from_two_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "s3cret\n").unwrap();
    let text = format!("{GOOD}\n[policy]\nkey_file = {:?}\n", path);
    assert_eq!(read(&text, &[]).unwrap().own.key.as_ref().map(Secret::expose), Some("s3cret"));
    let found = mistakes(&text, &[("BURSAR_SIGNER_GATEWAY__POLICY__KEY", "other")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("both") && !found[0].contains("other"), "{found:?}");
}

#[test]
fn text_that_is_not_toml_says_where() {
    let found = mistakes("[server\nlisten = 1", &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("sample.toml") && found[0].contains("line 1"), "{found:?}");
}

#[test]
fn a_mistake_never_repeats_the_secret_beside_it() {
    let cut_short = "[database]\nurl = \"postgres://role:hunter2@host/db\n";
    let inline =
        ("BURSAR_SIGNER_GATEWAY__CLIENTS__SIGNER_GATEWAY", "{ url = 'http://x:1', api_key = 'hunter2'");
    for found in [mistakes(cut_short, &[]), mistakes(GOOD, &[inline])] {
        assert!(!found.is_empty() && !found.concat().contains("hunter2"), "{found:#?}");
    }
    assert_eq!(
        mistakes(cut_short, &[])[0],
        "sample.toml: line 2, column 39: invalid basic string, expected `\"`"
    );
}

#[test]
fn certificates_for_a_plain_address_are_a_mistake() {
    let text = GOOD
        .replace("url = \"http://127.0.0.1:4000\"", "url = \"http://127.0.0.1:4000\"\ntls.ca = \"ca.pem\"");
    let found = mistakes(&text, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("clients.signer-gateway.tls: has no effect on an http address"),
        "{found:?}"
    );
}

#[test]
fn https_without_an_authority_is_refused_before_the_first_call() {
    let text = GOOD.replace("http://127.0.0.1:4000", "https://signer:4000");
    let found = mistakes(&text, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("clients.signer-gateway.tls: an https address needs tls.ca"), "{found:?}");
}

/// A certificate that signs itself, and its key.
fn certificate() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["signer".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_named_by_their_settings() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (mine, others) = (certificate(), certificate());
    let cert = file("cert.pem", &mine.0);
    let key = file("key.pem", &mine.1);
    let other_key = file("other.pem", &others.1);
    let garbage = file("garbage.pem", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    let empty = file("empty.pem", "");
    let with = |server: [&str; 3], client: [&str; 3]| {
        let [cert, key, ca] = server;
        let tls = format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}\nclient_ca = {ca:?}\n");
        let [cert, key, ca] = client;
        let client =
            format!("https://signer:4000\"\ntls = {{ cert = {cert:?}, key = {key:?}, ca = {ca:?} }} #");
        format!("{}\n{tls}", GOOD.replace("http://127.0.0.1:4000", &client))
    };
    let good = [cert.as_str(), key.as_str(), cert.as_str()];
    assert!(read(&with(good, good), &[]).is_ok(), "{:?}", mistakes(&with(good, good), &[]));
    let missing = "no-such-dir/a.pem";
    let found = mistakes(&with([missing, missing, &garbage], [&empty, &garbage, missing]), &[]);
    let expected = [
        "clients.signer-gateway.tls.ca: cannot read certificates from no-such-dir/a.pem",
        "clients.signer-gateway.tls.cert: no certificate in",
        "clients.signer-gateway.tls.key: cannot read a private key from",
        "server.tls.cert: cannot read certificates from no-such-dir/a.pem",
        "server.tls.client_ca: the certificate authority in",
        "server.tls.key: cannot read a private key from no-such-dir/a.pem",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "found    {found}\nexpected {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    let pair = [cert.as_str(), other_key.as_str(), cert.as_str()];
    let found = mistakes(&with(pair, pair), &[]);
    assert_eq!(found.len(), 2, "{found:#?}");
    for (found, key) in found.iter().zip(["clients.signer-gateway.tls.key", "server.tls.key"]) {
        assert!(found.starts_with(&format!("{key}: certificate and key cannot be used together")), "{found}");
    }
}
