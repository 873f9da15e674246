//! `bursar import`: takes over withdrawals that another system has broadcast and not finished.
//!
//! Input is JSON, one object per line, with the columns of the old tables: `id, user_id, chain, asset, amount, to_address,
//! from_address, tx_hash, status, created_at`. Rows without a hash, and rows that are finished, are told and left out:
//! without a hash nothing was sent, and such a request belongs into `bursar withdraw create`.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use proto::intent::v1 as pb;
use serde::Deserialize;

use crate::client::Connection;
use crate::output::{self, Output};

#[derive(Debug, Args)]
pub struct Import {
    /// File of JSON lines; `-` for standard input
    file: PathBuf,
}

/// A row of the old `withdrawal_requests`, with the sending wallet's address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    user_id: String,
    chain: String,
    asset: String,
    amount: String,
    to_address: String,
    #[serde(default)]
    from_address: String,
    #[serde(default)]
    tx_hash: Option<String>,
    status: String,
    created_at: DateTime<Utc>,
}

impl Row {
    /// Why a row is none of ours.
    fn left_out(&self) -> Option<&'static str> {
        match (self.status.as_str(), self.tx_hash.as_deref()) {
            ("completed" | "failed", _) => Some("finished"),
            (_, None | Some("")) => Some("no hash: nothing was sent"),
            _ => None,
        }
    }
}

impl Import {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let rows = self.read()?;
        let mut client = connection.intent("operator")?;
        let (mut taken, mut refused) = (0, 0);
        for (line, row) in &rows {
            let (result, detail) = match row.left_out() {
                Some(why) => ("left out", why.to_owned()),
                None => match client.import_withdrawal(request(row)).await {
                    Ok(_) => {
                        taken += 1;
                        ("watching", row.tx_hash.clone().unwrap_or_default())
                    }
                    Err(status) => {
                        refused += 1;
                        ("refused", status.message().to_owned())
                    }
                },
            };
            if out.json {
                output::print(
                    &serde_json::json!({"line": line, "id": row.id, "result": result, "detail": detail})
                        .to_string(),
                )?;
            } else {
                output::print(&format!("{:<9} {}  {detail}", result, row.id))?;
            }
        }
        if refused > 0 {
            bail!("{refused} of {} rows refused, {taken} taken; running it again is harmless", rows.len());
        }
        Ok(())
    }

    /// Every line is read before the first is sent: a file with a mistake changes nothing.
    fn read(&self) -> Result<Vec<(usize, Row)>> {
        let reader: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            let file = std::fs::File::open(&self.file)
                .with_context(|| format!("cannot read {}", self.file.display()))?;
            Box::new(std::io::BufReader::new(file))
        };
        let mut rows = Vec::new();
        for (index, line) in reader.lines().enumerate() {
            let line = line?;
            if !line.trim().is_empty() {
                rows.push((
                    index + 1,
                    serde_json::from_str(&line).with_context(|| format!("line {}", index + 1))?,
                ));
            }
        }
        Ok(rows)
    }
}

fn request(row: &Row) -> pb::ImportWithdrawalRequest {
    pb::ImportWithdrawalRequest {
        id: row.id.clone(),
        user_id: row.user_id.clone(),
        chain: row.chain.clone(),
        asset: row.asset.clone(),
        amount: row.amount.clone(),
        destination: row.to_address.clone(),
        from_address: row.from_address.clone(),
        tx_hash: row.tx_hash.clone().unwrap_or_default(),
        created_at: Some(proto::time::timestamp(row.created_at)),
    }
}
