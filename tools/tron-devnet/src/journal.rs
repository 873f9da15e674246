//! A file with one line for each change of the chain, so that a network that is started again on it continues where it was.
//!
//! Blocks are written with the bytes of their transactions and built again from them: the same bytes on the same world give the same
//! ids. Pools, faults and the settings of nodes are not kept.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::network::{Network, Setup};
use crate::order::Order;
use crate::wire::SignedTx;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum JournalEntry {
    /// Always the first line.
    Genesis {
        genesis_ms: i64,
        slot_ms: i64,
        solid_lag: u64,
    },
    /// A block by its time and the bytes of its transactions.
    Block(i64, Vec<String>),
    /// The number of newest blocks that were undone.
    Undone(u64),
    Order(Order),
}

#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Opens the file and the network it describes; a new file begins a new network.
    pub fn open(path: &Path, setup: Setup) -> Result<Network> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let (entries, whole) = read(&file).with_context(|| format!("cannot read {}", path.display()))?;
        // A line that a crash cut short is dropped; nobody has seen its effect.
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        let mut entries = entries.into_iter();
        let mut network = match entries.next() {
            None => {
                let mut network = Network::new(setup);
                network.start_journal(Self { file })?;
                return Ok(network);
            }
            Some(JournalEntry::Genesis { genesis_ms, slot_ms, solid_lag }) => {
                let same = slot_ms == setup.slot_ms && solid_lag == setup.solid_lag;
                ensure!(
                    same,
                    "this network has slots of {slot_ms} ms and {solid_lag} blocks until one is solid"
                );
                Network::new(Setup { genesis_ms: Some(genesis_ms), ..setup })
            }
            Some(_) => bail!("the first line does not say how the network began"),
        };
        for entry in entries {
            replay(&mut network, entry)?;
        }
        network.resume(Self { file });
        Ok(network)
    }

    pub(crate) fn write(&mut self, entry: &JournalEntry) -> Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        Ok(self.file.write_all(&line)?)
    }
}

fn read(file: &File) -> Result<(Vec<JournalEntry>, u64)> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let (mut entries, mut whole, mut line) = (Vec::new(), 0, String::new());
    loop {
        line.clear();
        let read = reader.read_line(&mut line)?;
        if read == 0 || !line.ends_with('\n') {
            return Ok((entries, whole));
        }
        entries.push(serde_json::from_str(&line).with_context(|| format!("line {}", entries.len() + 1))?);
        whole += u64::try_from(read)?;
    }
}

fn replay(network: &mut Network, entry: JournalEntry) -> Result<()> {
    match entry {
        JournalEntry::Genesis { .. } => bail!("a network begins once"),
        JournalEntry::Block(timestamp_ms, transactions) => {
            let decode = |text: &String| Ok(Arc::new(SignedTx::decode(&hex::decode(text)?)?));
            let offered = transactions.iter().map(decode).collect::<Result<Vec<_>>>()?;
            let (height, count) = (network.chain.head().number + 1, offered.len());
            network.rebuild(timestamp_ms, offered);
            let taken = network.chain.head().transactions.len();
            ensure!(taken == count, "block {height} held {count} transactions and now takes {taken}");
        }
        JournalEntry::Undone(depth) => {
            network.chain.undo(depth).context("a solid block was undone")?;
        }
        JournalEntry::Order(order) => {
            order.apply(network).map_err(anyhow::Error::msg)?;
        }
    }
    Ok(())
}
