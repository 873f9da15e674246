//! Building the subscriber from configuration, once per process.
//!
//! Owns the process-wide state behind [`Telemetry`]. It never reads a configuration file; `RUST_LOG` is the one variable it looks
//! at, because an operator who sets it is at the terminal and means it.

use std::{io::IsTerminal, sync::Mutex};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{LevelFilter, filter_fn},
    layer::SubscriberExt as _,
    reload,
};

use crate::format::{JsonLines, SpanFields, TextLines};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::EnumString)]
#[strum(serialize_all = "snake_case", parse_err_ty = TelemetryError, parse_err_fn = unknown_format)]
pub enum LogFormat {
    /// Text when standard error is a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One JSON object per line.
    Json,
    /// Coloured text for people.
    Pretty,
}

fn unknown_format(text: &str) -> TelemetryError {
    TelemetryError::LogFormat(text.to_owned())
}

/// What a process logs and exports, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryConfig {
    /// `service.name` of the exported traces and `service` of the log lines.
    pub service_name: String,
    pub log_format: LogFormat,
    /// Log filter in `RUST_LOG` syntax; `RUST_LOG` itself wins over it.
    pub filter: String,
    /// OTLP collector (gRPC), for example `http://otel-collector:4317`. Nothing is exported without one.
    pub otlp_endpoint: Option<String>,
    /// Share of new traces that are exported, 0 to 1. A trace begun elsewhere follows the decision made there.
    pub sample_ratio: f64,
}

impl TelemetryConfig {
    /// The defaults: automatic format, `info`, no export.
    #[must_use]
    pub fn new(service_name: &str) -> Self {
        Self {
            service_name: service_name.to_owned(),
            log_format: LogFormat::Auto,
            filter: "info".to_owned(),
            otlp_endpoint: None,
            sample_ratio: 1.0,
        }
    }

    /// Whether the filter and the collector's address can be used at all, without installing anything.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), TelemetryError> {
        self.validate_filter()?;
        self.validate_endpoint()
    }

    /// Whether the log filter parses.
    ///
    /// # Errors
    /// When it does not.
    pub fn validate_filter(&self) -> Result<(), TelemetryError> {
        parse_filter(&self.filter).map(|_| ())
    }

    /// Whether the collector's address, if there is one, can be used.
    ///
    /// # Errors
    /// When it cannot.
    pub fn validate_endpoint(&self) -> Result<(), TelemetryError> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(()) };
        let plain = endpoint.parse::<http::Uri>().ok().filter(|uri| uri.scheme_str() == Some("http"));
        match plain.and_then(|uri| uri.host().map(str::to_owned)) {
            Some(_) => Ok(()),
            None => Err(TelemetryError::Endpoint(endpoint.clone())),
        }
    }
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("`{filter}` is not a log filter")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("`{0}` is not a log format (auto, json or pretty)")]
    LogFormat(String),
    #[error("`{0}` is not an OTLP collector address such as http://otel-collector:4317")]
    Endpoint(String),
    #[error("cannot build the trace exporter")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error("another tracing subscriber is already installed")]
    Taken(#[from] tracing::subscriber::SetGlobalDefaultError),
}

type FilterHandle = reload::Handle<EnvFilter, Registry>;

#[derive(Debug, Clone)]
struct State {
    provider: SdkTracerProvider,
    filter: FilterHandle,
}

/// One subscriber per process: `tracing` allows no second global one.
static STATE: Mutex<Option<State>> = Mutex::new(None);

/// A handle on the process's telemetry. Dropping it flushes what is waiting for export.
#[derive(Debug)]
pub struct Telemetry {
    state: State,
}

impl Telemetry {
    /// Replaces the log filter of the running process. `RUST_LOG`, when set, stays in force.
    ///
    /// # Errors
    /// When the filter does not parse; the old one then stays.
    pub fn set_filter(&self, filter: &str) -> Result<(), TelemetryError> {
        let chosen = effective_filter(filter)?;
        // The subscriber lives as long as the process, so the handle can always reach it.
        let _ = self.state.filter.reload(chosen);
        Ok(())
    }

    /// Exports what is waiting and stops exporting. For the end of the process: spans made later carry no ids.
    pub fn shutdown(&self) {
        if let Err(error) = self.state.provider.shutdown() {
            tracing::debug!(%error, "trace exporter did not shut down cleanly");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // Only a flush: another handle on the same provider may still be in use (tests).
        let _ = self.state.provider.force_flush();
    }
}

/// Installs logs, tracing and propagation for this process. A second call hands out the first one's state unchanged.
///
/// Call it inside a Tokio runtime when a collector is configured: the exporter's channel lives there.
///
/// # Errors
/// When a setting is unusable or a foreign subscriber was installed first.
pub fn init(config: &TelemetryConfig) -> Result<Telemetry, TelemetryError> {
    config.validate()?;
    // A poisoned lock only says that another thread panicked while installing; the option inside is still whole.
    let mut slot = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(state) = slot.as_ref() {
        return Ok(Telemetry { state: state.clone() });
    }
    let state = install(config)?;
    *slot = Some(state.clone());
    Ok(Telemetry { state })
}

fn install(config: &TelemetryConfig) -> Result<State, TelemetryError> {
    let provider = tracer_provider(config)?;
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());

    let (filter, handle) = reload::Layer::new(effective_filter(&config.filter)?);
    let lines = if wants_json(config.log_format) {
        tracing_subscriber::fmt::layer()
            .fmt_fields(SpanFields)
            .event_format(JsonLines::new(&config.service_name))
            .with_writer(std::io::stderr)
            .boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .event_format(TextLines)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .boxed()
    };
    // The log filter belongs to the log layer alone. Were it global, `RUST_LOG=warn` would disable the spans, and with
    // them the trace ids that other processes rely on. The exporter's own spans are left out: they would feed it for ever.
    let traced = filter_fn(|meta| {
        *meta.level() <= tracing::Level::INFO
            && !meta.target().starts_with("opentelemetry")
            && !meta.target().starts_with("h2")
    })
    // The same limit as a hint, which costs no call: otherwise every debug and trace event of every library would be checked.
    .with_max_level_hint(LevelFilter::INFO);
    // Ids are always needed; what only a collector would read is recorded only where there is one.
    let exported = config.otlp_endpoint.is_some();
    let spans = tracing_opentelemetry::layer()
        .with_location(exported)
        .with_target(exported)
        .with_threads(exported)
        .with_tracked_inactivity(exported)
        .with_tracer(provider.tracer("bursar"))
        .with_filter(traced);
    tracing::subscriber::set_global_default(Registry::default().with(lines.with_filter(filter)).with(spans))?;
    Ok(State { provider, filter: handle })
}

fn tracer_provider(config: &TelemetryConfig) -> Result<SdkTracerProvider, TelemetryError> {
    // Parent-based: a trace is exported whole or not at all, whichever process began it.
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
    let resource = Resource::builder()
        .with_service_name(config.service_name.clone())
        .with_attribute(opentelemetry::KeyValue::new("service.namespace", "bursar"))
        .build();
    let mut builder = SdkTracerProvider::builder().with_sampler(sampler).with_resource(resource);
    if let Some(endpoint) = &config.otlp_endpoint {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build()?;
        builder = builder.with_batch_exporter(exporter);
    }
    Ok(builder.build())
}

fn wants_json(format: LogFormat) -> bool {
    match format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    }
}

fn effective_filter(configured: &str) -> Result<EnvFilter, TelemetryError> {
    match std::env::var("RUST_LOG") {
        // The error names the variable, or the operator would look for the mistake in the configuration file.
        Ok(text) if !text.trim().is_empty() => parse_filter(&text).map_err(|error| match error {
            TelemetryError::Filter { filter, source } => {
                TelemetryError::Filter { filter: format!("RUST_LOG={filter}"), source }
            }
            other => other,
        }),
        _ => parse_filter(configured),
    }
}

fn parse_filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(text)
        .map_err(|source| TelemetryError::Filter { filter: text.to_owned(), source })
}
