//! A range held while it is read: its lease is renewed in the background until the holder lets go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::range::{Job, RangeRepo};

/// Held as long as the value lives.
#[derive(Debug)]
pub(crate) struct Lease {
    lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Lease {
    pub(crate) fn hold(ranges: RangeRepo, job: Job, lease_ms: u64) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lost);
        let pause = Duration::from_millis((lease_ms / 3).max(1));
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                match ranges.renew(&job, lease_ms).await {
                    Ok(true) => {}
                    Ok(false) => {
                        told.store(true, Ordering::SeqCst);
                        return;
                    }
                    // The store is away: the lease may run out, and the fence will say so.
                    Err(error) => {
                        tracing::warn!(job = job.id, error = rpc::error::chain(&error), "lease not renewed");
                    }
                }
            }
        });
        Self { lost, renewing }
    }

    /// Whether somebody else has the range now. A hint that saves work; the fence is what decides.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
