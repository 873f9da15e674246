//! GET with a deadline for each try, a bound on each answer, and pauses that grow between tries.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rpc::error::chain;

use super::{Fault, Limits, NoTls, SourceError};

/// Sources may refuse callers that do not say who they are.
const USER_AGENT: &str = concat!("bursar-float-worker/", env!("CARGO_PKG_VERSION"));

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Bytes,
    /// How long it has lain in caches, as far as its headers tell.
    pub(super) age: Duration,
}

/// A client of any address. Redirects are not followed: the address in the configuration is the one that is asked.
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    limits: Limits,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Http {
    pub(super) fn new(limits: Limits) -> Result<Self, NoTls> {
        let client = Client::builder(TokioExecutor::new()).build(connector(limits.timeout)?);
        Ok(Self { client, limits })
    }

    /// Asks until there is an answer that `read` can use, a fault that asking again does not mend, or no try left.
    pub(super) async fn get<T>(
        &self,
        name: &str,
        url: &Uri,
        read: impl Fn(&Answer, DateTime<Utc>) -> Result<T, Fault>,
    ) -> Result<T, SourceError> {
        let backoff = self.limits.backoff;
        let mut tries = 0;
        loop {
            let outcome = match tokio::time::timeout(self.limits.timeout, self.once(url)).await {
                Ok(answer) => answer.and_then(|answer| read(&answer, Utc::now())),
                Err(_) => Err(Fault::Timeout(self.limits.timeout)),
            };
            let fault = match outcome {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            let pause = backoff.delay(tries);
            tries += 1;
            if !fault.is_transient() || backoff.exhausted(tries) {
                return Err(SourceError {
                    name: name.to_owned(),
                    fault,
                    tries,
                    max_tries: backoff.max_tries,
                });
            }
            tracing::debug!(source = name, %fault, tries, "asking again");
            tokio::time::sleep(self.pause(pause, &fault)).await;
        }
    }

    /// What the source asks for, within our own cap.
    fn pause(&self, pause: Duration, fault: &Fault) -> Duration {
        let asked = match fault {
            Fault::Status { retry_after: Some(asked), .. } => pause.max(*asked),
            _ => pause,
        };
        self.limits.backoff.cap.map_or(asked, |cap| asked.min(cap))
    }

    async fn once(&self, url: &Uri) -> Result<Answer, Fault> {
        let request = Request::get(url.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Empty::new())
            .map_err(|error| Fault::Unreachable(error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| {
            let reason = chain(&error);
            if error.is_connect() { Fault::Unreachable(reason) } else { Fault::Interrupted(reason) }
        })?;
        let (status, age) = (response.status(), age(response.headers(), Utc::now()));
        if status != StatusCode::OK {
            let retry_after = seconds(response.headers(), header::RETRY_AFTER);
            return Err(Fault::Status { code: status.as_u16(), retry_after });
        }
        let max = self.limits.max_bytes;
        // Said at once where the source says how much is coming; else noticed while reading.
        if response.body().size_hint().lower() > u64::try_from(max).unwrap_or(u64::MAX) {
            return Err(Fault::TooLarge(max));
        }
        match Limited::new(response.into_body(), max).collect().await {
            Ok(body) => Ok(Answer { body: body.to_bytes(), age }),
            Err(error) if error.is::<LengthLimitError>() => Err(Fault::TooLarge(max)),
            Err(error) => Err(Fault::Interrupted(chain(&*error))),
        }
    }
}

/// The larger of what a cache says (`Age`) and what the answer's date says. A date ahead of our clock is no age.
fn age(headers: &HeaderMap, now: DateTime<Utc>) -> Duration {
    let cached = seconds(headers, header::AGE).unwrap_or(Duration::ZERO);
    let date = headers.get(header::DATE).and_then(|value| value.to_str().ok());
    let dated = date
        .and_then(|text| DateTime::parse_from_rfc2822(text).ok())
        .and_then(|date| (now - date.with_timezone(&Utc)).to_std().ok());
    cached.max(dated.unwrap_or(Duration::ZERO))
}

fn seconds(headers: &HeaderMap, name: header::HeaderName) -> Option<Duration> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Trusts what the machine trusts; where the machine has no list of authorities, as in a bare container, Mozilla's.
fn connector(timeout: Duration) -> Result<HttpsConnector<HttpConnector>, NoTls> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(timeout));
    let ring = rustls::crypto::ring::default_provider;
    let builder = match HttpsConnectorBuilder::new().with_provider_and_native_roots(ring()) {
        Ok(builder) => builder,
        Err(error) => {
            tracing::debug!(%error, "no system certificates");
            HttpsConnectorBuilder::new().with_provider_and_webpki_roots(ring()).map_err(NoTls)?
        }
    };
    Ok(builder.https_or_http().enable_http1().wrap_connector(tcp))
}
