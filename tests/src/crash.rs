//! Services that die at every step of a payment, each time on their way with real payments.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::join_all;
use nix::sys::signal::Signal;

use crate::stack::Stack;

/// How long a service may take to come by its crash point while the others die around it.
const REACHED: Duration = Duration::from_secs(300);

/// Every place of the write-ahead protocol, of the guard, of the watch and of the messages between them at which a process may
/// die: before and after each commit, each call and each delivery.
pub const POINTS: &[(&str, &[&str])] = &[
    (
        "intent",
        &[
            "intent.before_create",
            "intent.after_create",
            "intent.after_approval",
            "intent.before_quorum",
            "intent.after_quorum",
            "outbox.before_delivery/execution.EnqueueWithdrawal",
            "outbox.after_delivery/execution.EnqueueWithdrawal",
            "intent.before_progress/queued",
            "intent.after_progress/queued",
            "intent.before_progress/completed",
            "intent.after_progress/completed",
        ],
    ),
    (
        "execution",
        &[
            "execution.before_enqueue",
            "execution.after_enqueue",
            "execution.after_claim",
            "execution.after_reserve",
            "execution.after_sign",
            "execution.after_persist",
            "execution.after_broadcast",
            "execution.after_confirm",
            "outbox.before_delivery/confirmation.PutWatch",
            "outbox.after_delivery/confirmation.PutWatch",
            "outbox.before_delivery/intent.RecordProgress",
            "outbox.after_delivery/intent.RecordProgress",
            "execution.before_verdict",
            "execution.after_verdict",
        ],
    ),
    (
        "signer-gateway",
        &["signer.before_decision", "signer.before_save", "signer.after_save", "signer.before_reply"],
    ),
    (
        "confirmation",
        &[
            "confirmation.before_watch",
            "confirmation.after_watch",
            "confirmation.before_sighting",
            "confirmation.after_sighting",
            "confirmation.before_verdict",
            "confirmation.after_verdict",
            "outbox.before_delivery/execution.RecordVerdict",
            "outbox.after_delivery/execution.RecordVerdict",
            "outbox.before_delivery/intent.RecordProgress",
            "outbox.after_delivery/intent.RecordProgress",
        ],
    ),
];

/// All services die at the same time, each at one of its own points after the other; how many deaths that were.
pub async fn die_at_every_step(stack: &Stack) -> Result<usize> {
    let dying = POINTS.iter().map(|(service, points)| die_everywhere(stack, service, points));
    join_all(dying).await.into_iter().sum()
}

async fn die_everywhere(stack: &Stack, service: &str, points: &[&str]) -> Result<usize> {
    for point in points {
        stack.kill(service)?;
        stack.start_again(service, &[("BURSAR_CRASH_POINT", point)])?;
        let what = format!("{service} to die at {point}");
        let status =
            testkit::wait_for_value(&what, REACHED, || std::future::ready(stack.ended(service).transpose()))
                .await?;
        ensure!(
            status.signal() == Some(Signal::SIGABRT as i32),
            "{service} did not die at {point} but by itself ({status}):\n{}",
            stack.tail(service)
        );
    }
    stack.kill(service)?;
    stack.start_again(service, &[])?;
    Ok(points.len())
}
