//! `bursar signer`: make an unseal key, open the seal, look at the signer's state, and check its audit log.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use proto::signer::v1 as pb;
use serde_json::json;

use crate::client::Connection;
use crate::output::{self, Output};
use crate::secrets;

mod audit;

#[derive(Debug, Args)]
pub struct Signer {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a fresh unseal key to a file that only its owner can read
    Init {
        /// Where to write it; never overwritten. By default the local stack's, which is kept if it is there, or unseal.key
        file: Option<PathBuf>,
    },
    /// Open the seal of a running signer
    Unseal {
        /// File with the unseal key; by default the local stack's
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Whether it is sealed or frozen, and the head of its audit log
    Status,
    /// The audit log
    Audit {
        #[command(subcommand)]
        action: audit::Audit,
    },
}

impl Signer {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        match self.action {
            Action::Init { file } => init(connection, out, file),
            Action::Unseal { key_file } => unseal(connection, out, key_file).await,
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
            Action::Audit { action } => action.run(connection, out).await,
        }
    }
}

fn init(connection: &Connection, out: Output, file: Option<PathBuf>) -> Result<()> {
    let (file, keep) = match (file, connection.unseal_key_file()) {
        (Some(file), _) => (file, false),
        // A stack has made its own when it started; without it nothing that it sealed could be opened again.
        (None, Some(file)) => {
            let keep = file.exists();
            (file, keep)
        }
        (None, None) => (PathBuf::from("unseal.key"), false),
    };
    if !keep {
        secrets::write_new(&file, &secrets::random_hex())?;
    }
    if out.json {
        return output::print(&json!({ "file": file, "created": !keep }).to_string());
    }
    let file = file.display();
    output::print(&if keep {
        format!("the stack's unseal key is kept: {file}")
    } else {
        format!("unseal key written to {file}; keep a copy where no server can reach it")
    })
}

async fn unseal(connection: &Connection, out: Output, file: Option<PathBuf>) -> Result<()> {
    let file = file.or_else(|| connection.unseal_key_file());
    let file =
        file.context("name the file of the unseal key with --key-file; only a local stack's is known")?;
    let key = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut client = connection.signer("operator")?;
    let request = pb::UnsealRequest { unseal_key: key.trim().to_owned() };
    let answer = client.unseal(request).await?.into_inner();
    if out.json {
        return output::json("bursar.signer.v1.UnsealResponse", &answer);
    }
    output::print(&format!("unsealed; {} wallet group(s) can be used", answer.groups))
}
