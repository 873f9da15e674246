//! Changes of existing requests: approvals, rejections, cancellations and reports of progress.
//!
//! The quorum, the approved state and the message to execution are one transaction: execution gets the message if and only if
//! the request is approved.
//!
//! Approvals may expire after the quorum and before anything is signed; execution then waits. A renewal and its message are
//! written under the lock of the request, so two renewals at the same time make one quorum. The message follows the request in
//! the order of its aggregate and carries a revision. Nothing is signed in between, because the signer counts the approvals
//! itself.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use db::outbox::{self, OutboxMessage};
use sqlx::PgConnection;
use telemetry::{TraceContext, crash_point, crash_point_of};
use types::WithdrawalId;

use super::{Batch, Moment, Rules};
use crate::catalogue::AssetOnChain;
use crate::policy::{self, Policy};
use crate::withdrawal::approval::{self, Approval, ApprovalContext, Consent, Decision, Refusal, unexpired};
use crate::withdrawal::domain::{Event, IllegalTransition, Status, Step, Transition};
use crate::withdrawal::error::WithdrawalError;
use crate::withdrawal::message;
use crate::withdrawal::repo::{self, Changed, NewApproval, RefusalKey};
use crate::withdrawal::request::Withdrawal;

#[derive(Debug, Clone)]
pub(in crate::withdrawal) struct Change {
    pub(in crate::withdrawal) id: WithdrawalId,
    pub(in crate::withdrawal) command: Command,
}

#[derive(Debug, Clone)]
pub(in crate::withdrawal) enum Command {
    Approve {
        consent: Consent,
        /// The trace that the message to execution belongs to.
        trace: TraceContext,
    },
    Apply {
        event: Event,
        actor: String,
        /// Refused unless the actor made the request.
        only_requester: bool,
    },
}

/// What a change led to, with the request as it was then.
#[derive(Debug)]
pub(in crate::withdrawal) enum ChangeOutcome {
    /// The change was recorded before.
    Unchanged(Withdrawal),
    Changed {
        withdrawal: Withdrawal,
        transitions: Vec<Transition>,
        quorum: bool,
    },
    ApprovalRefused {
        refusal: Refusal,
        times: i64,
    },
    Illegal {
        withdrawal: Withdrawal,
        illegal: IllegalTransition,
    },
}

pub(super) struct ChangeBatch {
    now: DateTime<Utc>,
    requests: BTreeMap<WithdrawalId, LoadedRequest>,
    policies: BTreeMap<AssetOnChain, Policy>,
    refusals: BTreeMap<RefusalKey, RefusalCount>,
    approvals: Vec<NewApproval>,
    messages: Vec<OutboxMessage>,
}

/// A request, with what has been decided about it and is not written yet.
struct LoadedRequest {
    withdrawal: Withdrawal,
    stored_sequence: u64,
    stored_status: Status,
    transitions: Vec<Transition>,
}

#[derive(Default)]
struct RefusalCount {
    stored: i64,
    added: i64,
}

impl Batch for ChangeBatch {
    type Command = Change;
    type Outcome = ChangeOutcome;

    async fn load_in(tx: &mut PgConnection, _: &Rules, commands: &[Change]) -> Result<Self, WithdrawalError> {
        let locked = repo::lock_in(tx, &commands.iter().map(|change| change.id).collect()).await?;
        let now = repo::now_in(tx).await?;
        let is_approval = |change: &&Change| matches!(change.command, Command::Approve { .. });
        let approved: BTreeSet<WithdrawalId> =
            commands.iter().filter(is_approval).map(|change| change.id).collect();
        let (mut policies, mut refusals) = (BTreeMap::new(), BTreeMap::new());
        if !approved.is_empty() {
            let assets = locked.iter().map(|withdrawal| &withdrawal.payload);
            let assets = assets.map(|payload| (payload.chain.clone(), payload.asset.clone())).collect();
            policies = policy::repo::find_many_in(tx, &assets).await?;
            let stored = repo::refusals_in(tx, &approved).await?;
            refusals.extend(stored.into_iter().map(|(key, stored)| (key, RefusalCount { stored, added: 0 })));
        }
        let requests = locked.into_iter().map(|withdrawal| (withdrawal.id, LoadedRequest::new(withdrawal)));
        let requests = requests.collect();
        Ok(Self { now, requests, policies, refusals, approvals: Vec::new(), messages: Vec::new() })
    }

    /// A request is updated once for each status it reaches: the tables check every step.
    fn must_save_before(&self, change: &Change) -> bool {
        let request = self.requests.get(&change.id);
        request.is_some_and(|request| request.withdrawal.state.status() != request.stored_status)
    }

    fn decide(&mut self, rules: &Rules, change: &Change) -> Result<ChangeOutcome, WithdrawalError> {
        let request = self.requests.get_mut(&change.id).ok_or(WithdrawalError::NotFound(change.id))?;
        match &change.command {
            Command::Apply { actor, only_requester: true, .. }
                if *actor != request.withdrawal.requested_by =>
            {
                Err(WithdrawalError::NotTheRequester)
            }
            Command::Apply { event, actor, .. } => Ok(request.apply(event, actor, self.now)),
            Command::Approve { consent, trace } => self.approve(rules, change.id, consent, trace),
        }
    }

    async fn save_in(&mut self, tx: &mut PgConnection) -> Result<(), WithdrawalError> {
        repo::put_approvals_in(tx, &self.approvals).await?;
        let added = self.refusals.iter().filter(|(_, count)| count.added > 0);
        repo::add_refusals_in(tx, &added.map(|(key, count)| (key, count.added)).collect::<Vec<_>>()).await?;
        let changed = self.requests.values().filter(|request| !request.transitions.is_empty());
        let changed = changed.map(|request| Changed {
            withdrawal: &request.withdrawal,
            stored_sequence: request.stored_sequence,
            transitions: &request.transitions,
        });
        repo::update_in(tx, &changed.collect::<Vec<_>>()).await?;
        outbox::enqueue_many_in(tx, &self.messages).await?;
        self.approvals.clear();
        self.messages.clear();
        for count in self.refusals.values_mut() {
            count.stored += std::mem::take(&mut count.added);
        }
        self.requests.values_mut().for_each(LoadedRequest::saved);
        Ok(())
    }

    fn crash_points(moment: Moment, change: &Change, outcome: &ChangeOutcome) {
        let ChangeOutcome::Changed { transitions, quorum, .. } = outcome else { return };
        let reached = |status| transitions.iter().any(|step| step.from != Some(step.to) && step.to == status);
        match (&change.command, moment) {
            (Command::Apply { event, .. }, Moment::BeforeCommit) => {
                crash_point_of("intent.before_progress", event.name());
            }
            (Command::Apply { event, .. }, Moment::AfterCommit) => {
                crash_point_of("intent.after_progress", event.name());
            }
            (Command::Approve { .. }, Moment::BeforeCommit) if reached(Status::Approved) => {
                crash_point("intent.before_quorum");
            }
            (Command::Approve { .. }, Moment::BeforeCommit) => {}
            (Command::Approve { .. }, Moment::AfterCommit) => {
                crash_point(if *quorum { "intent.after_quorum" } else { "intent.after_approval" });
            }
        }
    }
}

impl ChangeBatch {
    fn approve(
        &mut self,
        rules: &Rules,
        id: WithdrawalId,
        consent: &Consent,
        trace: &TraceContext,
    ) -> Result<ChangeOutcome, WithdrawalError> {
        let request = self.requests.get_mut(&id).ok_or(WithdrawalError::NotFound(id))?;
        let now = request.time_of_change(self.now);
        let Withdrawal { payload, .. } = &request.withdrawal;
        let policy = self.policies.get(&(payload.chain.clone(), payload.asset.clone()));
        let approver = rules.approvers.find(&consent.approver);
        let aliases = rules.approvers.aliases(&consent.approver);
        let key = |name: &str| rules.approvers.find(name).map(|known| known.key);
        let verified = approval::verified(&request.withdrawal, key);
        let context = ApprovalContext {
            key: approver.as_ref().map(|approver| &approver.key),
            person: approver.as_ref().map_or(&consent.approver, |approver| &approver.person),
            allowed: policy.map_or(&[], |policy| &policy.approvers),
            aliases: &aliases,
            verified: &verified,
        };
        match approval::decide(&request.withdrawal, consent, context, now) {
            Ok(Decision::AlreadyRecorded) => Ok(ChangeOutcome::Unchanged(request.withdrawal.clone())),
            Ok(Decision::Counts { quorum, renews }) => {
                let counted = consent.counted(now);
                let new_approval = request.new_approval(counted.clone());
                let others = unexpired(&verified, now).filter(|other| other.approver != counted.approver);
                let valid: Vec<&Approval> = others.chain([&counted]).collect();
                let status = request.withdrawal.state.status();
                let transitions = request.count(&counted, valid.len(), quorum, renews)?;
                self.approvals.push(new_approval);
                let message = match (quorum, status) {
                    (false, _) => None,
                    (true, Status::Pending) => Some(message::enqueue(&request.withdrawal, &valid)),
                    (true, _) => Some(message::renew(&request.withdrawal, &valid)),
                };
                self.messages.extend(message.map(|message| message.in_trace(trace.clone())));
                Ok(ChangeOutcome::Changed { withdrawal: request.withdrawal.clone(), transitions, quorum })
            }
            Err(refusal) => {
                let (approver, reason) = (consent.approver.clone(), refusal.reason().to_owned());
                let count = self.refusals.entry(RefusalKey { request: id, approver, reason }).or_default();
                count.added += 1;
                let times = count.stored + count.added;
                // The history gets one entry for each approver and reason, and only while the request is pending.
                if times == 1 && request.withdrawal.state.status() == Status::Pending {
                    let detail = format!("approval refused: {refusal}");
                    request.transitions.push(request.withdrawal.record(None, &consent.approver, detail, now));
                }
                Ok(ChangeOutcome::ApprovalRefused { refusal, times })
            }
        }
    }
}

impl LoadedRequest {
    fn new(withdrawal: Withdrawal) -> Self {
        let (stored_sequence, stored_status) = (withdrawal.sequence, withdrawal.state.status());
        Self { withdrawal, stored_sequence, stored_status, transitions: Vec::new() }
    }

    fn saved(&mut self) {
        self.stored_sequence = self.withdrawal.sequence;
        self.stored_status = self.withdrawal.state.status();
        self.transitions.clear();
    }

    /// Never before the last change of the request: a transaction that waited for the lock began earlier than the one that held
    /// it, and the history must not go back in time.
    fn time_of_change(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now.max(self.withdrawal.updated_at)
    }

    fn apply(&mut self, event: &Event, actor: &str, now: DateTime<Utc>) -> ChangeOutcome {
        let now = self.time_of_change(now);
        match self.withdrawal.state.apply(event, now) {
            Ok(Step::AlreadyApplied) => ChangeOutcome::Unchanged(self.withdrawal.clone()),
            Ok(Step::Changed(changes)) => {
                let record = |change: crate::withdrawal::domain::Change| {
                    self.withdrawal.record(Some(change.to), actor, change.detail, now)
                };
                let transitions: Vec<Transition> = changes.into_iter().map(record).collect();
                self.transitions.extend_from_slice(&transitions);
                ChangeOutcome::Changed { withdrawal: self.withdrawal.clone(), transitions, quorum: false }
            }
            Err(illegal) => ChangeOutcome::Illegal { withdrawal: self.withdrawal.clone(), illegal },
        }
    }

    fn new_approval(&self, approval: Approval) -> NewApproval {
        let earlier = self.withdrawal.approvals.iter().find(|earlier| earlier.approver == approval.approver);
        NewApproval {
            request: self.withdrawal.id,
            requested_by: self.withdrawal.requested_by.clone(),
            on_behalf_of: self.withdrawal.payload.on_behalf_of.clone(),
            replaced: earlier.map(|earlier| earlier.signature),
            approval,
        }
    }

    /// Counts an approval as one of `valid`.
    fn count(
        &mut self,
        approval: &Approval,
        valid: usize,
        quorum: bool,
        renews: bool,
    ) -> Result<Vec<Transition>, WithdrawalError> {
        let (withdrawal, now, actor) = (&mut self.withdrawal, approval.approved_at, &approval.approver);
        let step = match quorum {
            true => withdrawal.state.apply(&Event::QuorumReached, now)?,
            false => Step::AlreadyApplied,
        };
        withdrawal.approvals.retain(|earlier| earlier.approver != approval.approver);
        withdrawal.approvals.push(approval.clone());
        let what = if renews { "approval renewed" } else { "approved" };
        let detail = format!("{what}, {valid} of {}", withdrawal.required_approvals);
        let mut transitions = vec![withdrawal.record(None, actor, detail, now)];
        if let Step::Changed(changes) = step {
            for change in changes {
                transitions.push(withdrawal.record(Some(change.to), actor, change.detail, now));
            }
        }
        self.transitions.extend_from_slice(&transitions);
        Ok(transitions)
    }
}
