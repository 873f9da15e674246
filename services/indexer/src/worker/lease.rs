//! The lease of a range, renewed in the background while the range is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::range::{Job, RangeRepo};

/// Renews the lease until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Lease {
    pub(crate) fn hold(ranges: RangeRepo, job: Job, lease_ms: u64) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&lost);
        let pause = Duration::from_millis((lease_ms / 3).max(1));
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                match ranges.renew(&job, lease_ms).await {
                    Ok(true) => {}
                    Ok(false) => {
                        flag.store(true, Ordering::SeqCst);
                        return;
                    }
                    // While the store is away the lease may expire; then the fence refuses our writes.
                    Err(error) => {
                        tracing::warn!(job = job.id, error = rpc::error::chain(&error), "lease not renewed");
                    }
                }
            }
        });
        Self { lost, renewing }
    }

    /// Whether another worker has the range now. This only saves work; the fence decides.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
