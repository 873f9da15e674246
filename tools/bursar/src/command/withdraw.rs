//! `bursar withdraw`: request, approve, follow and list withdrawals through the intent service.
//!
//! An approval is signed here, on the approver's machine, with a key that never leaves it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use proto::intent::v1 as pb;
use tokio_stream::StreamExt;

use crate::approver::ApproverKey;
use crate::client::{Connection, Intent, pages};
use crate::output::{self, Output};
use crate::reconnect::{self, Remaining};

#[derive(Debug, Args)]
pub struct Withdraw {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Request a withdrawal
    Create(Create),
    /// Sign and record an approval
    Approve(Approve),
    /// End a pending withdrawal on an approver's word
    Reject {
        id: String,
        #[arg(long)]
        reason: String,
        #[arg(long = "as", default_value = "approver-1")]
        approver: String,
    },
    /// End a pending withdrawal on the requester's word
    Cancel {
        id: String,
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Show one withdrawal
    Get { id: String },
    /// List withdrawals, newest first
    List(List),
    /// Follow one withdrawal to its end
    Watch { id: String },
}

#[derive(Debug, Args)]
struct Create {
    /// Name of the chain, e.g. bsc
    #[arg(long)]
    chain: String,
    /// Symbol of the asset, e.g. USDT
    #[arg(long)]
    asset: String,
    /// Decimal amount, e.g. 12.5
    #[arg(long)]
    amount: String,
    /// Destination address
    #[arg(long)]
    to: String,
    /// The customer's id; a new one when absent
    #[arg(long)]
    user: Option<String>,
    /// For whom it is asked; they cannot approve it
    #[arg(long, default_value = "")]
    on_behalf_of: String,
    /// Makes a repeated call harmless; a new one when absent
    #[arg(long)]
    key: Option<String>,
    #[arg(long, default_value = "")]
    memo: String,
    #[arg(long, value_enum, default_value_t = Priority::Normal)]
    priority: Priority,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Priority {
    Low,
    Normal,
    High,
    Urgent,
}

#[derive(Debug, Args)]
struct Approve {
    id: String,
    /// Name of the approver; picks their API key and signing key from the stack
    #[arg(long = "as", default_value = "approver-1")]
    approver: String,
    /// File with the approver's Ed25519 seed in hex, when not taken from the stack
    #[arg(long)]
    signing_key: Option<PathBuf>,
    /// How long the signature may be used
    #[arg(long, default_value_t = 3600)]
    valid_seconds: u64,
}

#[derive(Debug, Args)]
struct List {
    #[arg(long)]
    status: Vec<String>,
    #[arg(long, default_value = "")]
    user: String,
    #[arg(long, default_value = "")]
    chain: String,
    #[arg(long, default_value = "")]
    asset: String,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

impl Withdraw {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        match self.action {
            Action::Create(create) => create.run(connection, out).await,
            Action::Approve(approve) => approve.run(connection, out).await,
            Action::Reject { id, reason, approver } => {
                let mut client = connection.intent(&approver)?;
                let answer = client.reject_withdrawal(pb::RejectWithdrawalRequest { id, reason }).await?;
                show(out, answer.into_inner().withdrawal)
            }
            Action::Cancel { id, reason } => {
                let mut client = connection.intent("requester")?;
                let answer = client.cancel_withdrawal(pb::CancelWithdrawalRequest { id, reason }).await?;
                show(out, answer.into_inner().withdrawal)
            }
            Action::Get { id } => {
                let mut client = connection.intent("requester")?;
                let answer = client.get_withdrawal(pb::GetWithdrawalRequest { id }).await?;
                show(out, answer.into_inner().withdrawal)
            }
            Action::List(list) => list.run(connection, out).await,
            Action::Watch { id } => watch(connection, out, id).await,
        }
    }
}

impl Create {
    async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let priority = match self.priority {
            Priority::Low => pb::Priority::Low,
            Priority::Normal => pb::Priority::Normal,
            Priority::High => pb::Priority::High,
            Priority::Urgent => pb::Priority::Urgent,
        };
        let request = pb::CreateWithdrawalRequest {
            idempotency_key: self.key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
            user_id: self.user.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
            chain: self.chain,
            asset: self.asset,
            amount: self.amount,
            destination: self.to,
            memo: self.memo,
            priority: priority.into(),
            labels: Default::default(),
            on_behalf_of: self.on_behalf_of,
        };
        let mut client = connection.intent("requester")?;
        show(out, client.create_withdrawal(request).await?.into_inner().withdrawal)
    }
}

impl Approve {
    async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let key = match &self.signing_key {
            Some(file) => ApproverKey::read(&self.approver, file)?,
            None => connection.approver(&self.approver)?,
        };
        let mut client = connection.intent(&self.approver)?;
        let found = client.get_withdrawal(pb::GetWithdrawalRequest { id: self.id.clone() }).await?;
        let withdrawal = found.into_inner().withdrawal.context("the answer holds no withdrawal")?;
        let request = key.approve(&withdrawal, Duration::from_secs(self.valid_seconds))?;
        show(out, client.approve_withdrawal(request).await?.into_inner().withdrawal)
    }
}

impl List {
    async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let statuses = self.status.iter().map(|s| status_from(s)).collect::<Result<Vec<_>>>()?;
        let mut client = connection.intent("operator")?;
        let found = pages(self.limit, async |page_size, page_token| {
            let request = pb::ListWithdrawalsRequest {
                statuses: statuses.iter().map(|s| i32::from(*s)).collect(),
                user_id: self.user.clone(),
                chain: self.chain.clone(),
                asset: self.asset.clone(),
                page_size,
                page_token,
                ..Default::default()
            };
            let page = client.list_withdrawals(request).await?.into_inner();
            Ok((page.withdrawals, page.next_page_token))
        });
        let found = found.await?;
        if out.json {
            return output::json_list("bursar.intent.v1.Withdrawal", &found);
        }
        let rows = found.iter().map(|w| {
            [
                w.id.clone(),
                status_text(w),
                w.chain.clone(),
                format!("{} {}", w.amount, w.asset),
                w.destination.clone(),
            ]
        });
        output::table(["ID", "STATUS", "CHAIN", "AMOUNT", "TO"], rows)
    }
}

async fn watch(connection: &Connection, out: Output, id: String) -> Result<()> {
    let mut client = connection.intent("requester")?;
    // The stream may break (a restart, a drain); the sequence says where to go on.
    let mut after_sequence = 0;
    reconnect::follow(async || follow(&mut client, out, &id, &mut after_sequence).await).await
}

/// Prints the steps of one stream; nothing is left after the one that ends the withdrawal.
async fn follow(client: &mut Intent, out: Output, id: &str, after_sequence: &mut u64) -> Result<Remaining> {
    let request = pb::WatchWithdrawalRequest { id: id.to_owned(), after_sequence: *after_sequence };
    let mut stream = client.watch_withdrawal(request).await?.into_inner();
    while let Some(update) = stream.next().await {
        let update = update?;
        let Some(step) = update.transition.clone() else { continue };
        *after_sequence = step.sequence;
        if out.json {
            output::json_line("bursar.intent.v1.WatchWithdrawalResponse", &update)?;
        } else {
            let to = status_name(step.to());
            output::print(&format!("{:>3}  {to:<10} {}", step.sequence, step.detail))?;
        }
        if is_final(step.to()) {
            return Ok(Remaining::Nothing);
        }
    }
    Ok(Remaining::More)
}

fn show(out: Output, withdrawal: Option<pb::Withdrawal>) -> Result<()> {
    let Some(w) = withdrawal else { bail!("the answer holds no withdrawal") };
    if out.json {
        return output::json("bursar.intent.v1.Withdrawal", &w);
    }
    let mut rows = vec![
        ("id", w.id.clone()),
        ("status", status_text(&w)),
        ("amount", format!("{} {} on {}", w.amount, w.asset, w.chain)),
        ("to", w.destination.clone()),
        ("approvals", format!("{} of {}", w.approvals.len(), w.required_approvals)),
        ("digest", w.payment_digest.clone()),
    ];
    if !w.final_tx_hash.is_empty() {
        rows.push(("paid by", format!("{} in block {}", w.final_tx_hash, w.final_block)));
    }
    if !w.failure_reason.is_empty() {
        rows.push(("reason", w.failure_reason.clone()));
    }
    output::fields(&rows)
}

fn status_text(w: &pb::Withdrawal) -> String {
    let name = status_name(w.status());
    if w.blocked_reason.is_empty() { name } else { format!("{name} (waiting: {})", w.blocked_reason) }
}

/// `WITHDRAWAL_STATUS_QUEUED` reads `queued`.
pub fn status_name(status: pb::WithdrawalStatus) -> String {
    output::enum_name(status.as_str_name(), "WITHDRAWAL_STATUS_")
}

pub fn is_final(status: pb::WithdrawalStatus) -> bool {
    use pb::WithdrawalStatus as S;
    matches!(status, S::Completed | S::Failed | S::Rejected | S::Cancelled)
}

fn status_from(text: &str) -> Result<pb::WithdrawalStatus> {
    let name = format!("WITHDRAWAL_STATUS_{}", text.to_uppercase());
    pb::WithdrawalStatus::from_str_name(&name).with_context(|| {
        format!(
            "--status {text}: expected pending, approved, queued, completed, failed, rejected or cancelled"
        )
    })
}
