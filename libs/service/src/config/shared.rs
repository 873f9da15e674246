//! The sections that every service has alike.

use std::path::PathBuf;

use db::DatabaseConfig;
use rpc::{
    Auth, AuthConfig, ClientConfig, Role, ServerConfig,
    auth::{AuthError, CertificateConfig, KeyConfig},
    client::RetryConfig,
    server::{HealthConfig, Limits},
    tls::{ClientTls, TlsConfig, Unusable},
};
use telemetry::TelemetryConfig;

use super::Reader;

/// Longest time any setting in milliseconds may name: one day.
const DAY_MS: u64 = 86_400_000;

/// `[server]`: where to listen, TLS, limits.
#[must_use]
pub fn server(root: &Reader) -> Option<ServerConfig> {
    let section = root.section("server");
    let listen = section.req("listen");
    let tls = section.section_opt("tls");
    let wants_tls = tls.is_some();
    let tls = tls.and_then(|tls| {
        let cert = tls.req::<PathBuf>("cert");
        let key = tls.req::<PathBuf>("key");
        let client_ca = tls.opt::<PathBuf>("client_ca");
        let client_required = tls.or("client_required", false);
        if client_required && client_ca.is_none() {
            tls.wrong("client_required", "needs client_ca, the authority that client certificates come from");
        }
        let config = TlsConfig { cert: cert?, key: key?, client_ca, client_required };
        tell_unusable(&tls, config.unusable());
        Some(config)
    });
    let limits = limits(&section.section("limits"));
    let health = section.section("health");
    let default = HealthConfig::default();
    let health = HealthConfig {
        interval_ms: health.within("interval_ms", default.interval_ms, 10..=DAY_MS),
        timeout_ms: health.within("timeout_ms", default.timeout_ms, 10..=DAY_MS),
    };
    // With mistakes inside `tls` there is no server at all, rather than one in plain text.
    (wants_tls == tls.is_some()).then_some(ServerConfig { listen: listen?, tls, limits, health })
}

/// Files are opened already here: a certificate that cannot be read is a mistake of the configuration, and a reload with one is
/// refused before anything has changed.
fn tell_unusable(section: &Reader, unusable: Unusable) {
    for (key, error) in unusable {
        section.wrong(key, rpc::error::chain(&error));
    }
}

fn limits(section: &Reader) -> Limits {
    let default = Limits::default();
    Limits {
        concurrency: section.within("concurrency", default.concurrency, 1..=1_000_000),
        streams: section.within("streams", default.streams, 1..=1_000_000),
        connections: section.within("connections", default.connections, 1..=1_000_000),
        timeout_ms: section.within("timeout_ms", default.timeout_ms, 1..=DAY_MS),
        // The decoders take no more than the default, whatever is set here.
        max_message_bytes: section.within(
            "max_message_bytes",
            default.max_message_bytes,
            1024..=default.max_message_bytes,
        ),
        notice_ms: section.within("notice_ms", default.notice_ms, 0..=DAY_MS),
        drain_ms: section.within("drain_ms", default.drain_ms, 0..=DAY_MS),
    }
}

/// `[telemetry]`: log format and filter, trace export.
#[must_use]
pub fn telemetry(root: &Reader, service: &str) -> TelemetryConfig {
    let section = root.section("telemetry");
    let default = TelemetryConfig::new(service);
    let config = TelemetryConfig {
        log_format: section.or("log_format", default.log_format),
        filter: section.or("filter", default.filter),
        otlp_endpoint: section.opt("otlp_endpoint"),
        sample_ratio: section.within("sample_ratio", default.sample_ratio, 0.0..=1.0),
        service_name: default.service_name,
    };
    for (key, checked) in
        [("filter", config.validate_filter()), ("otlp_endpoint", config.validate_endpoint())]
    {
        if let Err(error) = checked {
            section.wrong(key, rpc::error::chain(&error));
        }
    }
    config
}

/// `[auth]`: the API keys (hashed) and client certificates known here.
#[must_use]
pub fn auth(root: &Reader) -> AuthConfig {
    let section = root.section("auth");
    let keys = section.list("keys", |key| {
        let name = key.req("name");
        let sha256 = key.req("sha256");
        let roles = key.values::<Role>("roles");
        let entry = KeyConfig { name: name?, sha256: sha256?, roles };
        // Each entry by itself first: together, only the first mistake of all would be seen.
        match Auth::new(&AuthConfig { keys: vec![entry.clone()], certificates: Vec::new() }) {
            Err(AuthError::Hash(_)) => key.wrong("sha256", "must be 64 hexadecimal digits"),
            Err(AuthError::NoRoles(_)) => key.wrong("roles", "must name at least one role"),
            _ => return Some(entry),
        }
        None
    });
    let certificates = section.list("certificates", |certificate| {
        let san = certificate.req("san");
        let service = certificate.req("service");
        Some(CertificateConfig { san: san?, service: service? })
    });
    let config = AuthConfig { keys, certificates };
    if let Err(error) = Auth::new(&config) {
        root.wrong("auth", error.to_string());
    }
    config
}

/// `[database]`: the service's own PostgreSQL database.
#[must_use]
pub fn database(root: &Reader, service: &str) -> Option<DatabaseConfig> {
    let section = root.section("database");
    let url = section.secret("url");
    let default = DatabaseConfig::new("", service);
    let max_connections = section.within("max_connections", default.max_connections, 1..=1000);
    let acquire_timeout_ms = section.within("acquire_timeout_ms", default.acquire_timeout_ms, 1..=DAY_MS);
    let statement_timeout_ms =
        section.within("statement_timeout_ms", default.statement_timeout_ms, 0..=DAY_MS);
    let idle_in_transaction_timeout_ms =
        section.within("idle_in_transaction_timeout_ms", default.idle_in_transaction_timeout_ms, 0..=DAY_MS);
    let url = url?.expose().to_owned();
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        section.wrong("url", "must look like postgres://role:password@host:port/database");
    }
    Some(DatabaseConfig {
        url,
        max_connections,
        acquire_timeout_ms,
        statement_timeout_ms,
        idle_in_transaction_timeout_ms,
        ..default
    })
}

/// `[clients.<name>]`: how to reach another service. Call it once per service that is called.
#[must_use]
pub fn client(root: &Reader, name: &str) -> Option<ClientConfig> {
    let section = root.section("clients").section(name);
    let url = section.req::<String>("url");
    let api_key = section.secret_opt("api_key");
    let files = section.section_opt("tls");
    let tls = files.as_ref().map(|tls| ClientTls {
        ca: tls.opt("ca"),
        cert: tls.opt("cert"),
        key: tls.opt("key"),
        domain: tls.opt("domain"),
    });
    let default = ClientConfig::new("");
    let timeout_ms = section.within("timeout_ms", default.timeout_ms, 1..=DAY_MS);
    let connect_timeout_ms = section.within("connect_timeout_ms", default.connect_timeout_ms, 1..=DAY_MS);
    let retry = section.section("retry");
    let retry = RetryConfig {
        max_attempts: retry.within("max_attempts", default.retry.max_attempts, 1..=100),
        base_ms: retry.within("base_ms", default.retry.base_ms, 1..=DAY_MS),
        cap_ms: retry.within("cap_ms", default.retry.cap_ms, 1..=DAY_MS),
    };
    let url = url?;
    let https = url.starts_with("https://");
    if !https && !url.starts_with("http://") {
        section.wrong("url", format!("`{url}` must start with http:// or https://"));
    }
    if https && tls.as_ref().is_none_or(|tls| tls.ca.is_none()) {
        section.wrong("tls", "an https address needs tls.ca, the authority of the server's certificate");
    }
    if !https && tls.is_some() {
        section.wrong("tls", "has no effect on an http address; write https in url, or leave tls out");
    }
    if tls.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
        section.wrong("tls", "a client certificate needs both cert and key");
    }
    if let (Some(files), Some(tls), true) = (&files, &tls, https) {
        tell_unusable(files, tls.unusable());
    }
    Some(ClientConfig { url, api_key, tls, timeout_ms, connect_timeout_ms, retry })
}
