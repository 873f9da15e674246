//! Approvals and reports of progress, those that arrive together in one transaction: loaded, decided one after the other, and
//! written in a handful of statements for all of them.
//!
//! Owns that transaction. It decides nothing itself: approvals are judged by `approval`, progress by `domain`, each on the
//! request as the call before it left it. What is said in logs and metrics is said by the callers, in their own traces,
//! after the commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use db::{BatchError, BatchWriter};
use sqlx::{PgConnection, PgPool};
use telemetry::{TraceContext, crash_point, crash_point_of};
use types::{AssetSymbol, ChainName, WithdrawalId};

use super::approval::{self, Approval, Consent, Decision, Electorate, Refusal, usable};
use super::decide::follow;
use super::domain::{Event, IllegalTransition, Status, Step};
use super::error::WithdrawalError;
use super::handover::{self, Parcel};
use super::many::{self, Changed, Counted, Entry};
use super::repo::{self, Note};
use super::request::Withdrawal;
use crate::approvers::Approvers;
use crate::policy::{self, Policy};

/// Something that happens to a request.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Approve { id: WithdrawalId, consent: Consent, trace: TraceContext },
    Report { id: WithdrawalId, event: Event, by: String },
}

impl Call {
    fn id(&self) -> WithdrawalId {
        match self {
            Self::Approve { id, .. } | Self::Report { id, .. } => *id,
        }
    }
}

/// What it led to, with the request as it stood then.
#[derive(Debug)]
pub(super) enum Told {
    /// Nothing that was not known.
    Nothing(Withdrawal),
    Changed {
        withdrawal: Withdrawal,
        notes: Vec<Note>,
        quorum: bool,
    },
    Refused {
        refusal: Refusal,
        times: i64,
    },
    Illegal {
        withdrawal: Withdrawal,
        illegal: IllegalTransition,
    },
}

/// The way into the transaction.
pub(super) type Desk = BatchWriter<Call, Told, WithdrawalError>;

pub(super) fn start(pool: PgPool, approvers: Approvers) -> Desk {
    BatchWriter::start("withdrawals", move |calls: Arc<[Call]>| {
        let (pool, approvers) = (pool.clone(), approvers.clone());
        async move { write(&pool, &approvers, &calls).await }
    })
}

impl BatchError for WithdrawalError {
    fn retry(&self) -> bool {
        WithdrawalError::retry(self)
    }

    fn not_now() -> Self {
        Self::Database(sqlx::Error::PoolTimedOut)
    }
}

type Answer = Result<Told, WithdrawalError>;

async fn write(pool: &PgPool, approvers: &Approvers, calls: &[Call]) -> Result<Vec<Answer>, WithdrawalError> {
    let mut tx = db::begin(pool).await?;
    let mut session = Session::load(&mut tx, calls).await?;
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let answer = match call {
            Call::Approve { id, consent, trace } => {
                session.approve(&mut tx, approvers, (*id, consent, trace)).await
            }
            Call::Report { id, event, by } => session.report(*id, event, by),
        };
        match answer {
            // A statement that failed has spoilt the transaction for all.
            Err(error) if !matches!(error, WithdrawalError::NotFound(_)) => return Err(error),
            answer => answers.push(answer),
        }
    }
    session.save(&mut tx).await?;
    let handed = session.parcels.iter().filter(|(parcel, _)| parcel.begins());
    handed.for_each(|_| crash_point("intent.before_quorum"));
    pass(calls, &answers, "intent.before_progress", None);
    tx.commit().await?;
    pass(calls, &answers, "intent.after_progress", Some(["intent.after_approval", "intent.after_quorum"]));
    Ok(answers)
}

/// Passes the crash points of everything that changes something.
fn pass(calls: &[Call], answers: &[Answer], progress: &str, approval: Option<[&str; 2]>) {
    for (call, answer) in calls.iter().zip(answers) {
        match (call, answer, approval) {
            (Call::Report { event, .. }, Ok(Told::Changed { .. }), _) => {
                crash_point_of(progress, event.name())
            }
            (Call::Approve { .. }, Ok(Told::Changed { quorum, .. }), Some(points)) => {
                crash_point(points[usize::from(*quorum)]);
            }
            _ => {}
        }
    }
}

/// A request and what was noted about it so far.
struct Open {
    withdrawal: Withdrawal,
    read: u64,
    notes: Vec<(Note, String)>,
}

/// What a transaction knows and will write.
struct Session {
    now: DateTime<Utc>,
    open: HashMap<WithdrawalId, Open>,
    policies: BTreeMap<(ChainName, AssetSymbol), Option<Policy>>,
    counted: Vec<Counted>,
    parcels: Vec<(Parcel, TraceContext)>,
}

impl Session {
    async fn load(tx: &mut PgConnection, calls: &[Call]) -> Result<Self, WithdrawalError> {
        let ids: BTreeSet<WithdrawalId> = calls.iter().map(Call::id).collect();
        let open = many::lock_in(tx, &ids).await?.into_iter().map(|(id, withdrawal)| {
            let read = withdrawal.sequence;
            (id, Open { withdrawal, read, notes: Vec::new() })
        });
        Ok(Self {
            open: open.collect(),
            now: repo::now_in(tx).await?,
            policies: BTreeMap::new(),
            counted: Vec::new(),
            parcels: Vec::new(),
        })
    }

    async fn approve(
        &mut self,
        tx: &mut PgConnection,
        approvers: &Approvers,
        (id, consent, trace): (WithdrawalId, &Consent, &TraceContext),
    ) -> Answer {
        let open = self.open.get_mut(&id).ok_or(WithdrawalError::NotFound(id))?;
        let payload = &open.withdrawal.payload;
        let asset = (payload.chain.clone(), payload.asset.clone());
        if !self.policies.contains_key(&asset) {
            let found = policy::repo::find_in(tx, &asset.0, &asset.1).await?;
            self.policies.insert(asset.clone(), found);
        }
        let policy = self.policies.get(&asset).and_then(Option::as_ref);
        // Never before the request's last change: a transaction that waited for its turn began earlier than the one it waited
        // for, and the history must not run backwards.
        let now = self.now.max(open.withdrawal.updated_at);
        let approver = approvers.find(&consent.approver);
        let aliases = approvers.aliases(&consent.approver);
        let vouched = approval::vouched(&open.withdrawal, |name| approvers.find(name).map(|known| known.key));
        let electorate = Electorate {
            key: approver.as_ref().map(|approver| &approver.key),
            person: approver.as_ref().map_or(&consent.approver, |approver| &approver.person),
            approvers: policy.map_or(&[][..], |policy| &policy.approvers),
            aliases: &aliases,
            vouched: &vouched,
        };
        match approval::decide(&open.withdrawal, consent, electorate, now) {
            Ok(Decision::AlreadyRecorded) => Ok(Told::Nothing(open.withdrawal.clone())),
            Ok(Decision::Counts { quorum, renews }) => {
                self.counted.push(Counted::of(&open.withdrawal, consent, now));
                let (notes, parcel) = open.count(&consent.counted(now), &vouched, quorum, renews)?;
                self.parcels.extend(parcel.map(|parcel| (parcel, trace.clone())));
                Ok(Told::Changed { withdrawal: open.withdrawal.clone(), notes, quorum })
            }
            Err(refusal) => {
                let times = repo::put_refusal_in(tx, id, &consent.approver, &refusal).await?;
                // Once per approver and reason, as long as the request is pending: the history of what ended is closed.
                if times == 1 && open.withdrawal.state.status() == Status::Pending {
                    let detail = format!("approval refused: {refusal}");
                    let note = Note { from: Some(Status::Pending), to: Status::Pending, detail };
                    open.note(vec![note], &consent.approver, now);
                }
                Ok(Told::Refused { refusal, times })
            }
        }
    }

    fn report(&mut self, id: WithdrawalId, event: &Event, by: &str) -> Answer {
        let open = self.open.get_mut(&id).ok_or(WithdrawalError::NotFound(id))?;
        let now = self.now.max(open.withdrawal.updated_at);
        match open.withdrawal.state.apply(event, now) {
            Ok(Step::AlreadyApplied) => Ok(Told::Nothing(open.withdrawal.clone())),
            Ok(Step::Changed(changes)) => {
                let notes = follow(&mut open.withdrawal, changes);
                open.note(notes.clone(), by, now);
                Ok(Told::Changed { withdrawal: open.withdrawal.clone(), notes, quorum: false })
            }
            Err(illegal) => Ok(Told::Illegal { withdrawal: open.withdrawal.clone(), illegal }),
        }
    }

    async fn save(&self, tx: &mut PgConnection) -> Result<(), WithdrawalError> {
        many::put_approvals_in(tx, &self.counted).await?;
        let changed: Vec<Changed<'_>> = self
            .open
            .values()
            .filter(|open| !open.notes.is_empty())
            .map(|open| Changed {
                withdrawal: &open.withdrawal,
                read: open.read,
                entries: open.notes.iter().map(|(note, actor)| Entry { note, actor }).collect(),
            })
            .collect();
        many::save_in(tx, &changed).await?;
        handover::write_many_in(tx, &self.parcels).await
    }
}

impl Open {
    fn note(&mut self, notes: Vec<Note>, actor: &str, now: DateTime<Utc>) {
        self.withdrawal.sequence += notes.len() as u64;
        self.withdrawal.updated_at = now;
        self.notes.extend(notes.into_iter().map(|note| (note, actor.to_owned())));
    }

    /// Counts an approval beside those that others still vouch for; what execution is to be told if it makes the quorum.
    fn count(
        &mut self,
        newest: &Approval,
        vouched: &[Approval],
        quorum: bool,
        renews: bool,
    ) -> Result<(Vec<Note>, Option<Parcel>), WithdrawalError> {
        let (withdrawal, now) = (&mut self.withdrawal, newest.approved_at);
        withdrawal.approvals.retain(|approval| approval.approver != newest.approver);
        withdrawal.approvals.push(newest.clone());
        let others = usable(vouched, now).filter(|approval| approval.approver != newest.approver);
        let holding: Vec<&Approval> = others.chain([newest]).collect();
        let status = withdrawal.state.status();
        let word = if renews { "approval renewed" } else { "approved" };
        let detail = format!("{word}, {} of {}", holding.len(), withdrawal.required_approvals);
        let mut notes = vec![Note { from: Some(status), to: status, detail }];
        if quorum && let Step::Changed(changes) = withdrawal.state.apply(&Event::QuorumReached, now)? {
            notes.extend(follow(withdrawal, changes));
        }
        self.note(notes.clone(), &newest.approver, now);
        let parcel = match (quorum, status) {
            (false, _) => None,
            (true, Status::Pending) => Some(handover::enqueue(&self.withdrawal, &holding)),
            (true, _) => Some(handover::renew(&self.withdrawal, &holding)),
        };
        Ok((notes, parcel))
    }
}
