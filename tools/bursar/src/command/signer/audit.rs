//! `bursar signer audit`: list the audit log, have the signer check it, or export it and check the export without a server.
//!
//! An export is one entry per line, as `types::audit::AuditEntry` writes it; everything that is hashed is in it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use proto::signer::v1 as pb;
use types::audit::{AuditEntry, Hash, Head, Verifier};

use crate::client::{self, Connection};
use crate::output::{self, Output};

/// Entries asked for at once, the most the signer gives.
const PAGE: u32 = 1_000;
const REPORT: &str = "bursar.signer.v1.VerifyAuditResponse";

#[derive(Debug, Subcommand)]
pub(super) enum Audit {
    /// Recompute the hash chain: at the signer, or over an exported file without any server
    Verify(Verify),
    /// Write every entry to a file, one JSON object per line, for keeping and for `verify --file`
    Export {
        /// Where to write it; never overwritten
        file: PathBuf,
    },
    /// Print entries, oldest first
    List {
        /// Only entries after this one
        #[arg(long, default_value_t = 0, value_name = "SEQUENCE")]
        after: u64,
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// An exported log; no server is asked
    #[arg(long)]
    file: Option<PathBuf>,
    /// A head noted earlier; must still be part of the log
    #[arg(long, requires = "sequence", value_name = "HASH")]
    expect: Option<String>,
    /// Sequence of that head
    #[arg(long, requires = "expect")]
    sequence: Option<u64>,
}

impl Audit {
    pub(super) async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        match self {
            Self::Verify(verify) => verify.run(connection, out).await,
            Self::Export { file } => export(connection, out, &file).await,
            Self::List { after, limit } => list(connection, out, after, limit).await,
        }
    }
}

impl Verify {
    async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let found = match &self.file {
            Some(file) => self.offline(file)?,
            None => self.online(connection).await?,
        };
        if out.json {
            output::json(REPORT, &found)?;
        }
        if !found.intact {
            bail!("the audit log does not fit from entry {} on: {}", found.first_bad_sequence, found.problem);
        }
        if out.json { Ok(()) } else { output::print(&format!("intact: {} entries", found.entries)) }
    }

    /// Part by part, however long the log is.
    async fn online(&self, connection: &Connection) -> Result<pb::VerifyAuditResponse> {
        let mut client = connection.signer("auditor")?;
        let mut request = pb::VerifyAuditRequest {
            expected_hash: self.expect.clone().unwrap_or_default(),
            expected_sequence: self.sequence.unwrap_or_default(),
            ..Default::default()
        };
        let (began, mut entries) = (std::time::Instant::now(), 0);
        loop {
            let found = client.verify_audit(request.clone()).await?.into_inner();
            entries += found.entries;
            if found.next_sequence == 0 {
                let took = prost_types::Duration::try_from(began.elapsed()).ok();
                return Ok(pb::VerifyAuditResponse { entries, took, ..found });
            }
            (request.after_sequence, request.after_hash) = (found.next_sequence, found.next_hash);
        }
    }

    /// Line by line: an export may be larger than memory.
    fn offline(&self, file: &Path) -> Result<pb::VerifyAuditResponse> {
        let began = std::time::Instant::now();
        let anchor = match (&self.expect, self.sequence) {
            (Some(hash), Some(sequence)) => {
                let hash: Hash = hash.parse().context("--expect: not a hash of 64 hex digits")?;
                Some(Head { sequence, hash })
            }
            _ => None,
        };
        let unreadable = || format!("cannot read {}", file.display());
        let mut verifier = Verifier::new(anchor);
        let mut problem = None;
        for (index, line) in BufReader::new(File::open(file).with_context(unreadable)?).lines().enumerate() {
            let line = line.with_context(unreadable)?;
            let entry: AuditEntry = serde_json::from_str(&line)
                .with_context(|| format!("{}: line {} is no audit entry", file.display(), index + 1))?;
            if let Err(found) = verifier.push(&entry) {
                problem = Some(found);
                break;
            }
        }
        let entries = verifier.head().sequence;
        let problem = problem.or_else(|| verifier.finish(None).err());
        Ok(pb::VerifyAuditResponse {
            intact: problem.is_none(),
            entries,
            first_bad_sequence: problem.as_ref().map_or(0, |found| found.sequence()),
            problem: problem.map(|found| found.to_string()).unwrap_or_default(),
            took: prost_types::Duration::try_from(began.elapsed()).ok(),
            ..Default::default()
        })
    }
}

/// Everything up to what is the end when it gets there. A log that does not fit is exported all the same: it is the evidence.
async fn export(connection: &Connection, out: Output, file: &Path) -> Result<()> {
    let mut client = connection.signer("auditor")?;
    let mut entries = page(&mut client, 0, PAGE).await?;
    let unwritten = || format!("cannot write {}", file.display());
    let created = File::options().write(true).create_new(true).open(file);
    let mut writer = BufWriter::new(created.with_context(|| format!("cannot create {}", file.display()))?);
    let (mut count, mut head) = (0u64, Head::GENESIS);
    while let Some(last) = entries.last().map(|entry| entry.sequence) {
        for received in entries {
            let entry = entry(received)?;
            serde_json::to_writer(&mut writer, &entry).with_context(unwritten)?;
            writer.write_all(b"\n").with_context(unwritten)?;
            count += 1;
            head = Head { sequence: entry.sequence, hash: entry.hash };
        }
        entries = page(&mut client, last, PAGE).await?;
    }
    // The file is on the disk before the export is reported as done.
    writer.flush().and_then(|()| writer.get_ref().sync_all()).with_context(unwritten)?;
    if out.json {
        let answer = serde_json::json!({
            "file": file, "entries": count, "head_sequence": head.sequence, "head_hash": head.hash.to_string(),
        });
        return output::print(&answer.to_string());
    }
    output::print(&format!("{count} entries written to {}", file.display()))?;
    output::print(&format!("head: --sequence {} --expect {}", head.sequence, head.hash))
}

async fn list(connection: &Connection, out: Output, after: u64, limit: usize) -> Result<()> {
    let mut client = connection.signer("auditor")?;
    let mut found: Vec<pb::AuditEntry> = Vec::new();
    while found.len() < limit {
        let size = u32::try_from(limit - found.len()).map_or(PAGE, |left| left.min(PAGE));
        let after = found.last().map_or(after, |last| last.sequence);
        let entries = page(&mut client, after, size).await?;
        if entries.is_empty() {
            break;
        }
        found.extend(entries);
    }
    if out.json {
        return output::json_list("bursar.signer.v1.AuditEntry", &found);
    }
    let rows = found.into_iter().map(|e| [e.sequence.to_string(), e.caller, e.action, e.decision, e.reason]);
    output::table(["#", "CALLER", "ACTION", "DECISION", "REASON"], rows)
}

async fn page(client: &mut client::Signer, after: u64, size: u32) -> Result<Vec<pb::AuditEntry>> {
    let request = pb::ListAuditRequest { after_sequence: after, page_size: size };
    Ok(client.list_audit(request).await?.into_inner().entries)
}

/// An entry as the contract carries it, with everything that its hash covers.
fn entry(received: pb::AuditEntry) -> Result<AuditEntry> {
    let sequence = received.sequence;
    let malformed = || format!("the signer's entry {sequence} is malformed");
    Ok(AuditEntry {
        sequence,
        at: proto::time::datetime(&received.at.with_context(malformed)?).with_context(malformed)?,
        caller: received.caller,
        action: received.action,
        decision: received.decision,
        reason: received.reason,
        detail: received.detail,
        previous_hash: received.previous_hash.parse().with_context(malformed)?,
        hash: received.hash.parse().with_context(malformed)?,
    })
}
