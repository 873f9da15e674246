//! Writes commands that arrive at the same time in one transaction, with few statements for all of them.
//!
//! One mechanism for all commands. A batch is loaded in advance (`load_in`), then each command is decided in order on what the
//! one before it left (`decide`), and everything is written (`save_in`). A single request is a batch of one, so both take the
//! same path; `tests` holds random batches against the same commands one by one.
//!
//! Creations and changes have a writer each, so that a creation that waits for the locks of limits does not hold up approvals.
//! Logs and metrics are written by the callers after the commit, in their own traces.

mod change;
mod creation;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use db::BatchWriter;
use sqlx::{PgConnection, PgPool};

pub(super) use self::change::{Change, ChangeOutcome, Command};
pub(super) use self::creation::{Creation, CreationOutcome};
use super::error::WithdrawalError;
use crate::approvers::Approvers;

pub(super) type Creations = BatchWriter<Creation, CreationOutcome, WithdrawalError>;
pub(super) type Changes = BatchWriter<Change, ChangeOutcome, WithdrawalError>;

/// How often a transaction is repeated that lost a race against another one.
const ATTEMPTS: u32 = 3;

/// The configuration that decisions depend on.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) approvers: Approvers,
    /// How many approvals an asset without a policy needs; `None` refuses its withdrawals.
    pub(super) default_required_approvals: Option<u32>,
}

#[derive(Clone, Copy)]
enum Moment {
    BeforeCommit,
    AfterCommit,
}

/// The commands of one transaction, with everything they depend on.
trait Batch: Sized + Send {
    type Command: Clone + Send + Sync + 'static;
    type Outcome: Send + Sync + 'static;

    fn load_in(
        tx: &mut PgConnection,
        rules: &Rules,
        commands: &[Self::Command],
    ) -> impl Future<Output = Result<Self, WithdrawalError>> + Send;

    /// Whether what was decided so far must be written before this command is decided.
    fn must_save_before(&self, command: &Self::Command) -> bool;

    /// What the command does on its own, on the state that the commands before it left.
    fn decide(&mut self, rules: &Rules, command: &Self::Command) -> Result<Self::Outcome, WithdrawalError>;

    fn save_in(&mut self, tx: &mut PgConnection) -> impl Future<Output = Result<(), WithdrawalError>> + Send;

    /// Passes the crash points of a command that succeeded.
    fn crash_points(moment: Moment, command: &Self::Command, outcome: &Self::Outcome);
}

fn start<B: Batch>(
    name: &'static str,
    pool: PgPool,
    rules: Rules,
) -> BatchWriter<B::Command, B::Outcome, WithdrawalError> {
    BatchWriter::start(name, move |commands: Arc<[B::Command]>| {
        let (pool, rules) = (pool.clone(), rules.clone());
        async move { run::<B>(&pool, &rules, &commands).await }
    })
}

pub(super) fn start_creations(pool: PgPool, rules: Rules) -> Creations {
    start::<creation::CreationBatch>("requests", pool, rules)
}

pub(super) fn start_changes(pool: PgPool, rules: Rules) -> Changes {
    start::<change::ChangeBatch>("withdrawals", pool, rules)
}

type Outcomes<B> = Vec<Result<<B as Batch>::Outcome, WithdrawalError>>;

async fn run<B: Batch>(
    pool: &PgPool,
    rules: &Rules,
    commands: &[B::Command],
) -> Result<Outcomes<B>, WithdrawalError> {
    for _ in 1..ATTEMPTS {
        match run_once::<B>(pool, rules, commands).await {
            // What won the race is committed now, so the next attempt loads it.
            Err(WithdrawalError::Conflict(_)) => {}
            result => return result,
        }
    }
    run_once::<B>(pool, rules, commands).await
}

async fn run_once<B: Batch>(
    pool: &PgPool,
    rules: &Rules,
    commands: &[B::Command],
) -> Result<Outcomes<B>, WithdrawalError> {
    let mut tx = db::begin(pool).await?;
    let mut batch = B::load_in(&mut tx, rules, commands).await?;
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        if batch.must_save_before(command) {
            batch.save_in(&mut tx).await?;
        }
        outcomes.push(batch.decide(rules, command));
    }
    batch.save_in(&mut tx).await?;
    let pass_crash_points = |moment| {
        for (command, outcome) in commands.iter().zip(&outcomes) {
            if let Ok(outcome) = outcome {
                B::crash_points(moment, command, outcome);
            }
        }
    };
    pass_crash_points(Moment::BeforeCommit);
    tx.commit().await?;
    pass_crash_points(Moment::AfterCommit);
    Ok(outcomes)
}
