//! The process's metrics as Prometheus text.
//!
//! Owns the global recorder of the `metrics` facade and the bucket bounds. It never listens: the server that has a port
//! serves [`render`].

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::process;

/// From a cache hit to a slow chain node. Every histogram named `*_seconds` uses them, so that dashboards can compare.
const SECONDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// A handle on the recorder.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Everything recorded so far, with the process's own numbers read at this moment.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.0.render();
        process::append(&mut text);
        text
    }

    /// Folds raw histogram samples into their buckets. Without a scrape they would pile up, so a server calls this
    /// every few seconds.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

/// Installs the recorder on first use and hands out the same one ever after.
pub fn install() -> Metrics {
    Metrics(
        HANDLE
            .get_or_init(|| {
                let builder = PrometheusBuilder::new()
                    .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
                    .unwrap_or_else(|_| PrometheusBuilder::new());
                let recorder = builder.build_recorder();
                let handle = recorder.handle();
                if ::metrics::set_global_recorder(recorder).is_err() {
                    tracing::warn!(
                        "another metrics recorder is installed: /metrics will show only process metrics"
                    );
                }
                handle
            })
            .clone(),
    )
}

#[must_use]
pub fn render() -> String {
    install().render()
}
