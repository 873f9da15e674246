//! `bursar signer`: make an unseal key, open the seal, look at the signer's state, and check its audit log.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use proto::signer::v1 as pb;

use crate::client::Connection;
use crate::output::{self, Output};
use crate::secrets;

#[derive(Debug, Args)]
pub struct Signer {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a fresh unseal key to a file that only its owner can read
    Init {
        /// Where to write it; never overwritten
        file: PathBuf,
    },
    /// Open the seal of a running signer
    Unseal {
        /// File with the unseal key
        #[arg(long)]
        key_file: PathBuf,
    },
    /// Whether it is sealed or frozen, and the head of its audit log
    Status,
    /// The audit log
    Audit {
        #[command(subcommand)]
        action: Audit,
    },
}

#[derive(Debug, Subcommand)]
enum Audit {
    /// Recompute the hash chain
    Verify {
        /// A head noted earlier; must still be part of the log
        #[arg(long, requires = "sequence")]
        expect: Option<String>,
        /// Sequence of that head
        #[arg(long, requires = "expect")]
        sequence: Option<u64>,
    },
    /// Print entries
    List {
        #[arg(long, default_value_t = 0)]
        after: u64,
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

impl Signer {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        match self.action {
            Action::Init { file } => {
                secrets::write_new(&file, &secrets::random_hex())?;
                output::print(&format!(
                    "unseal key written to {}; keep a copy where no server can reach it",
                    file.display()
                ))
            }
            Action::Unseal { key_file } => {
                let key = std::fs::read_to_string(&key_file)
                    .with_context(|| format!("cannot read {}", key_file.display()))?;
                let mut client = connection.signer("operator")?;
                let request = pb::UnsealRequest { unseal_key: key.trim().to_owned() };
                let groups = client.unseal(request).await?.into_inner().groups;
                output::print(&format!("unsealed; {groups} wallet group(s) can be used"))
            }
            Action::Status => {
                let mut client = connection.signer("auditor")?;
                let status = client.get_status(pb::GetStatusRequest {}).await?.into_inner();
                if out.json {
                    return output::json("bursar.signer.v1.GetStatusResponse", &status);
                }
                let frozen = if status.frozen_chains.is_empty() {
                    "nothing".into()
                } else {
                    status.frozen_chains.join(", ")
                };
                output::fields(&[
                    ("sealed", status.sealed.to_string()),
                    ("frozen", frozen),
                    ("audit entries", status.audit_length.to_string()),
                    ("audit head", status.audit_head),
                ])
            }
            Action::Audit { action: Audit::Verify { expect, sequence } } => {
                verify(connection, out, expect, sequence).await
            }
            Action::Audit { action: Audit::List { after, limit } } => {
                let mut client = connection.signer("auditor")?;
                let request = pb::ListAuditRequest { after_sequence: after, page_size: limit };
                let entries = client.list_audit(request).await?.into_inner().entries;
                if out.json {
                    return output::json_list("bursar.signer.v1.AuditEntry", &entries);
                }
                let rows = entries.iter().map(|e| {
                    [
                        e.sequence.to_string(),
                        e.caller.clone(),
                        e.action.clone(),
                        e.decision.clone(),
                        e.reason.clone(),
                    ]
                });
                output::table(["#", "CALLER", "ACTION", "DECISION", "REASON"], rows)
            }
        }
    }
}

async fn verify(
    connection: &Connection,
    out: Output,
    expect: Option<String>,
    sequence: Option<u64>,
) -> Result<()> {
    let mut client = connection.signer("auditor")?;
    let request = pb::VerifyAuditRequest {
        expected_hash: expect.unwrap_or_default(),
        expected_sequence: sequence.unwrap_or_default(),
    };
    let found = client.verify_audit(request).await?.into_inner();
    if out.json {
        output::json("bursar.signer.v1.VerifyAuditResponse", &found)?;
    }
    if !found.intact {
        bail!("the audit log does not fit from entry {} on: {}", found.first_bad_sequence, found.problem);
    }
    if out.json { Ok(()) } else { output::print(&format!("intact: {} entries", found.entries)) }
}
