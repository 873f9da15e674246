//! One of Bursar's own services as a process, ready when its gRPC health says SERVING.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::error::Error;
use crate::process::{Launch, Lifetime, Process, StopPlan};
use crate::server::derefs_to;
use crate::wait::until_ready;

const HEALTH_LIMIT: Duration = Duration::from_secs(2);

/// What a service says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Serving,
    /// It answers, but is draining or misses its database.
    NotServing,
    /// It does not answer; the text says why.
    Unreachable(String),
}

#[derive(Debug, Clone)]
pub struct ServiceOptions {
    pub name: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub dir: PathBuf,
    pub log: PathBuf,
    /// `http://127.0.0.1:PORT`, where its health is asked.
    pub url: String,
    pub lifetime: Lifetime,
    pub ready_limit: Duration,
}

#[derive(Debug)]
pub struct Service {
    process: Process,
    options: ServiceOptions,
}

impl Service {
    /// The limit is above the drain limit of the services themselves, so that they end their own way.
    pub const STOP: StopPlan = StopPlan::new(Signal::SIGTERM, Duration::from_secs(15));

    pub async fn start(options: &ServiceOptions) -> Result<Service, Error> {
        let launch = Launch {
            name: options.name.clone(),
            command: options.command.clone(),
            env: options.env.clone(),
            dir: options.dir.clone(),
            log: options.log.clone(),
            lifetime: options.lifetime.clone(),
            run_as: None,
            stop: Self::STOP,
        };
        let mut process = Process::spawn(&launch)?;
        let ready = until_ready(&mut process, options.ready_limit, || async {
            match health(&options.url).await {
                Health::Serving => Ok(()),
                Health::NotServing => Err("health says NOT_SERVING".to_owned()),
                Health::Unreachable(why) => Err(why),
            }
        });
        if let Err(error) = ready.await {
            process.stop().await?;
            return Err(error);
        }
        Ok(Service { process, options: options.clone() })
    }

    pub fn options(&self) -> &ServiceOptions {
        &self.options
    }

    pub fn url(&self) -> &str {
        &self.options.url
    }

    pub fn into_process(self) -> Process {
        self.process
    }

    /// Stops what is left of it and starts it again in the same way.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.process.stop().await?;
        *self = Service::start(&self.options).await?;
        Ok(())
    }
}

derefs_to!(Service, process: Process);

pub async fn health(url: &str) -> Health {
    let endpoint = match Endpoint::from_shared(url.to_owned()) {
        Ok(endpoint) => endpoint.connect_timeout(HEALTH_LIMIT).timeout(HEALTH_LIMIT),
        Err(error) => return Health::Unreachable(error.to_string()),
    };
    let channel = match endpoint.connect().await {
        Ok(channel) => channel,
        Err(error) => return Health::Unreachable(with_sources(&error)),
    };
    match HealthClient::new(channel).check(HealthCheckRequest::default()).await {
        Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Health::Serving,
        Ok(_) => Health::NotServing,
        Err(status) => Health::Unreachable(status.to_string()),
    }
}

/// "transport error" alone helps nobody; the reason is in its sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
